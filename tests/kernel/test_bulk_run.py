"""`latprof run bulk`: each datagram that was lost, at the place it died.

Held against the counters of the kernel (/proc/net/snmp), `tc -s`, a program that drops
chosen packets, the arithmetic of a shaper, and iperf3.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pandas as pd
import pytest
from bulk_oracles import RATE_BPS, SIZE, run_iperf3, shaped_lab, udp_counters
from dropper import attach_dropper, run_tc
from latprof_agent.capture.capture import open_capture
from latprof_agent.interrupts import Interrupt
from latprof_agent.probes.catalogue import PROBES
from latprof_agent.recorder import Recorder
from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.sinks.run_tables import RunTables
from latprof_agent.sinks.run_totals import RunTotals
from latprof_agent.workload.bulk import BulkPlan
from latprof_agent.workload.workload import RunContext
from latprof_process import Latprof, kill, run
from shaper import datagram_packets, tc_count

BULK = ("run", "bulk", "--json")
# A packet each, so that the kernel counts datagrams.
EXACT = {"protocols": ("udp",), "send_way": "sendmmsg", "receive_way": "recvmmsg"}
ALL = (1, 2, 4, 8)
SMALL, LARGE = 8192, 64_000_000
SOCKET = "receive buffer"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "run"


def transfer(lab, out, **options):
    """Run bulk transfers in a lab of the test's own; the figures of each part."""
    plan = BulkPlan(**{**EXACT, **options})
    workload = plan.open(lab)
    folder = RunFolder(out, "")
    with open_capture(workload.watched(()), [], PROBES, None) as capture:
        totals = RunTotals()
        recorder = Recorder(capture, [RunTables(folder), totals])
        capture.start()
        workload.follow(
            RunContext(
                capture=capture,
                recorder=recorder,
                folder=folder,
                totals=totals,
                protocols=(),
                lab=lab,
                interrupt=Interrupt(),
                progress=lambda *_: None,
                say_running=lambda: None,
            )
        )
        capture.stop()
        recorder.finish()
    workload.write(folder)
    folder.close()
    return workload.figures()["bulk"]["parts"]


def died(parts):
    """Packets by place, of all parts."""
    found = {}
    for part in parts:
        for place in part["balance"]["places"]:
            name = place["place"]
            found[name] = found.get(name, 0) + place["packets"]
    return {name: packets for name, packets in found.items() if packets}


def check_sums(parts):
    """Nothing is unexplained: what is not received died somewhere."""
    for part in parts:
        balance = part["balance"]
        at_places = sum(place["packets"] for place in balance["places"])
        lost = balance["sent"] - balance["received"]
        assert lost == at_places - balance["session_packets"]
        assert balance["unexplained"] == 0


