"""What a filter names goes while it is watched, and comes again: told, and followed."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys

import pytest
from agent_process import FREE, Agent
from latprof_agent import netns
from latprof_agent.lab.interface import prepare_namespace
from latprof_agent.probes.cgroup import cgroup2_mount
from latprof_process import Latprof
from recording import wait_until

MESSAGES = 20
SIZE = 100
# One process that is both ends; it tells its port.
TALK = f"""
import socket
listening = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listening.getsockname())
server, _ = listening.accept()
for _ in range({MESSAGES}):
    client.sendall(bytes({SIZE}))
    server.recv({SIZE}, socket.MSG_WAITALL)
print(listening.getsockname()[1])
"""


def talk(*before):
    """Let a process talk to itself; the port of its server."""
    return int(subprocess.check_output([*before, sys.executable, "-c", TALK]))


class Namespace:
    """A network namespace, by its name."""

    def __init__(self):
        self.name = f"latprof-{secrets.token_hex(4)}"
        self.word = f"netns={self.name}"

    def make(self):
        netns.create(self.name)
        netns.run_in(self.name, prepare_namespace)

    def remove(self):
        netns.remove(self.name)

    def talk(self):
        return talk("ip", "netns", "exec", self.name)


class ControlGroup:
    """A control group, by its path."""

    def __init__(self):
        mount = cgroup2_mount()
        assert mount
        self.path = mount / f"test-{secrets.token_hex(4)}"
        self.word = f"cgroup={self.path.name}"

    def make(self):
        self.path.mkdir()

    def remove(self):
        self.path.rmdir()

    def talk(self):
        return talk("sh", "-c", f'echo $$ >{self.path}/cgroup.procs; exec "$@"', "sh")


@pytest.fixture(params=[Namespace, ControlGroup])
def place(request):
    place = request.param()
    place.make()
    yield place
    place.remove()


@pytest.fixture
def agent(place):
    kind, _, name = place.word.partition("=")
    agent = Agent(*FREE, "--max-overhead", "none", f"--{kind}", name)
    yield agent
    if agent.process.poll() is None:
        agent.process.kill()
        agent.process.communicate()


def counted(agent, port):
    """Messages sent by the client of this port."""
    start = "latprof_messages_total{"
    wanted = ('direction="sent"', 'role="client"', f'service="{port}"')
    lines = [x for x in agent.get().splitlines() if x.startswith(start)]
    return sum(
        float(x.split()[-1]) for x in lines if all(label in x for label in wanted)
    )


def test_an_agent_follows_a_name_and_tells_of_it(place, agent):
    port = place.talk()
    wait_until(lambda: counted(agent, port) == MESSAGES, "counted")
    assert agent.metric("latprof_filter_gone") == 0

    place.remove()
    assert agent.next_line() == (
        f"latprof: {place.word}: it is gone; what comes in its place is watched again"
    )
    wait_until(lambda: agent.metric("latprof_filter_gone") == 1, "told by the metric")

    place.make()
    assert agent.next_line() == f"latprof: {place.word}: it is there again"
    port = place.talk()
    wait_until(lambda: counted(agent, port) == MESSAGES, "counted again")
    assert agent.metric("latprof_filter_gone") == 0
    assert agent.end() == 0
    assert agent.err == ""


@pytest.mark.thorough
def test_a_process_that_ends_is_told_and_watching_goes_on():
    with subprocess.Popen(["sleep", "1000"]) as watched:
        pid = str(watched.pid)
        watch = Latprof("watch", "--json", "--interval", "200ms", "--pid", pid)
        try:
            document = json.loads(watch.process.stdout.readline())
            assert document["gone"] == []
            watched.kill()
            watched.wait()
            line = watch.process.stderr.readline().decode()
            watch.signal(signal.SIGINT)
            assert watch.finish() == 0, watch.err
        finally:
            watched.kill()
            watch.process.kill()
    assert line == (
        f"latprof: pid={pid}: it has ended; its descendants are watched as before\n"
    )
    assert json.loads(watch.out.splitlines()[-1])["gone"] == [f"pid={pid}"]
    assert watch.left() == []
