"""Latency under load, against the arithmetic of the queue that the load fills.

A queue of known size before a known rate takes size / rate; which qdisc holds it, `tc`
tells as well, and what the flows moved, their own two ends.
"""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from threading import Event

import pytest
from latprof_agent.lab.child import END_SECONDS
from latprof_agent.workload.generator import LATE_SECONDS
from latprof_agent.workload.programs import STILL_SECONDS
from latprof_analysis import analyze
from latprof_process import Latprof, kill, run

pytestmark = pytest.mark.timed

RATE_BPS, QUEUE_BYTES = 50e6, 64_000
FULL_NS = 8e9 * QUEUE_BYTES / RATE_BPS
SHAPED = ("--rate=50mbit", "--qdisc=tbf", f"--queue={QUEUE_BYTES}")
EMULATED = ("--rate=50mbit", "--delay=1ms", "--emulator=always")
# Of one size, which a packet holds: its round trips are alike.
SMALL = ("--sizes=64",)
# A closed loop would ask more often while the queue is short.
EVENLY = ("--interval=5ms", "--duration=5")
# What makes each queue, and by direction where it is: the lowest of its qdiscs.
QUEUES = {
    "tbf": ("--qdisc=tbf",),
    "htb": ("--qdisc=htb",),
    "emulator": ("--delay=1ms", "--emulator=always"),
}
UP = {"tbf": ("a", "veth0"), "htb": ("a", "veth0"), "emulator": ("emulator", "ab")}
DOWN = {"tbf": ("b", "veth0"), "htb": ("b", "veth0"), "emulator": ("emulator", "ba")}
# Of a datagram of 1400 bytes, in the bytes that a tbf counts.
PAYLOAD = 1400 / 1442


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


def loaded(out: Path, *words: str, protocol: str = "tcp") -> tuple[dict, dict]:
    """Run it; its summary, and what it tells of the protocol."""
    words = (f"--protocol={protocol}", *words)
    given = any(word.startswith("--duration") for word in words)
    duration = () if given else ("--duration=3",)
    latprof = run("run", *SMALL, *words, *duration, "--json", f"--out={out}")
    assert latprof.process.returncode == 0, latprof.err
    assert latprof.left() == []
    summary = json.loads(latprof.out)
    assert analyze(out).document["load"] == summary["load"]
    return summary, summary["load"]["protocols"][protocol]


def more_ns(told: dict) -> float:
    """By how much the median rose."""
    return told["loaded"]["rtt"]["p50_ns"] - told["idle"]["rtt"]["p50_ns"]


def share(told: dict, way: str, stage: str) -> float:
    """What a stage has of what the mean rose by."""
    rows = {(row["way"], row["stage"]): row["share"] for row in told["stages"]}
    return rows[way, stage]


def grown_ns(told: dict, way: str, stage: str) -> float:
    """By how much the median of a stage rose."""
    rows = {(row["way"], row["stage"]): row for row in told["stages"]}
    row = rows[way, stage]
    return row["loaded"]["p50_ns"] - row["idle"]["p50_ns"]


def queue(told: dict, place: str, interface: str) -> dict:
    """What was seen of one queue: the lowest where one is below another."""
    found = [
        one
        for one in told["queues"]
        if (one["place"], one["interface"]) == (place, interface)
    ]
    assert len(found) in (1, 2)
    return found[-1]


def test_udp_above_the_rate_fills_the_qdisc_and_no_more(out):
    summary, told = loaded(out, *SHAPED, "--load=udp:2:up:75mbit")
    assert more_ns(told) == pytest.approx(FULL_NS, rel=0.1)
    assert share(told, "request", "qdisc") > 0.9
    held = queue(told, "a", "veth0")
    assert held["kind"] == "tbf"
    assert held["median_bytes"] == pytest.approx(QUEUE_BYTES, rel=0.1)
    assert held["max_bytes"] <= QUEUE_BYTES
    assert queue(told, "b", "veth0")["median_bytes"] < 1500
    pace = 60e9 / told["loaded"]["rtt"]["mean_ns"]
    assert told["loaded"]["round_trips_per_minute"] == pytest.approx(pace)
    (flows,) = told["flows"]
    moved = flows["up"]
    assert moved["sent"] == moved["received"] + moved["lost"]
    # of the ping-pong's own packets that one drops, too, none is sent again twice
    (root,) = summary["link_counters"]["a"]["qdiscs"]
    own = root["dropped_packets"] - moved["lost"]
    assert 0 <= own <= 0.1 * told["loaded"]["sent"] + 5
    # some ms pass before the first and behind the last datagram
    assert moved["received_bps"] == pytest.approx(RATE_BPS * PAYLOAD, rel=0.02)
    (sentence,) = [
        text
        for text in run("analyze", str(out)).out.splitlines()
        if "under load" in text
    ]
    assert "in qdisc of requests: tbf 1: at a's veth0 holds" in sentence


