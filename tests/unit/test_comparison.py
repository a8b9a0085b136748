"""Sides are split into groups, judged together, and said with their reasons."""

import json

import numpy as np
import pandas as pd
import pytest
from compared_runs import SIZES, write_run
from latency_series import pareto_series
from latprof_analysis.compare import (
    Choice,
    Side,
    compare_sides,
    document,
    gate,
    read_sides,
)
from latprof_analysis.compare.effects import Effect, FigureChange
from latprof_analysis.compare.judgement import GroupChange, detectable
from latprof_analysis.compare.sides import Group

RTT = Group("tcp round trip", "rtt", 64)


def values_side(name, runs, group=RTT, **fields):
    return Side(name, tuple(map(str, range(len(runs)))), series={group: runs}, **fields)


@pytest.fixture(scope="module")
def repeats(tmp_path_factory):
    """Three runs each: as they are, the same again, and transit 10% slower."""
    base = tmp_path_factory.mktemp("runs")
    for i in range(3):
        write_run(base / "a" / str(i), i)
        write_run(base / "same" / str(i), 10 + i)
        slower = {"transit": 1.1}
        described = {"lab": {"known": {"delay_ns": 1_100_000}}}
        write_run(base / "b" / str(i), 20 + i, factors=slower, run=described)
    return base


def verdicts(found):
    return {(c.group.kind, c.group.stage, c.group.size_bytes): c.verdict for c in found}


def test_the_stage_that_is_slower_is_found_with_all_that_hold_it(repeats):
    found = compare_sides(read_sides([str(repeats / "a"), str(repeats / "b")]))
    told = verdicts(found.groups)
    for size in SIZES:
        for kind in ("tcp request", "tcp reply"):
            assert told[kind, "transit", size] == "slower"
            assert told[kind, "end_to_end", size] == "slower"
            for stage in ("application", "send_queue", "qdisc", "receive_queue"):
                assert told[kind, stage, size] in ("same", "no evidence")
        assert told["tcp round trip", "rtt", size] == "slower"
    ratios = [
        change.percentiles[0.5].ratio
        for change in found.groups
        if change.group.stage == "transit"
    ]
    assert all(ratio.low < 1.1 < ratio.high for ratio in ratios)
    assert not found.warnings


def test_repeats_of_the_same_differ_in_nothing(repeats):
    found = compare_sides(read_sides([str(repeats / "a"), str(repeats / "same")]))
    assert {c.verdict for c in found.groups} <= {"same", "no evidence"}
    assert document(found)["answer"].startswith("No evidence that ")


def test_single_runs_are_compared_with_a_warning(repeats):
    found = compare_sides(read_sides([str(repeats / "a/0"), str(repeats / "b/0")]))
    assert verdicts(found.groups)["tcp request", "transit", 64] == "slower"
    assert "one run on each side" in found.warnings[0]
    assert "this may be how runs differ anyway" in document(found)["answer"]


def test_a_single_run_is_held_against_repeats(repeats):
    found = compare_sides(read_sides([str(repeats / "a"), str(repeats / "b/0")]))
    assert verdicts(found.groups)["tcp request", "transit", 64] == "slower"
    assert "taken to vary" in found.warnings[0]


def test_what_differs_in_the_setup_is_listed(repeats, tmp_path):
    found = compare_sides(read_sides([str(repeats / "a"), str(repeats / "b")]))
    (difference,) = found.setup[str(repeats / "b")]
    assert difference.key == "lab.known.delay_ns"
    assert (difference.baseline, difference.other) == ("not told", "1100000")
    plan = {"plan": {"interval_ns": 1000, "reply_bytes": 18}}
    closed = {"plan": {"interval_ns": 0, "reply_bytes": None}}
    a = write_run(tmp_path / "x", 1, run={"workload": closed})
    b = write_run(tmp_path / "y", 2, run={"workload": plan, "kernel": "6.18"})
    found = compare_sides(read_sides([a, b]))
    keys = [difference.key for difference in found.setup[b]]
    assert keys == ["kernel", "plan.interval_ns", "plan.reply_bytes"]
    assert any("closed loop" in warning for warning in found.warnings)


