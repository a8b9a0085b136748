"""round_trips.csv -> loss, tails, rival fits, by protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.fit_result import ReplyMode
from latprof_analysis.run_figures import NS_PER_SECOND, round_trip_fit
from latprof_analysis.run_setup import RunSetup
from latprof_analysis.study import findings
from latprof_analysis.study.messages import above_usual, floats
from latprof_analysis.wire import Packets

Floats = NDArray[np.float64]


def trip_figures(
    round_trips: pd.DataFrame,
    setup: RunSetup,
    run: Mapping[str, Any] | None,
    *,
    thorough: bool,
) -> dict[str, dict[str, Any]]:
    """Describe round trips by protocol.

    Parameters
    ----------
    round_trips : DataFrame
        Columns of `readers.run_schema`.
    setup : RunSetup
        What all their runs have in common.
    run : mapping or None
        run.json of one of them; None where they have no link or reply mode in
        common, so that no fit is of anything.
    thorough : bool
        Also by rival estimators, which takes seconds.

    Returns
    -------
    dict
        By protocol the keys of a run's summary.json, and ``tail``, ``time``,
        ``loss``, and if thorough ``estimators`` (rival fits of the same line) and
        ``least_squares`` (means of five).
    """
    found = {}
    for protocol, rows in round_trips.groupby("protocol", observed=True):
        ordered = rows.sort_values(["run", "sequence"])
        figures = _figures(ordered, setup)
        fits = _fits(str(protocol), ordered, setup, run, thorough)
        found[str(protocol)] = figures | fits
    return found


def _figures(rows: pd.DataFrame, setup: RunSetup) -> dict[str, Any]:
    lost = rows["lost"].to_numpy("int64") > 0
    answered = rows[~lost]
    times = floats(answered["rtt_ns"])
    late = floats(rows["sent_ns"] - rows["intended_ns"])
    sizes = answered["size_bytes"]
    return {
        "sent": len(rows),
        "lost": int(lost.sum()),
        "loss_ratio": float(lost.mean()),
        "open_loop": setup.interval_ns > 0,
        "offered_per_second": _offered(setup.interval_ns),
        "achieved_per_second": _per_second(rows),
        "rtt": findings.by_histogram(times),
        "lateness": findings.by_histogram(np.fmax(late[~np.isnan(late)], 0)),
        "sizes": {
            str(size): findings.by_histogram(times[(sizes == size).to_numpy()])
            for size in np.sort(sizes.unique())
        },
        "tail": findings.tail(times, answered["size_bytes"]),
        "time": findings.over_time(above_usual(answered["size_bytes"], times)),
        "loss": findings.losses(lost),
    }


def _per_second(rows: pd.DataFrame) -> float | None:
    """Rate at which each run sent, over all of them."""
    sent = rows.groupby("run", observed=True)["sent_ns"].agg(["min", "max", "count"])
    seconds = float((sent["max"] - sent["min"]).sum()) / NS_PER_SECOND
    return float((sent["count"] - 1).sum()) / seconds if seconds > 0 else None


def _offered(interval_ns: int) -> float | None:
    return NS_PER_SECOND / interval_ns if interval_ns else None


def _fits(
    protocol: str,
    rows: pd.DataFrame,
    setup: RunSetup,
    run: Mapping[str, Any] | None,
    thorough: bool,
) -> dict[str, Any]:
    if run is None or setup.reply_mode is None:
        return {"fit": None}
    answered = (rows["lost"] == 0).to_numpy()
    rounds = _rounds(rows, setup.sizes_per_round)[answered]
    sizes = floats(rows["size_bytes"])[answered]
    times = floats(rows["rtt_ns"])[answered]
    found: dict[str, Any] = {"fit": round_trip_fit(sizes, times, rounds, protocol, run)}
    if thorough:
        packets = setup.packets.get(protocol)
        found |= _rivals(sizes, times, rounds, setup.reply_mode, packets)
    return found


def _rivals(
    sizes: Floats,
    times: Floats,
    rounds: Floats,
    reply_mode: ReplyMode,
    packets: Packets | None,
) -> dict[str, Any]:
    """Draw the same line by other estimators."""
    from latprof_analysis.estimators import compare_estimators
    from latprof_analysis.least_squares import fit_means_of_five

    def estimators() -> list[dict[str, Any]]:
        lines = compare_estimators(
            sizes, times, rounds, reply_mode=reply_mode, packets=packets
        )
        return [line.as_dict() for line in lines]

    return {
        "estimators": findings.or_reason(estimators),
        "least_squares": findings.or_reason(
            lambda: fit_means_of_five(sizes, times, reply_mode=reply_mode).as_dict()
        ),
    }


def _rounds(rows: pd.DataFrame, sizes_per_round: int) -> Floats:
    """Number the generator's rounds, those of a later run after those before."""
    by_run = rows.groupby("run", observed=True)["sequence"]
    nth = (rows["sequence"] - by_run.transform("min")) // max(1, sizes_per_round)
    runs = rows["run"].cat.codes
    per_run = nth.groupby(runs).max() + 1
    before = per_run.cumsum() - per_run
    return floats(nth + runs.map(before))