def test_flows_of_a_loss_based_control_fill_the_qdisc(out):
    words = ("--load=tcp:8", "--congestion=cubic", *EVENLY)
    # a datagram of its own that is lost holds up no other
    _, told = loaded(out, *SHAPED, *words, protocol="udp")
    held = queue(told, "a", "veth0")
    assert 0.75 * QUEUE_BYTES < held["median_bytes"] <= QUEUE_BYTES
    assert more_ns(told) == pytest.approx(held["median_ns"], rel=0.1)
    assert share(told, "request", "qdisc") > 0.85
    (flows,) = told["flows"]
    assert flows["congestion"] == "cubic"


def test_one_flow_of_a_loss_based_control_fills_the_queue_of_the_link(out):
    """Behind the host: in its own qdisc TCP lets a flow have two packets only."""
    words = (f"--queue={4 * QUEUE_BYTES}", "--load=tcp:1", "--congestion=reno")
    words = (*words, *EVENLY)
    _, told = loaded(out, *EMULATED, *words)
    held = queue(told, "emulator", "ab")
    # a sawtooth between half and all of the queue and what the delay holds
    assert 0.5 * 4 * QUEUE_BYTES < held["median_bytes"] < 4 * QUEUE_BYTES
    assert more_ns(told) == pytest.approx(held["median_ns"], rel=0.1)
    assert share(told, "request", "transit") > 0.85


def test_flows_down_hold_up_replies(out):
    words = (f"--queue={QUEUE_BYTES}", "--load=udp:1:down:75mbit")
    _, told = loaded(out, *EMULATED, *words)
    assert more_ns(told) == pytest.approx(FULL_NS, rel=0.1)
    assert share(told, "reply", "transit") > 0.9
    assert queue(told, "emulator", "ba")["median_ns"] == pytest.approx(FULL_NS, rel=0.1)
    assert queue(told, "emulator", "ab")["max_bytes"] < QUEUE_BYTES / 4
    (flows,) = told["flows"]
    assert flows["up"] is None
    assert flows["down"]["received_bps"] == pytest.approx(
        RATE_BPS * 1400 / 1428, rel=0.02
    )


@pytest.mark.parametrize(
    ("kind", "rate_mbit", "queue_bytes", "direction"),
    [
        ("tbf", 20, 100_000, "down"),
        ("tbf", 50, 50_000, "both"),
        ("htb", 20, 50_000, "up"),
        ("htb", 50, 100_000, "both"),
        ("emulator", 50, 100_000, "up"),
        ("emulator", 20, 50_000, "both"),
    ],
)
def test_a_full_queue_adds_its_bytes_over_the_rate_to_each_way_that_is_loaded(
    out, kind, rate_mbit, queue_bytes, direction
):
    # a little above it, so that few of the ping-pong's own packets are dropped
    rate, load_mbit = f"--rate={rate_mbit}mbit", 1.05 * rate_mbit
    words = (rate, *QUEUES[kind], f"--queue={queue_bytes}", "--interval=20ms")
    load = f"--load=udp:2:{direction}:{load_mbit:g}mbit"
    # at random moments: a fixed interval may meet the flows' own bursts each time
    words = (*words, load, "--duration=1.5", "--poisson")
    _, told = loaded(out, *words, protocol="udp")
    # htb's queue counts packets of 1514 bytes, these have 1442
    held_bytes = queue_bytes // 1514 * 1442 if kind == "htb" else queue_bytes
    held_ns = 8e3 * held_bytes / rate_mbit
    ways = {"up": ("request", *UP[kind]), "down": ("reply", *DOWN[kind])}
    full = ["up", "down"] if direction == "both" else [direction]
    assert more_ns(told) == pytest.approx(len(full) * held_ns, rel=0.1)
    stage = "transit" if kind == "emulator" else "qdisc"
    for name, (way, *place) in ways.items():
        held = queue(told, *place)["median_bytes"]
        waits_ns = grown_ns(told, way, stage)
        if name in full:
            assert held == pytest.approx(held_bytes, rel=0.1)
            assert waits_ns == pytest.approx(held_ns, rel=0.1)
        else:
            assert held < 1500
            assert waits_ns < held_ns / 10


