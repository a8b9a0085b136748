"""A sweep: the same run with other values of its options, side by side.

Of each run only some figures are kept, those that a table of many runs has room for;
the rest stands in its own folder. A combination of values was run several times: a
figure is the median of its repeats, with the smallest and the largest of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from latprof_analysis.study.setup import FALLS_BEHIND
from latprof_analysis.study.sweep_figures import (
    LATENCY_KEYS,
    TAILS,
    TIMED,
    VALUES,
    Figures,
)

# The plateau: values of which the largest is at most so many times the smallest.
_ALIKE = 1.5
# Left by a p99 of which each repeat is above so many times each one of the plateau.
_LEAVES = 2.0
_FEWEST_ON_PLATEAU = 2
# Loss sets in with so many lost in each repeat, and so large a share: less is chance.
_FEWEST_LOST = 10
_LEAST_LOSS = 0.001
_ENDED = "done"


@dataclass(frozen=True)
class SweptRun:
    """One run of a sweep.

    Attributes
    ----------
    combination : mapping of str to str
        What was swept, with the value that this run had, as it was given.
    repeat : int
        Counted from 1.
    folder : str
        Empty where the run left none.
    state : str
        ``done``, ``failed`` or ``interrupted``.
    failure : str
        Why it failed, in one line.
    warnings : sequence of str
        Of its summary.
    lost_records : int
        Of latprof's own: with some, rows may be missing.
    figures : dict of str to dict
        By what they are of, as of `sweep_figures.figures_of`.
    """

    combination: Mapping[str, str]
    repeat: int
    folder: str
    state: str
    failure: str = ""
    warnings: Sequence[str] = ()
    lost_records: int = 0
    figures: Figures = field(default_factory=dict)

    def as_dict(self) -> Figures:
        """Return it for sweep.json."""
        return {
            "combination": dict(self.combination),
            "repeat": self.repeat,
            "folder": self.folder,
            "state": self.state,
            "failure": self.failure or None,
            "warnings": list(self.warnings),
            "lost_records": self.lost_records,
            "figures": self.figures,
        }


def spread(values: Sequence[float | None]) -> Figures | None:
    """Return the median of repeats and their range; None where none has a value.

    Examples
    --------
    >>> spread([3.0, None, 1.0])
    {'median': 2.0, 'low': 1.0, 'high': 3.0, 'n': 2}
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {
        "median": median(known),
        "low": min(known),
        "high": max(known),
        "n": len(known),
    }


def rows_of(
    combinations: Sequence[Mapping[str, str]], runs: Sequence[SweptRun]
) -> list[Figures]:
    """Return the rows of a sweep's table, in the order of the combinations.

    A row is of a combination and a protocol; of a combination without figures it
    has neither protocol nor figures. Runs that did not end well are in no figure, but
    for an interrupted one where there is no other.
    """
    found: list[Figures] = []
    for combination in combinations:
        own = [run for run in runs if run.combination == combination]
        ended = [run for run in own if run.state == _ENDED]
        counted = ended or [run for run in own if run.state == "interrupted"]
        states = {
            "combination": dict(combination),
            "runs": len(own),
            "runs_done": len(ended),
            "failures": [run.failure for run in own if run.failure],
        }
        names = dict.fromkeys(name for run in counted for name in run.figures)
        for name in names or [""]:
            figures = [run.figures[name] for run in counted if name in run.figures]
            found.append({**states, "of": name, **_row(figures)})
    return found


def _row(figures: Sequence[Figures]) -> Figures:
    shares, stages, died = (
        _medians(figures, key) for key in ("shares", "stages_ns", "died")
    )
    # where a place dropped in a few of the repeats only, its median is 0
    died = {place: packets for place, packets in died.items() if packets}
    most, place = (max(of, key=of.__getitem__, default=None) for of in (shares, died))
    return {
        **{key: spread([one.get(key) for one in figures]) for key in VALUES},
        **{
            f"{of}_{p}_ns": spread([one.get(of, {}).get(f"{p}_ns") for one in figures])
            for of in TIMED
            for p in TAILS
        },
        "largest_stage": most,
        "largest_stage_share": shares[most] if most else None,
        "stages_ns": stages,
        "died": died,
        "largest_place": place,
        "largest_place_share": died[place] / sum(died.values()) if place else None,
        "time_warp": _latencies([one.get("time_warp", {}) for one in figures]),
        "knee": False,
    }


def _latencies(figures: Sequence[Figures]) -> Figures:
    """Return of each of Time Warp's latencies the spread of its figures."""
    names = dict.fromkeys(name for one in figures for name in one)
    return {
        name: {
            key: spread([one.get(name, {}).get(key) for one in figures])
            for key in LATENCY_KEYS
        }
        for name in names
    }


def _medians(figures: Sequence[Figures], key: str) -> dict[str, float]:
    known = [one.get(key, {}) for one in figures]
    names = dict.fromkeys(name for one in known for name in one)
    return {name: median(one.get(name, 0.0) for one in known) for name in names}


