"""Totals of exchanges: merge laws, counts, parts, and what stays bounded."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from exchange_rows import exchange
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_analysis.read.schema import EXCHANGES
from latprof_analysis.report.sentences import exchange_sentence
from latprof_analysis.study import grouped
from latprof_analysis.study.exchange_totals import MOST_PROTOCOLS, ExchangeTotals
from latprof_analysis.study.grouped import coarser
from message_rows import MessageRows

gaps = st.lists(st.integers(0, 10**6), min_size=5, max_size=5)
present = st.lists(st.sampled_from([True, True, True, False]), min_size=5, max_size=5)
SUMS = ["requests", "request_bytes", "replies", "reply_bytes", "retransmits"]


@st.composite
def exchanges(draw):
    """An exchange with any stamps missing."""
    stamps = np.cumsum(draw(gaps)) + 1
    there = draw(present)
    return exchange(
        tuple(int(s) if t else None for s, t in zip(stamps, there, strict=True)),
        kind=draw(st.sampled_from(["exchange", "exchange", "warmup"])),
        protocol=draw(st.sampled_from(["tcp", "udp"])),
        way=draw(st.sampled_from(["a -> b:80", "a -> 10.0.0.1:9", "a -> 10.0.0.2:9"])),
        requests=draw(st.sampled_from([None, 1, 16])),
        retransmits=draw(st.sampled_from([None, 0, 2])),
        pipelined=draw(st.sampled_from([None, 1])),
        probe_statistics=draw(st.sampled_from([None, None, 1])),
    )


batches = st.lists(exchanges(), max_size=12)


@pytest.fixture(autouse=True)
def _few_ways(monkeypatch):
    """Tell few ways apart, so that coarser names are met, too."""
    monkeypatch.setattr(grouped, "MOST_WAYS", 3)


def totals_of(*parts):
    made = ExchangeTotals()
    for part in parts:
        made.add(MessageRows(part, EXCHANGES))
    return made


def merged(*parts):
    whole = ExchangeTotals()
    for part in parts:
        whole.merge(pickle.loads(pickle.dumps(part)))
    return whole


def state(made):
    """All that totals hold."""

    def parts(histograms):
        return {name: h.as_dict() for name, h in histograms.items()}

    ways = {
        name: vars(way) | {"whole": parts(way.whole), "half": parts(way.half)}
        for name, way in made.ways.items()
    }
    return ways, made.warmup, made.backwards


@settings(deadline=None)
@given(batches, batches)
def test_merging_totals_equals_adding_all_rows_to_one(a, b):
    whole = state(totals_of(a + b))
    assert state(merged(totals_of(a), totals_of(b))) == whole
    assert state(totals_of(a, b)) == whole


@settings(deadline=None)
@given(batches, batches)
def test_merging_totals_is_commutative(a, b):
    a, b = totals_of(a), totals_of(b)
    assert state(merged(a, b)) == state(merged(b, a))


@settings(deadline=None)
@given(batches, batches, batches)
def test_merging_totals_is_associative(a, b, c):
    a, b, c = totals_of(a), totals_of(b), totals_of(c)
    assert state(merged(merged(a, b), c)) == state(merged(a, merged(b, c)))


@settings(deadline=None)
@given(st.lists(exchanges(), min_size=1, max_size=40))
def test_counts_and_extremes_are_those_of_a_groupby(rows):
    frame = pd.DataFrame(rows)
    frame = frame[frame["kind"] == "exchange"]
    made = totals_of(rows)
    names = frame["protocol"] + " " + frame["way"]
    coarse = [[coarser(name, level) for name in names] for level in range(3)]
    kept = next((found for found in coarse if len({*found}) <= 3), coarse[2])
    found = made.as_dict()
    assert set(found) == set(kept)
    assert made.warmup == len(rows) - len(frame)
    for name, group in frame.groupby(pd.Series(kept, frame.index, str)):
        figures = found[name]
        assert figures["exchanges"] == len(group)
        assert figures["timed"] == group["response_ns"].notna().sum()
        assert figures["paused"] == 0
        assert figures["pipelined"] == (group["pipelined"] == 1).sum()
        for column in SUMS:
            assert figures[column] == group[column].fillna(0).sum()
        measured = group
        response = measured["response_ns"].dropna().astype(int)
        if response.empty:
            assert "response" not in figures["parts"]
        else:
            part = figures["parts"]["response"]
            assert (part["n"], part["max_ns"]) == (len(response), response.max())
        times = measured[["response_ns", "server_ns"]].astype("f8").bfill(axis=1)
        times = times["response_ns"].dropna()
        if (times > 0).any():
            slowest = figures["slowest"]
            time = slowest["response_ns"]
            assert (slowest["server_ns"] if time is None else time) == times.max()


@settings(deadline=None)
@given(st.lists(exchanges(), min_size=1, max_size=40))
def test_the_shares_of_the_parts_sum_to_one(rows):
    for figures in totals_of(rows).as_dict().values():
        ends = ("request_way", "server", "reply_way")
        shares = [
            part["share_of_response"]
            for name, part in figures["parts"].items()
            if name.rsplit("+", maxsplit=1)[-1] in ends
        ]
        there = [share for share in shares if share is not None]
        assert not there or sum(there) == pytest.approx(1)


def test_parts_are_as_numpy_finds_them():
    rng = np.random.default_rng(8)
    gaps = rng.integers(1_000, 1_000_000, (1_000, 5))
    stamps = gaps.cumsum(axis=1)
    parts = totals_of([exchange(tuple(map(int, row))) for row in stamps])
    found = parts.as_dict()["tcp cli -> srv:80"]["parts"]
    sent, ready, read, replied, got = stamps.T
    expected = {
        "response": got - sent,
        "request_way": ready - sent,
        "server": replied - ready,
        "server_queue": read - ready,
        "server_work": replied - read,
        "reply_way": got - replied,
    }
    assert set(found) == set(expected)
    for name, values in expected.items():
        assert found[name]["n"] == 1_000
        assert found[name]["max_ns"] == values.max()
        assert found[name]["mean_ns"] == values.mean()
        # a bucket's middle is at most 0.4% away from any value in it
        for p in (0.5, 0.9, 0.99):
            exact = np.quantile(values, p, method="inverted_cdf")
            assert found[name][f"p{p * 100:.0f}_ns"] == pytest.approx(exact, rel=0.004)
        share = values.sum() / (got - sent).sum()
        assert found[name]["share_of_response"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("missing", "names"),
    [
        (
            1,
            {
                "request_way+server",
                "request_way+server_queue",
                "server_work",
                "reply_way",
            },
        ),
        (2, {"request_way", "server", "server_queue+server_work", "reply_way"}),
        (3, {"request_way", "server_queue", "server+reply_way"}),
    ],
)
def test_without_a_stamp_two_parts_are_one_and_named_by_both(missing, names):
    stamps = [10, 20, 30, 40, 50]
    stamps[missing] = None
    parts = totals_of([exchange(tuple(stamps))]).as_dict()["tcp cli -> srv:80"]["parts"]
    assert set(parts) == {"response", *names}


def test_the_half_that_was_seen_is_there_by_itself():
    client = exchange((10, None, None, None, 90))
    server = exchange((None, 20, 30, 70, None), server_wakeup_ns=4)
    found = totals_of([client, server]).as_dict()["tcp cli -> srv:80"]
    assert (found["exchanges"], found["timed"]) == (2, 1)
    maxima = {name: part["max_ns"] for name, part in found["parts"].items()}
    assert maxima == {
        "response": 80,
        "server": 50,
        "server_queue": 10,
        "server_wakeup": 4,
        "server_work": 40,
    }
    # no share of a response of which the parts are not known
    shares = {part["share_of_response"] for part in found["parts"].values()}
    assert shares == {None}
    alone = totals_of([server]).as_dict()["tcp cli -> srv:80"]
    assert alone["slowest"]["server_ns"] == 50


def test_parts_that_run_backwards_are_left_out_and_counted():
    row = exchange((10, 20, 30, 40, 50), request_way_ns=-3)
    made = totals_of([row])
    assert made.backwards == 1
    assert "request_way" not in made.as_dict()["tcp cli -> srv:80"]["parts"]


def test_many_ways_are_told_by_what_was_seen_of_them():
    rows = [exchange((1, 2, 3, 4, 5), way=f"c -> 10.0.0.{i}:1") for i in range(9)]
    found = totals_of(rows[5:], rows[:5]).as_dict()
    assert {name: f["exchanges"] for name, f in found.items()} == {
        "tcp c -> elsewhere:1": 9
    }
    rows = [exchange((1, 2, 3, 4, 5), way=f"c{i} -> s:1") for i in range(9)]
    found = totals_of(rows[5:], rows[:5]).as_dict()
    assert {name: f["exchanges"] for name, f in found.items()} == {"tcp to servers": 9}


def test_a_file_with_many_protocols_is_none_of_exchanges():
    rows = [exchange((1, 2, 3, 4, 5), protocol=f"p{i}") for i in range(MOST_PROTOCOLS)]
    totals = totals_of(rows)
    with pytest.raises(ValueError, match=r"protocols must be at most 8, got .*'x'"):
        totals.add(MessageRows([exchange((1, 2, 3, 4, 5), protocol="x")], EXCHANGES))


def answered(number, *, queue_ns=10, work_ns=100):
    begin = 10_000 * (1 + number)
    read = begin + 5 + queue_ns
    sent = read + work_ns
    return exchange((begin, begin + 5, read, sent, sent + 7))


def mixed(count):
    """Of each hundred one is slow by its server's queue, beside a longer work."""
    return [
        answered(i, work_ns=100 + i % 90)
        if i % 100
        else answered(i, queue_ns=3000 + i, work_ns=1000)
        for i in range(count)
    ]


