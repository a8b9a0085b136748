"""Figures of a mesh against TMSN's own analysis, arithmetic and closed forms."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from latprof_agent.errors import UsageError
from latprof_agent.workload.knee_search import RESOLUTION, KneeSearch
from latprof_agent.workload.mesh import MeshPlan
from latprof_agent.workload.tmsn_log import tmsn_log
from latprof_analysis.fit.wire import Packets
from latprof_analysis.read.tmsn import read_tmsn
from latprof_analysis.report.answer import answer
from latprof_analysis.report.first_screen import key_figures
from latprof_analysis.report.mesh_text import (
    SEED_COLUMNS,
    mesh_answers,
    mesh_parts,
    published_text,
)
from latprof_analysis.report.overview import answers, overview
from latprof_analysis.report.parts import Table, Text
from latprof_analysis.report.words import duration_text
from latprof_analysis.stages import BLANK, STAGES
from latprof_analysis.study.mesh import (
    Cell,
    Mesh,
    MeshSetup,
    PairTrips,
    Span,
    backlog,
    growing_stage,
    host_counts,
    load_of,
)
from latprof_analysis.study.published_mesh import published_of
from published import TMSN
from seed_tmsn import get_stats
from test_overview import SUMMARIES

HOSTS = {"h0": "10.0.0.1", "h1": "10.0.0.2", "h2": "10.0.0.3"}
MS = 1_000_000
IDLE = {"processors": {"busy": 0.1}}


def setup_of(rate_bps=None, packets=None):
    packets = packets or Packets.tcp()
    return MeshSetup(tuple(HOSTS), 150, 150, 10**9, packets, rate_bps)


def made_trips(rng, messages=50, beats=3, lost=0.0, mean_ns=800_000):
    """Messages and heartbeats of all pairs, each with a round trip of its own."""
    parts = []
    for source in range(3):
        for destination in (host for host in range(3) if host != source):
            n = messages + beats
            due = np.arange(n) * 50 * MS + rng.integers(0, 50 * MS)
            sent = due + rng.integers(0, 100_000, n)
            back = sent + rng.exponential(mean_ns, n).astype(int) + 50_000
            back[rng.random(n) < lost] = BLANK
            beat = np.arange(n) >= messages
            ends = np.full(n, source), np.full(n, destination)
            parts.append(PairTrips(*ends, beat, due, sent, back))
    return PairTrips.joined(parts)


@pytest.fixture(params=[0.0, 0.1], ids=["none lost", "some lost"])
def tests(request):
    """Three tests of three sizes, in the order in which a run has them."""
    rng = np.random.default_rng(7)
    return [
        (number, Cell(size, 50 * MS), made_trips(rng, lost=request.param))
        for number in (1, 2, 3)
        for size in (1024, 5120, 204800)
    ]


def mesh_with(tests, setup=None):
    mesh = Mesh(setup or setup_of(), "tcp")
    for _, cell, trips in tests:
        mesh.add(cell, trips, IDLE, trial=False)
    return mesh


def test_the_table_is_what_the_seeds_own_code_says_of_the_log(tests, tmp_path):
    log = tmp_path / "tmsn.log"
    log.write_text(tmsn_log(tests, [*HOSTS.values()]))
    told = get_stats(log, 3)
    table = [cell["table"] for cell in mesh_with(tests).figures()["cells"]]
    assert [row["load"] for row in table] == [1024, 5120, 204800]
    for name in ("load", *SEED_COLUMNS):
        ours = [row[name] for row in table]
        np.testing.assert_allclose(ours, told[name], rtol=1e-12, err_msg=name)


def test_our_own_reader_finds_the_tables_figures_in_the_log(tests, tmp_path):
    log = tmp_path / "tmsn.log"
    log.write_text(tmsn_log(tests, [*HOSTS.values()]))
    read = read_tmsn(log)
    assert read.skipped_rows == 0
    lines = read.table
    for cell in mesh_with(tests).figures()["cells"]:
        of_size = lines[lines["load_bytes"] == cell["size_bytes"]]
        local = of_size[of_size["address"] == "local"]
        assert local["messages"].mean() == pytest.approx(cell["table"]["msg"])
        sums = of_size.groupby("test_id")[["message_time_us", "message_echoes"]].sum()
        means = sums["message_time_us"] / sums["message_echoes"]
        assert means.mean() == pytest.approx(cell["table"]["avg_msg"])
        assert means.std() == pytest.approx(cell["table"]["std_msg"])


def test_every_echo_is_counted_once_at_each_end(tests):
    for _, _, trips in tests:
        counts = host_counts(trips, 3)
        echoed = int((trips.answered & ~trips.heartbeat).sum())
        assert sum(host.msg for host in counts) == echoed
        assert sum(host.msg_echo for host in counts) == echoed
        assert (
            sum(host.hb_echo for host in counts) == int(trips.answered.sum()) - echoed
        )


def test_loss_is_told_by_pair(tests):
    cell = mesh_with(tests).figures()["cells"][0]
    assert cell["lost"] == sum(pair["lost"] for pair in cell["pairs"])
    by_hand = sum(
        int((~trips.answered & ~trips.heartbeat).sum())
        for _, of, trips in tests
        if of.size_bytes == 1024
    )
    assert cell["lost"] == by_hand
    assert len(cell["pairs"]) == 6


@pytest.mark.parametrize("utilisation", [0.5, 0.99, 1.05, 1.5, 4.0])
def test_a_fluid_queue_leaves_behind_what_arithmetic_says(utilisation):
    # a server takes `utilisation` gaps for each message: of those due 1 - 1/u stay
    n, gap = 2000, 1000
    due = np.arange(n) * gap
    service = utilisation * gap
    done = np.maximum.accumulate(due - np.arange(n) * service)
    back = (done + (np.arange(n) + 1) * service).astype(int)
    zeros = np.zeros(n, int)
    trips = PairTrips(zeros, zeros, zeros > 0, due, due, back)
    found = backlog(trips)
    expected = max(0.0, 1 - 1 / utilisation)
    assert found.left == pytest.approx(expected, abs=0.005)
    assert found.at_end == pytest.approx(expected * n, abs=3)
    assert found.at_end <= found.most
    load = load_of(trips, gap)
    assert load.offered == pytest.approx(1e6)
    assert load.achieved == pytest.approx(1e6 / max(1.0, utilisation), rel=0.002)


def test_utilisation_counts_headers_echoes_and_heartbeats():
    # Ethernet, IP, TCP with times: 66 bytes of each of 1 + 1 segments, to 2 peers
    packets = Packets.tcp()
    packets = Packets(packets.mss_bytes, packets.overhead_bytes + 14)
    setup = setup_of(100_000_000, packets)
    message = 2 * (1024 + 66 + 150 + 66) / 0.001
    beats = 2 * (150 + 66) * 2
    assert setup.wire_bps(Cell(1024, MS)) == pytest.approx(8 * (message + beats))
    knee_ns = setup.knee_ns(1024)
    assert setup.utilisation(Cell(1024, round(knee_ns))) == pytest.approx(1, rel=1e-4)
    assert setup_of().knee_ns(1024) is None


def test_a_search_gives_up_where_any_interval_leaves_something():
    """What is lost anyway: over TCP's longest trials it would take three hours."""
    search, tried = KneeSearch(50 * MS), []
    while interval := search.next_ns():
        tried.append(interval)
        search.add(False)
    assert max(tried) == 2000 * MS
    slow = KneeSearch(5000 * MS)  # on a link that takes so long for a message
    while interval := slow.next_ns():
        slow.add(interval >= 15_000 * MS)
        tried.append(interval)
    assert 15_000 * MS <= max(tried) <= 20_000 * MS