@pytest.mark.parametrize("direction", ["up", "down", "both"])
@pytest.mark.parametrize("buffer", [SMALL, LARGE], ids=["small", "large"])
def test_on_a_bare_veth_all_died_in_receive_buffers_as_the_kernel_counts(
    make_lab, out, buffer, direction
):
    lab = make_lab()
    before = {end: udp_counters(lab, end) for end in "ab"}
    parts = transfer(
        lab,
        out,
        channels=ALL,
        volume_bytes=100_000_000,
        receive_buffer_bytes=buffer,
        direction=direction,
    )
    counted = sum(
        udp_counters(lab, end)["RcvbufErrors"] - before[end]["RcvbufErrors"]
        for end in "ab"
    )
    assert [part["channels"] for part in parts] == [*ALL]
    check_sums(parts)
    assert died(parts).get(SOCKET, 0) == counted
    assert set(died(parts)) <= {SOCKET}
    assert sum(part["dropped_at_sockets"] for part in parts) == counted
    ways = 2 if direction == "both" else 1
    for part in parts:
        assert part["balance"]["sent"] == ways * -(-100_000_000 // SIZE)
        assert part["balance"]["session_packets"] == 0
    if buffer == SMALL:
        assert counted > 0


def test_what_a_tc_program_drops_is_told_at_it(make_lab, out, tmp_path):
    lab = make_lab()
    attach_dropper(lab, "a", "egress", tmp_path, [*range(1000, 1010), 2000])
    parts = transfer(
        lab,
        out,
        channels=(1,),
        volume_bytes=10_000_000,
        offer_bps=100_000_000,
        receive_buffer_bytes=LARGE,
    )
    qdiscs = json.loads(run_tc(lab, "a", "-s", "-j", "qdisc", "show"))
    (hook,) = (one for one in qdiscs if one["kind"] == "clsact")
    check_sums(parts)
    assert parts[0]["balance"]["sent"] - parts[0]["balance"]["received"] == 11
    told = died(parts)
    assert set(told) == {"tc program of a"}
    # before and after the transfer, too, it drops what the kernel sends unasked
    assert 11 <= told["tc program of a"] <= hook["drops"]
    runs = pd.read_csv(out / "loss_runs.csv")
    assert runs["datagrams"].tolist() == [10, 1]


@pytest.mark.parametrize("leaf", [None, "pfifo"])
def test_what_a_full_qdisc_drops_is_tcs_to_the_packet(make_lab, out, leaf):
    # Its queue is shorter than the send buffer, so nothing holds the sender back.
    lab = make_lab(
        qdisc="tbf",
        leaf=leaf,
        rate_bps=100_000_000,
        burst_bytes=20_000,
        queue_bytes=30_000,
    )
    before = tc_count(lab, "a")
    parts = transfer(
        lab,
        out,
        channels=ALL,
        volume_bytes=10_000_000,
        offer_bps=200_000_000,
        receive_buffer_bytes=LARGE,
    )
    dropped = (tc_count(lab, "a") - before).drops
    check_sums(parts)
    assert dropped > 1000
    # at the root tc counts again what its leaf has dropped
    assert died(parts) == {f"qdisc {leaf or 'tbf'} of a": dropped}


@pytest.mark.parametrize("direction", ["up", "both"])
@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_what_the_emulator_loses_is_its_own_count(make_lab, out, direction, ipv6):
    lab = make_lab(
        rate_bps=100_000_000,
        delay_ns=1_000_000,
        loss=0.01,
        emulator="always",
        ipv6=ipv6,
    )
    parts = transfer(
        lab,
        out,
        channels=ALL,
        volume_bytes=5_000_000,
        offer_bps=50_000_000,
        receive_buffer_bytes=LARGE,
        direction=direction,
    )
    counted = lab.counters()["emulator"]
    check_sums(parts)
    places = died(parts)
    assert places["link's loss, a to b"] == counted["ab"]["dropped_loss"]
    if direction == "both":
        assert places["link's loss, b to a"] == counted["ba"]["dropped_loss"]
    sent = sum(part["balance"]["sent"] for part in parts)
    # 1% of n: within 4 standard deviations of a binomial. What a busy host sends late
    # comes in bursts, which the link's queue drops after that.
    lost = sum(n for place, n in places.items() if "loss" in place)
    assert abs(lost - 0.01 * sent) < 4 * (0.01 * 0.99 * sent) ** 0.5


@pytest.mark.timed
def test_under_a_shaper_throughput_is_its_arithmetic_and_iperf3s(make_lab, out):
    lab = shaped_lab(make_lab)
    parts = transfer(lab, out, channels=(1, 4), duration_seconds=3.0)
    (packet_bytes,) = datagram_packets(SIZE, 1500, False)
    theirs = run_iperf3(lab, *f"-u -b 0 -l {SIZE} -t 3 -P 4".split())["sum"]
    iperf3_bps = theirs["bits_per_second"] * (1 - theirs["lost_percent"] / 100)
    check_sums(parts)
    for part in parts:
        server = part["directions"]["up"]["server"]
        assert server["average_bps"] == pytest.approx(
            RATE_BPS * SIZE / packet_bytes, rel=0.02
        )
        assert 0.95 < server["average_bps"] / iperf3_bps < 1.05
        # the bucket adds 16 ms of the rate to a slot of 30 ms
        assert server["average_bps"] <= server["max_bps"]
    slots = pd.read_csv(out / "slots.csv").query("end == 'server'")
    received = sum(part["directions"]["up"]["received_bytes"] for part in parts)
    assert slots["bytes"].sum() == received


def searched(out, *words):
    """What was found at 100 Mbit/s, with at most a thousandth lost."""
    how = ("--find-rate=0.1%", "--trial=1s", "--duration=3s", "--rate=100mbit")
    # the receiver may have no CPU for a while
    latprof = run(*BULK, *how, "--receive-buffer=16m", *words, f"--out={out}")
    assert latprof.process.returncode == 0, latprof.err
    assert latprof.left() == []
    return json.loads(latprof.out)["bulk"]["searches"]


@pytest.mark.timed
def test_the_highest_rate_without_loss_is_that_of_the_shaper(out):
    (packet_bytes,) = datagram_packets(SIZE, 1500, False)
    carried_bps = RATE_BPS * SIZE / packet_bytes
    # a bucket of 8 ms: a sender that has no CPU for less loses no tokens
    words = ("--qdisc=tbf", "--burst=100000", "--channels=1,4")
    for search in searched(out, *words):
        assert search["rate_bps"] == pytest.approx(carried_bps, rel=0.02)
        assert search["failed_bps"] > search["rate_bps"]
        last = search["confirmation"]
        assert (last["seconds"], last["passed"]) == (3.0, True)
        assert last["received_bps"] == pytest.approx(carried_bps, rel=0.02)
    said = run("analyze", str(out)).out
    assert said.count("trials of 1 s, to 1%), confirmed: 0% lost in 3 s; at ") == 2


@pytest.mark.timed
def test_losses_below_the_bound_do_not_hold_the_search_low(out):
    words = ("--loss=0.05%", "--emulator=always", "--channels=1")
    (search,) = searched(out, *words)
    carried_bps = RATE_BPS * SIZE / (SIZE + 28)  # the emulator carries IP
    assert search["rate_bps"] == pytest.approx(carried_bps, rel=0.015)
    assert 0 < search["confirmation"]["loss"] < 0.001


def wait_for_traffic(latprof):
    """Wait until the client has sent a megabyte."""
    client = latprof.wait_for_child("latprof-load bulk ")

    def sent_bytes():
        lines = Path(f"/proc/{client}/net/dev").read_text().splitlines()
        (line,) = (line for line in lines if "veth0" in line)
        return int(line.split(":")[1].split()[8])

    latprof.wait_for(lambda: sent_bytes() > 1_000_000, "traffic")


def test_ctrl_c_keeps_what_was_measured(out):
    words = ("--protocol=udp", "--channels=2", "--duration=60s", f"--out={out}")
    latprof = Latprof(*BULK, *words)
    wait_for_traffic(latprof)
    latprof.signal(signal.SIGINT)
    assert latprof.finish() == 0, latprof.err
    summary = json.loads(latprof.out)
    assert summary["state"] == "interrupted"
    (part,) = summary["bulk"]["parts"]
    assert part["stopped"]
    check_sums([part])
    assert part["balance"]["received"] > 0
    assert latprof.left() == []


def test_a_responder_that_dies_is_one_line_and_the_senders_count_is_kept(out):
    words = ("--protocol=udp", "--channels=2", "--duration=60s", f"--out={out}")
    latprof = Latprof(*BULK, *words)
    wait_for_traffic(latprof)
    kill(latprof.wait_for_child(" echo "), signal.SIGKILL)
    assert latprof.finish() == 1
    (line,) = latprof.err.splitlines()
    assert line.startswith("latprof: ")
    (part,) = json.loads(latprof.out)["bulk"]["parts"]
    assert part["balance"] is None
    assert part["directions"]["up"]["received"] is None
    assert (out / "bulk.csv").exists()
    assert latprof.left() == []


def test_a_recorded_run_has_its_messages_and_the_same_sums(out):
    words = ("--protocol=udp", "--channels=1", "--volume=2m", "--offer=20mbit")
    latprof = run(*BULK, *words, "--probes", f"--out={out}")
    assert latprof.process.returncode == 0, latprof.err
    (part,) = json.loads(latprof.out)["bulk"]["parts"]
    check_sums([part])
    messages = pd.read_csv(out / "messages.csv")
    data = messages[messages["size_bytes"] == SIZE]
    assert len(data) == part["balance"]["sent"]


@pytest.mark.thorough
def test_the_folder_says_again_what_the_run_said_and_is_drawn(out, tmp_path):
    words = ("--channels=1,2", "--volume=5m", "--offer=100mbit", f"--out={out}")
    latprof = run(*BULK, *words)
    assert latprof.process.returncode == 0, latprof.err
    said = json.loads(latprof.out)["bulk"]
    assert [(p["protocol"], p["channels"]) for p in said["parts"]] == [
        *(("udp", 1), ("udp", 2), ("tcp", 1), ("tcp", 2))
    ]
    again = run("analyze", "--json", str(out))
    assert json.loads(again.out)["bulk"] == said
    page = tmp_path / "page.md"
    report = run("report", str(out), "--out", str(page), "--format", "md")
    assert report.process.returncode == 0, report.err
    drawn = {path.stem for path in tmp_path.glob("*/throughput-*.svg")}
    assert drawn == {f"throughput-{p}-{n}-up" for p in ("udp", "tcp") for n in (1, 2)}
