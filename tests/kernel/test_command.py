"""`latprof run -- COMMAND`: its status, its tree, and its sockets only."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from latprof_agent.lab.registry import clean_dead_labs
from latprof_agent.probes.cgroup import cgroup2_mount
from latprof_agent.workload.user_command import END_SECONDS
from recording import wait_until

LATPROF = [sys.executable, "-m", "latprof_agent"]
DEADLINE_SECONDS = 60

# 20 messages of a size to a listener in the same process
TALK = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
for _ in range(20):
    client.send(bytes({size}))
    server.recv({size}, socket.MSG_WAITALL)
"""


# a shell word: the folder of the control group that it runs in
OWN_GROUP = f"{cgroup2_mount()}$(sed -n s/^0:://p /proc/self/cgroup)"


def _start(folder, *words):
    return subprocess.Popen(
        [*LATPROF, "run", "--quiet", "--no-lab", "--out", folder, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _run(folder, *words):
    process = _start(folder, *words)
    out, error = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, out, error


def _talk(size):
    return [sys.executable, "-c", TALK.format(size=size)]


def _ended(pid):
    """Gone, or dead and not yet collected by whoever has become its parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat[stat.rindex(")") + 2] in "ZX"


@pytest.mark.parametrize(
    ("command", "how"),
    [
        (["sh", "-c", "exit 3"], "the command ended with status 3: sh -c 'exit 3'"),
        (["sh", "-c", "nosuchprogram"], "the command ended with status 127"),
        (["sh", "-c", "kill -9 $$"], "the command ended with signal 9 (SIGKILL)"),
        (["nosuchprogram"], "cannot run nosuchprogram: not found or not executable"),
        (["/dev/null"], "cannot run /dev/null: not found or not executable"),
    ],
)
def test_a_command_that_fails_is_told_in_one_line(tmp_path, command, how):
    status, _, error = _run(tmp_path / "run", "--", *command)

    assert status == 1
    (line,) = [line for line in error.splitlines() if line.startswith("latprof: ")]
    assert line.startswith(f"latprof: {how}")
    assert "Traceback" not in error


def test_what_was_recorded_before_a_command_died_is_kept(tmp_path):
    script = TALK.format(size=100) + "import os; os.abort()"
    status, _, _ = _run(tmp_path / "run", "--", sys.executable, "-c", script)

    assert status == 1
    assert len(pd.read_csv(tmp_path / "run" / "messages.csv")) == 20
    description = json.loads((tmp_path / "run" / "run.json").read_text())
    assert description["workload"]["runs"][0]["status"] == -signal.SIGABRT
    assert description["state"] == "failed"


def test_the_sockets_of_the_whole_tree_and_only_those_are_seen(tmp_path):
    go = tmp_path / "go"
    os.mkfifo(go)
    # a stranger talks while the command, its child and its grandchild do
    child = '"$0" -c "$1"; (sh -c \'"$0" -c "$1"\' "$0" "$2")'
    script = f"{child}; echo > {go}; cat {go}"
    words = [sys.executable, TALK.format(size=100), TALK.format(size=200)]
    process = _start(tmp_path / "run", "--", "sh", "-c", script, *words)
    go.read_bytes()
    subprocess.run(_talk(300), check=True)
    go.write_bytes(b"on\n")
    process.communicate(timeout=DEADLINE_SECONDS)

    rows = pd.read_csv(tmp_path / "run" / "messages.csv")
    assert process.returncode == 0
    assert rows.groupby("size_bytes").size().to_dict() == {100: 20, 200: 20}
    assert rows["end_to_end_ns"].notna().all()


def test_the_process_tree_is_ended_with_the_command_and_its_group_removed(tmp_path):
    pids, group = tmp_path / "pids", tmp_path / "group"
    # one that left its session, and one in a control group below
    below = 'mkdir "$0/below"; echo 0 > "$0/below/cgroup.procs"; exec sleep 1000'
    script = f"""
    group={OWN_GROUP}; echo $group > {group}
    setsid sleep 1000 & echo $! > {pids}
    sh -c '{below}' $group & echo $! >> {pids}
    until grep -q . $group/below/cgroup.procs; do :; done
    """
    status, _, error = _run(tmp_path / "run", "--", "sh", "-c", script)

    assert status == 0, error
    assert "/latprof-" in group.read_text()
    assert not Path(group.read_text().strip()).exists()
    assert [_ended(int(pid)) for pid in pids.read_text().split()] == [True, True]


@pytest.mark.parametrize("trap", ["", "trap '' TERM;"], ids=["ends", "will-not-end"])
def test_ctrl_c_ends_the_command_and_shows_what_was_recorded(tmp_path, trap):
    group, ready = tmp_path / "group", tmp_path / "ready"
    script = f"""
    {trap} echo {OWN_GROUP} > {group}
    "$0" -c "$1"; : > {ready}; while :; do sleep 1; done
    """
    talk = [sys.executable, TALK.format(size=100)]
    process = _start(tmp_path / "run", "--", "sh", "-c", script, *talk)
    wait_until(ready.exists, "the command's messages")
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=DEADLINE_SECONDS)

    assert (process.returncode, error) == (0, "")
    assert str(tmp_path / "run") in out
    assert len(pd.read_csv(tmp_path / "run" / "messages.csv")) == 20
    assert not Path(group.read_text().strip()).exists()


@pytest.fixture
def other_group():
    """A control group that is none of latprof's."""
    path = cgroup2_mount() / f"test-{secrets.token_hex(4)}"
    path.mkdir()
    yield path
    (path / "cgroup.kill").write_text("1")
    wait_until(lambda: "populated 0" in (path / "cgroup.events").read_text(), "an end")
    path.rmdir()


# leaves its group, as `systemd-run --scope` and podman do; may not end when asked
LEAVER = f"""{TALK.format(size=100)}
import os, signal, sys
from pathlib import Path
group, told, how = sys.argv[1:]
Path(group, "cgroup.procs").write_text("0")
if how == "stays":
    signal.signal(signal.SIGTERM, lambda *_: Path(told, "asked").touch())
Path(told, "new").write_text(f"{{os.getpid()}}")
Path(told, "new").rename(Path(told, "pid"))
while True:
    signal.pause()
"""
BY = {"itself": (), "its child": ("sh", "-c", '"$@" & wait', "sh")}


def _start_leaver(tmp_path, group, how, by="itself"):
    words = [*BY[by], sys.executable, "-c", LEAVER, group, tmp_path, how]
    process = _start(tmp_path / "run", "--", *words)
    wait_until((tmp_path / "pid").exists, "the command")
    return process, int((tmp_path / "pid").read_text())


@pytest.mark.parametrize("how", ["ends", "stays"])
@pytest.mark.parametrize("by", BY)
def test_ctrl_c_ends_what_left_the_control_group(tmp_path, other_group, by, how):
    process, pid = _start_leaver(tmp_path, other_group, how, by)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, error) == (0, "")
    assert _ended(pid)
    assert (tmp_path / "asked").exists() == (how == "stays")


def test_a_second_ctrl_c_ends_it_at_once(tmp_path, other_group):
    process, pid = _start_leaver(tmp_path, other_group, "stays")
    process.send_signal(signal.SIGINT)
    wait_until((tmp_path / "asked").exists, "the first")
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_SECONDS)
    assert time.monotonic() - started < END_SECONDS  # what it would have been left
    assert _ended(pid)


