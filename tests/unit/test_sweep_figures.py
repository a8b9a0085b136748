"""A sweep's table and its knee, from runs that are made up."""

from __future__ import annotations

import json
import os

import pytest
from latprof_analysis.compare.sides import read_sides
from latprof_analysis.read.paths import expand
from latprof_analysis.report.build import build_report
from latprof_analysis.report.overview import overview
from latprof_analysis.report.sweep_parts import sweep_parts
from latprof_analysis.report.terminal import Terminal, write_parts
from latprof_analysis.study.analysis import analyze
from latprof_analysis.study.sweep import SweptRun, find_knees, rows_of
from run_folders import write_run

US, MS = 1_000, 1_000_000
NUMBERS = {"1ms": 1e6, "500us": 5e5, "250us": 2.5e5, "125us": 1.25e5}


def figures(
    p99_ns, *, rate=1000.0, achieved=None, used=0.5, stages=None, time_warp=None
):
    return {
        "offered_per_second": rate,
        "achieved_per_second": rate if achieved is None else achieved,
        "utilisation": used,
        "loss_ratio": 0.0,
        "rtt": {"p99_ns": p99_ns, "p95_ns": 80, "p90_ns": 70, "p50_ns": 50 * US},
        "shares": {"qdisc": 0.4, "transit": 0.6},
        "stages_ns": stages or {"qdisc": 10.0, "transit": 90.0},
        "time_warp": time_warp or {},
    }


def run_of(interval, repeat, told, state="done", **more):
    combination = {"interval": interval, **more}
    made = {"tcp": told} if told else {}
    failure = "the responder failed" if state == "failed" else ""
    return SweptRun(combination, repeat, "f", state, failure, figures=made)


def swept(*p99s, **options):
    """Rows of one run for each of these p99s, at ever shorter intervals."""
    runs = [
        run_of(interval, 1, figures(p99, **options))
        for interval, p99 in zip(NUMBERS, p99s, strict=False)
    ]
    return rows_of([run.combination for run in runs], runs)


def test_a_row_is_the_median_of_its_repeats_with_their_range():
    runs = [run_of("1ms", n, figures(p99)) for n, p99 in enumerate((5, 9, 6), 1)]
    (row,) = rows_of([{"interval": "1ms"}], runs)
    assert row["rtt_p99_ns"] == {"median": 6, "low": 5, "high": 9, "n": 3}
    assert (row["largest_stage"], row["largest_stage_share"]) == ("transit", 0.6)
    assert (row["of"], row["runs"], row["runs_done"]) == ("tcp", 3, 3)


@pytest.mark.parametrize(
    ("died", "told", "most"),
    [
        ([{"link": 9}, {}, {}], {}, (None, None)),
        ([{"link": 9, "socket": 3}, {"socket": 5}, {}], {"socket": 3}, ("socket", 1.0)),
        ([{"link": 9}, {"link": 5, "socket": 2}], {"link": 7, "socket": 1}, None),
    ],
)
def test_a_place_that_dropped_in_a_minority_of_repeats_is_none_of_the_rows(
    died, told, most
):
    repeats = enumerate(died, 1)
    runs = [run_of("1ms", n, figures(5) | {"died": one}) for n, one in repeats]
    (row,) = rows_of([{"interval": "1ms"}], runs)
    assert row["died"] == told
    found = (row["largest_place"], row["largest_place_share"])
    assert found == (most or ("link", 7 / 8))


def test_a_run_that_failed_is_told_and_in_no_figure():
    runs = [run_of("1ms", 1, figures(5)), run_of("1ms", 2, figures(900), "failed")]
    (row,) = rows_of([{"interval": "1ms"}], runs)
    assert row["rtt_p99_ns"] == {"median": 5, "low": 5, "high": 5, "n": 1}
    assert row["failures"] == ["the responder failed"]
    assert (row["runs"], row["runs_done"]) == (2, 1)


