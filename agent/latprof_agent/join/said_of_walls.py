"""What is said of hosts' wall clocks: a second source, beside packets.

Two wall clocks that are each right to some time bound what their CLOCK_MONOTONIC are
apart, whatever packets did. chrony says how right one is (RFC 5905, root distance), as
long as it follows servers: of a clock of its own host, a PTP hardware clock above all,
it takes the error as 0. The user may know better, and says so.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from latprof_analysis.clocks import PairClock, Sightings, State, pair_clock
from latprof_analysis.text import NS_PER_SECOND, duration
from numpy.typing import NDArray

from latprof_agent.capture.recording_writer import CLOCKS_EACH_NS
from latprof_agent.join.host_recordings import JoinedHost
from latprof_agent.join.wall_clocks import wall_clock

CHRONY, USER = "chrony", "--wall-error"
# By so much a clock may run wrong beside what is known of it: chrony.conf(5),
# maxclockerror; and by so much the kernel has it run wrong (NTP's PHI of old).
_CLOCK_PPB = 1000
_KERNEL_PPM = 500
# As narrow as this, and what packets say alone is left.
_MUCH = 0.99
# What became of a word.
NARROWER, WIDER, CONTRADICTS, UNKNOWN = "narrower", "wider", "contradicts", "unknown"


@dataclass(frozen=True)
class WallWord:
    """What is said of two wall clocks, and what came of it.

    `error_ns` is the most that they are apart by it; None: it is not known, see `why`.
    """

    by: str
    error_ns: int | None
    outcome: str = UNKNOWN
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For summary.json."""
        return {
            "by": self.by,
            "error_ns": self.error_ns,
            "outcome": self.outcome,
            "why": self.why,
        }


def held_together(
    packets: PairClock,
    seen: tuple[Sightings, Sightings],
    hosts: tuple[JoinedHost, JoinedHost],
    wall_error_ns: int | None,
) -> tuple[PairClock, WallWord | None]:
    """Hold what packets say of two clocks against what is said of wall clocks.

    Where both can be true, the clock is what both allow; else what the packets do.
    None: nothing is said of them.
    """
    word = _word(hosts, wall_error_ns)
    if not word or word.error_ns is None:
        return packets, word
    there, back = _as_packets(hosts, word.error_ns)
    if not len(there) or not len(back):
        why = "they were not read at the same time"
        return packets, replace(word, error_ns=None, why=why)
    if _contradict(packets, pair_clock(there, back)):
        return packets, replace(word, outcome=CONTRADICTS)
    both = pair_clock(_together(seen[0], there), _together(seen[1], back))
    if not _width(both, packets.at_ns) < _MUCH * _width(packets, packets.at_ns):
        return packets, replace(word, outcome=WIDER)
    word = replace(word, outcome=NARROWER)
    said = f"wall clocks are within {duration(word.error_ns)}, by {word.by}"
    reasons = both.reasons | ({State.GOOD: said} if State.GOOD in both.reasons else {})
    base_ns = packets.base_round_trip_ns  # of packets that there were
    return replace(both, base_round_trip_ns=base_ns, reasons=reasons), word


def _word(
    hosts: tuple[JoinedHost, JoinedHost], wall_error_ns: int | None
) -> WallWord | None:
    by_user = wall_error_ns is not None
    if not by_user and not any(map(_chrony, hosts)):
        return None
    by = USER if by_user else CHRONY
    errors = [wall_error_ns]
    for host in hosts:
        if wall_clock(host.known_clocks()).times_set:
            return WallWord(by, None, why=f"{host.name}'s wall clock was set meanwhile")
        if not by_user:
            error_ns, why = _chrony_error(host)
            if error_ns is None:
                return WallWord(by, None, why=why)
            errors.append(error_ns)
    return WallWord(by, sum(error for error in errors if error is not None))


def _chrony(host: JoinedHost) -> list[Mapping[str, Any]]:
    """Give what chronyd said of a host's clock at the begin and at the end."""
    said = [sources.get("chrony") for sources in host.clock_sources]
    return [one for one in said if one]