def find_knees(
    rows: Sequence[Figures], option: str, numbers: Mapping[str, float]
) -> list[Figures]:
    """Find where latency leaves its plateau, or load its link, as an option grows.

    For each protocol, size or part, and each combination of the other options, the
    values are ordered from the end with the shorter tail, the smaller loss and the
    smaller load. The knee is the first of them at which a rule holds:

    - ``capacity``: the rate of the link, or of a host's link in a mesh, or more is
      offered;
    - ``behind``: less than 95% of the messages offered are sent, in a mesh answered;
    - ``loss``: from here on each repeat loses more than twice the share that any
      before it lost, more than 0.1% and 10 or more;
    - ``plateau``: from here on each repeat's p99 is above twice any of the plateau's,
      which are the first values, two or more whose medians are within a factor of
      1.5. With too few messages for a p99 it is the largest percentile that all have.

    Parameters
    ----------
    rows : sequence of dict
        As of `rows_of`; those at a knee are marked.
    option : str
        What was swept.
    numbers : mapping of str to float
        Each of its values, as it was given, as a number.

    Returns
    -------
    list of dict
        At each knee its row's place, the rules, and the stage whose mean time, there
        and back, grew most since the value before.
    """
    found = []
    for points in _series(rows, option):
        places = sorted(points, key=lambda i: numbers[rows[i]["combination"][option]])
        if len(places) < 2:
            continue
        tail = _common_tail([rows[i] for i in places])
        if _strain(rows[places[0]], tail) > _strain(rows[places[-1]], tail):
            places.reverse()
        if knee := _knee([rows[i] for i in places], tail):
            at = places[knee.pop("at")]
            rows[at]["knee"] = True
            found.append({"row": at, "option": option, **knee})
    return found


def _series(rows: Sequence[Figures], option: str) -> Iterator[list[int]]:
    """Yield the places of rows that differ in one option only."""
    series: dict[tuple[Any, ...], list[int]] = {}
    for i, row in enumerate(rows):
        others = {k: v for k, v in row["combination"].items() if k != option}
        if row["of"]:
            series.setdefault((row["of"], *others.items()), []).append(i)
    yield from series.values()


def _common_tail(rows: Sequence[Figures]) -> str:
    """Return the largest percentile that all rows have; empty where there is none."""
    common = (p for p in TAILS if all(row[f"rtt_{p}_ns"] for row in rows))
    return next(common, "")


def _strain(row: Figures, tail: str) -> list[float]:
    """Return keys that order a series' ends, the quiet one first."""
    keys = (f"rtt_{tail}_ns", "loss_ratio", "utilisation")
    return [repeats["median"] if (repeats := row.get(key)) else 0.0 for key in keys]


def _knee(rows: Sequence[Figures], tail: str) -> Figures | None:
    """Find the first row, from the quiet end, at which a rule holds."""
    times = [row[f"rtt_{tail}_ns"] for row in rows] if tail else []
    n = _plateau([time["median"] for time in times])
    left, lossy = _leaves(times, n), _loses(rows)
    for at, row in enumerate(rows):
        rules = [*_load_rules(row), *(["loss"] if at == lossy else [])]
        rules += ["plateau"] if at == left else []
        if rules:
            return {
                "at": at,
                "rules": rules,
                "percentile": tail or None,
                "plateau_ns": median(time["median"] for time in times[:n])
                if times
                else None,
                **_grown(rows[at - 1] if at else None, row),
            }
    return None


def _leaves(times: Sequence[Figures], n: int) -> int | None:
    """Return from where on all times are above the plateau, of the first `n`."""
    if n < _FEWEST_ON_PLATEAU:
        return None
    highest = max(time["high"] for time in times[:n])
    left = len(times)
    while left > n and times[left - 1]["low"] > _LEAVES * highest:
        left -= 1
    return left


def _loses(rows: Sequence[Figures]) -> int | None:
    """Return from where on more is lost than anywhere before."""
    losses, counts = ([row[key] for row in rows] for key in ("loss_ratio", "lost"))
    if not all(losses) or not all(counts):
        return None
    for at in range(1, len(rows)):
        before = max(loss["high"] for loss in losses[:at])
        least = min(loss["low"] for loss in losses[at:])
        fewest = min(count["low"] for count in counts[at:])
        if least > max(_LEAST_LOSS, _LEAVES * before) and fewest >= _FEWEST_LOST:
            return at
    return None


def _load_rules(row: Figures) -> Iterator[str]:
    used, offered = row["utilisation"], row["offered_per_second"]
    achieved = row["achieved_per_second"]
    if used and used["median"] >= 1:
        yield "capacity"
    if offered and achieved and (achieved["median"] < FALLS_BEHIND * offered["median"]):
        yield "behind"


def _plateau(values: Sequence[float]) -> int:
    """Return how many of the first values are alike.

    Examples
    --------
    >>> _plateau([10, 11, 12, 90]), _plateau([1, 2, 4, 8])
    (3, 1)
    """
    n = min(1, len(values))
    while n < len(values) and max(values[: n + 1]) <= _ALIKE * min(values[: n + 1]):
        n += 1
    return n


def _grown(before: Figures | None, row: Figures) -> Figures:
    """Name the stage that grew most since the row before."""
    old, new = (before or {}).get("stages_ns") or {}, row["stages_ns"]
    grew = {name: new[name] - old.get(name, 0.0) for name in new} if old else {}
    most = max(grew, key=lambda name: grew[name], default="")
    if not most or grew[most] <= 0:
        return {"stage": None, "stage_before_ns": None, "stage_ns": None}
    return {
        "stage": most,
        "stage_before_ns": old.get(most, 0.0),
        "stage_ns": new[most],
    }
