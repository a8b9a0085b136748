"""Traffic of pods by their names: real control groups, and a runtime of them."""

from __future__ import annotations

import json
import re
import secrets
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack

import pytest
from agent_process import Agent
from fake_runtime import FakeRuntime, container, sandbox
from latprof_agent.containers.runtime import list_containers
from latprof_agent.errors import ContainerError
from latprof_agent.probes.cgroup import cgroup2_mount
from latprof_process import Latprof
from recording import wait_until
from test_exchanges import need

# In the control group of its argument, it asks itself as often as it reads.
TALKER = """
import os, socket, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
with socket.create_server(("127.0.0.1", 0)) as server:
    client = socket.create_connection(server.getsockname())
    served, _ = server.accept()
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        client.sendall(b"question")
        served.sendall(served.recv(100))
        client.recv(100)
    print("done", flush=True)
"""
# By container, as its pod and it are called: how often it asks itself, and how many
# messages these are.
ASKED = {("web-1", "nginx"): 11, ("web-1", "logger"): 23, ("web-2", "nginx"): 42}


class Talkers:
    """Containers in control groups as containerd has them, and their runtime."""

    def __init__(self, folder, stack):
        uids = {
            pod: f"{secrets.token_hex(4)}-1111-2222-3333-{12 * '4'}" for pod in PODS
        }
        self.runtime = stack.enter_context(FakeRuntime(folder / "containerd.sock"))
        self.runtime.path.chmod(0o660)
        top = cgroup2_mount() / f"kubepods-test{secrets.token_hex(4)}.slice"
        stack.callback(remove, top)
        self.processes = {}
        for pod, uid in uids.items():
            made = sandbox(secrets.token_hex(32), pod, "shop", uid, app="web")
            self.runtime.pods.append(made)
            for name in (name for of, name in ASKED if of == pod):
                id_ = secrets.token_hex(32)
                own = made[2:66].decode()
                self.runtime.containers.append(container(id_, own, name))
                group = top / f"kubepods-pod{uid.replace('-', '_')}.slice"
                self.start(stack, pod, name, group / f"cri-containerd-{id_}.scope")

    def start(self, stack, pod, name, group):
        group.mkdir(parents=True)
        pipe = subprocess.PIPE
        words = [sys.executable, "-c", TALKER, group]
        process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
        stack.callback(process.communicate)
        assert process.stdout.readline() == "ready\n"
        self.processes[pod, name] = process

    def talk(self):
        for key, process in self.processes.items():
            process.stdin.write(f"{ASKED[key]}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"


MESSAGES = {key: 2 * n for key, n in ASKED.items()}
PODS = sorted({pod for pod, _ in ASKED})
EXPECTED = {
    "pod": {
        f"tcp shop/{pod}": sum(n for (of, _), n in MESSAGES.items() if of == pod)
        for pod in PODS
    },
    "container": {f"tcp shop/{pod}/{name}": n for (pod, name), n in MESSAGES.items()},
    "workload": {"tcp shop/web": sum(MESSAGES.values())},
}


def remove(top):
    groups = [p for p in top.rglob("*") if p.is_dir()]
    for group in [*sorted(groups, key=lambda p: -len(p.parts)), top]:
        group.rmdir()


@pytest.fixture
def talkers(tmp_path):
    with ExitStack() as stack:
        yield Talkers(tmp_path, stack)


@pytest.mark.thorough
@pytest.mark.parametrize("by", EXPECTED)
def test_watch_counts_messages_under_the_names_of_the_runtime(talkers, by):
    options = ("--json", "--interval", "500ms", "--max-overhead", "none", "--by", by)
    watch = Latprof("watch", *options, "--runtime", f"unix://{talkers.runtime.path}")
    found = Counter()
    try:
        told = watch.process.stdout.readline()  # it measures
        talkers.talk()
        watch.signal(signal.SIGINT)
        told += watch.process.stdout.read()
        assert watch.finish() == 0, watch.err
    finally:
        watch.process.kill()
    for document in map(json.loads, told.splitlines()):
        for group in document["groups"]:
            found[group["name"]] += group["messages"]
    assert {n: found[n] for n in found if " shop/" in n} == EXPECTED[by]


@pytest.mark.thorough
def test_the_agents_child_asks_where_the_agent_itself_may_not(talkers):
    options = ("--max-overhead", "none", "--by", "container,workload")
    agent = Agent(
        *("--listen", "127.0.0.1:0", *options),
        *("--runtime", str(talkers.runtime.path)),
    )
    try:
        talkers.talk()
        for (pod, name), n in MESSAGES.items():
            labels = {
                "container": name,
                "namespace": "shop",
                "pod": pod,
                "protocol": "tcp",
            }
            labels |= {"direction": "sent", "workload": "web"}

            def counted(wanted=labels, expected=n):
                for line in agent.get().splitlines():
                    name, _, rest = line.partition("{")
                    found = dict(re.findall(r'(\w+)="([^"]*)"', rest))
                    if name == "latprof_messages_total" and found == wanted:
                        return float(line.split()[-1]) == expected
                return False

            wait_until(counted, f"messages of {name} in {pod}", pause_seconds=0.2)
        assert agent.end() == 0
        assert agent.err == ""
    finally:
        agent.process.kill()


# Its own places, and no shared folder for volumes.
CONTAINERD = """
version = 2
root = "{0}/root"
state = "{0}/state"
[grpc]
  address = "{0}/containerd.sock"
[ttrpc]
  address = "{0}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  disable_tcp_service = true
"""


@pytest.mark.thorough
def test_containerd_itself_answers_both_lists(tmp_path):
    """It has none; that it takes these calls as its own clients' is the point."""
    need("containerd")
    settings, log = tmp_path / "config.toml", tmp_path / "log"
    settings.write_text(CONTAINERD.format(tmp_path))
    with log.open("wb") as written:
        words = ["containerd", "--config", settings]
        process = subprocess.Popen(words, stdout=written, stderr=written)
    try:
        wait_until(lambda: "successfully booted" in log.read_text(), "containerd")
        assert list_containers(tmp_path / "containerd.sock") == []
        with pytest.raises(ContainerError, match="cannot ask "):
            list_containers(tmp_path / "containerd.sock.ttrpc")
    finally:
        process.terminate()
        process.wait()
