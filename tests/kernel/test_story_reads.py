"""Stories of messages that a busy reader came to late: whom they were behind."""

from __future__ import annotations

import shutil
import sys

import numpy as np
import pytest
from free_ports import free_port
from latprof_process import run
from told_stories import told_of

pytestmark = pytest.mark.timed

MS = 1_000_000
CLIENTS, EACH_MS = 50, 5

# Serves who is there one by one, computing for each; says in which order. Whatever else
# runs does not take its CPU: it would be told of instead.
SERVER = """
import os, socket, sys, time
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
port, clients, each, size, times = map(int, sys.argv[1:])
s = socket.create_server(("127.0.0.1", port), backlog=clients)
print("listening", flush=True)
found = [s.accept()[0] for _ in range(clients)]
sys.stdin.readline()  # all have sent
for n in range(times):
    for one in found:
        got = one.recv(size + (found.index(one) if times == 1 else 0))
        until = time.thread_time() + each / 1000
        while time.thread_time() < until:
            pass
        one.sendall(b"x")
        print(one.getpeername()[1], n, flush=True)
"""

# One process with all clients, each of which sends its messages at once.
CLIENT = """
import socket, subprocess, sys, time
server = subprocess.Popen(
    [sys.executable, "-c", *sys.argv[2:]], stdin=subprocess.PIPE,
    stdout=subprocess.PIPE, text=True,
)
port, clients, each, size, times = map(int, sys.argv[3:])
server.stdout.readline()
found = [socket.create_connection(("127.0.0.1", port)) for _ in range(clients)]
for n in range(times):
    for k, one in enumerate(found):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.sendall(bytes(size + (k if times == 1 else 0)))
time.sleep(0.01)
server.stdin.write("\\n")
server.stdin.flush()
for one in found:
    got = 0
    while got < times:
        got += len(one.recv(times))
with open(sys.argv[1], "w") as said:
    said.write(server.stdout.read())
server.wait()
"""


def served(out, clients, size, times, limit):
    """Stories by the order in which a server of known speed came to their messages."""
    port = free_port()
    said = out.with_name("served")
    numbers = port, clients, EACH_MS, size, times
    command = (sys.executable, "-c", CLIENT, said, SERVER, *numbers)
    document, _ = told_of(out, *command, limit=limit)
    order = [tuple(map(int, line.split())) for line in said.open()]
    assert len(order) == clients * times
    stories = [
        story
        for story in document["stories"]
        if story["message"]["destination_port"] == port
    ]
    return stories, order


@pytest.mark.thorough
def test_the_kth_of_many_clients_is_behind_all_before(tmp_path):
    stories, order = served(tmp_path / "run", CLIENTS, 100, 1, "20ms")
    places = {port: k for k, (port, _) in enumerate(order)}
    # those that the server came to after 20 ms
    assert len(stories) >= CLIENTS - 20 // EACH_MS - 1
    right = 0
    for story in stories:
        k = places[story["message"]["source_port"]]
        stage = story["stages"]["receive_queue"]
        reads = stage["reads"]
        assert reads["complete"]
        assert reads["messages"] == k
        assert reads["bytes"] == sum(100 + i for i in range(k))
        if not k:
            continue
        (sender,) = reads["senders"]
        assert sender["pid"] == story["message"]["sender_pid"]
        assert (sender["flows"], sender["own"]) == (k, False)
        assert sender["time_ns"] >= 0.98 * k * EACH_MS * MS
        assert sender["time_ns"] <= stage["time_ns"]
        right += sender["time_ns"] < 1.2 * k * EACH_MS * MS + 2 * MS
    assert right >= 0.95 * len(stories)
    last = f"--message={100 + CLIENTS - 1}"
    text = run("story", str(tmp_path / "run"), last).out
    assert f"behind {CLIENTS - 1} messages of " in text.splitlines()[0]


def test_the_kth_of_one_client_is_behind_its_own_earlier_ones(tmp_path):
    stories, order = served(tmp_path / "run", 1, 100, 20, "20ms")
    assert [n for _, n in order] == [*range(20)]
    assert len(stories) >= 20 - 20 // EACH_MS - 1
    for story in stories:
        k = story["message"]["sequence"] // 100 - 1
        reads = story["stages"]["receive_queue"]["reads"]
        assert (reads["messages"], reads["bytes"]) == (k, 100 * k)
        (sender,) = reads["senders"]
        assert sender["own"]
        assert sender["time_ns"] >= 0.98 * k * EACH_MS * MS
    text = run("story", str(tmp_path / "run"), "--message=2000").out
    assert "behind 19 messages of 1.9 kB of its own flow" in text.splitlines()[0]


def test_clients_of_redis_are_told_whose_command_they_were_behind(tmp_path):
    if not shutil.which("redis-server"):
        pytest.skip("needs redis-server")
    port = free_port()
    script = (
        f"chrt -f 10 redis-server --port {port} --save '' --enable-debug-command yes"
        f" >/dev/null &"
        f" until redis-cli -p {port} ping >/dev/null 2>&1; do :; done;"
        f" redis-cli -p {port} debug populate 1000000 >/dev/null;"
        f" redis-benchmark -p {port} -n 300000 -c 20 -t get -q >/dev/null &"
        f" sleep 0.5; for i in 1 2 3; do"
        f" redis-cli -p {port} keys '*no*' >/dev/null; done;"
        f" wait %2; redis-cli -p {port} shutdown nosave"
    )
    document, _ = told_of(tmp_path / "run", "bash", "-c", script, limit="50ms")
    stages = [
        story["stages"]["receive_queue"]
        for story in document["stories"]
        if story["message"]["reader_comm"] == "redis-server"
        and story["message"]["sender_comm"] == "redis-benchmark"
    ]
    assert len(stages) >= 2 * 20, document["slow_messages"]
    busy = [of for of in stages if of["parts"][0]["kind"] == "busy"]
    assert len(busy) >= 0.95 * len(stages)
    culprits = [of["reads"]["senders"][0] for of in busy]
    right = [one for one in culprits if one["comm"] == "redis-cli"]
    assert len(right) >= 0.95 * len(busy), culprits
    shares = [of["reads"]["senders"][0]["time_ns"] / of["time_ns"] for of in busy]
    assert np.median(shares) > 0.9
    assert {one["messages"] for one in right} == {1}
    told = run("story", str(tmp_path / "run"), "--slowest=100").out.splitlines()
    at_server = [line for line in told if " which was busy" in line]
    named = [line for line in at_server if "redis-cli (pid " in line]
    assert len(named) >= 0.95 * len(busy)


def test_a_client_that_is_alone_is_behind_nobody(tmp_path):
    """Slow because the server waits for a word from elsewhere."""
    stories, _ = served(tmp_path / "run", 1, 100, 1, "5ms")
    assert len(stories) == 1
    assert stories[0]["stages"]["receive_queue"]["reads"]["senders"] == []
    assert "behind" not in run("story", str(tmp_path / "run")).out
