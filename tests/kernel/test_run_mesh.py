"""`latprof run mesh`: its counts, loads and knees against the kernel's own.

Datagrams and bytes are counted by each namespace's network stack, links by their
interfaces; the knee of a shaped link is where arithmetic puts it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from runpy import run_path
from threading import Event

import numpy as np
import pandas as pd
import pytest
from latprof_agent import netns
from latprof_agent.capture.capture import Capture
from latprof_agent.interrupts import Interrupt
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.catalogue import capabilities
from latprof_agent.recorder import Recorder
from latprof_agent.sinks.round_trip_rows import WITH_PAIRS
from latprof_agent.sinks.run_files import TABLES, RunFolder
from latprof_agent.sinks.run_tables import RunTables
from latprof_agent.sinks.run_totals import RunTotals
from latprof_agent.workload import mesh
from latprof_agent.workload.mesh import HEARTBEAT_BYTES, MeshPlan
from latprof_agent.workload.mesh_in_lab import MeshInLab
from latprof_agent.workload.workload import RunContext
from latprof_analysis.read.tmsn import read_tmsn
from latprof_analysis.report.mesh_text import SEED_COLUMNS
from latprof_analysis.stages import STAGES
from latprof_process import run
from network_counters import kernel_counter
from seed_tmsn import get_stats

HOSTS = 3
PAIRS = HOSTS * (HOSTS - 1)
# What a session begins with, by the wire of the tests' own peer: bytes both ways over
# TCP, and over UDP a datagram each way.
PEER = run_path(str(Path(__file__).parent.parent / "native" / "load_peer.py"))
SESSION_BYTES = PEER["SENT_BEFORE"] + PEER["RECEIVED_BEFORE"]
DATAGRAMS_TO_OPEN = 2 * PEER["OPENS"]
# So that also on a busy machine hardly a test is begun again: what it sent counts.
# Shorter than rows are held, or what opens a session has no log yet that names it.
START_NS = 1_000_000_000
ENDS = ["source", "destination"]


@dataclass
class Followed:
    """A mesh that ran in a lab of the test's, which is still there."""

    lab: Lab
    summary: dict
    runs: list
    told: dict  # of the workload, as run.json has it
    folder: Path
    lost: dict

    @property
    def begun_again(self) -> int:
        """How often a test was: what was sent in it before nobody counts."""
        return sum(run["begun_again"] for run in self.runs)

    def requests(self) -> int:
        """Messages and heartbeats that all clients sent, by their own count."""
        return sum(
            told[name] + told["heartbeats"][name]
            for of_run in self.runs
            for told in of_run["clients"].values()
            for name in ("sent", "warmup")
        )

    def network(self, table: str, protocol: str, name: str) -> int:
        """A counter of the kernel's, over all hosts' namespaces."""
        read = partial(kernel_counter, table, protocol, name)
        hosts = map(self.lab.netns_of, self.lab.hosts)
        return sum(netns.run_in(host, read) for host in hosts)

    def table(self, name: str) -> pd.DataFrame:
        return pd.read_csv(self.folder / f"{name}.csv", low_memory=False)


def follow(lab: Lab, plan: MeshPlan, folder: Path) -> Followed:
    """Run and record a mesh in this lab."""
    plan.check()
    run = RunFolder(folder / "run", tables=TABLES | {"round_trips": WITH_PAIRS})
    totals = RunTotals()
    workload = plan.open(lab)
    watched = workload.watched((plan.protocol,))
    found = capabilities((plan.protocol,), needs=watched.needs)
    with Capture(watched, found) as capture:
        recorder = Recorder(capture, [RunTables(run), totals])
        capture.start()
        protocols = (plan.protocol,)
        ours = (capture, recorder, run, totals, protocols, lab, Interrupt())
        workload.follow(RunContext(*ours, lambda *_: None, lambda: None))
        recorder.step_for(0.1)
        capture.stop()
        recorder.finish()
    workload.write(run)
    counted = {k: v for k, v in totals.tally.counters.items() if k.startswith("lost_")}
    told = workload.as_dict()
    path = run.path
    run.close()
    lost = {ring: n for ring, n in counted.items() if n}
    mesh = workload.figures()["mesh"]
    return Followed(lab, mesh, workload.runs, told, path, lost)


