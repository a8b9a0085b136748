"""Fuzzes what reads the files of others: `python tests/fuzz/readers.py TARGET ...`.

A TARGET is a file of a run, which is what the fuzzer makes it while the others of
the run stay as in `run/`; or `file`, which stands by itself; or `columns`, a CSV
whose columns its caller names. Whatever it holds, there is a result that can be
printed, or one line that says what is wrong. `__main__.py` calls this, with
libFuzzer's options and folders of inputs behind the target.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import atheris
from inputs import mutated

with atheris.instrument_imports(include=["latprof_analysis"]):
    from latprof_analysis.compare import (
        compare_sides,
        document,
        gate,
        read_sides,
    )
    from latprof_analysis.csv_cells import csv_text
    from latprof_analysis.errors import LatprofError
    from latprof_analysis.read import read_runs, read_samples
    from latprof_analysis.report.build import build_report
    from latprof_analysis.report.compared import show
    from latprof_analysis.report.depth import depth
    from latprof_analysis.report.overview import overview
    from latprof_analysis.report.terminal import Terminal, write_parts
    from latprof_analysis.study.analysis import Study, analyze

RUN = Path(__file__).parent / "run"
DATA = Path(__file__).parent.parent / "data"
TABLES = ("messages", "round_trips", "exchanges")
DOCUMENTS = ("run.json", "summary.json")
# A line that says what is wrong, and a line of the terminal.
LONGEST_LINE = 2000
# Of a table that stays as it is.
ROWS = 5
# All figures of a run take as long as it takes to read it so many times.
SELDOM = 8


def main() -> None:
    """Fuzz a target until libFuzzer's options say that it is enough."""
    target = sys.argv.pop(1)
    # libFuzzer ends the process itself: who started it removes this
    check = TARGETS[target](Path(tempfile.mkdtemp()), target)

    def change(data: bytes, max_size: int, seed: int) -> bytes:
        return mutated(data, max_size, seed, atheris.Mutate)

    def one(data: bytes) -> None:
        try:
            check(data)
        except LatprofError as error:
            text = str(error)
            assert text.isprintable(), f"not printable: {text!r}"
            assert len(text) < LONGEST_LINE, f"too long: {text}"

    atheris.Setup(sys.argv, one, custom_mutator=change)
    atheris.Fuzz()


def _file(folder: Path, _target: str) -> Callable[[bytes], None]:
    """Read a file by itself, of any format, and show what it holds."""
    path = folder / "file"

    def check(data: bytes) -> None:
        path.write_bytes(data)
        samples = read_samples(path)
        if zlib.crc32(data) % SELDOM == 0:
            found = analyze(path)
            _told(found)
            _reported(found)
        json.dumps(samples.as_dict(), allow_nan=False)

    return check


def _columns(folder: Path, _target: str) -> Callable[[bytes], None]:
    """Read a CSV by columns named by the caller."""
    path = folder / "file"
    named = {"latency_column": "rtt", "unit": "ms", "size_column": "bytes"}

    def check(data: bytes) -> None:
        path.write_bytes(data)
        found = analyze(path, **named)
        _told(found)
        _reported(found)
        _compared(path, path, **named)

    return check


def _of_run(folder: Path, target: str) -> Callable[[bytes], None]:
    """Analyze a run one of whose files is what the fuzzer makes it."""
    run, before = folder / "run", folder / "before"
    for copy in (run, before):
        _copy_begin(copy)
    path = run / target

    def check(data: bytes) -> None:
        path.write_bytes(data)
        json.dumps(read_runs(run).samples().as_dict(), allow_nan=False)
        which = zlib.crc32(data) % (4 * SELDOM)
        if which % SELDOM:
            return
        found = analyze(run, thorough=which == 0)
        _told(found)
        if which == SELDOM:
            _reported(found)
        if which == 2 * SELDOM:
            _compared(before, run)

    return check


def _copy_begin(folder: Path) -> None:
    """Copy the run with the first rows of its tables, which take less time."""
    folder.mkdir()
    for path in RUN.iterdir():
        lines = path.read_bytes().splitlines(keepends=True)
        (folder / path.name).write_bytes(b"".join(lines[:ROWS]))


def _told(found: Study) -> None:
    """Say what was found in each way there is, but for drawing it."""
    json.dumps(found.document, allow_nan=False)
    for lay_out in (overview, depth):
        _shown(lambda console, of=lay_out: write_parts(of(found.document), console))


def _reported(found: Study) -> None:
    report = build_report(found, "fuzzed")
    for figure in report.figures():
        csv_text(figure.data)


def _compared(*paths: Path, **named: str) -> None:
    found = compare_sides(read_sides([str(path) for path in paths], **named))
    compared = document(found)
    limits = {"slower": 0.05, "lossier": 0.01, "throughput_lower": 0.05}
    compared["gate"] = gate(compared, **limits, stages=True)
    json.dumps(compared, allow_nan=False)
    _shown(lambda console: show(compared, console, everything=True))


def _shown(show: Callable[[Terminal], None]) -> None:
    text = io.StringIO()
    show(Terminal(file=text, width=100))
    printed = text.getvalue().replace("\n", "")
    odd = sorted({c for c in printed if not c.isprintable()})
    assert not odd, f"printed: {odd!r}"


TARGETS = {
    "file": _file,
    "columns": _columns,
    **dict.fromkeys(DOCUMENTS, _of_run),
    **{f"{table}.csv": _of_run for table in (*TABLES, "histograms")},
    **{f"{table}.parquet": _of_run for table in TABLES},
}

if __name__ == "__main__":
    main()