@pytest.mark.parametrize("rate_bps", [6912, 5000])
def test_a_link_that_heartbeats_alone_fill_is_full_at_no_interval(rate_bps):
    # to 2 peers a beat of 150 + 66 bytes and as long an echo each second: 6912 bit/s
    packets = Packets.tcp()
    packets = Packets(packets.mss_bytes, packets.overhead_bytes + 14)
    assert setup_of(rate_bps, packets).knee_ns(1024) is None
    assert setup_of(6913, packets).knee_ns(1024) > 10**9


@pytest.mark.parametrize("begin", [30_000, 3_000_000, 900_000_000])
@pytest.mark.parametrize("knee", [25_000, 1_234_567, 80_000_000])
def test_a_search_ends_within_its_resolution_of_the_knee(begin, knee):
    search = KneeSearch(begin)
    tried = []
    while interval := search.next_ns():
        tried.append(interval)
        search.add(interval >= knee)
    kept = min(t for t in tried if t >= knee)
    left = max(t for t in tried if t < knee)
    assert kept <= RESOLUTION * left
    assert len(tried) <= 25


def test_round_trips_that_hold_a_searchs_trials_are_no_response_of_a_mesh():
    rtt = {"n": 9000, "p50_ns": 77 * MS, "p99_ns": 777 * MS, "max_ns": 778 * MS}
    trips = {"tcp": {"sent": 9999, "lost": 999, "rtt": rtt, "sizes": {}}}
    kind = SUMMARIES["default"]["kinds"]["tcp request"]
    document = {"round_trips": trips, "kinds": {"tcp request": kind}}
    (text,) = answers(document)
    begin, _, response = text.partition("; ")
    assert response == "response p50 77.0 ms, p99 777 ms; 999 of 9999 lost (10.0%)"
    document |= {"mesh": overloaded()}
    assert answers(document) == [begin]
    assert answer(document)[0] == f"{begin}."
    cells = zip(document["mesh"]["cells"], ("1 KiB", "200 KiB"), strict=True)
    assert [(one.label, one.value) for one in key_figures(document)] == [
        (f"tcp {size}, from when due, p50", duration_text(cell["intended"]["p50_ns"]))
        for cell, size in cells
    ]
    # without probes there is no answer, but no want of latencies either
    document["kinds"] = {}
    assert answers(document) == answer(document) == []
    texts = [part.text for part in overview(document) if isinstance(part, Text)]
    assert "no latencies in it" not in texts