def test_what_a_killed_run_left_is_removed_by_lab_clean(tmp_path):
    group, ready = tmp_path / "group", tmp_path / "ready"
    script = f"echo {OWN_GROUP} > {group}; sleep 1000 & echo $! > {ready}.new\n"
    script += f"mv {ready}.new {ready}; wait"
    process = _start(tmp_path / "run", "--", "sh", "-c", script)
    wait_until(ready.exists, "the command's child")
    child, folder = int(ready.read_text()), Path(group.read_text().strip())
    clean_dead_labs()
    assert not _ended(child)  # its run is alive
    process.kill()
    process.wait()
    assert folder.exists()

    subprocess.run([*LATPROF, "lab", "clean"], check=True)
    assert not folder.exists()
    assert _ended(child)


def test_a_server_that_cannot_start_is_told(tmp_path):
    done = subprocess.run(
        [
            *(*LATPROF, "run", "--quiet", "--out", tmp_path / "run"),
            *("--rate", "0", "--server", "sh -c 'exit 7'", "--", "true"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "the server ended with status 7 before it listened" in done.stderr


@pytest.fixture
def redis_port(tmp_path):
    """A redis-server that is older than any run of the test."""
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ("--port", str(port), "--save", "", "--dir", str(tmp_path))
    server = subprocess.Popen(["redis-server", *words], stdout=subprocess.DEVNULL)

    def answers():
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return True
        except OSError:
            return False

    wait_until(answers, "a redis-server that answers")
    yield port
    server.terminate()
    server.wait(DEADLINE_SECONDS)


def test_a_server_that_is_older_is_seen_too(tmp_path, redis_port):
    """On the same host, though outside the command's control group."""
    folder = tmp_path / "run"
    bench = ("redis-benchmark", "-p", str(redis_port), "-n", "500", "-c", "5")
    status, out, error = _run(folder, "--", *bench, "-q", "-t", "set,get")
    assert status == 0, error
    assert "seen at one end only" not in out
    rows = pd.read_csv(folder / "messages.csv")
    asked = rows[rows["sender_comm"] == "redis-benchmark"]
    # each set and each get, and what it asks of the server at first
    assert len(asked) == 1001
    assert asked["reader_comm"].eq("redis-server").all()
    assert asked["end_to_end_ns"].notna().all()


ECHO = """\
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    sock.bind(("127.0.0.1", 0))
    print(sock.getsockname()[1], flush=True)
    while True:
        data, peer = sock.recvfrom(2000)
        sock.sendto(data, peer)
"""
ASK = """\
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    sock.connect(("127.0.0.1", {port}))
    for i in range(200):
        sock.send(b"%d" % i)
        assert sock.recv(100) == b"%d" % i
"""


@pytest.mark.thorough
def test_of_a_datagram_server_that_is_older_the_reason_is_said(tmp_path):
    """It has no connection to be found by: the client's end alone is seen."""
    folder = tmp_path / "run"
    command = [sys.executable, "-c", ECHO]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        script = ASK.format(port=int(server.stdout.readline()))
        words = ("--protocol", "udp", "--", sys.executable, "-c", script)
        status, out, error = _run(folder, *words)
        server.terminate()
    assert status == 0, error
    assert "of 400 messages 200 (50.0%) lack their receiver's half: it has an" in out
    assert "200 (50.0%) lack their sender's half: it has an address of this host" in out
    # what was seen has stages all the same, and each exchange its response
    assert "send_queue" in out
    assert "receive_queue" in out
    assert re.search(r"-> 127.0.0.1:\d+ \(udp\), 200 exchanges: response p50 \d", out)
    rows = pd.read_csv(folder / "messages.csv")
    assert len(rows) == 400
    assert rows["end_to_end_ns"].isna().all()

    analyzed = {}
    for words in (("analyze",), ("analyze", "--all"), ("analyze", "--json")):
        analyzed[words] = _analysis(*words, str(folder))
    assert "that was watched" in " ".join(analyzed["analyze",].split())
    counted = json.loads(analyzed["analyze", "--json"])["kinds"]
    assert sum(figures["messages"] for figures in counted.values()) == len(rows)
    assert "that was watched" in _analysis("report", str(folder))
    assert (folder / "report.html").stat().st_size > 1000


def _analysis(*words):
    done = subprocess.run(
        [*LATPROF, *words],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return " ".join(done.stdout.split())