QUICK = {"messages": 30, "tests": 2, "interval_ns": 10_000_000}
BEATS = {"heartbeat_interval_ns": 50_000_000}


def test_every_datagram_of_the_kernels_count_is_one_of_the_meshs(
    make_lab, tmp_path, monkeypatch
):
    monkeypatch.setattr(mesh, "_START_NS", START_NS)
    plan = MeshPlan(protocol="udp", sizes=(1024, 40_000), **QUICK, **BEATS)
    done = follow(make_lab(hosts=HOSTS), plan, tmp_path)
    assert done.lost == {}
    tests = len(done.runs)
    each_way = 2 * done.requests()  # and its echo
    # on a busy machine what opens a session is asked for again, and what answers
    # that later than the first is never read: the kernel counts what was
    sent, read = (
        done.network("snmp", "Udp", f"{way}Datagrams") for way in ("Out", "In")
    )
    least = each_way + DATAGRAMS_TO_OPEN * PAIRS * tests
    assert least <= read <= sent
    answered = sum(told["messages"] for told in done.told["responders"].values())
    assert answered >= done.requests()
    assert answered == done.requests() or done.begun_again
    rows = done.table("messages")
    ours = rows[(rows["protocol"] == "udp")]
    assert (ours["send_ns"] > 0).sum() == sent
    assert (ours["read_ns"] > 0).sum() == read
    kinds = ours["kind"].value_counts()
    measured = 30 * PAIRS * tests
    assert kinds["request"] == kinds["reply"] == measured
    beats = sum(
        told["heartbeats"]["sent"]
        for of_run in done.runs
        for told in of_run["clients"].values()
    )
    assert kinds["heartbeat"] == 2 * beats > 0


@pytest.mark.parametrize("reply", [None, HEARTBEAT_BYTES])
def test_every_byte_of_the_kernels_count_is_one_of_the_meshs(
    make_lab, tmp_path, monkeypatch, reply
):
    monkeypatch.setattr(mesh, "_START_NS", START_NS)
    sizes = (1024, 204_800)
    plan = MeshPlan(sizes=sizes, reply_bytes=reply, **QUICK, **BEATS)
    done = follow(make_lab(hosts=HOSTS), plan, tmp_path)
    assert done.lost == {}
    beats = sum(
        told["heartbeats"]["sent"] + told["heartbeats"]["warmup"]
        for of_run in done.runs
        for told in of_run["clients"].values()
    )
    messages = 35 * PAIRS * 2  # of each size, five of them to warm up
    payload = sum(messages * (size + (reply or size)) for size in sizes)
    payload += 2 * beats * HEARTBEAT_BYTES
    connections = PAIRS * len(done.runs)
    payload += connections * SESSION_BYTES
    # IP and TCP with timestamps; a SYN, and its answer, have 8 more bytes of options
    packets = done.network("snmp", "Ip", "OutRequests")
    headers = packets * 52 + connections * 2 * 8
    assert done.network("netstat", "TcpExt", "TCPLostRetransmit") == 0
    again = done.network("snmp", "Tcp", "RetransSegs")
    octets = done.network("netstat", "IpExt", "OutOctets")
    # what comes out of its order is acknowledged with options, up to 40 bytes
    disordered = done.network("netstat", "TcpExt", "TCPOFOQueue")
    more = octets - headers - payload
    assert more >= 0
    assert more <= again * 65_000 + disordered * 40 or done.begun_again
    assert done.requests() == messages * len(sizes) + beats