def test_the_idle_phase_is_as_a_run_without_a_load(out, tmp_path):
    with_load, told = loaded(out, *EMULATED, "--load=tcp:2,udp:1:down:10mbit")
    plain = tmp_path / "plain"
    latprof = run(
        "run",
        *SMALL,
        "--protocol=tcp",
        *EMULATED,
        "--duration=3",
        "--json",
        f"--out={plain}",
    )
    without = json.loads(latprof.out)
    ends = [one["round_trips"]["tcp"]["rtt"]["p50_ns"] for one in (with_load, without)]
    assert ends[0] == pytest.approx(ends[1], rel=0.05)
    assert told["idle"]["rtt"]["p50_ns"] == ends[0]
    # the load's second phase is in no other figure, and costs no record
    with (out / "round_trips.csv").open() as file:
        phases = Counter(row["phase"] for row in csv.DictReader(file))
    assert phases["idle"] == with_load["round_trips"]["tcp"]["sent"]
    assert phases["loaded"] == told["loaded"]["sent"]
    with (out / "messages.csv").open() as file:
        rows = list(csv.DictReader(file))
    kinds = Counter(row["kind"] for row in rows)
    assert kinds["request"] == with_load["kinds"]["tcp request"]["messages"]
    assert kinds["loaded"] == kinds["loaded reply"] >= phases["loaded"]
    assert kinds.total() < 2.1 * phases.total() + 40
    ports = {min(row["source_port"], row["destination_port"]) for row in rows}
    assert len(ports) == 2
    runs = {one["phase"]: one for one in with_load["workload"]["runs"]}
    for row in rows:
        if row["kind"] in ("request", "loaded"):
            phase = runs["idle" if row["kind"] == "request" else "loaded"]
            assert phase["begin_ns"] <= int(row["send_ns"]) <= phase["end_ns"]
    header = (plain / "round_trips.csv").read_text().split("\n", 1)[0]
    assert not header.endswith("phase")
    again = analyze(out).document
    assert again["round_trips"]["tcp"]["sent"] == phases["idle"]
    assert again["kinds"].keys() == with_load["kinds"].keys()


