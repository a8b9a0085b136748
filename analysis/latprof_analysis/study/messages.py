"""messages.csv -> tails, variation, queueing and fits, by kind of message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.fit.by_stage import QUANTITIES, StageFit, fit_stages, link_rates
from latprof_analysis.fit.trains import stage_dispersions
from latprof_analysis.read.run_schema import undisturbed
from latprof_analysis.stages import STAGES, STAMPS, merged_name, missing_code
from latprof_analysis.study import findings
from latprof_analysis.study.findings import since_first_read
from latprof_analysis.study.setup import RunSetup

# Of fewer messages of each size on average a median is hardly that of the size.
_FEWEST_OF_SIZE = 5


def name_stages(modes: list[dict[str, Any]], messages: pd.DataFrame) -> None:
    """Add to each mode but the fastest the stage that differs most from the one below.

    Parameters
    ----------
    modes : list of dict
        As `Modes.as_dict` has them, ascending; each but the first gets ``longer_in``:
        ``stage``, the difference ``by_ns`` of its medians in both modes, and ``n``,
        the messages of both.
    messages : DataFrame
        Of the size that the modes are of, seen from end to end. Those are used that
        have the stamps which most of them have.
    """
    if len(modes) < 2:
        return
    stamps = {
        name: messages[f"{name}_ns"].to_numpy("int64", na_value=0) for name in STAMPS
    }
    codes = missing_code(stamps)
    usual = int(np.bincount(codes).argmax())
    there = {name: not usual >> i & 1 for i, name in enumerate(STAMPS)}
    rows = messages[codes == usual]
    took = rows["end_to_end_ns"].to_numpy("float64")
    # a mode ends where the next begins; the outer ones at no value
    which = np.searchsorted([mode["low"] for mode in modes[1:]], took, side="right")
    stages = pd.DataFrame(
        {
            merged_name(stage, there): rows[f"{stage}_ns"].to_numpy(
                "float64", na_value=np.nan
            )
            for stage in STAGES
        }
    ).dropna(axis="columns", how="all")
    medians = stages.groupby(which).median()
    counts = np.bincount(which, minlength=len(modes))
    for i in range(1, len(modes)):
        if counts[i - 1] and counts[i] and len(stages.columns):
            more = medians.loc[i] - medians.loc[i - 1]
            modes[i]["longer_in"] = {
                "stage": str(more.idxmax()),
                "by_ns": float(more.max()),
                "n": int(counts[i - 1] + counts[i]),
            }


Floats = NDArray[np.float64]

# What may tell a link: the rest takes time, and is for who asks for all.
_LINK = ("transit", "one_way")


def message_figures(
    messages: pd.DataFrame,
    stretch: pd.DataFrame,
    lost: Mapping[str, NDArray[np.bool_]],
    setup: RunSetup,
    *,
    thorough: bool,
    every: int,
) -> dict[str, Any]:
    """Describe messages by kind.

    Parameters
    ----------
    messages : DataFrame
        Columns of `read.run_schema`.
    stretch : DataFrame
        Messages that follow each other without gaps: all, or of a large run some.
        What needs neighbours comes from these.
    lost : mapping of str to ndarray of bool
        As of `Scan`: of all datagrams.
    setup : RunSetup
        What all their runs have in common.
    thorough : bool
        Fit each stage, not one-way delays only, and the queue that messages met.
    every : int
        Of about so many messages one is in `messages`; 1: all are.

    Returns
    -------
    dict
        ``link``: by kind the fit that tells its direction's link best, or why none
        does; ``stage_fits``; ``dispersion`` by kind; and ``messages``: by kind, end to
        end, ``tail``, ``time``, ``delay_variation`` (transit of the most frequent
        size), ``queueing``, and of datagrams ``loss``.
    """
    kinds, near = dict(_kinds(messages)), dict(_kinds(stretch))
    fits = _stage_fits(undisturbed(messages), stretch, setup, thorough) if kinds else []
    return {
        "messages": {
            name: _kind(
                undisturbed(rows),
                undisturbed(near.get(name, rows.iloc[:0])),
                every,
                thorough,
            )
            | ({"loss": findings.losses(lost[name])} if name in lost else {})
            for name, rows in kinds.items()
        },
        "link": _link(fits),
        "stage_fits": [fit.as_dict() for fit in fits],
        "dispersion": _dispersions(stretch, setup) if kinds else {},
    }


def _kinds(messages: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Messages by protocol and kind in the order in which they were sent."""
    if messages.empty:
        return
    known = messages[messages["kind"] != "warmup"]
    for (protocol, kind), rows in known.groupby(["protocol", "kind"], observed=True):
        yield f"{protocol} {kind}", _in_order(rows)


