"""A run folder of which a part is spoiled, and everything that is made of it.

Each value of its documents in turn, and blank cells of its tables where they may be
blank: what is known is told, and nothing raises.
"""

from __future__ import annotations

import copy
import io
import json
import random
from pathlib import Path

import pytest
from latprof_analysis.compare import compare_sides, read_sides
from latprof_analysis.csv_cells import csv_text
from latprof_analysis.read.run_folder import SCHEMAS, read_documents
from latprof_analysis.report.build import build_report
from latprof_analysis.report.depth import depth
from latprof_analysis.report.loss_parts import loss_parts
from latprof_analysis.report.overview import overview
from latprof_analysis.report.setting import setting_parts
from latprof_analysis.report.terminal import Terminal, write_parts
from latprof_analysis.stages import STAGES, STAMPS
from latprof_analysis.study.analysis import Study, analyze
from latprof_analysis.study.runs import _OF_A_RUN
from made_runs import write_table
from message_rows import message

RUN = Path(__file__).parent.parent / "fuzz" / "run"
ROWS = 6
SAMPLED = 6
GONE = object()
VALUES = (GONE, None, "a", [], {}, [None], -1, 0, True, 0.5, 2**62)


def copied(folder, rows=ROWS):
    """Copy the run, with the first rows of its tables."""
    for path in RUN.iterdir():
        lines = path.read_text().splitlines(keepends=True)
        (folder / path.name).write_text("".join(lines[: rows + 1]))
    return folder


def tell(found: Study) -> None:
    """Make of a study all there is, but for drawing it."""
    json.dumps(found.document, allow_nan=False)
    show(found.document)
    for figure in build_report(found, "spoiled").figures():
        csv_text(figure.data)


def show(document) -> None:
    for parts in (overview(document), depth(document)):
        write_parts(parts, Terminal(file=io.StringIO(), width=100))


def places(document, path=()):
    """Name every value of a document; of a list the first stands for all."""
    if isinstance(document, dict):
        inside = document.items()
    else:
        inside = enumerate(document[:1]) if isinstance(document, list) else ()
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


def spoiled(document, path, value):
    document = copy.deepcopy(document)
    inside = document
    for key in path[:-1]:
        inside = inside[key]
    if value is GONE:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return document


def taken(folder, name, parts):
    """Spoil each value in these parts of a document; give what a reader takes of it."""
    path = folder / f"{name}.json"
    whole = json.loads(path.read_text())
    tried = set()
    for place in places(whole):
        for value in VALUES if place[0] in parts else ():
            path.write_text(json.dumps(spoiled(whole, place, value)))
            found = read_documents(folder, "r", [])[name]
            if repr(found) not in tried:
                tried.add(repr(found))
                yield found


@pytest.mark.thorough
def test_no_value_of_a_summary_breaks_a_report(tmp_path):
    whole = analyze(copied(tmp_path)).document
    ((name, run),) = whole["runs"].items()
    own = {part: value for part, value in run.items() if part not in _OF_A_RUN}
    for found in taken(tmp_path, "summary", _OF_A_RUN):
        document = whole | {"runs": {name: own | found}}
        show(document)
        assert setting_parts(document)
        assert loss_parts(document)


@pytest.mark.thorough
def test_no_value_of_a_run_json_breaks_what_is_made_of_a_run(tmp_path):
    """Of those that are taken some, as each takes a third of a second."""
    found = list(taken(copied(tmp_path, rows=2), "run", ("workload", "lab", "known")))
    for run in found[:: len(found) // SAMPLED]:
        (tmp_path / "run.json").write_text(json.dumps(run))
        tell(analyze(tmp_path))
        compare_sides(read_sides([str(tmp_path)] * 2))


@pytest.mark.parametrize("kept", [0, 1])
def test_a_run_that_lost_every_round_trip_is_told(tmp_path, kept):
    """Of one protocol, or of all."""
    path = copied(tmp_path) / "round_trips.csv"
    head, *rows = path.read_text().splitlines()
    cells = [dict(zip(head.split(","), row.split(","), strict=True)) for row in rows]
    for row in cells[kept:]:
        row |= {"protocol": "tcp", "received_ns": "", "rtt_ns": "", "lost": "1"}
    lines = [",".join(row.values()) for row in cells]
    path.write_text("\n".join([head, *lines, ""]))
    found = analyze(tmp_path)
    assert found.document["round_trips"]["tcp"]["lost"] == len(rows) - kept
    tell(found)


@pytest.mark.parametrize("table", SCHEMAS)
@pytest.mark.parametrize("seed", range(2))
def test_no_blank_cell_breaks_what_is_made_of_a_run(tmp_path, table, seed):
    chance = random.Random(seed)
    before, run = tmp_path / "before", tmp_path / "run"
    for folder in (before, run):
        folder.mkdir()
        copied(folder)
    path = run / f"{table}.csv"
    head, *lines = path.read_text().splitlines()
    names = head.split(",")
    may = [c.name for c in SCHEMAS[table].columns if c.blank and c.name in names]
    blank = [name for name in may if chance.random() < 0.5]
    every = chance.choice((1, 2))
    rows = [line.split(",") for line in lines]
    for row in rows[::every]:
        for name in blank:
            row[names.index(name)] = ""
    path.write_text("\n".join([head, *map(",".join, rows)]) + "\n")
    tell(analyze(run, thorough=True))
    compare_sides(read_sides([str(before), str(run)]))


STAGE_COLUMNS = tuple(f"{stage}_ns" for stage in STAGES)
STAMP_COLUMNS = tuple(f"{stamp}_ns" for stamp in STAMPS)


@pytest.mark.parametrize("value", ["", "0"])
@pytest.mark.parametrize(
    "columns",
    [
        ("packets",),
        STAGE_COLUMNS,
        STAMP_COLUMNS,
        (*STAGE_COLUMNS, *STAMP_COLUMNS),
        (*STAGE_COLUMNS, "end_to_end_ns"),
    ],
)
def test_columns_that_tell_nothing_of_any_message_break_nothing(
    tmp_path, columns, value
):
    """Of TCP, whose fits ask for packets, and so many that there is a fit."""
    copied(tmp_path, rows=80)
    path = tmp_path / "messages.csv"
    head, *lines = path.read_text().replace("udp,", "tcp,").splitlines()
    names = head.split(",")
    rows = [line.split(",") for line in lines]
    for row in rows:
        for name in columns:
            row[names.index(name)] = value
    path.write_text("\n".join([head, *map(",".join, rows)]) + "\n")
    tell(analyze(tmp_path))


@pytest.mark.parametrize("every", [1, 2])
def test_levels_of_messages_that_do_not_all_tell_when_they_were_read(tmp_path, every):
    """The change of level is told by its place, as no time is known of each."""
    rows = []
    for i in range(400):
        sent = 10**12 + i * 10**7
        stamps = [sent + k * (1000 + i % 9) for k in range(6)]
        rows.append(message((*stamps, sent + (10_000 if i < 200 else 900_000))))
    for row in rows[::every]:
        row["read_ns"] = None
    write_table(tmp_path / "messages.csv", rows)
    found = analyze(tmp_path)
    tell(found)
    (figures,) = found.document["messages"].values()
    (change,) = figures["time"]["level_changes"]["changes"]
    assert (change["index"], "t_s" in change) == (200, False)
    sections = {one.name: one.parts for one in build_report(found, "x").sections}
    parts = sections.get("time", ())
    if every == 1:
        reasons = [part.reason for part in sections["notes"][-1].parts]
        assert "no message has the time at which it was read" in reasons
    else:
        assert set(parts[0].data["role"]) == {"message"}
