"""messages.csv -> tails, variation, queueing and fits, by kind of message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy import inf, isnan
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.fit.by_stage import QUANTITIES, StageFit, fit_stages, link_rates
from latprof_analysis.fit.trains import stage_dispersions
from latprof_analysis.read.rows import Columns
from latprof_analysis.stages import (
    APART,
    BLANK,
    STAGES,
    STAMPS,
    merged_name,
    missing_code,
)
from latprof_analysis.stats.quantiles import quantiles_by
from latprof_analysis.study import findings
from latprof_analysis.study.findings import Effort
from latprof_analysis.study.setup import RunSetup

Floats = NDArray[np.float64]

# Of fewer messages of each size on average a median is hardly that of the size.
_FEWEST_OF_SIZE = 5


def name_stages(modes: list[dict[str, Any]], messages: Columns) -> None:
    """Add to each mode but the fastest the stage that differs most from the one below.

    Parameters
    ----------
    modes : list of dict
        As `Modes.as_dict` has them, ascending; each but the first gets ``longer_in``:
        ``stage``, the difference ``by_ns`` of its medians in both modes, and ``n``,
        the messages of both.
    messages : Columns
        Of the size that the modes are of, seen from end to end. Those are used that
        have the stamps which most of them have.
    """
    if len(modes) < 2:
        return
    numbers = messages.numbers
    stamps = {name: np.maximum(numbers[f"{name}_ns"], 0) for name in STAMPS}
    codes = missing_code(stamps)
    usual = int(np.bincount(codes).argmax())
    there = {name: not usual >> i & 1 for i, name in enumerate(STAMPS)}
    rows = messages.at(codes == usual)
    # a mode ends where the next begins; the outer ones at no value
    bounds = [mode["low"] for mode in modes[1:]]
    which = np.searchsorted(bounds, rows.numbers["end_to_end_ns"], side="right")
    stages = {merged_name(stage, there): rows.floats(f"{stage}_ns") for stage in STAGES}
    known = {name: times for name, times in stages.items() if not isnan(times).all()}
    for i in range(1, len(modes)):
        below, above = which == i - 1, which == i
        if known and below.any() and above.any():
            more = {
                name: float(_median(times[above]) - _median(times[below]))
                for name, times in known.items()
            }
            stage = max(
                more, key=lambda name: -inf if isnan(more[name]) else more[name]
            )
            modes[i]["longer_in"] = {
                "stage": stage,
                "by_ns": more[stage],
                "n": int(below.sum() + above.sum()),
            }


def _median(times: Floats) -> float:
    known = times[~isnan(times)]
    return float(np.median(known)) if known.size else np.nan


# What may show a link's rate: the rest takes time, and is for who asks for all.
_LINK = ("transit", "one_way")


def message_figures(
    messages: Columns,
    stretch: Columns,
    lost: Mapping[str, NDArray[np.bool_]],
    setup: RunSetup,
    *,
    effort: Effort,
    every: int,
) -> dict[str, Any]:
    """Describe messages by kind.

    Parameters
    ----------
    messages : Columns
        Those of `read.schema`, and ``run``.
    stretch : Columns
        Messages that follow each other without gaps: all, or of a large run some.
        What needs neighbours comes from these.
    lost : mapping of str to ndarray of bool
        As of `Scan`: of all datagrams.
    setup : RunSetup
        What all their runs have in common.
    effort : Effort
    every : int
        Of about so many messages one is in `messages`; 1: all are.

    Returns
    -------
    dict
        ``link``: by kind the fit that shows its direction's link best, or why none
        does; ``stage_fits``; ``dispersion`` by kind; and ``messages``: by kind, end to
        end, ``tail``, ``time``, ``delay_variation`` (transit of the most frequent
        size), ``queueing``, and of datagrams ``loss``.
    """
    kinds, near = dict(_kinds(messages)), dict(_kinds(stretch))
    fits = _stage_fits(messages, stretch, setup, effort) if kinds else []
    none = messages.at(np.empty(0, np.intp))
    return {
        "messages": {
            name: _kind(rows, near.get(name, none), every, effort)
            | ({"loss": findings.losses(lost[name])} if name in lost else {})
            for name, rows in kinds.items()
        },
        "link": _link(fits),
        "stage_fits": [fit.as_dict() for fit in fits],
        "dispersion": _dispersions(stretch, setup) if kinds else {},
    }


def _kinds(messages: Columns) -> Iterator[tuple[str, Columns]]:
    """Messages by protocol and kind in the order in which they were sent."""
    for (protocol, kind), at in messages.split("protocol", "kind"):
        if protocol is not None and kind not in (None, *APART):
            yield f"{protocol} {kind}", _in_order(messages.at(at))


def _in_order(rows: Columns) -> Columns:
    """Order by the first stamp that each has; runs one after the other."""
    since = rows.numbers["arrive_ns"]
    for stamp in ("queue", "send"):
        times = rows.numbers[f"{stamp}_ns"]
        since = np.where(times == BLANK, since, times)
    last = np.where(since == BLANK, np.iinfo(np.int64).max, since)
    return rows.at(np.lexsort((last, rows.texts["run"][0])))


def _kind(rows: Columns, near: Columns, every: int, effort: Effort) -> dict[str, Any]:
    whole = rows.at(_known(rows, "end_to_end_ns") & _known(rows, "size_bytes"))
    sizes, times = whole.numbers["size_bytes"], whole.floats("end_to_end_ns")
    size, alike = _most_frequent(near)
    tail = findings.tail(times, sizes, effort)
    of_modes = whole.at(sizes == tail["modes_of"])
    name_stages(tail["modes"].get("modes", []), of_modes)
    time = findings.over_time(
        above_usual(sizes, times), findings.times_in_runs(whole), times=times
    )
    found = {
        "n": len(whole),
        "tail": tail,
        "time": time | {"every": time["every"] * every},
        "delay_variation": {"size_bytes": size, "of": "transit"}
        | findings.delay_variation(alike.floats("transit_ns")),
    }
    if effort >= Effort.ALL:
        found["queueing"] = _queueing(rows)
    return found


def _known(rows: Columns, name: str) -> NDArray[np.bool_]:
    return np.asarray(rows.numbers[name] != BLANK)


def _queueing(rows: Columns) -> dict[str, Any]:
    names = ("queue_bytes_at_arrival", "receive_queue_ns")
    both = rows.at(_known(rows, names[0]) & _known(rows, names[1]))
    return findings.queueing(*(both.floats(name) for name in names))


def _most_frequent(rows: Columns) -> tuple[int, Columns]:
    """Messages of one size: only those may be held against each other.

    Of a message whose sender was not seen the size is not known.
    """
    rows = rows.at(_known(rows, "size_bytes"))
    size = findings.most_frequent(rows.numbers["size_bytes"])
    return size, rows.at(rows.numbers["size_bytes"] == size)


def above_usual(size_bytes: ArrayLike, times: Floats) -> Floats:
    """Return how far each time is above the median of its size.

    Where sizes are free, so that few messages share one, the size is its octave.

    Examples
    --------
    >>> sizes = [64, 64, 64, 64, 64, 9000, 9000, 9000, 9000, 9000]
    >>> above_usual(sizes, np.array([1.0, 2, 3, 4, 9, 81, 82, 83, 84, 85]))[4:6]
    array([ 6., -2.])
    >>> above_usual([64, 65, 66], np.array([1.0, 2, 9]))
    array([-1.,  0.,  7.])
    """
    sizes = np.asarray(size_bytes, np.float64)
    if np.unique(sizes).size * _FEWEST_OF_SIZE > sizes.size:
        sizes = np.floor(np.log2(np.maximum(sizes, 1)))
    groups, medians = quantiles_by(sizes, times, 0.5)
    above: Floats = times - medians[np.searchsorted(groups, sizes)]
    return above


def _stage_fits(
    messages: Columns, stretch: Columns, setup: RunSetup, effort: Effort
) -> list[StageFit]:
    return fit_stages(
        messages,
        in_turn=stretch,
        reply_mode=setup.reply_mode,
        packets=setup.packets or None,
        quantities=tuple(QUANTITIES) if effort >= Effort.ALL else _LINK,
    )


def _link(fits: list[StageFit]) -> dict[str, Any]:
    """Choose by direction the fit that shows the link best."""
    found: dict[str, Any] = {}
    for (protocol, direction), best in link_rates(fits).items():
        reasons = {
            fit.quantity: fit.fit.reason
            for fit in fits
            if (fit.protocol, fit.direction) == (protocol, direction)
        }
        # of TCP transit is that of a last packet, and refused as a rule
        reason = reasons.get("one_way", next(iter(reasons.values())))
        found[f"{protocol} {direction}"] = (
            best.as_dict() if best else {"reason": reason}
        )
    return found


def _dispersions(messages: Columns, setup: RunSetup) -> dict[str, Any]:
    found = stage_dispersions(messages, packets=setup.packets or None)
    return {f"{protocol} {kind}": d.as_dict() for (protocol, kind), d in found.items()}