def test_a_search_ends_where_nothing_is_kept_up_with_or_all_is():
    for kept_up in (True, False):
        search = KneeSearch(50 * MS)
        tried = 0
        while search.next_ns():
            search.add(kept_up)
            tried += 1
        assert tried < 20


class Rows:
    """Rows of messages with the columns that stages need."""

    def __init__(self, send_ns, kind, **stages_ns):
        n = len(send_ns)
        self.numbers = {name: np.asarray(send_ns) for name in ("send_ns", "read_ns")}
        for stage in STAGES:
            self.numbers[f"{stage}_ns"] = np.full(n, stages_ns.get(stage, 10))
        whole = sum(self.numbers[f"{stage}_ns"] for stage in STAGES)
        self.numbers["end_to_end_ns"] = whole
        words = ["message", "request", "reply"]
        self.texts = {"kind": (np.full(n, words.index(kind), np.int32), words)}

    def __len__(self):
        return len(self.numbers["send_ns"])


def overloaded():
    """A mesh with one size below and one above its links' rate."""
    rng = np.random.default_rng(1)
    mesh = Mesh(setup_of(20_000_000), "tcp")
    small, large = Cell(1024, 50 * MS), Cell(204800, 50 * MS)
    mesh.stages.begin(Span(1000, small))
    mesh.stages.begin(Span(2000, large))
    for kind in ("request", "reply"):
        mesh.stages.add_messages(Rows([1000, 1500], kind))
        grown = {"application": 9000, "qdisc": 4000} if kind == "request" else {}
        mesh.stages.add_messages(Rows([2000, 2500, 900], kind, **grown))
    for cell in (small, large):
        mesh.add(cell, made_trips(rng), IDLE, trial=False)
    return mesh.figures()


def test_stages_are_of_the_test_in_which_a_message_was_sent():
    small, large = (cell["stages"] for cell in overloaded()["cells"])
    assert small["request"]["n"] == large["request"]["n"] == 2
    assert small["request"]["qdisc_ns"] == 10
    assert large["request"]["qdisc_ns"] == 4000
    assert large["request"]["end_to_end_ns"] == 13_040


def test_an_overload_is_told_with_the_queue_that_grows():
    mesh = overloaded()
    (answer,) = mesh_answers(mesh)
    offered = setup_of(20_000_000).utilisation(Cell(204800, 50 * MS))
    assert f"200 KiB every 50 ms offers {offered:.2f} of each host's link" in answer
    assert "qdisc of the request grows from 10 ns to 4.00 us" in answer
    tables = [part for part in mesh_parts(mesh, "") if isinstance(part, Table)]
    assert [row[0] for row in tables[0].rows] == ["1024", "204800"]