def test_what_differs_in_a_meshs_setup_is_listed_and_its_results_are_not(tmp_path):
    paths = [
        write_run(
            tmp_path / name,
            seed,
            run={
                "workload": {
                    "mesh": {"protocol": "tcp", "hosts": 3, "interval_ns": interval},
                    "responders": {"a": {"messages": seed}},
                    "runs": [{"protocol": "tcp", "begin_ns": seed}],
                }
            },
        )
        for name, seed, interval in (("x", 1, 1000), ("y", 2, 2000))
    ]
    found = compare_sides(read_sides(paths))
    (difference,) = found.setup[paths[1]]
    assert difference == ("mesh.interval_ns", "1000", "2000")


def test_a_run_json_of_odd_shape_does_no_harm(tmp_path):
    odd = {"workload": [1], "lab": "x", "capabilities": [None, {"state": 1}]}
    a = write_run(tmp_path / "x", 1, run=odd)
    b = write_run(tmp_path / "y", 2, run={"workload": {"plan": 3, "runs": {}}})
    found = compare_sides(read_sides([a, b]))
    assert not found.setup[b]
    assert sum("is not as latprof writes it" in one for one in found.warnings) == 2


def test_more_loss_is_found(tmp_path):
    a = write_run(tmp_path / "x", 1, rounds=1000, lost=0.02)
    b = write_run(tmp_path / "y", 2, rounds=1000, lost=0.06)
    report = document(compare_sides(read_sides([a, b])))
    (loss,) = report["loss"]
    assert loss["verdict"] == "more"
    assert loss["difference"]["low"] < 0.04 < loss["difference"]["high"]
    assert report["throughput"][0]["verdict"] == "same"


def test_a_choice_leaves_the_rest_out_of_the_family(repeats):
    sides = read_sides([str(repeats / "a"), str(repeats / "b")])
    found = compare_sides(sides, choice=Choice(("end_to_end", "rtt"), (64,)))
    assert {c.group.stage for c in found.groups} == {"end_to_end", "rtt"}
    assert {c.group.size_bytes for c in found.groups} == {64}
    with pytest.raises(ValueError, match="no input has what --only and --sizes"):
        compare_sides(sides, choice=Choice(("nonsense",)))


def test_a_small_change_that_is_certain_counts_as_the_same():
    rng = np.random.default_rng(1)
    a, b = ([1000 + rng.random(5000)] for _ in range(2))
    sides = [values_side("a", a), values_side("b", [b[0] + 5])]
    (change,) = compare_sides(sides, percentiles=[0.5]).groups
    assert change.percentiles[0.5].p_adjusted < 1e-6
    assert change.verdict == "same"
    (change,) = compare_sides(sides, percentiles=[0.5], smallest=0.001).groups
    assert change.verdict == "slower"


def test_a_tail_that_grew_is_found_beside_a_median_that_did_not():
    # acks 2 against acks 20: the same, but for a second peak at 7 ms
    rng = np.random.default_rng(2)
    waits = [2e5 * rng.gamma(4, 0.25, n) for n in (52_050, 51_424)]
    waits[1] = np.where(rng.random(51_424) < 0.02, 7e6 + rng.random(51_424), waits[1])
    queue = Group("tcp message", "send_queue", -1)
    transit = Group("tcp message", "transit", -1)
    sides = [
        Side(name, (name,), series={queue: [wait], transit: [1e6 * rng.gamma(9, 1, n)]})
        for name, wait, n in zip(
            ("acks 20", "acks 2"), waits, (52_050, 51_424), strict=True
        )
    ]
    found = {c.group.stage: c for c in compare_sides(sides, smallest=0.1).groups}
    assert [c.verdict for c in found["send_queue"].percentiles.values()] == [
        *("same", "same", "slower")
    ]
    assert found["transit"].verdict == "same"


@pytest.mark.parametrize(
    ("said", "together"),
    [
        (("same", "slower", "too few"), "slower"),
        (("slower", "faster"), "mixed"),
        (("too few", "no evidence"), "no evidence"),
        (("same", "too few"), "same"),
    ],
)
def test_percentiles_come_to_one_word_together(said, together):
    percentiles = {
        i: FigureChange(None, None, verdict=word) for i, word in enumerate(said)
    }
    assert GroupChange("b", RTT, percentiles, None).verdict == together


