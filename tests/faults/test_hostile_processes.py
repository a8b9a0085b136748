"""A process and a control group with hostile names, told by watch and agent."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys

import pytest
from agent_process import FREE, Agent
from latprof_agent.probes.cgroup import cgroup2_mount
from latprof_agent.service.metrics.families import label_value
from latprof_process import run, screen_of
from prometheus_client.parser import text_string_to_metric_families
from recording import wait_until

COMM = b'\x1b[2J"\\\n{}\xff\x9b1m'  # 13 of 15 bytes
SHOWN = COMM.decode(errors="backslashreplace")
# The kernel refuses a newline here.
GROUP = b'\x1b]0;t\x07"\\{}\xff'
BY = ("--by", "comm,cgroup", "--max-overhead", "none")
TALK = f"""
import ctypes, socket, time
ctypes.CDLL(None).prctl(15, {COMM!r})
listening = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listening.getsockname())
server, _ = listening.accept()
print(listening.getsockname()[1], flush=True)
while True:
    client.sendall(b"x")
    server.recv(1)
    time.sleep(0.01)  # it is slow
"""


@pytest.fixture(scope="module")
def group():
    """The name of a control group, as the kernel has it."""
    mount = cgroup2_mount()
    assert mount
    name = GROUP + secrets.token_hex(4).encode()
    path = os.fsencode(mount) + b"/" + name
    os.mkdir(path)  # noqa: PTH102
    yield name
    os.rmdir(path)  # noqa: PTH106


@pytest.fixture(scope="module")
def port(group):
    """Of a server in a process of that name, in that group."""
    procs = os.fsencode(cgroup2_mount() or "") + b"/" + group + b"/cgroup.procs"
    script = b'echo $$ >"$0"; exec "$@"'
    words = [b"sh", b"-c", script, procs, os.fsencode(sys.executable), b"-c"]
    talking = subprocess.Popen([*words, TALK.encode()], stdout=subprocess.PIPE)
    yield talking.stdout.readline().decode().strip()
    talking.kill()
    talking.communicate()


def assert_plain(text):
    odd = {c for c in text.replace("\n", "") if not c.isprintable()}
    assert not odd


@pytest.mark.thorough
def test_json_has_the_names_as_they_are(port, group):
    watch = run("watch", "--once", "--json", "--interval", "1s", *BY, "--port", port)

    assert watch.process.returncode == 0, watch.err
    assert watch.out.isascii()
    assert_plain(watch.out + watch.err)
    (found,) = json.loads(watch.out)["groups"]
    assert found["name"].isprintable()
    assert found["group"]["comm"] == SHOWN
    assert os.fsencode(found["group"]["cgroup"]) == b"/" + group


@pytest.mark.thorough
@pytest.mark.parametrize("columns", [80, 300])
def test_blocks_on_a_terminal_have_nothing_that_acts(port, columns):
    words = ("watch", "--once", "--interval", "1s", *BY, "--port", port)
    status, lines = screen_of(*words, columns=columns)

    assert status == 0
    assert any("[2J" in line for line in lines)
    for line in lines:
        assert_plain(line)


@pytest.mark.thorough
def test_metrics_have_the_names_escaped(port, group):
    agent = Agent(*FREE, *BY, "--port", port)
    try:
        text = wait_until(
            lambda: "latprof_messages_total{" in (text := agent.get()) and text,
            "counted",
        )
        assert agent.end() == 0
        assert agent.err == ""
    finally:
        agent.process.kill()
    assert_plain(text)
    found = {
        sample.labels["comm"]: sample.labels["cgroup"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "latprof_messages_total"
    }
    path = os.fsdecode(b"/" + group)
    assert found == {label_value(SHOWN): label_value(path)}
    if promtool := shutil.which("promtool"):
        words = [promtool, "check", "metrics"]
        checked = subprocess.run(
            words, input=text.encode(), capture_output=True, check=False
        )
        assert (checked.returncode, checked.stderr) == (0, b"")