def test_an_interrupted_run_counts_where_there_is_no_other():
    runs = [run_of("1ms", 1, figures(5)), run_of("1ms", 2, figures(900), "interrupted")]
    combinations = [{"interval": "1ms"}]
    assert rows_of(combinations, runs)[0]["rtt_p99_ns"]["high"] == 5
    assert rows_of(combinations, runs[1:])[0]["rtt_p99_ns"]["median"] == 900


def test_a_combination_without_runs_has_a_row_without_figures():
    (row,) = rows_of([{"interval": "1ms"}], [])
    assert (row["of"], row["runs"], row["rtt_p50_ns"]) == ("", 0, None)


def test_rows_stand_in_the_order_in_which_values_were_given():
    runs = [run_of(i, 1, figures(5)) for i in ("500us", "250us", "1ms")]
    given = [{"interval": i} for i in ("1ms", "500us", "250us")]
    assert [row["combination"] for row in rows_of(given, runs)] == given


def test_the_knee_is_where_p99_leaves_its_plateau_for_good():
    rows = swept(100 * US, 110 * US, 105 * US, 900 * US)
    (knee,) = find_knees(rows, "interval", NUMBERS)
    assert (knee["row"], knee["rules"]) == (3, ["plateau"])
    assert knee["plateau_ns"] == 105 * US
    assert [row["knee"] for row in rows] == [False, False, False, True]


@pytest.mark.parametrize(
    "p99s",
    [
        (100, 200, 400, 800),  # grows all along, as with a delay
        (100, 110, 900, 120),  # one bad run, and back
        (100, 110, 140, 190),  # less than twice
    ],
)
def test_without_a_plateau_that_is_left_there_is_no_knee(p99s):
    assert not find_knees(swept(*p99s), "interval", NUMBERS)


def test_the_repeats_of_a_plateau_must_not_reach_up_to_the_knee():
    told = {"1ms": (100, 450), "500us": (105, 115), "250us": (800, 850)}
    runs = [
        run_of(interval, n, figures(p99))
        for interval, p99s in told.items()
        for n, p99 in enumerate(p99s, 1)
    ]
    rows = rows_of([{"interval": one} for one in told], runs)
    assert not find_knees(rows, "interval", NUMBERS)


def test_the_knee_is_where_the_link_is_offered_its_rate():
    runs = [
        run_of("1ms", 1, figures(100, used=0.4)),
        run_of("500us", 1, figures(140, used=0.8)),
        run_of("250us", 1, figures(150, used=1.6)),
    ]
    rows = rows_of([run.combination for run in runs], runs)
    (knee,) = find_knees(rows, "interval", NUMBERS)
    assert (knee["row"], knee["rules"]) == (2, ["capacity"])


def test_the_knee_is_where_the_sender_falls_behind():
    runs = [
        run_of("1ms", 1, figures(100, used=None, rate=1000.0)),
        run_of("500us", 1, figures(120, used=None, rate=2000.0, achieved=1899.0)),
    ]
    rows = rows_of([run.combination for run in runs], runs)
    (knee,) = find_knees(rows, "interval", NUMBERS)
    assert (knee["row"], knee["rules"]) == (1, ["behind"])


def test_the_stage_at_the_knee_is_the_one_that_grew_most():
    quiet, full = {"qdisc": 10.0, "transit": 90.0}, {"qdisc": 60.0, "transit": 120.0}
    runs = [
        run_of("1ms", 1, figures(100, used=0.4, stages=quiet)),
        run_of("500us", 1, figures(140, used=1.1, stages=full)),
    ]
    rows = rows_of([run.combination for run in runs], runs)
    (knee,) = find_knees(rows, "interval", NUMBERS)
    assert knee["stage"] == "qdisc"
    assert (knee["stage_before_ns"], knee["stage_ns"]) == (10.0, 60.0)


def test_each_other_combination_has_its_own_knee():
    p99s = {"bbr": (100, 100, 900), "cubic": (100, 900, 950)}
    runs = [
        run_of(interval, 1, figures(p99), congestion=name)
        for name, values in p99s.items()
        for interval, p99 in zip(NUMBERS, values, strict=False)
    ]
    rows = rows_of([run.combination for run in runs], runs)
    # of cubic one value is no plateau, and so nothing is left
    (knee,) = find_knees(rows, "interval", NUMBERS)
    assert rows[knee["row"]]["combination"] == {
        "interval": "250us",
        "congestion": "bbr",
    }


