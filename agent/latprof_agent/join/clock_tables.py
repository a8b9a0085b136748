"""What is known of hosts' clocks, as clocks.csv and as run.json have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from latprof_analysis.clocks import PairClock, State
from latprof_analysis.records.recording import SOURCES
from latprof_analysis.study.totals import percentiles
from numpy.typing import NDArray

from latprof_agent.join.estimate import Estimate
from latprof_agent.join.host_recordings import JoinedHost
from latprof_agent.join.joined_rows import Crossing
from latprof_agent.join.wall_clocks import WallClock, wall_clock

COLUMNS = (
    *("host", "reference", "at_ns", "offset_ns", "low_ns", "high_ns"),
    *("drift_ppb", "state"),
)
# Points of a pair's line over time in the documents; clocks.csv has all.
_MOST_POINTS = 200
_NS_PER_SECOND = 1_000_000_000


def clock_rows(hosts: Sequence[JoinedHost], found: Estimate) -> Iterator[list[Any]]:
    """Give the rows of clocks.csv.

    At times of the reference's clock: what a host's clock was ahead of it, and in
    which interval that lies.
    """
    reference = hosts[found.clocks.reference].name
    for host in hosts:
        clock = found.clocks.hosts[host.number]
        for at in range(len(clock.at_ns)):
            yield [
                host.name,
                reference,
                int(clock.at_ns[at]),
                int(clock.offset_ns[at]),
                _whole(clock.low_ns[at]),
                _whole(clock.high_ns[at]),
                round(float(clock.drift_ppb[at])),
                State(int(clock.state[at])).word,
            ]


def clocks_document(
    hosts: Sequence[JoinedHost], found: Estimate, crossing: Crossing
) -> dict[str, Any]:
    """Say what is known of each pair of hosts, and how well all of it adds up."""
    walls = [wall_clock(host.known_clocks()) for host in hosts]
    return {
        "reference": hosts[found.clocks.reference].name,
        "pairs": [
            _pair(hosts[one], hosts[other], pair, found, crossing)
            | _walls(pair, walls[one], walls[other])
            for (one, other), pair in found.pairs.items()
        ],
        "wall_clocks_set": [
            {
                "host": host.name,
                "times": wall.times_set,
                "by_ns": wall.by_ns,
                "error_ns": wall.by_error_ns,
            }
            for host, wall in zip(hosts, walls, strict=True)
            if wall.times_set
        ],
        "loops": [
            {
                "hosts": [hosts[number].name for number in loop.hosts],
                "rms_ns": round(float(loop.rms_ns)),
                "max_ns": round(float(loop.max_ns)),
            }
            for loop in found.clocks.loops
        ],
        "sources": {host.name: host.header.get(SOURCES) for host in hosts},
    }


def _pair(
    one: JoinedHost,
    other: JoinedHost,
    pair: PairClock,
    found: Estimate,
    crossing: Crossing,
) -> dict[str, Any]:
    ends = one.number, other.number
    there, back = found.packets[ends]
    word = found.words.get(ends)
    half = (pair.minus_ns + pair.plus_ns) / 2
    half = half[np.isfinite(half)]
    drift_ppb = np.median(pair.drift_ppb)
    # so far off at most, whenever: where little was seen that is all that clocks may be
    off_ppb = np.abs(pair.drift_ppb - drift_ppb) + pair.spread_ppb
    return {
        "hosts": [one.name, other.name],
        "state": _state(pair),
        "reason": "; ".join(pair.reasons.values()),
        "error_ns": round(float(np.median(half))) if len(half) else None,
        "largest_error_ns": round(float(half.max())) if len(half) else None,
        "drift_ppb": round(float(drift_ppb)),
        "drift_error_ppb": _whole(off_ppb.max()) if len(half) else None,
        "base_round_trip_ns": _whole(pair.base_round_trip_ns),
        "wall_word": word and word.as_dict(),
        "packets": [there, back],
        "flows": [found.flows[ends], found.flows[ends[::-1]]],
        "messages": [crossing.crossed[ends], crossing.crossed[ends[::-1]]],
        "unknown": [_unknown(crossing, *ends), _unknown(crossing, *ends[::-1])],
        "ways": [_way(crossing, *ends), _way(crossing, *ends[::-1])],
    }


def _walls(pair: PairClock, one: WallClock, other: WallClock) -> dict[str, Any]:
    """Say how far two wall clocks are apart, as they stood at last.

    When one of them was set is not known better than a second, and of no stamp.
    """
    wall = pair.offset_ns + (other.ahead_ns - one.ahead_ns)
    error_ns = one.error_ns + other.error_ns
    return {
        "wall_offset_ns": int(wall[len(wall) // 2]),
        "wall_error_ns": error_ns,  # beside that of the pair
        "over_time": _over_time(pair, wall, error_ns),
    }


def _state(pair: PairClock) -> str:
    """Name the state of most of the time; broken where it ever was."""
    states = pair.state.astype(np.intp)
    if (states == State.BROKEN).any():
        return State.BROKEN.word
    return State(int(np.bincount(states).argmax())).word


def _unknown(crossing: Crossing, one: int, other: int) -> dict[str, int]:
    """Count messages without a transit, by what is known of the clocks."""
    return {
        word: n
        for (*ends, word), n in crossing.unknown.items()
        if (one, other) == tuple(ends)
    }


def _way(crossing: Crossing, *ends: int) -> dict[str, Any]:
    """Return percentiles of transit, and of queueing, from one host to the other."""
    one, other = ends
    return {
        "transit": percentiles(crossing.transit[one, other]),
        "queueing": percentiles(crossing.queueing[one, other]),
    }


def _over_time(
    pair: PairClock, wall: NDArray[np.int64], error_ns: int
) -> dict[str, list[Any]]:
    """Return the line of wall clocks' difference, of few points."""
    every = len(pair.at_ns) // _MOST_POINTS + 1
    at = np.arange(0, len(pair.at_ns), every)
    return {
        "t_s": ((pair.at_ns[at] - pair.at_ns[0]) / _NS_PER_SECOND).round(6).tolist(),
        "offset_ns": wall[at].tolist(),
        "low_ns": [_whole(x) for x in (wall - pair.minus_ns - error_ns)[at]],
        "high_ns": [_whole(x) for x in (wall + pair.plus_ns + error_ns)[at]],
        "state": [State(int(x)).word for x in pair.state[at]],
    }


def _whole(value: float) -> int | None:
    """Return a whole number; None where nothing bounds it."""
    return round(float(value)) if np.isfinite(value) else None
