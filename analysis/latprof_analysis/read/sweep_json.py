"""sweep.json: a sweep's table and its knees, as `latprof run --sweep` left them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from latprof_analysis.read.json_document import (
    ANY,
    COUNT,
    FLAG,
    NUMBER,
    POSITIVE,
    TEXT,
    Maybe,
    Shape,
    WrongShapeError,
    check_plain,
    check_shape,
    read_json,
)
from latprof_analysis.read.paths import SWEEP_FILE
from latprof_analysis.read.result import ReadError

_SPREAD: Shape = Maybe({"median": NUMBER, "low": NUMBER, "high": NUMBER, "n": COUNT})
_SPREADS = (
    *("offered_per_second", "achieved_per_second", "utilisation", "loss_ratio"),
    *("sent_bps", "received_bps", "goodput_bps", "lost", "avg_ns", "kept_up_ns"),
    *(f"{of}_{p}_ns" for of in ("rtt", "operation") for p in ("p50", "p99")),
)
_ROW: dict[str, Shape] = {
    "combination": {ANY: TEXT},
    "of": TEXT,
    **dict.fromkeys(("runs", "runs_done"), COUNT),
    "failures": [TEXT],
    **dict.fromkeys(_SPREADS, _SPREAD),
    **{f"rtt_{p}_ns": _SPREAD for p in ("p90", "p95")},
    **dict.fromkeys(("largest_stage", "largest_place"), Maybe(TEXT)),
    **dict.fromkeys(("largest_stage_share", "largest_place_share"), Maybe(NUMBER)),
    "died": {ANY: NUMBER},
    "time_warp?": {ANY: {ANY: _SPREAD}},
    "knee": FLAG,
}
_KNEE: Shape = {
    "row": COUNT,
    "option": TEXT,
    "rules": [TEXT],
    **dict.fromkeys(("percentile", "stage"), Maybe(TEXT)),
    **dict.fromkeys(("plateau_ns", "stage_before_ns", "stage_ns"), Maybe(NUMBER)),
}
_SWEEP: Shape = {
    "line": TEXT,
    "repeat": POSITIVE,
    "planned": COUNT,
    "swept": [{"name": TEXT, "values": [TEXT]}],
    "rows": [_ROW],
    "knees": [_KNEE],
    "runs": [
        {
            "combination": {ANY: TEXT},
            "repeat": POSITIVE,
            **dict.fromkeys(("folder", "state"), TEXT),
            "failure": Maybe(TEXT),
            "lost_records": COUNT,
        }
    ],
}


def read_sweeps(paths: Iterable[Path], notes: list[str]) -> list[dict[str, Any]]:
    """Return what sweep.json holds of the folders that have one.

    One that is not as latprof writes it is left out, of which a note is made.
    """
    found = []
    for folder in paths:
        if not (folder / SWEEP_FILE).is_file():
            continue
        try:
            document = read_json(folder / SWEEP_FILE)
            _check(document)
        except ReadError as error:
            notes.append(f"no table of the sweep: {error}")
        except WrongShapeError as error:
            notes.append(f"{SWEEP_FILE} is not as latprof writes it: {error}; no table")
        else:
            found.append(document)
    return found


def _check(document: dict[str, Any]) -> None:
    """Raise WrongShapeError where who writes the table could not."""
    check_plain(document, "")
    check_shape(document, _SWEEP, "")
    names = {one["name"] for one in document["swept"]}
    if any(names - row["combination"].keys() for row in document["rows"]):
        raise WrongShapeError("a row does not tell what was swept")
    for knee in document["knees"]:
        if knee["row"] >= len(document["rows"]):
            raise WrongShapeError(f"there is no row {knee['row']} for a knee")
        _check_knee(knee, document["rows"][knee["row"]])


# Fields of a row that a rule of a knee needs.
_OF_RULES = {
    "capacity": ("utilisation",),
    "behind": ("offered_per_second", "achieved_per_second"),
    "loss": ("loss_ratio",),
}


def _check_knee(knee: dict[str, Any], row: dict[str, Any]) -> None:
    if knee["option"] not in row["combination"]:
        raise WrongShapeError("the row of a knee does not tell its option")
    tail = f"rtt_{knee['percentile']}_ns"
    for rule in knee["rules"]:
        needed = _OF_RULES.get(rule, (tail,))
        if not all(name in _ROW and row[name] for name in needed):
            raise WrongShapeError(f"the row of a knee does not tell its {rule}")