def test_with_too_few_messages_for_a_p99_the_next_percentile_decides():
    rows = swept(None, None, None)
    for row, value in zip(rows, (10, 11, 90), strict=True):
        row["rtt_p95_ns"] = {"median": value, "low": value, "high": value, "n": 1}
    (knee,) = find_knees(rows, "interval", NUMBERS)
    assert (knee["row"], knee["percentile"]) == (2, "p95")


def document(runs, rows, knees=(), **more):
    return {
        "folder": "runs/x",
        "line": "latprof run --sweep interval=1ms,500us",
        "repeat": 1,
        "planned": len(runs),
        "swept": [{"name": "interval", "values": ["1ms", "500us"]}],
        "folders": ["interval=1ms", "interval=500us"],
        "rows": rows,
        "knees": list(knees),
        "runs": [run.as_dict() for run in runs],
        **more,
    }


def shown(told, capsys, width=100, *, everything=False):
    write_parts(sweep_parts(told, everything=everything), Terminal(width=width))
    return capsys.readouterr().out


def test_the_table_marks_the_knee_and_what_failed(capsys):
    runs = [
        run_of("1ms", 1, figures(100 * US, used=0.4)),
        run_of("500us", 1, figures(2 * MS, used=1.2, rate=2000.0)),
        run_of("250us", 1, {}, "failed"),
    ]
    rows = rows_of([run.combination for run in runs], runs)
    knees = find_knees(rows, "interval", NUMBERS)
    out = shown(document(runs, rows, knees), capsys)
    lines = out.splitlines()
    assert lines[0] == "2 of 3 runs"
    assert lines[3].split() == [
        *("500us", "2000", "120", "2000", "50.0", "us", "2.00", "ms", "0"),
        *("knee", "transit", "60%"),
    ]
    assert lines[4].split()[-5:] == ["1", "of", "1", "failed", "-"]
    assert "at interval=500us 120.0% of the link's rate is offered" in out
    assert "failed: interval=250us, repeat 1: the responder failed" in out
    assert "again: latprof run --sweep interval=1ms,500us" in out


def test_lost_records_of_any_run_are_told(capsys):
    run = SweptRun(
        {}, 1, "runs/x/1", "done", lost_records=7, figures={"tcp": figures(9)}
    )
    told = document([run], rows_of([{}], [run]), swept=[], folders=[""])
    assert "lost 7 records in 1 run, the first of them runs/x/1" in shown(told, capsys)


@pytest.fixture
def folder(tmp_path):
    """A sweep of two combinations, twice each; the first is not the first by name."""
    names = ["interval=9ms", "interval=1ms"]
    for place, name in enumerate(names):
        for repeat in (1, 2):
            run = tmp_path / name / str(repeat)
            run.parent.mkdir(exist_ok=True)
            write_run(run, host="h", seed=repeat, **({"reply": 18} if place else {}))
            path = run / "run.json"
            told = json.loads(path.read_text())
            told["workload"]["plan"]["seed"] = repeat
            path.write_text(json.dumps(told))
    (tmp_path / "sweep.json").write_text(json.dumps({"folders": names}))
    return tmp_path


def test_a_sweep_is_compared_by_its_combinations_in_their_order(folder):
    sides = read_sides([str(folder)])
    assert [side.name for side in sides] == [
        str(folder / "interval=9ms"),
        str(folder / "interval=1ms"),
    ]
    assert [len(side.runs) for side in sides] == [2, 2]


def test_a_sweep_is_analyzed_by_its_combinations(folder):
    setups = analyze(folder).document["setups"]
    assert [len(setup["runs"]) for setup in setups] == [2, 2]