def _chrony_error(host: JoinedHost) -> tuple[int | None, str]:
    """Return how wrong a host's wall clock is at most; None, and why it is not known.

    As chronyc(1) has it, at both ends of the recording, and as the kernel has it of
    updates between; until the next one it grows as chronyd says.
    """
    said = _chrony(host)
    if len(said) < len(host.clock_sources) or not said:
        return None, f"{host.name} has no chrony"
    errors, rates_ppb = [], []
    for one in said:
        try:
            if one["leap"] == "Not synchronised":
                return None, f"{host.name}'s chrony was not synchronised"
            if not _is_server(str(one["reference"])):
                clock = f"{one['reference']}, whose error it takes as 0"
                return None, f"{host.name}'s chrony follows a clock of its own, {clock}"
            distance_ns = int(one["root_dispersion_ns"]) + int(one["root_delay_ns"]) / 2
            errors.append(distance_ns + abs(int(one["system_time_ns"])))
            rates_ppb.append(_CLOCK_PPB + int(one["skew_ppb"]))
        except (KeyError, TypeError, ValueError):
            why = f"{host.name}'s chrony gave no answer"
            return None, f"{why}: {one.get('unknown', 'it is of an unknown form')}"
    clocks = host.known_clocks()
    if not clocks["synchronised"].all():
        return None, f"the kernel of {host.name} did not have its clock as synchronised"
    seconds = np.ptp(clocks["monotonic_ns"].astype("i8")) / NS_PER_SECOND
    error_ns = max([*errors, *bounds_set(clocks)]) + seconds * max(rates_ppb)
    return round(error_ns), ""


def bounds_set(clocks: NDArray[Any]) -> list[int]:
    """Give the kernel's bounds that were set since the reading (CLOCKS) before, in ns.

    chronyd sets one once a poll; until then the kernel lets it grow by 500 us at each
    second, whatever the clock does.

    Examples
    --------
    >>> clocks = np.zeros(4, [("monotonic_ns", "<i8"), ("largest_error_ns", "<i8")])
    >>> clocks["monotonic_ns"] = np.arange(4) * 1_100_000_000
    >>> clocks["largest_error_ns"] = [90_000, 590_000, 120_000, 1_120_000]
    >>> bounds_set(clocks)
    [120000]
    """
    seconds = np.diff(clocks["monotonic_ns"].astype("i8")) / NS_PER_SECOND
    grown_ns = np.diff(clocks["largest_error_ns"].astype("i8"))
    least, most = np.floor(seconds) * _KERNEL_PPM, np.ceil(seconds) * _KERNEL_PPM
    grown = grown_ns / 1000
    itself = (least - 1 <= grown) & (grown <= most + 1)
    found: list[int] = clocks["largest_error_ns"][1:][~itself].tolist()
    return found


def _is_server(reference: str) -> bool:
    try:
        ipaddress.ip_address(reference)
    except ValueError:
        return False
    return True


def _as_packets(
    hosts: tuple[JoinedHost, JoinedHost], error_ns: int
) -> tuple[Sightings, Sightings]:
    """Say of each reading what packets would say that took as long as it is unsure."""
    one, other = (wall_clock(host.known_clocks()) for host in hosts)
    apart_ns = one.ahead_ns - other.ahead_ns
    unsure_ns = error_ns + one.error_ns + other.error_ns
    at = _read_meanwhile(*hosts, apart_ns)
    late, early = at + apart_ns + unsure_ns, at + apart_ns - unsure_ns
    return Sightings(at, late), Sightings(early[early > 0], at[early > 0])


def _read_meanwhile(
    one: JoinedHost, other: JoinedHost, apart_ns: int
) -> NDArray[np.int64]:
    """When clocks were read of either, by the first one's, while both were recorded."""
    own, others = (h.known_clocks()["monotonic_ns"].astype("i8") for h in (one, other))
    others -= apart_ns
    at = np.concatenate([own, others])
    begin = max(own.min(), others.min()) - CLOCKS_EACH_NS
    end = min(own.max(), others.max()) + CLOCKS_EACH_NS
    found: NDArray[np.int64] = at[(at >= begin) & (at <= end) & (at > 0)]
    return found


def _contradict(packets: PairClock, word: PairClock) -> bool:
    """Whether at some time no offset is within both intervals."""
    at = packets.at_ns
    apart = (packets.offset_at(at) - word.offset_at(at)).astype(float)
    (minus, plus), (less, more) = packets.interval_at(at), word.interval_at(at)
    return bool(((apart - minus > more) | (apart + plus < -less)).any())


def _together(one: Sightings, other: Sightings) -> Sightings:
    return Sightings(
        np.concatenate([one.sent_ns, other.sent_ns]),
        np.concatenate([one.arrived_ns, other.arrived_ns]),
    )


def _width(clock: PairClock, at: NDArray[np.int64]) -> float:
    """How wide the interval is in the median of these times; inf: nothing bounds it."""
    return float(np.median(np.add(*clock.interval_at(at))))