def test_an_overload_that_is_not_the_links_is_told_too():
    """The responder takes 1.5 gaps for each large message; the link is nearly idle."""
    setup = setup_of(10**9)
    mesh = Mesh(setup, "tcp")
    for at, (cell, queued_ns) in enumerate(((SMALL, 10), (LARGE, 300 * MS)), 1):
        mesh.stages.begin(Span(1000 * at, cell))
        for kind, waits_ns in (("request", queued_ns), ("reply", 10)):
            rows = Rows([1000 * at, 1000 * at + 500], kind, receive_queue=waits_ns)
            mesh.stages.add_messages(rows)
        trips = made_trips(np.random.default_rng(1), beats=0)
        late = 25 * MS * np.tile(np.arange(50), 6) if cell == LARGE else 0
        made = replace(trips, received_ns=trips.received_ns + late)
        mesh.add(cell, made, IDLE, trial=False)
    assert setup.utilisation(LARGE) < 0.1
    (answer,) = mesh_answers(mesh.figures())
    assert answer.startswith(
        "200 KiB every 50 ms is not kept up with: receive_queue of the request grows "
        "from 10 ns to 300 ms"
    )


def star_of(trips, stages_ns):
    """A mesh of which the first host's half was seen, in two tests."""
    setup = MeshSetup(tuple(HOSTS), 150, 150, 10**9, packets=None, star=True)
    mesh = Mesh(setup, "tcp")
    for begin_ns, (cell, (request, reply)) in enumerate(stages_ns.items()):
        mesh.stages.begin(Span(1000 * (begin_ns + 1), cell))
        for kind, own in (("request", request), ("reply", reply)):
            rows = Rows([1000 * (begin_ns + 1) + 10], kind)
            for name in (*(f"{stage}_ns" for stage in STAGES), "end_to_end_ns"):
                seen = own.get(name.removesuffix("_ns"), BLANK)
                rows.numbers[name] = np.array([seen])
            if kind == "reply":
                rows.numbers["send_ns"] = np.array([BLANK])
            mesh.stages.add_messages(rows)
        mesh.add(cell, trips, IDLE, trial=False)
    return mesh.figures()


SMALL, LARGE = Cell(1024, 50 * MS), Cell(204800, 50 * MS)
FAST = (
    {"application": 10, "send_queue": 20, "qdisc": 30},
    {
        "receive_stack": 40,
        "receive_queue": 50,
    },
)


def own_trips():
    """What the first host sent."""
    trips = made_trips(np.random.default_rng(3))
    return trips.at(trips.source == 0)


def test_of_one_hosts_half_what_was_not_seen_is_unknown_and_not_zero():
    trips = own_trips()
    (cell,) = star_of(trips, {SMALL: FAST})["cells"]
    assert (cell["wire_bps"], cell["utilisation"]) == (None, None)
    assert list(cell["hosts"]) == ["h0"]
    request, reply = cell["stages"]["request"], cell["stages"]["reply"]
    assert (request["qdisc_ns"], request["transit_ns"]) == (30, None)
    assert (reply["receive_queue_ns"], reply["application_ns"]) == (50, None)
    messages = ~trips.heartbeat
    mean_ns = (trips.received_ns - trips.intended_ns)[messages].mean()
    assert cell["stages"]["elsewhere_ns"] == pytest.approx(mean_ns - 150)


def test_a_stars_table_has_what_was_seen_and_the_rest():
    mesh = star_of(own_trips(), {SMALL: FAST, LARGE: FAST})
    parts = [part for part in mesh_parts(mesh, "") if isinstance(part, Table)]
    tables = {part.title: part for part in parts}
    rows = {row[0]: row[1:] for row in tables["where a round trip's time goes"].rows}
    assert list(rows) == [
        *("application", "send_queue", "qdisc", "elsewhere"),
        *("echo's receive_stack", "echo's receive_queue", "mean round trip"),
    ]
    shares = [float(rows[part][0].rstrip("%")) for part in list(rows)[:-1]]
    assert sum(shares) == pytest.approx(100, abs=0.3)
    load = {row[0]: row[1:] for row in tables["load and response"].rows}
    assert load["of each link"] == ["-", "-"]