def test_a_test_that_is_begun_again_has_no_message_of_its_first_attempt(
    make_lab, tmp_path, monkeypatch
):
    """One client of three comes too late, once; the others have sent by then."""
    spawn, held_up = MeshInLab._spawn, []

    def late_once(self, host, command, **options):
        if host == "h2" and not held_up:
            held_up.append(host)
            Event().wait(2)
        return spawn(self, host, command, **options)

    monkeypatch.setattr(MeshInLab, "_spawn", late_once)
    plan = MeshPlan(sizes=(1024,), reply_bytes=150, **QUICK, **BEATS)
    done = follow(make_lab(hosts=HOSTS), plan, tmp_path)
    rows = done.table("messages")
    kinds = rows["kind"].value_counts()
    assert kinds["request"] == kinds["reply"] == 30 * PAIRS * 2
    messages = done.table("round_trips").query("heartbeat == 0")
    assert len(messages) == 30 * PAIRS * 2
    assert done.runs[0]["begun_again"] >= 1
    # what the two had sent until then is there, apart
    beats = kinds["heartbeat"]
    assert len(rows) - beats > (30 + 5) * PAIRS * 2 * 2


def test_the_table_and_the_rows_and_the_log_tell_the_same(make_lab, tmp_path):
    plan = MeshPlan(sizes=(1024, 10_240), **QUICK, **BEATS)
    done = follow(make_lab(hosts=HOSTS), plan, tmp_path)
    cells = done.summary["cells"]
    told = get_stats(done.folder / "tmsn.log", HOSTS)
    for name in ("load", *SEED_COLUMNS):
        ours = [cell["table"][name] for cell in cells]
        np.testing.assert_allclose(ours, told[name], rtol=1e-12, err_msg=name)
    assert read_tmsn(done.folder / "tmsn.log").skipped_rows == 0
    trips = done.table("round_trips")
    messages = trips[trips["heartbeat"] == 0]
    assert set(trips["heartbeat"]) == {0, 1}
    for cell in cells:
        assert cell["table"]["msg"] == cell["table"]["msg_echo"] == 2 * 30
        of_size = messages[messages["size_bytes"] == cell["size_bytes"]]
        assert len(of_size) == cell["sent"] == 30 * PAIRS * 2
        assert cell["lost"] == 0
        rtt_ns = of_size["received_ns"] - of_size["intended_ns"]
        assert (rtt_ns == of_size["rtt_ns"]).all()
        medians = rtt_ns.groupby([of_size[end] for end in ENDS]).quantile(
            0.5, interpolation="lower"
        )
        for pair in cell["pairs"]:
            key = pair["source"], pair["destination"]
            assert medians[key] == pair["p50_ns"]
    # what passed between created and read is told by stages, to the nanosecond
    rows = done.table("messages")
    of_ours = rows[rows["kind"].isin(["request", "reply"])]
    stages = of_ours[[f"{name}_ns" for name in STAGES]].sum(axis=1)
    assert (stages == of_ours["end_to_end_ns"]).all()
    assert of_ours["end_to_end_ns"].notna().all()


def test_a_links_load_is_what_its_interface_counts(make_lab, tmp_path):
    lab = make_lab(hosts=HOSTS, rate_bps=100_000_000, qdisc="tbf", offloads=False)
    plan = MeshPlan(sizes=(102_400,), messages=60, tests=1, interval_ns=25_000_000)
    done = follow(lab, plan, tmp_path)
    (cell,) = done.summary["cells"]
    # 71 segments of 66 bytes of headers, and the echo's, 40 times a second to two
    each = 8 * 2 * (102_400 + 71 * 66 + 150 + 66) / 0.025
    beats = 8 * 2 * 2 * (150 + 66)
    assert cell["wire_bps"] == pytest.approx(each + beats)
    assert cell["utilisation"] == pytest.approx(cell["wire_bps"] / 100e6)
    # acknowledgements, 66 bytes for two segments at most, and connecting come on top;
    # the last messages of a host leave it before the last echo of all has come
    for host in lab.hosts:
        for side in ("up", "down"):
            share = cell["busy"][host][side] / cell["utilisation"]
            assert 0.95 < share < 1.04, (host, side)