def test_flows_down_have_the_congestion_control_that_was_asked_for(out):
    """As the kernel says of the sender's sockets, which are the responder's."""
    control = "reno"  # no system's own
    words = ("--protocol=tcp", "--load=tcp:2:down", "--duration=1")
    words = (*SMALL, *words, f"--congestion={control}", "--json", f"--out={out}")
    latprof = Latprof("run", *EMULATED, *words)
    latprof.wait_for_child("latprof-load bulk ")
    (name,) = [name for name in latprof.namespaces if name.endswith("-b")]

    def senders():
        command = ["ip", "netns", "exec", name, "ss", "-HtniO", "state", "connected"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        # what has more than a handshake's bytes on its way or acknowledged
        lines = listed.stdout.splitlines()
        return [line.split() for line in lines if "bytes_acked:" in line]

    found = latprof.wait_for(
        lambda: (rows := [r for r in senders() if acked(r) > 100_000]) and rows,
        "a flow that has sent",
    )
    assert {control in row for row in found} == {True}, found
    assert latprof.finish() == 0, latprof.err
    (flows,) = json.loads(latprof.out)["load"]["protocols"]["tcp"]["flows"]
    assert flows["congestion"] == control


def acked(words: list[str]) -> int:
    """Bytes that a socket has had acknowledged, as `ss` shows it."""
    (told,) = [word for word in words if word.startswith("bytes_acked:")]
    return int(told.partition(":")[2])


@pytest.mark.parametrize("phase", ["idle", "filling", "loaded"])
def test_ctrl_c_keeps_what_was_measured(out, phase):
    words = ("--sizes=64", "--protocol=tcp", "--json", f"--out={out}", "--load=udp:1")
    duration = {"idle": "60s"}.get(phase, "1s")
    if phase == "loaded":
        words = (*words, "--rounds=400")  # idle a second, beside the load some
    else:
        words = (*words, f"--duration={duration}")
    latprof = Latprof("run", *EMULATED, *words)
    if phase == "idle":
        latprof.wait_for_rows(out / "round_trips.csv", 50)
    else:
        latprof.wait_for_child("latprof-load bulk ")
        Event().wait(0.5)  # of two seconds in which it fills the queue
    if phase == "loaded":
        latprof.wait_for(
            lambda: ",loaded" in (out / "round_trips.csv").read_text(), "a loaded one"
        )
    latprof.signal(signal.SIGINT)

    assert latprof.finish() == 0, latprof.err
    assert latprof.left() == []
    summary = json.loads(latprof.out)
    assert summary["state"] == "interrupted"
    told = summary["load"]["protocols"]["tcp"]
    assert told["idle"]["sent"] >= 50
    assert (told["loaded"] is not None) == (phase == "loaded")
    assert [one["failure"] for one in told["flows"]] == [None] * (phase != "idle")
    if phase == "loaded":
        assert told["loaded"]["sent"] > 0
        (flows,) = told["flows"]
        assert flows["up"]["sent"] == flows["up"]["received"] + flows["up"]["lost"]


def test_flows_that_die_are_told(out):
    words = ("--sizes=64", "--protocol=tcp", "--duration=2s", "--load=tcp:2,udp:1")
    latprof = Latprof("run", *EMULATED, *words, "--json", f"--out={out}")
    kill(latprof.wait_for_child("latprof-load bulk "))

    assert latprof.finish() == 1
    assert latprof.left() == []
    (line,) = latprof.err.splitlines()
    assert line.startswith("latprof: the load failed: tcp:2:up failed: it ended with")
    summary = json.loads(latprof.out)
    assert summary["load"]["protocols"]["tcp"]["idle"]["sent"] > 100


@pytest.mark.parametrize("how", ["--duration=4", "--rounds=400"])
@pytest.mark.parametrize("when", ["first", "later"])
def test_a_responder_that_is_stopped_beside_a_load_is_noticed(out, how, when):
    """Flows that go on do not hide that nothing is answered."""
    words = ("--sizes=64", "--protocol=tcp", how, "--load=tcp:2", f"--out={out}")
    latprof = Latprof("run", *EMULATED, *words)
    latprof.wait_for_child("latprof-load bulk ")
    responder = latprof.wait_for_child(" echo --wire")
    latprof.wait_for_child(" pingpong ")  # so the responder has said that it is ready
    if when == "later":
        table = out / "round_trips.csv"
        latprof.wait_for(lambda: ",loaded" in table.read_text(), "a loaded one")
    kill(responder, signal.SIGSTOP)
    stopped = time.monotonic()

    assert latprof.finish() == 1
    took = time.monotonic() - stopped
    (line,) = latprof.err.splitlines()
    assert "the responder failed: it is stopped (SIGSTOP)" in line
    assert latprof.left() == []
    longest = 4 if "duration" in how else STILL_SECONDS
    # LATE_SECONDS twice: for what the load holds up, then for what is late without it
    assert took < longest + 2 * LATE_SECONDS + END_SECONDS
    summary = json.loads((out / "summary.json").read_text())
    assert summary["state"] == "failed"
    told = summary["load"]["protocols"]["tcp"]
    assert told["idle"]["sent"] > 100


def test_a_load_that_is_stopped_is_none(out):
    words = ("--sizes=64", "--protocol=tcp", "--duration=2s", "--load=tcp:2")
    latprof = Latprof("run", *EMULATED, *words, "--json", f"--out={out}")
    latprof.wait_for_child("latprof-load bulk ")
    kill(latprof.children("--workloads bulk")[0], signal.SIGSTOP)
    assert latprof.finish() == 1
    assert latprof.left() == []
    (line,) = latprof.err.splitlines()
    told = "the load failed: its responder failed: it is stopped (SIGSTOP)"
    assert told in line
    summary = json.loads(latprof.out)
    assert summary["load"]["protocols"]["tcp"]["idle"]["sent"] > 100


def test_a_queue_that_this_kernel_lacks_is_one_line(out):
    words = ("--qdisc=tbf", "--rate=50mbit", "--leaf=fq_codel", "--load=udp:1")
    latprof = run("run", *SMALL, "--duration=1", *words, f"--out={out}")
    if latprof.process.returncode == 0:
        pytest.skip("this kernel has fq_codel: tests/vm looks at what it does")
    (line,) = latprof.err.splitlines()
    assert line.startswith("latprof: cannot set up qdisc fq_codel: this kernel has no")
