"""A process has one name, its first thread's, and from an exec on another."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter

import pandas as pd
from latprof_process import Latprof, run

ROUNDS, ASK, REPLY, THREADS = 25, 60, 90, 4

NAMED = f"""
import os, socket, sys, threading
def name(text, of="self"):
    open(f"/proc/{{of}}/comm", "w").write(text)
def ask(s):
    for _ in range({ROUNDS}):
        s.send(bytes({ASK}))
        assert len(s.recv({REPLY}, socket.MSG_WAITALL)) == {REPLY}
def serve(l, number):
    name(f"pool-worker-{{number}}", "thread-self")
    s, _ = l.accept()
    while s.recv({ASK}, socket.MSG_WAITALL):
        s.send(bytes({REPLY}))
def call(to):
    name("caller", "thread-self")
    ask(socket.create_connection(("127.0.0.1", to)))
def all_of(act, *arguments):
    threads = [threading.Thread(target=act, args=a) for a in zip(*arguments)]
    [t.start() for t in threads]
    [t.join() for t in threads]
"""

OF_THREADS = f"""
{NAMED}
l = socket.create_server(("127.0.0.1", 0), backlog=64)
to = l.getsockname()[1]
if not (child := os.fork()):
    name("myserver")
    all_of(serve, [l] * {THREADS}, range({THREADS}))
    os._exit(0)
l.close()
name("myclient")
all_of(call, [to] * {THREADS})
os.waitpid(child, 0)
"""

# the second program goes on with the first one's connection
OF_EXEC = f"""
{NAMED}
if len(sys.argv) > 1:
    name("second")
    ask(socket.socket(fileno=int(sys.argv[1])))
    sys.exit()
l = socket.create_server(("127.0.0.1", 0))
to = l.getsockname()[1]
if not os.fork():
    name("myserver")
    all_of(serve, [l], [0])
    os._exit(0)
l.close()
name("first")
s = socket.create_connection(("127.0.0.1", to))
ask(s)
s.set_inheritable(True)
os.execv(sys.executable, [sys.executable, sys.orig_argv[1], str(s.fileno())])
"""


def ran(program, folder):
    script = folder / "program.py"
    script.write_text(program)
    words = ("run", "--quiet", "--no-lab", "--protocol", "tcp", "--out")
    latprof = run(*words, str(folder / "run"), "--", sys.executable, str(script))
    assert latprof.process.returncode == 0, latprof.err
    return [pd.read_csv(folder / "run" / f"{t}.csv") for t in ("messages", "exchanges")]


def test_threads_have_the_name_of_their_process(tmp_path):
    messages, exchanges = ran(OF_THREADS, tmp_path)

    each = THREADS * ROUNDS
    assert Counter(messages["sender_comm"]) == {"myclient": each, "myserver": each}
    assert Counter(messages["reader_comm"]) == {"myclient": each, "myserver": each}
    (way,) = set(exchanges["way"])
    assert way.startswith("myclient -> myserver:")
    assert set(messages[messages["size_bytes"] == ASK]["way"]) == {way}
    assert set(exchanges["server_comm"]) == {"myserver"}
    assert len(exchanges) == each


def test_which_thread_of_the_process_read_stands_beside_it(tmp_path):
    messages, _ = ran(OF_THREADS, tmp_path)

    asked = messages[messages["size_bytes"] == ASK]
    workers = {f"pool-worker-{number}" for number in range(THREADS)}
    assert set(asked["reader_thread_comm"]) <= workers
    # each connection has one
    assert (asked.groupby("source_port")["reader_thread"].nunique() == 1).all()
    assert asked.groupby("reader_thread")["reader_thread_comm"].nunique().eq(1).all()
    assert not (asked["reader_thread"] == asked["reader_pid"]).any()
    assert set(messages[messages["size_bytes"] == REPLY]["reader_thread_comm"]) == {
        "caller"
    }


def test_a_first_thread_has_the_name_of_its_process(tmp_path):
    messages, _ = ran(OF_EXEC, tmp_path)

    told = messages[messages["size_bytes"] == REPLY]
    assert (told["reader_thread"] == told["reader_pid"]).all()
    assert (told["reader_thread_comm"] == told["reader_comm"]).all()


def test_an_exec_changes_the_name_from_then_on_in_both_tables(tmp_path):
    messages, exchanges = ran(OF_EXEC, tmp_path)

    asked = messages[messages["size_bytes"] == ASK].sort_values("send_ns")
    names = ["first"] * ROUNDS + ["second"] * ROUNDS
    assert list(asked["sender_comm"]) == names
    assert asked["sender_pid"].nunique() == 1
    told = messages[messages["size_bytes"] == REPLY].sort_values("read_ns")
    assert list(told["reader_comm"]) == names
    exchanges = exchanges.sort_values("request_sent_ns")
    assert list(exchanges["client_comm"]) == names
    for table in (asked, exchanges):
        ways = [way.split(":")[0] for way in table["way"]]
        assert ways == [f"{name} -> myserver" for name in names]


def test_groups_by_comm_are_of_processes(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(OF_THREADS)
    options = ("--by", "comm", "--interval", "500ms", "--max-overhead", "none")
    watch = Latprof("watch", "--json", *options)
    try:
        watch.process.stdout.readline()  # it measures
        subprocess.run([sys.executable, script], check=True)
        watch.signal(signal.SIGINT)
        assert watch.finish() == 0, watch.err
    finally:
        watch.process.kill()
    documents = [json.loads(line) for line in watch.out.splitlines()]
    groups = {group["name"] for told in documents for group in told["groups"]}
    assert {"tcp myserver", "tcp myclient"} <= groups
    assert not any("worker" in name or "caller" in name for name in groups)