def test_the_gate_asks_for_the_whole_interval_above_its_share():
    rng = np.random.default_rng(3)
    a, b = (pareto_series(rng, 4000, 0.3) for _ in range(2))
    sides = [values_side("a", [a]), values_side("b", [1.10 * b])]
    found = compare_sides(sides, percentiles=[0.5])
    ratio = found.groups[0].percentiles[0.5].ratio
    assert 1.05 < ratio.low < 1.10 < ratio.high
    told = document(found)
    outcomes = [gate(told, slower=s)["outcome"] for s in (0.05, 0.09, 0.2)]
    assert outcomes == ["failed", "undecided", "passed"]
    assert ratio.high > 1.11
    close = [gate(told, slower=0.11, accept_estimate=a)["outcome"] for a in (0, 1)]
    assert close == ["undecided", "passed"]
    back = document(compare_sides(sides[::-1], percentiles=[0.5]))
    assert gate(back, slower=0.0)["outcome"] == "passed"


def gated(seed, n, dependence, factor):
    """Hold two series against a limit of 5%; B takes `factor` times as long."""
    rng = np.random.default_rng(seed)
    a, b = (pareto_series(rng, n, dependence) for _ in range(2))
    sides = [values_side("a", [a]), values_side("b", [factor * b])]
    return gate(document(compare_sides(sides)), slower=0.05)


def test_what_is_slower_by_twice_the_limit_never_passes():
    """Of values that depend on each other as those of a queue do."""
    outcomes = [gated(seed, 3000, 0.9, 1.10)["outcome"] for seed in range(60)]
    assert "passed" not in outcomes


def test_like_and_like_is_decided_by_what_can_decide():
    held = [gated(seed, 2000, 0.0, 1.0) for seed in range(60)]
    outcomes = [one["outcome"] for one in held]
    assert outcomes.count("passed") >= 54
    assert "failed" not in outcomes
    for one in held:
        # 20 values lie above p99: its interval is wider than 5% either way
        p99 = {f["outcome"] for f in one["findings"] if f["percentile"] == "p99"}
        assert p99 <= {"too wide", "undecided"}
        assert one["outcome"] != "passed" or one["passed"]


def test_so_many_values_as_it_asks_for_decide():
    held = gated(11, 2000, 0.0, 1.0)
    needed = [
        f["needs"]["values"] for f in held["findings"] if f["percentile"] == "p90"
    ]
    assert needed
    later = gated(11, needed[0] * 4, 0.0, 1.0)
    assert "p90" in {f["percentile"] for f in later["passed"]}


def test_more_than_nothing_is_above_any_share_of_it():
    sides = [values_side("a", [np.zeros(100)]), values_side("b", [np.ones(100)])]
    held = gate(document(compare_sides(sides, percentiles=[0.5])), slower=0.5)
    (finding,) = held["findings"]
    assert (finding["outcome"], finding["value"]) == ("failed", None)
    assert finding["reason"] == "the baseline has 0"


@pytest.mark.thorough
def test_so_small_a_change_as_is_told_is_seen_in_four_of_five_comparisons():
    # of 20 groups one is slower by that share; corrected for all of them
    rng = np.random.default_rng(31)
    told = compare_sides(_groups_of(rng, 20), percentiles=[0.5], correction="holm")
    share = detectable(told, "b")[0.5]
    seen = 0
    for _ in range(200):
        sides = _groups_of(rng, 20)
        first = next(iter(sides[1].series))
        (values,) = sides[1].series[first]
        sides[1].series[first] = [values * (1 + share)]
        found = compare_sides(sides, percentiles=[0.5], correction="holm", smallest=0)
        (changed,) = [g for g in found.groups if g.group == first]
        seen += changed.verdict == "slower"
    assert 0.7 <= seen / 200 <= 0.92


def _groups_of(rng, many):
    return [
        Side(
            name,
            (name,),
            series={
                Group(f"k{i}", "rtt", 64): [rng.lognormal(9, 0.3, 300)]
                for i in range(many)
            },
        )
        for name in ("a", "b")
    ]