def test_the_table_of_a_sweep_is_told_again(folder, capsys):
    runs = [run_of("9ms", 1, figures(100 * US)), run_of("1ms", 1, figures(2 * MS))]
    rows = rows_of([run.combination for run in runs], runs)
    told = document(runs, rows, [])
    (folder / "sweep.json").write_text(json.dumps(told))
    study = analyze(folder)
    assert study.document["sweeps"] == [told]
    write_parts(overview(study.document), Terminal(width=100))
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "2 runs"
    assert table[2].split()[:2] == ["9ms", "1000"]
    first, *_ = build_report(study, "x").sections
    assert first.title == "The sweep"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda told: told.pop("line"), "line is missing"),
        (lambda told: told["rows"][0].pop("rtt_p50_ns"), "rtt_p50_ns is missing"),
        (lambda told: told["rows"][0].update(utilisation=-1), "must be an object"),
        (lambda told: told["rows"][0].update(combination={}), "what was swept"),
        (lambda told: told["knees"][0].update(row=7), "no row 7"),
        (lambda told: told["knees"][0].update(rules=["loss"]), "its loss"),
        (lambda told: told["knees"][0].update(option="mtu"), "its option"),
        (
            lambda told: told["knees"][0].update(rules=["plateau"], percentile="x"),
            "its plateau",
        ),
    ],
)
def test_a_table_that_is_not_as_it_was_written_is_left_out_with_a_note(
    folder, spoil, why
):
    of_runs = [figures(100 * US, used=0.5), figures(2 * MS, used=1.5)]
    for one in of_runs:
        one["loss_ratio"] = None
    runs = [run_of(i, 1, one) for i, one in zip(("9ms", "1ms"), of_runs, strict=True)]
    rows = rows_of([run.combination for run in runs], runs)
    knees = find_knees(rows, "interval", {"9ms": 9e6, "1ms": 1e6})
    told = document(runs, rows, knees)
    spoil(told)
    (folder / "sweep.json").write_text(json.dumps(told))
    found = analyze([folder, folder / "interval=9ms"]).document
    assert "sweeps" not in found
    (note,) = [note for note in found["notes"] if "sweep.json" in note]
    assert why in note


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"folders": 3}', '{"folders": ["..", "a/b", 7, null, "gone"]}'],
)
def test_a_broken_sweep_names_no_folder_outside_of_it(folder, text):
    (folder / "sweep.json").write_text(text)
    assert expand(folder) == [folder]
    (folder / "sweep.json").unlink()
    os.mkfifo(folder / "sweep.json")  # who reads it would wait for ever
    assert expand(folder) == [folder]
    assert [side.name for side in read_sides([str(folder / "interval=9ms")])]


def latencies(a_ns, d_ns):
    keys = ("p50_ns", "p95_ns", "p99_ns", "max_ns", "mean_ns")
    each = {"A": a_ns, "C": a_ns - d_ns, "D": d_ns}
    return {name: dict.fromkeys(keys, ns) for name, ns in each.items()}


def test_time_warps_latencies_of_all_values_stand_side_by_side(capsys):
    runs = [
        run_of("1ms", n, figures(5, time_warp=latencies(a * US, 75 * US)))
        for n, a in enumerate((90, 100, 300), 1)
    ]
    runs.append(run_of("500us", 1, figures(5, time_warp=latencies(200 * US, 20 * US))))
    combinations = [runs[0].combination, runs[-1].combination]
    told = document(runs, rows_of(combinations, runs))
    assert "latencies" not in shown(told, capsys)
    lines = shown(told, capsys, everything=True).splitlines()
    (at,) = (i for i, line in enumerate(lines) if "Time Warp's latencies" in line)
    found = [line.split() for line in lines[at + 2 : at + 8]]
    values = [(row[0], row[2], row[-3], row[-1]) for row in found]
    # medians of three; the share is of the means
    assert values == [
        ("A", "1ms", "100", "100.0%"),
        ("A", "500us", "200", "100.0%"),
        ("C", "1ms", "25.0", "25.0%"),
        ("C", "500us", "180", "90.0%"),
        ("D", "1ms", "75.0", "75.0%"),
        ("D", "500us", "20.0", "10.0%"),
    ]
