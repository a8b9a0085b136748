"""round_trips.csv -> loss, tails, rival fits, by protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.fit.estimates import ReplyMode
from latprof_analysis.fit.wire import Packets
from latprof_analysis.stages import BLANK
from latprof_analysis.study import findings
from latprof_analysis.study.findings import Effort, trips_with_intervals
from latprof_analysis.study.messages import above_usual
from latprof_analysis.study.run_figures import loggp_of, round_trip_fit
from latprof_analysis.study.scan import Scan, Trips
from latprof_analysis.study.setup import RunSetup
from latprof_analysis.text import NS_PER_SECOND

Floats = NDArray[np.float64]


def trip_figures(
    scan: Scan, setup: RunSetup, run: Mapping[str, Any] | None, *, effort: Effort
) -> dict[str, dict[str, Any]]:
    """Describe round trips by protocol.

    Parameters
    ----------
    scan : Scan
    setup : RunSetup
        What all its runs have in common.
    run : mapping or None
        run.json of one of them; None where they have no link or reply mode in
        common, so that no fit is of anything.
    effort : Effort

    Returns
    -------
    dict
        By protocol the keys of a run's summary.json, and ``tail``, ``time``,
        ``loss``, and of all effort ``estimators`` (rival fits of the same line) and
        ``least_squares`` (means of five).
    """
    found = {}
    for protocol, totals in scan.trip_totals.items():
        of_runs = [trips for (_, p), trips in scan.trips.items() if p == protocol]
        lost = np.concatenate([trips.lost for trips in of_runs])
        answered = _answered(of_runs, ~lost)
        times = answered.sizes, answered.times.astype(np.int64)
        found[protocol] = trips_with_intervals(totals, times) | {
            "open_loop": setup.interval_ns > 0,
            "offered_per_second": _offered(setup.interval_ns),
            "achieved_per_second": _per_second(of_runs),
            **_in_order(answered, effort),
            "loss": findings.losses(lost),
            "fit": None,
            "loggp": None,
        }
        if run is not None and setup.reply_mode is not None:
            fit = round_trip_fit(*answered, protocol, run, scan.messages)
            found[protocol]["fit"] = fit
            trains = [rows for (_, p), rows in scan.trains.items() if p == protocol]
            found[protocol]["loggp"] = loggp_of(trains, protocol, run)
            if effort >= Effort.ALL:
                packets = setup.packets.get(protocol)
                found[protocol] |= _rivals(answered, setup.reply_mode, packets)
    return found


class _Answered(NamedTuple):
    """Round trips that were not lost, in the order of the files."""

    sizes: NDArray[np.int64]
    times: Floats
    rounds: Floats


def _answered(of_runs: list[Trips], kept: NDArray[np.bool_]) -> _Answered:
    sizes = np.concatenate([trips.size_bytes for trips in of_runs])
    times = np.concatenate([trips.rtt_ns for trips in of_runs])
    rounds = _rounds(of_runs)
    return _Answered(sizes[kept], times[kept].astype(np.float64), rounds[kept])


def _in_order(trips: _Answered, effort: Effort) -> dict[str, Any]:
    excess = above_usual(trips.sizes, trips.times)
    return {
        "tail": findings.tail(trips.times, trips.sizes, effort),
        "time": findings.over_time(excess, times=trips.times),
    }


def _per_second(of_runs: list[Trips]) -> float | None:
    """Rate at which each run sent, over all of them."""
    sent = [trips.sent_ns[trips.sent_ns != BLANK] for trips in of_runs]
    sent = [times for times in sent if times.size]
    seconds = sum(int(times.max() - times.min()) for times in sent) / NS_PER_SECOND
    return sum(times.size - 1 for times in sent) / seconds if seconds > 0 else None


def _offered(interval_ns: int) -> float | None:
    return NS_PER_SECOND / interval_ns if interval_ns else None


def _rounds(of_runs: list[Trips]) -> Floats:
    """Number the rounds of all runs, those of a later run after those before."""
    before, found = 0.0, []
    for trips in of_runs:
        rounds = trips.round_index.astype(np.float64) + before
        before = float(rounds.max(initial=before - 1)) + 1
        found.append(rounds)
    return np.concatenate(found)


def _rivals(
    trips: _Answered, reply_mode: ReplyMode, packets: Packets | None
) -> dict[str, Any]:
    """Draw the same line by other estimators."""
    from latprof_analysis.fit.rivals import compare_estimators, fit_means_of_five

    def estimators() -> list[dict[str, Any]]:
        lines = compare_estimators(*trips, reply_mode=reply_mode, packets=packets)
        return [line.as_dict() for line in lines]

    return {
        "estimators": findings.or_reason(estimators),
        "least_squares": findings.or_reason(
            lambda: fit_means_of_five(
                trips.sizes, trips.times, reply_mode=reply_mode
            ).as_dict()
        ),
    }