def test_ten_sides_are_compared_and_eleven_refused():
    rng = np.random.default_rng(4)
    sides = [values_side(f"s{i}", [rng.random(50)]) for i in range(11)]
    assert len(compare_sides(sides[:10]).groups) == 9
    with pytest.raises(ValueError, match="sides must be 2 to 10, got 11"):
        compare_sides(sides)


def test_nothing_in_common_and_other_quantities_are_refused():
    a = values_side("a", [np.ones(9)])
    b = values_side("b", [np.ones(9)], Group("tcp round trip", "rtt", 65))
    with pytest.raises(ValueError, match="no kind, stage and size is in more than one"):
        compare_sides([a, b])
    halved = values_side("b", [np.ones(9)], latency="half of the round trip")
    with pytest.raises(ValueError, match="half of the round trip"):
        compare_sides([a, halved])


def test_a_stage_that_one_side_rarely_knows_is_said(tmp_path, repeats):
    b = write_run(tmp_path / "b", 1)
    path = tmp_path / "b" / "messages.csv"
    rows = pd.read_csv(path, dtype=object)
    rows.loc[rows.index % 2 == 0, "wakeup_ns"] = "1"
    rows.to_csv(path, index=False)
    a = write_run(tmp_path / "a", 2)
    rows = pd.read_csv(tmp_path / "a" / "messages.csv", dtype=object)
    rows["wakeup_ns"] = "1"
    rows.to_csv(tmp_path / "a" / "messages.csv", index=False)
    warnings = compare_sides(read_sides([a, b])).warnings
    assert any("wakeup is known of 100% of those of" in w for w in warnings)


def test_what_only_one_side_has_is_said(repeats):
    sides = read_sides([str(repeats / "a"), str(repeats / "b")])
    del sides[0].series[RTT]
    (warning,) = compare_sides(sides).warnings
    assert warning.startswith("not compared: 1 group that ")
    assert warning.endswith("has not, such as tcp round trip rtt of 64 B")


def test_many_sizes_become_classes(tmp_path):
    sizes = range(100, 200)
    for name in "ab":
        rows = "".join(f"{size},{size}\n" for size in sizes)
        (tmp_path / name).write_text(f"size,time\n{rows}")
    sides = read_sides(
        [str(tmp_path / name) for name in "ab"],
        latency_column="time",
        unit="us",
        size_column="size",
    )
    found = compare_sides(sides)
    assert [c.group.size_bytes for c in found.groups] == [64, 128]
    assert [c.percentiles[0.5].a.n for c in found.groups] == [28, 72]


def test_the_document_is_json_with_named_units(repeats):
    sides = read_sides([str(repeats / "a"), str(repeats / "b")])
    report = document(compare_sides(sides))
    text = json.dumps(report, allow_nan=False)
    entry = json.loads(text)["groups"][0]
    p50 = entry["percentiles"]["p50"]
    assert set(p50) == {
        *("a", "b", "ratio", "difference", "p", "p_adjusted", "verdict", "reason")
    }
    assert set(p50["difference"]) == {"value_ns", "low_ns", "high_ns"}
    assert set(p50["a"]) == {
        *("value_ns", "low_ns", "high_ns", "n", "n_effective", "runs")
    }
    assert (p50["a"]["runs"], p50["a"]["n"]) == (3, 900)
    assert report["counts"][str(repeats / "b")]["slower"] >= 10
    assert Effect(**entry["rank"]["larger"]).value == entry["rank"]["larger"]["value"]


def test_what_was_sent_while_our_cost_was_measured_is_compared_as_all_others(tmp_path):
    folder = write_run(tmp_path / "a", 1, rounds=50)
    for table, time in (("messages", "end_to_end_ns"), ("round_trips", "rtt_ns")):
        path = tmp_path / "a" / f"{table}.csv"
        rows = pd.read_csv(path)
        rows["probe_statistics"] = pd.array([1, *[None] * (len(rows) - 1)], "Int64")
        rows.loc[0, time] = 10**15
        rows.to_csv(path, index=False)
    (side,) = read_sides([folder])
    slowest = [
        g.stage for g, each in side.series.items() for s in each if s.max() == 1e15
    ]
    assert sorted(slowest) == ["end_to_end", "rtt"]
    (runs,) = side.trips.values()
    assert sum(trips.lost.size for trips in runs) == 100
