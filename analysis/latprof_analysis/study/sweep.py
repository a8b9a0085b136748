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

from latprof_analysis.study.setup import FALLS_BEHIND, utilisation
from latprof_analysis.study.ways import Pair, pairs_of, time_by_stage

# The plateau: values of which the largest is at most so many times the smallest.
_ALIKE = 1.5
# Left by a p99 of which each repeat is above so many times each one of the plateau.
_LEAVES = 2.0
_FEWEST_ON_PLATEAU = 2
_TAILS = ("p99", "p95", "p90", "p50")
_ENDED = "done"
LATENCY_KEYS = ("p50_ns", "p95_ns", "p99_ns", "max_ns", "mean_ns")

Figures = dict[str, Any]


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
        By protocol, or by who talked to whom, as of `figures_of`.
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


def figures_of(summary: Mapping[str, Any]) -> dict[str, Figures]:
    """Return what a sweep's table shows of a run, by protocol or by pair of ends.

    Parameters
    ----------
    summary : mapping
        A run's summary.json.
    """
    trips = summary["round_trips"]
    pairs = {pair.name: pair for pair in pairs_of(summary["kinds"])}
    found = {}
    for name in dict.fromkeys((*trips, *pairs)):
        figures = _of_trips(summary, name) if name in trips else _of(summary, name)
        found[name] = figures | _of_stages(pairs.get(name))
        found[name]["time_warp"] = _of_requests(summary, name)
    return found


def _of_requests(summary: Mapping[str, Any], protocol: str) -> Figures:
    """Return Time Warp's latencies of requests, those that some message has."""
    kinds = summary["time_warp"]["kinds"]
    latencies = kinds.get(f"{protocol} request") or {}
    return {
        name: {key: figures[key] for key in LATENCY_KEYS}
        for name, figures in latencies.items()
        if figures["n"]
    }


def _of_trips(summary: Mapping[str, Any], protocol: str) -> Figures:
    trips = summary["round_trips"][protocol]
    return {
        "offered_per_second": trips["offered_per_second"],
        "achieved_per_second": trips["achieved_per_second"],
        "utilisation": utilisation(summary, protocol),
        "loss_ratio": trips["loss_ratio"],
        "rtt": _percentiles(trips["rtt"]),
    }


def _of(summary: Mapping[str, Any], name: str) -> Figures:
    """Return the response of other programs' exchanges, where it was seen."""
    parts = summary["exchanges"].get(name, {}).get("parts", {})
    return {
        "offered_per_second": None,
        "achieved_per_second": None,
        "utilisation": None,
        "loss_ratio": None,
        "rtt": _percentiles(parts.get("response", {})),
    }


def _percentiles(rtt: Mapping[str, Any]) -> Figures:
    return {f"{p}_ns": rtt.get(f"{p}_ns") for p in _TAILS}


def _of_stages(pair: Pair | None) -> Figures:
    """Return the share of each stage, and its mean there and back."""
    if not pair:
        return {"shares": {}, "stages_ns": {}}
    shares = time_by_stage(pair)
    means = dict.fromkeys(shares, 0.0)
    for way in pair.ways.values():
        for name in shares:
            means[name] += way["stages"].get(name, {}).get("mean_ns") or 0.0
    return {"shares": shares, "stages_ns": means}


def spread(values: Sequence[float | None]) -> Figures | None:
    """Return the median of repeats and their range; None where none tells a value.

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

    A row is of a combination and a protocol; of one that no run tells anything of it
    has neither protocol nor figures. Runs that did not end well are in no figure, but
    for an interrupted one where there is no other.
    """
    found: list[Figures] = []
    for combination in combinations:
        own = [run for run in runs if run.combination == combination]
        ended = [run for run in own if run.state == _ENDED]
        told = ended or [run for run in own if run.state == "interrupted"]
        states = {
            "combination": dict(combination),
            "runs": len(own),
            "runs_done": len(ended),
            "failures": [run.failure for run in own if run.failure],
        }
        names = dict.fromkeys(name for run in told for name in run.figures)
        for name in names or [""]:
            figures = [run.figures[name] for run in told if name in run.figures]
            found.append({**states, "of": name, **_row(figures)})
    return found


def _row(figures: Sequence[Figures]) -> Figures:
    rtts = [one["rtt"] for one in figures]
    shares, stages = (_medians(figures, key) for key in ("shares", "stages_ns"))
    most = max(shares, key=lambda name: shares[name], default=None)
    return {
        **{
            key: spread([one[key] for one in figures])
            for key in (
                "offered_per_second",
                "achieved_per_second",
                "utilisation",
                "loss_ratio",
            )
        },
        **{f"rtt_{p}_ns": spread([rtt[f"{p}_ns"] for rtt in rtts]) for p in _TAILS},
        "largest_stage": most,
        "largest_stage_share": shares[most] if most else None,
        "stages_ns": stages,
        "time_warp": _latencies([one["time_warp"] for one in figures]),
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
    names = dict.fromkeys(name for one in figures for name in one[key])
    return {name: median(one[key].get(name, 0.0) for one in figures) for name in names}


def find_knees(
    rows: Sequence[Figures], option: str, numbers: Mapping[str, float]
) -> list[Figures]:
    """Find where latency leaves its plateau, or load its link, as an option grows.

    For each protocol, and each combination of the other options, the values are
    ordered from the end with the shorter tail. The knee is the first of them at which
    a rule holds:

    - ``capacity``: the open loop offers the link's rate or more;
    - ``behind``: fewer than 95% of the messages offered are sent;
    - ``plateau``: from here on each repeat's p99 is above twice any of the plateau's,
      which are the first values, two or more whose medians are within a factor of
      1.5. With too few messages for a p99 it is the largest percentile that all tell.

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
        tail = _common_tail([rows[i] for i in places])
        if len(places) < 2 or not tail:
            continue
        ends = [rows[places[end]][f"rtt_{tail}_ns"]["median"] for end in (0, -1)]
        if ends[0] > ends[-1]:
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
    """Return the largest percentile that all rows tell."""
    told = (p for p in _TAILS if all(row[f"rtt_{p}_ns"] for row in rows))
    return next(told, "")


def _knee(rows: Sequence[Figures], tail: str) -> Figures | None:
    """Find the first row, from the quiet end, at which a rule holds."""
    times = [row[f"rtt_{tail}_ns"] for row in rows]
    n = _plateau([time["median"] for time in times])
    left = len(rows)
    if n >= _FEWEST_ON_PLATEAU:
        highest = max(time["high"] for time in times[:n])
        while left > n and times[left - 1]["low"] > _LEAVES * highest:
            left -= 1
    for at, row in enumerate(rows):
        rules = [*_load_rules(row), *(["plateau"] if at == left else [])]
        if rules:
            return {
                "at": at,
                "rules": rules,
                "percentile": tail,
                "plateau_ns": median(time["median"] for time in times[:n]),
                **_grown(rows[at - 1] if at else None, row),
            }
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
    n = 1
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