def test_a_stars_averages_are_over_what_came_back(tmp_path):
    trips = own_trips()
    (row,) = (c["table"] for c in star_of(trips, {SMALL: FAST})["cells"])
    took_us = (trips.received_ns - trips.intended_ns) // 1000
    assert (row["msg"], row["hb"]) == (0, 0)
    assert row["avg_msg"] == pytest.approx(took_us[~trips.heartbeat].mean())
    assert row["avg_hb"] == pytest.approx(took_us[trips.heartbeat].mean())
    log = tmp_path / "tmsn.log"
    log.write_text(tmsn_log([(1, SMALL, trips)], list(HOSTS), star=True))
    told = get_stats(log, 3)
    for name in SEED_COLUMNS[:-2]:  # of one test there is no deviation
        assert told[name].iloc[0] == pytest.approx(row[name]), name


@pytest.mark.parametrize(
    ("grown", "stage", "kind"),
    [
        (({"application": 5000, "qdisc": 4000}, {}), "qdisc", "request"),
        (({"application": 5000}, {"receive_queue": 4000}), "receive_queue", "reply"),
    ],
)
def test_of_one_hosts_half_the_queue_that_grows_is_named(grown, stage, kind):
    slow = tuple(fast | more for fast, more in zip(FAST, grown, strict=True))
    figures = star_of(own_trips(), {SMALL: FAST, LARGE: slow})
    grows = figures["cells"][1]["grows"]
    assert (grows["stage"], grows["kind"]) == (stage, kind)


def test_a_queue_that_no_host_of_this_half_has_grows_elsewhere():
    near = {"request": dict.fromkeys(("application_ns", "qdisc_ns"), 10)}
    far = {"request": {"application_ns": 900, "qdisc_ns": 12}}
    before, beyond = near | {"elsewhere_ns": 100.0}, far | {"elsewhere_ns": 2000.0}
    found = growing_stage(before, beyond)
    assert found == {
        "kind": "round trip",
        "stage": "elsewhere",
        "from_ns": 100.0,
        "to_ns": 2000.0,
    }


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"sizes": (17,)}, "18 to 10000000 bytes, got 17"),
        ({"sizes": (65508,), "protocol": "udp"}, "18 to 65507 bytes, got 65508"),
        ({"reply_bytes": 10}, "got 10"),
        ({"hosts": 32, "messages": 3000}, "--messages must be at most 2016 with 32"),
        ({"hosts": 32, "tests": 1000}, "--tests must be at most 20 with 32 hosts"),
        (
            {"hosts": 32, "tests": 21, "messages": 100, "sizes": (64,) * 5},
            "--tests must be at most 20 with 32 hosts, 5 sizes and 100 messages",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(changed, text):
    with pytest.raises(UsageError, match=r"bytes|must be") as error:
        MeshPlan(**changed).check()
    assert text in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [*TMSN])
def test_rows_that_tmsn_published_stand_beside_those_of_the_same_set_up(name):
    file, machines = name
    interval_ns = int(re.search(r"_(\d+)ms", file)[1]) * MS
    for size, *published in reversed(TMSN[name]):  # of two rows the first is taken
        row = published_of(machines, interval_ns, int(size))
        assert row is not None
        if (published[1], published[4]) == row:
            break
    assert row == (published[1], published[4])
    first = {size: (row[1], row[4]) for size, *row in reversed(TMSN[name])}
    for size, row in first.items():
        assert published_of(machines, interval_ns, int(size)) == row
    assert published_of(machines + 1, interval_ns, 1024) is None
    assert published_of(machines, interval_ns + 1, 1024) is None


def test_the_screen_says_what_was_published_of_this_set_up_and_of_no_other(tests):
    mesh = mesh_with(tests).figures()
    text = published_text(mesh)
    assert "of 3 hosts at this interval" in text
    assert "1 KiB 662 us, here" in text and "(received 200, here " in text
    other = mesh | {"cells": [c | {"interval_ns": 10 * MS} for c in mesh["cells"]]}
    assert published_text(other) == published_text(mesh | {"star": True}) == ""
