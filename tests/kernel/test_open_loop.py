"""`latprof run` with an end on each CPU and a sender that waits for nobody.

Then the device hands over batches, softirq's work waits for a socket in use, and
a send call meets a full buffer. Messages are counted by the generator and iperf3,
drops by tc; what this kernel hides from probes by its own trace events.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pandas as pd
import pytest
from latprof_process import screen_of
from undisturbed import hidden_messages

RUN = [sys.executable, "-m", "latprof_agent", "run", "--quiet", "--json"]
PLAIN = ("--rate", "0", "--delay", "0")
APART = ("--client-cpu", "0", "--server-cpu", "1")
DEADLINE_SECONDS = 60
DEVICE = "veth0"  # of a lab's end
LACKING_SHARE = 0.002  # the bar of the issue

# What client and responder agree on before the first request: sizes of its messages,
# and how many bytes the client has sent then.
HANDSHAKE = (112, 36, 32, 69)
SENT_BEFORE = 112 + 32

KINDS = ["request", "reply"]
SENDER = ["send_ns", "queue_ns", "xmit_ns"]
PARTS = ["application_ns", "send_queue_ns", "qdisc_ns", "transit_ns"]
PARTS += ["receive_stack_ns", "receive_queue_ns"]

pytestmark = [
    pytest.mark.timed,
    pytest.mark.skipif(
        not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1"
    ),
]


def test_an_overload_is_told_before_and_after_and_what_is_late_is_waited_for(tmp_path):
    words = ("--protocol=udp", "--interval=1ms", "--duration=1", "--rate=50mbit")
    words = (*words, "--qdisc=tbf", "--out=here")
    status, lines = screen_of("run", *words, columns=200, shown="stderr", cwd=tmp_path)
    assert status == 0
    text = "\n".join(lines)
    warning = "udp offers 141 Mbit/s each way (mean 17.6 kB with headers every 1 ms)"
    assert f"latprof: warning: {warning} to a link of 50 Mbit/s" in text
    assert text.index("warning") < text.index("100%") < text.index("what is late")
    summary = json.loads((tmp_path / "here" / "summary.json").read_text())
    assert any(told.startswith(warning) for told in summary["warnings"])
    trips = pd.read_csv(tmp_path / "here" / "round_trips.csv")
    assert (trips["lost"] == 0).all()
    # the last message was due after 1 s, and leaves when all bytes before it have:
    # a second of 140.9 Mbit/s at 50 takes 1.818 s longer, less what a bucket and the
    # last messages' random sizes make
    late_s = (trips["sent_ns"] - trips["intended_ns"]).iloc[-1] / 1e9
    assert late_s == pytest.approx(1.818, rel=0.05)


class Run:
    """What one `latprof run` left, and how much of it the kernel hid at most.

    That much were messages of `size_bytes` in the mean.
    """

    def __init__(self, folder, size_bytes, *words):
        with hidden_messages(folder, [DEVICE]) as hidden:
            done = subprocess.run(
                [*RUN, "--out", str(folder / "run"), *words],
                capture_output=True,
                text=True,
                timeout=DEADLINE_SECONDS,
                check=False,
            )
            self.unseen = hidden(size_bytes)
        assert done.returncode == 0, done.stderr
        self.summary = json.loads(done.stdout)
        lost = {ring: n for ring, n in self.summary["lost_records"].items() if n}
        assert lost == {}
        told = json.loads((folder / "run" / "run.json").read_text())
        self.counters = told["counters"]
        self.rows = pd.read_csv(folder / "run" / "messages.csv", low_memory=False)
        trips = folder / "run" / "round_trips.csv"
        self.trips = pd.read_csv(trips) if trips.exists() else None

    def measured(self):
        """The rows of messages and of echoes that are not of the warm-up."""
        return self.rows[self.rows["kind"].isin(KINDS)]

    def dropped(self):
        """Packets that a qdisc of either end dropped, as tc counts."""
        links = self.summary["link_counters"]
        return sum(q["dropped_packets"] for e in "ab" for q in links[e]["qdiscs"])

    def lacking(self, column):
        """How many messages lack a stamp although the kernel did not hide it."""
        blank = int(self.measured()[column].isna().sum())
        return max(0, blank - self.unseen), f"{blank} lack {column}, {self.unseen=}"


def check_count(run, size_bytes):
    """One row for each message the generator sent, and for each echo it had."""
    rows, trips = run.measured(), run.trips
    sent = len(trips)
    had = trips["rtt_ns"].notna().sum()
    counted = rows["kind"].value_counts().to_dict()
    assert counted == {"request": sent, "reply": had}, f"{counted}, {sent=}, {had=}"
    assert set(rows["size_bytes"]) <= size_bytes


@pytest.mark.parametrize("interval", ["1ms", "100us", "40us"])
def test_hardly_any_message_lacks_its_arrival(tmp_path, interval):
    words = (*PLAIN, *APART, "--protocol=tcp", "--sizes=64,1448", "--duration=4")
    run = Run(tmp_path, (64 + 1448) // 2, *words, f"--interval={interval}")
    assert len(run.rows) > 5000
    check_count(run, {64, 1448})
    lacking, said = run.lacking("arrive_ns")
    total = len(run.measured())
    assert lacking < LACKING_SHARE * total, f"{said}, of {total}"
    whole = run.measured()[PARTS].notna().all(axis=1)
    sums = run.measured()[whole][PARTS].sum(axis=1)
    assert (sums == run.measured()[whole]["end_to_end_ns"]).all()


def test_hardly_any_message_of_many_packets_lacks_its_arrival(tmp_path):
    words = (
        *PLAIN,
        *APART,
        "--protocol=tcp",
        "--sizes=4096,20480,65507",
        "--duration=4",
    )
    run = Run(tmp_path, (4096 + 20480 + 65507) // 3, *words, "--interval=500us")
    check_count(run, {4096, 20480, 65507})
    lacking, said = run.lacking("arrive_ns")
    total = len(run.measured())
    assert lacking < LACKING_SHARE * total, f"{said}, of {total}"


@pytest.mark.parametrize("qdisc", ["tbf", "htb"])
@pytest.mark.parametrize("size", [64, 20_000])
def test_only_what_a_counter_explains_lacks_the_senders_stamps(tmp_path, qdisc, size):
    shape = ("--qdisc", qdisc, "--rate=1gbit", "--queue=16MiB", "--delay=0")
    words = (*shape, *APART, "--protocol=tcp", f"--sizes={size}", "--duration=4")
    run = Run(tmp_path, size, *words, "--interval=300us")
    check_count(run, {size})
    for column in SENDER:
        lacking, said = run.lacking(column)
        dropped = run.dropped()
        assert lacking <= dropped, f"{said}, {dropped=}"
    lacking, said = run.lacking("arrive_ns")
    total = len(run.measured())
    assert lacking < LACKING_SHARE * total, f"{said}, of {total}"


@pytest.mark.parametrize("interval", ["400us", "107us"])
@pytest.mark.parametrize("reply", [64, 200_000], ids=["short-reply", "echo"])
def test_a_message_that_takes_several_calls_is_one_row(tmp_path, interval, reply):
    # 4 Gbit/s and more: a socket's buffer does not take all of it at once
    size = 200_000
    words = (*PLAIN, *APART, "--protocol=tcp", f"--sizes={size}", "--duration=2")
    words = (*words, f"--interval={interval}", *_reply(reply, size))
    run = Run(tmp_path, size, *words)
    check_count(run, {size, reply})
    for kind, expected in zip(KINDS, (size, reply), strict=True):
        rows = run.rows[run.rows["kind"] == kind]
        assert set(rows["size_bytes"]) == {expected}
        assert rows["packets"].min() >= expected // 65_536
    warm = run.rows[run.rows["kind"] == "warmup"]
    assert set(warm["size_bytes"]) <= {size, reply, *HANDSHAKE}
    assert run.counters["merged_sends"] == 0


def test_with_pieces_each_of_its_calls_is_a_row(tmp_path):
    size = 200_000
    words = (*PLAIN, *APART, "--protocol=tcp", f"--sizes={size}", "--duration=2")
    run = Run(tmp_path, size, *words, "--interval=107us", "--pieces")
    sent = len(run.trips)
    rows = run.rows[run.rows["kind"] == "request"]
    assert len(rows) > sent  # a full buffer cut some of them
    assert rows["size_bytes"].sum() == sent * size
    # the calls follow each other without a hole, and each message ends with one
    rows = rows.sort_values("sequence")
    assert (rows["sequence"].diff()[1:] == rows["size_bytes"][1:]).all()
    assert ((rows["sequence"] - SENT_BEFORE) % size == 0).sum() == sent


def _reply(reply_bytes, size_bytes):
    return [f"--reply={reply_bytes}"] if reply_bytes != size_bytes else []


@pytest.mark.parametrize("length", ["4K", "8K"])
def test_no_send_of_iperf3_is_merged_with_another(tmp_path, length):
    if not shutil.which("iperf3"):
        pytest.skip("needs iperf3")
    report = tmp_path / "report.json"
    client = f"iperf3 -c {{server}} --json -t 2 -l {length} > {report}"
    words = ("--protocol=tcp", "--server", "iperf3 -s -1", "--", "sh", "-c", client)
    most = int(length[:-1]) * 1024
    run = Run(tmp_path, most, *PLAIN, *words)
    found = json.loads(report.read_text())
    assert "error" not in found, found["error"]
    (data,) = (c["local_port"] for c in found["start"]["connected"])
    rows = run.rows[run.rows["source_port"] == data]
    sent = found["end"]["sum_sent"]["bytes"] + 37  # its cookie
    assert rows["size_bytes"].sum() == sent
    merged = run.counters["merged_sends"]
    assert merged == 0, f"{merged} were merged into {len(rows)} rows"
    assert rows["size_bytes"].max() == most
    # a full buffer may end a call early, and the next gives the rest
    assert len(rows) >= sent / most
    # the server closes when it knows the end, which resets what has not left yet
    came = found["end"]["sum_received"]["bytes"] + 37
    assert came > 0.9 * sent
    lacking = rows[rows["sequence"] <= came]["xmit_ns"].isna().sum()
    assert lacking <= run.unseen, f"{lacking} lack xmit, {run.unseen=}"
