"""Stories of messages that queued, at a device or at their reader, behind others."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
from dropper import run_tc
from latprof_process import run
from other_load import other_load
from recording import wait_until
from told_stories import told_of

pytestmark = pytest.mark.timed

MS = 1_000_000
TIMES = 20
RATE_BPS = 100_000_000

# Sends as fast as it may: as much as its socket's buffer holds stands in the queue.
FILLER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 32, 1_000_000)  # SO_SNDBUFFORCE
s.connect((sys.argv[1], 9))
while True:
    try:
        s.send(bytes(1400))
    except ConnectionRefusedError:
        pass
"""

# Sends messages, and notes what tc sees in the queue before each.
SENDER = """
import json, os, socket, subprocess, sys, time
kind, address, ready, device, count = sys.argv[1:]
while not os.path.exists(ready):
    time.sleep(0.01)
s = socket.socket(socket.AF_INET, getattr(socket, kind))
s.connect((address, 5000))
if kind == "SOCK_STREAM":
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for i in range(int(count)):
    said = subprocess.run(
        ["tc", "-s", "-j", "qdisc", "show", "dev", device, "root"],
        capture_output=True, check=True,
    )
    s.send(bytes(400))
    with open(ready + ".seen", "a") as file:
        print(json.loads(said.stdout)[0]["backlog"], file=file)
    time.sleep(0.07)
"""

READER = """
import socket, sys
kind, address, ready, count = sys.argv[1:]
s = socket.socket(socket.AF_INET, getattr(socket, kind))
s.bind((address, 5000))
s.settimeout(10)
if kind == "SOCK_STREAM":
    s.listen()
open(ready, "w").close()
if kind == "SOCK_STREAM":
    s, _ = s.accept()
for _ in range(int(count)):
    s.recv(400)
"""


def stories_of(out, *command, limit):
    """Stories of what a command's messages met, which can be told in text, too."""
    document, _ = told_of(out, *command, limit=limit)
    assert run("story", str(out)).process.returncode == 0
    return document


def in_netns(name, *words):
    return ("nsenter", f"--net=/run/netns/{name}", *words)


@contextmanager
def started(*words, **options):
    with subprocess.Popen(words, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def filler(lab):
    """Keep the queue at a full of another process' datagrams."""
    words = in_netns(lab.a_netns, sys.executable, "-c", FILLER, lab.b_address)
    with started(*words) as process:
        wait_until(lambda: backlog(lab) > 400_000, "a full queue")
        yield process


def backlog(lab):
    said = run_tc(lab, "a", *f"-s -j qdisc show dev {lab.interface} root".split())
    return json.loads(said)[0]["backlog"]


def send_and_read(lab, kind, folder):
    """A command that sends messages of 400 bytes from a to b."""
    python = f"{sys.executable} -c"
    address = f"{kind} {lab.b_address} {folder}/ready"
    reader = " ".join(in_netns(lab.b_netns, python, f'"$READER" {address} {TIMES}'))
    sender = " ".join(
        in_netns(lab.a_netns, python, f'"$SENDER" {address} {lab.interface} {TIMES}')
    )
    texts = f"READER={quoted(READER)}; SENDER={quoted(SENDER)}"
    return "bash", "-c", f"{texts}; {reader} & {sender}; wait"


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


@pytest.fixture
def shaped(make_lab):
    how = {"rate_bps": RATE_BPS, "burst_bytes": 20_000, "queue_bytes": 2_000_000}
    return make_lab(qdisc="tbf", **how)


@pytest.mark.parametrize("load", [nullcontext, other_load], ids=["alone", "beside"])
@pytest.mark.parametrize("kind", ["SOCK_DGRAM", "SOCK_STREAM"])
def test_whose_bytes_stood_before_a_message_is_told(shaped, tmp_path, kind, load):
    with load(), filler(shaped) as process:
        command = send_and_read(shaped, kind, tmp_path)
        document = stories_of(tmp_path / "run", *command, limit="20ms")
    stories = sorted(document["stories"], key=lambda s: s["message"]["sequence"])
    waits = [story["stages"]["qdisc"] for story in stories]
    # one may have met a queue that a busy machine had let run empty
    assert TIMES - 1 <= len(waits) <= TIMES
    told = [w["queue"] for w in waits if w.get("queue")]
    right = [q for q in told if q["before"][0]["pid"] == process.pid]
    assert len(right) >= TIMES - 1, waits
    handle = json.loads(
        run_tc(shaped, "a", *f"-j qdisc show dev {shaped.interface} root".split())
    )[0]["handle"]
    assert {q["name"] for q in right} == {f"tbf {handle} of {shaped.interface}"}
    shares = [q["before"][0]["bytes"] / q["backlog_bytes"] for q in right]
    assert np.median(shares) > 0.95
    # as tc saw it up to some ms before
    seen = np.array((tmp_path / "ready.seen").read_text().split(), "i8")
    assert len(seen) == TIMES
    bytes_each = 400 if kind == "SOCK_STREAM" else 1
    numbers = [story["message"]["sequence"] // bytes_each for story in stories]
    seen = seen[np.array(numbers) - 1]
    stood = [w["queue"]["backlog_bytes"] if w.get("queue") else 0 for w in waits]
    assert np.median(stood / seen) == pytest.approx(1, abs=0.15), (stood, seen)
    # what stood before it and itself left at the shaper's rate
    due_ns = [(q["backlog_bytes"] + q["own_bytes"]) * 8e9 / RATE_BPS for q in right]
    took_ns = [w["time_ns"] for w in waits if w.get("queue") in right]
    assert np.median(np.array(took_ns) / due_ns) == pytest.approx(1, abs=0.05)
    text = run("story", str(tmp_path / "run"), "--slowest=1").out
    assert f"in tbf {handle} of {shaped.interface} behind " in text
    assert f"(pid {process.pid}) " in text


def test_of_an_empty_queue_nobody_is_told(make_lab, tmp_path):
    how = {"rate_bps": 200_000, "burst_bytes": 1600, "queue_bytes": 100_000}
    lab = make_lab(qdisc="tbf", **how)
    # 442 bytes in 17.7 ms, each 70 ms: the bucket fills up, the queue is empty
    command = send_and_read(lab, "SOCK_DGRAM", tmp_path)
    document = stories_of(tmp_path / "run", *command, limit="10us")
    waits = [story["stages"]["qdisc"] for story in document["stories"]]
    queues = [w["queue"] for w in waits if w.get("queue")]
    assert all(q["backlog_bytes"] == 0 == len(q["before"]) for q in queues)
    assert len(queues) >= TIMES - 1
    parts = [part["kind"] for w in waits for part in w["parts"] or ()]
    assert parts.count("held back") >= TIMES - 1, parts
    assert set(parts) <= {"held back", "not recorded"}