def test_what_made_the_slowest_hundredth_slow_has_its_share():
    rows = mixed(2000)
    found = totals_of(rows[:700], rows[700:]).as_dict()["tcp cli -> srv:80"]
    assert found["slowest_responses"] == 20
    slowest = sorted(rows, key=lambda row: row["response_ns"])[-20:]
    whole = sum(row["response_ns"] for row in slowest)
    for name in ("request_way", "server_queue", "server_work", "server", "reply_way"):
        part = sum(row[f"{name}_ns"] for row in slowest)
        share = found["parts"][name]["share_of_slowest"]
        assert share == pytest.approx(part / whole), name
    assert found == totals_of(rows[700:], rows[:700]).as_dict()["tcp cli -> srv:80"]


def test_of_too_few_for_a_p99_nothing_is_said_of_the_slowest():
    found = totals_of(mixed(900)).as_dict()["tcp cli -> srv:80"]
    assert found["parts"]["response"]["p99_ns"] is None
    assert found["slowest_responses"] == 0
    assert {part["share_of_slowest"] for part in found["parts"].values()} == {None}


def test_of_equals_a_part_stands_for_the_slowest():
    """All are in one bucket: its mean is theirs."""
    rows = [answered(i) for i in range(1000)]
    found = totals_of(rows).as_dict()["tcp cli -> srv:80"]
    assert found["slowest_responses"] == 10
    for part in found["parts"].values():
        assert part["share_of_slowest"] == pytest.approx(part["share_of_response"])


def test_the_first_line_says_what_made_the_slowest_slow():
    (name, found), *_ = totals_of(mixed(2000)).as_dict().items()
    assert exchange_sentence(name, found).endswith(
        "; of all time 71.3% not yet answered, 23.1% not yet read"
        "; of the slowest 1% (20) 79.6% not yet read, 20.2% not yet answered"
    )
