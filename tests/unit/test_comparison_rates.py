"""Throughput and loss that each run tells as a number, against scipy and by hand."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from latprof_analysis.compare import (
    compare_lost,
    compare_rates,
    compare_sides,
    document,
    gate,
    read_sides,
)
from latprof_analysis.compare.document import write_csv
from latprof_analysis.compare.sides import Group, Lost, Rate
from latprof_analysis.report.compared import show
from latprof_analysis.report.terminal import Terminal
from latprof_analysis.stages import BLANK
from scipy import stats
from test_mesh import overloaded
from test_operations import written

A, B = (93.1, 94.0, 92.5, 93.3), (88.0, 90.5, 89.1)


def rates(values, offered=None):
    return [Rate(1e6 * value, offered) for value in values]


def losses(counts, sent=100_000, episodes=20):
    return [Lost(sent, lost, episodes) for lost in counts]


def test_rates_are_compared_by_welchs_t_of_their_logarithms():
    change = compare_rates(rates(A), rates(B))
    logs = np.log(A), np.log(B)
    told = stats.ttest_ind(logs[1], logs[0], equal_var=False)
    interval = told.confidence_interval(0.95)
    assert change.p_value == pytest.approx(told.pvalue)
    found = change.ratio.value, change.ratio.low, change.ratio.high
    by_hand = stats.gmean(B) / stats.gmean(A)
    assert found == pytest.approx((by_hand, *np.exp([*interval])))
    assert change.a.value == pytest.approx(1e6 * stats.gmean(A))
    assert (change.a.runs, change.b.runs) == (4, 3)


def test_lost_datagrams_are_compared_by_welchs_t_of_the_runs_shares():
    counts = (100, 140, 90, 120), (300, 420, 350)
    change = compare_lost(losses(counts[0]), losses(counts[1]))
    shares = [np.array(each) / 100_000 for each in counts]
    told = stats.ttest_ind(shares[1], shares[0], equal_var=False)
    assert change.p_value == pytest.approx(told.pvalue)
    interval = told.confidence_interval(0.95)
    found = change.difference.low, change.difference.high
    assert found == pytest.approx((interval.low, interval.high))
    # of all that were sent, not of the runs' shares
    assert (change.a.value, change.a.n) == (450 / 400_000, 400_000)


def test_one_run_on_each_side_is_shown_and_not_judged():
    for change in (
        compare_rates(rates(A[:1]), rates(B[:1])),
        compare_lost(losses([100]), losses([300])),
    ):
        assert change.p_value is None
        assert change.reason.startswith("one run on each side tells one value each")
    assert change.difference.value == pytest.approx(0.002)


def test_what_was_offered_differently_is_shown_and_not_judged():
    change = compare_rates(rates(A, 100e6), rates(B, 90e6))
    assert change.p_value is None
    assert change.reason == "9e+07 to 1e+08 a second are what was asked for"
    assert change.ratio.value == pytest.approx(stats.gmean(B) / stats.gmean(A))
    reason = compare_rates(rates(A, 100e6), rates(B)).reason
    assert reason == "one side offers a rate, the other as much as it can"


def test_few_episodes_of_loss_and_runs_that_are_all_alike_are_not_judged():
    change = compare_lost(losses([0, 0], episodes=0), losses([5, 6], episodes=2))
    assert change.reason == "episodes of loss: 4, 10 are needed"
    alike = compare_lost(losses([100] * 3), losses([300] * 3))
    assert alike.reason.startswith("the runs of each side do not differ at all")


def bulk_run(folder, received_bps, lost, *, sent=10_000, offered=0):
    """A folder of a bulk run with one part of 4 channels."""
    folder.mkdir(parents=True)
    end = {"average_bps": received_bps, "max_bps": None}
    counts = {"sent": sent, "received": sent - lost, "lost": lost, "loss_runs": 30}
    others = ("longest_loss_run", "reordered", "duplicates", "retransmits")
    up = counts | dict.fromkeys((*others, "receive_buffer_bytes"), None)
    up |= {"loss": lost / sent, "client": end, "server": end}
    up["slots"] = {"slot_ns": 1, "sent_bps": [], "received_bps": []}
    places = [{"place": "receive buffer", "packets": lost}]
    balance = {"sent": sent, "received": sent - lost, "places": places}
    part = {"protocol": "udp", "channels": 4, "offered_bps": offered, "stopped": False}
    part |= {"directions": {"up": up}}
    part["balance"] = balance | {"session_packets": 0, "unexplained": 0}
    plan = {"protocols": ["udp"], "channels": [4], "direction": "up", "offer_bps": 0}
    workload = {"plan": None, "command": [], "bulk": plan | {"find_rate": None}}
    workload["runs"] = [{"bulk": part}]
    run = {"format": 1, "state": "done", "workload": workload, "lab": None}
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "summary.json").write_text("{}")
    header = "protocol,kind,sequence,size_bytes,send_ns"
    (folder / "messages.csv").write_text(header + "\n")
    return folder


@pytest.fixture
def bulk(tmp_path):
    """Two folders of three runs: B receives a tenth less, and loses more."""
    for side, factor, lost in (("a", 1.0, 100), ("b", 0.9, 300)):
        for n, more in enumerate((0.99, 1.0, 1.01)):
            of_run = tmp_path / side / str(n)
            bulk_run(of_run, factor * more * 1e9, round(more * lost))
    return tmp_path


def compared(*folders):
    return document(compare_sides(read_sides([str(folder) for folder in folders])))


def test_bulk_runs_are_compared_by_throughput_and_loss_of_each_part(bulk, capsys):
    told = compared(bulk / "a", bulk / "b")
    (received,) = told["throughput"]
    assert (received["protocol"], received["unit"]) == ("udp 4", "bit/s")
    assert received["ratio"]["value"] == pytest.approx(0.9)
    assert received["verdict"] == "slower"
    (lost,) = told["loss"]
    assert (lost["a"]["value"], lost["b"]["value"]) == (0.01, 0.03)
    assert (lost["verdict"], lost["unit"]) == ("more", "share of datagrams")
    assert told["answer"] == (
        f"{bulk}/b against {bulk}/a: slower in 1, more in 1 of 2 figures of "
        "throughput and loss."
    )
    assert gate(told, throughput_lower=0.05)["outcome"] == "failed"
    assert gate(told, throughput_lower=0.2, lossier=0.05)["outcome"] == "passed"
    written_rows = io.StringIO()
    write_csv(told, written_rows)
    rows = list(csv.DictReader(io.StringIO(written_rows.getvalue())))
    assert [(row["figure"], row["kind"], row["unit"]) for row in rows] == [
        ("throughput", "udp 4", "bit/s"),
        ("loss", "udp 4", "share of datagrams"),
    ]
    assert float(rows[0]["side_value"]) == received["b"]["value"]
    assert float(rows[0]["ratio"]) == received["ratio"]["value"]
    assert float(rows[1]["difference"]) == pytest.approx(0.02)
    assert rows[0]["baseline_ns"] == ""
    show(told, Terminal(width=200), everything=False)
    out = capsys.readouterr().out
    assert "udp 4 received: 1.000 Gbit/s*, " in out
    assert "udp 4 datagrams lost: 1% of 30000*, " in out


def test_a_search_in_which_no_rate_came_through_is_no_throughput(bulk):
    trials = {"resolution": 0.01, "trial_seconds": 2.0, "trials": []}
    trials |= {"failed_bps": 1e6, "held_back": False, "bound": []}
    for place, rate_bps in enumerate((97e6, 0.0, 98e6)):
        path = bulk / "a" / str(place) / "run.json"
        run = json.loads(path.read_text())
        told = {"channels": 4, "most_loss": 0.0, "rate_bps": rate_bps}
        search = told | trials | {"confirmation": None}
        run["workload"]["runs"].append({"search": search})
        path.write_text(json.dumps(run))
    (side,) = read_sides([str(bulk / "a")])
    rates = {group.kind: one for group, one in side.rates.items()}
    assert rates["udp 4 highest rate"] == [Rate(97e6), Rate(98e6)]


def test_single_bulk_runs_stand_side_by_side_and_say_what_to_do(bulk, capsys):
    told = compared(bulk / "a" / "1", bulk / "b" / "1")
    assert "repeat each 3 times or more" in told["answer"]
    show(told, Terminal(width=200), everything=False)
    out = capsys.readouterr().out
    assert "udp 4 received: 1.000 Gbit/s*, " in out
    assert ": -10.0%, too few (one run on each side" in out


def test_operations_are_compared_by_store_operation_and_payload(tmp_path):
    rng = np.random.default_rng(3)
    for side, factor in (("a", 1.0), ("b", 1.5)):
        for n in range(3):
            folder = written(tmp_path / f"{side}{n}")
            head, first, *_ = (folder / "operations.csv").read_text().splitlines()
            names = head.split(",")
            row = dict(zip(names, first.split(","), strict=True))
            row["payload_size_bytes"] = "1000"
            lines = [head]
            for place, scatter in enumerate(rng.lognormal(0, 0.05, 40)):
                network = round(factor * scatter * 10_000)
                row |= {"start_ns": str(place), "network_ns": str(network)}
                row["time_ns"] = str(13 + network)
                lines.append(",".join(row[name] for name in names))
            (folder / "operations.csv").write_text("\n".join(lines) + "\n")
            (folder / "messages.csv").write_text("protocol,kind,size_bytes,send_ns\n")
    told = compared(tmp_path / "a*", tmp_path / "b*")
    groups = {group["stage"]: group for group in told["groups"]}
    assert set(groups) == {"operation", "client", "network", "server", "receive_queue"}
    whole = groups["operation"]
    assert (whole["kind"], whole["size_bytes"]) == ("R GET", 1000)
    assert whole["verdict"] == groups["network"]["verdict"] == "slower"
    # 40 values tell no p90; their medians are off by 0.05 x 1.25 / sqrt(40), 1%
    p50 = whole["percentiles"]["p50"]
    assert p50["ratio"]["value"] == pytest.approx(1.5, rel=0.05)
    assert whole["percentiles"]["p90"]["verdict"] == "too few"
    assert BLANK not in [p50["a"]["value_ns"], p50["b"]["value_ns"]]
    times = [
        np.median(np.loadtxt(tmp_path / f"a{n}/operations.csv", delimiter=",",
                             skiprows=1, usecols=6)) for n in range(3)
    ]  # fmt: skip
    assert p50["a"]["value_ns"] == pytest.approx(stats.gmean(times), rel=0.01)


def test_the_trials_of_a_search_and_heartbeats_are_in_no_figure_of_a_mesh(tmp_path):
    """Two tests and a trial between them, which took ten times as long."""
    header = "protocol,sequence,size_bytes,reply_bytes,intended_ns,sent_ns,received_ns,"
    header += "rtt_ns,lost,probe_statistics,source,destination,heartbeat"
    begins, trips = (1_000_000, 2_000_000, 3_000_000), 200
    lines = [header]
    for place, begin_ns in enumerate(begins):
        for n in range(trips):
            sent = begin_ns + 1000 * n
            took = 5000 if place == 1 else 500 + n
            size, beat = (150, 1) if n % 10 == 0 else (1024, 0)
            row = ("udp", n, size, 150, sent, sent, sent + took, took, 0, "")
            lines.append(",".join(map(str, (*row, "h0", "h1", beat))))
    (tmp_path / "round_trips.csv").write_text("\n".join(lines) + "\n")
    # its messages, of which the echoes were sent from elsewhere
    lines = [
        "protocol,kind,sequence,size_bytes,send_ns,read_ns,qdisc_ns,receive_queue_ns"
    ]
    for place, begin_ns in enumerate(begins):
        for n in range(trips):
            sent, took = begin_ns + 1000 * n, 9000 if place == 1 else 10 + n
            lines.append(f"udp,request,{n},1024,{sent},,{took},")
            lines.append(f"udp,reply,{n},150,,{sent + 500},,{took}")
    (tmp_path / "messages.csv").write_text("\n".join(lines) + "\n")
    tests = [
        {"protocol": "udp", "begin_ns": at, "trial": place == 1}
        for place, at in enumerate(begins)
    ]
    plan = {"protocol": "udp", "hosts": 2, "interval_ns": 1000}
    workload = {"plan": None, "command": [], "mesh": plan, "runs": tests}
    run = {"format": 1, "state": "done", "workload": workload, "lab": None}
    (tmp_path / "run.json").write_text(json.dumps(run))
    mesh = json.loads(json.dumps(overloaded()))
    (tmp_path / "summary.json").write_text(json.dumps({"mesh": mesh}))
    (side,) = read_sides([str(tmp_path)])
    assert side.notes == []
    kinds = {"udp request": "qdisc", "udp reply": "receive_queue"}
    for kind, stage in kinds.items():
        size = 1024 if kind == "udp request" else 150
        (stages,) = side.series.pop(Group(kind, stage, size))
        assert (stages.size, stages.max()) == (2 * trips, 9 + trips)
    times = {(group.kind, group.size_bytes): one for group, one in side.series.items()}
    (messages,) = times.pop(("udp round trip", 1024))
    (beats,) = times.pop(("udp heartbeat round trip", 150))
    assert not times
    assert (messages.size, beats.size) == (2 * 180, 2 * 20)
    assert messages.max() < 1000
    assert {
        group.size_bytes: len(one[0].sent_ns) for group, one in side.trips.items()
    } == {
        1024: 360,
        150: 40,
    }
    assert not side.paced