def _in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Order by the first stamp that each has; runs one after the other."""
    since = rows["send_ns"].fillna(rows["queue_ns"]).fillna(rows["arrive_ns"])
    order = pd.DataFrame({"run": rows["run"].cat.codes, "since": since})
    return rows.loc[order.sort_values(["run", "since"], kind="stable").index]


def _kind(
    rows: pd.DataFrame, near: pd.DataFrame, every: int, thorough: bool
) -> dict[str, Any]:
    whole = rows[rows["end_to_end_ns"].notna() & rows["size_bytes"].notna()]
    times = floats(whole["end_to_end_ns"])
    size, alike = _most_frequent(near)
    tail = findings.tail(times, whole["size_bytes"])
    of_modes = whole[whole["size_bytes"] == tail["modes_of"]]
    name_stages(tail["modes"].get("modes", []), of_modes)
    when = pd.DataFrame({"run": whole["run"], "t_s": since_first_read(whole)})
    timed = when if when["t_s"].notna().all() else None
    time = findings.over_time(above_usual(whole["size_bytes"], times), timed)
    found = {
        "n": len(whole),
        "tail": tail,
        "time": time | {"every": time["every"] * every},
        "delay_variation": {"size_bytes": size, "of": "transit"}
        | findings.delay_variation(floats(alike["transit_ns"])),
    }
    if thorough:
        found["queueing"] = _queueing(rows)
    return found


def _queueing(rows: pd.DataFrame) -> dict[str, Any]:
    queue, wait = rows["queue_bytes_at_arrival"], rows["receive_queue_ns"]
    both = (queue.notna() & wait.notna()).to_numpy()
    return findings.queueing(floats(queue[both]), floats(wait[both]))


def _most_frequent(rows: pd.DataFrame) -> tuple[int, pd.DataFrame]:
    """Messages of one size: only those may be held against each other.

    Of a message whose sender was not seen the size is not known.
    """
    rows = rows[rows["size_bytes"].notna()]
    size = findings.most_frequent(rows["size_bytes"])
    return size, rows[rows["size_bytes"] == size]


def floats(column: pd.Series[Any]) -> Floats:
    """Return a column as doubles, NaN where it is missing."""
    values: Floats = column.to_numpy("float64", na_value=np.nan)
    return values


def above_usual(size_bytes: pd.Series[Any], times: Floats) -> Floats:
    """Return how far each time is above the median of its size.

    Where sizes are free, so that few messages share one, the size is its octave.

    Examples
    --------
    >>> sizes = pd.Series([64, 64, 64, 64, 64, 9000, 9000, 9000, 9000, 9000])
    >>> above_usual(sizes, np.array([1.0, 2, 3, 4, 9, 81, 82, 83, 84, 85]))[4:6]
    array([ 6., -2.])
    >>> above_usual(pd.Series([64, 65, 66]), np.array([1.0, 2, 9]))
    array([-1.,  0.,  7.])
    """
    sizes = size_bytes.to_numpy("float64", na_value=np.nan)
    if np.unique(sizes).size * _FEWEST_OF_SIZE > sizes.size:
        sizes = np.floor(np.log2(np.maximum(sizes, 1)))
    series = pd.Series(times)
    above: Floats = (series - series.groupby(sizes).transform("median")).to_numpy()
    return above


def _stage_fits(
    messages: pd.DataFrame, stretch: pd.DataFrame, setup: RunSetup, thorough: bool
) -> list[StageFit]:
    return fit_stages(
        messages,
        in_turn=stretch,
        reply_mode=setup.reply_mode,
        packets=setup.packets or None,
        quantities=tuple(QUANTITIES) if thorough else _LINK,
    )


def _link(fits: list[StageFit]) -> dict[str, Any]:
    """Choose by direction the fit that tells the link best."""
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


def _dispersions(messages: pd.DataFrame, setup: RunSetup) -> dict[str, Any]:
    found = stage_dispersions(messages, packets=setup.packets or None)
    return {f"{protocol} {kind}": d.as_dict() for (protocol, kind), d in found.items()}