@pytest.mark.timed
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_the_knee_of_a_shaped_link_is_where_arithmetic_puts_it(
    make_lab, tmp_path, protocol
):
    lab = make_lab(hosts=HOSTS, rate_bps=100_000_000, qdisc="tbf")
    size = 51_200
    # Ethernet, IP, and TCP with timestamps of each segment; UDP once, then fragments
    segments = 36
    wire = size + segments * 66 + 150 + 66
    if protocol == "udp":
        fragments = 35
        wire = size + 8 + fragments * 34 + 150 + 8 + 34
    expected_ns = 8 * 2 * wire / 100e6 * 1e9
    plan = MeshPlan(
        protocol=protocol, sizes=(size,), messages=5, tests=1, find_knee=True
    )
    (knee,) = follow(lab, plan, tmp_path).summary["knees"]
    assert knee["interval_ns"] == pytest.approx(expected_ns, rel=0.05)
    assert knee["interval_ns"] <= 1.02 * knee["beyond_ns"]
    assert knee["expected_ns"] == pytest.approx(expected_ns, rel=0.002)
    assert knee["grows"]["kind"] == "request"
    # what the qdisc does not take waits in the socket before it
    assert knee["grows"]["stage"] in ("qdisc", "send_queue", "application")
    assert max(knee["busy"][host]["up"] for host in lab.hosts) > 0.9


@pytest.mark.parametrize("interval_ms", [10, 50])
def test_ten_hosts_are_ninety_pairs(make_lab, tmp_path, interval_ms):
    plan = MeshPlan(
        hosts=10,
        sizes=(1024,),
        messages=40,
        tests=1,
        interval_ns=interval_ms * 1_000_000,
    )
    done = follow(make_lab(hosts=10), plan, tmp_path)
    assert done.lost == {}
    trips = done.table("round_trips")
    messages = trips[trips["heartbeat"] == 0]
    counts = messages.groupby(ENDS).size()
    assert len(counts) == 90
    assert (counts == 40).all()
    (cell,) = done.summary["cells"]
    assert cell["table"]["msg"] == cell["table"]["msg_echo"] == 9 * 40
    offered = 90 * 1000 / interval_ms
    assert cell["load"]["offered_messages_per_second"] == pytest.approx(offered)
    # the last of each pair comes back after the last was due; how long after, a busy
    # machine decides
    assert 0 < cell["load"]["achieved_messages_per_second"] < 1.05 * offered
    rows = done.table("messages")
    for kind in ("request", "reply"):
        of_kind = rows[rows["kind"] == kind]
        assert len(of_kind) == 90 * 40
        assert of_kind["end_to_end_ns"].notna().all()


@pytest.mark.thorough
def test_the_command_says_its_table_and_analyze_the_same(tmp_path):
    words = ("mesh", "--sizes=1024,60000", "--messages=40", "--tests=2")
    words = (*words, "--interval=8ms", "--rate=100mbit", "--qdisc=tbf", "--quiet")
    done = run("run", *words, "--out=here", cwd=tmp_path)
    assert done.process.returncode == 0, done.err
    summary = json.loads((tmp_path / "here" / "summary.json").read_text())
    large = summary["mesh"]["cells"][1]
    assert large["utilisation"] == pytest.approx(1.26, abs=0.01)
    assert "60000 B every 8 ms offers 1.26 of each host's link (100 Mbit/s)" in done.out
    told = get_stats(tmp_path / "here" / "tmsn.log", HOSTS)
    assert told["avg_msg"].iloc[1] == pytest.approx(large["table"]["avg_msg"])
    analyzed = run("analyze", "--json", "here", cwd=tmp_path)
    assert analyzed.process.returncode == 0, analyzed.err
    assert json.loads(analyzed.out)["mesh"] == summary["mesh"]
    reported = run("report", "here", cwd=tmp_path)
    assert reported.process.returncode == 0, reported.err
    page = (tmp_path / "here" / "report.html").read_text()
    assert "mesh-pairs-60000-b" in page
