"""The line D = a S + b of natural traffic: sizes as they come, all at any time.

Sizes of natural traffic hardly repeat, so they are taken by classes, two to an
octave; within a class delays are brought to its mean size along the line. From
there on it is the low delay of each size, the line and the verdict of `fit`. As
nobody laid out what was sent, a line is refused for more.

Sums of each class (n, S, D and their products) are not enough: they know means, and
behind a queue that is busy half the time 1500 messages have none to speak of. On a
link of 100 Mbit/s and 1 ms least squares from such sums gave no bandwidth in 100 of
100 simulated runs, and a fixed delay of 12 ms; low delays gave both, within 0.1%.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.fit.caveats import (
    MOST_OF_HOSTS,
    host_share,
    refused,
    slowed_by_losses,
    slowed_by_sender,
)
from latprof_analysis.fit.estimates import Fit, ReplyMode
from latprof_analysis.fit.line import FEWEST_ROUND_TRIPS, NO_REPLY, fit_low_delays
from latprof_analysis.fit.rounds import LOW, Floats, clock_step, low_delays
from latprof_analysis.fit.slopes import FEWEST_BESIDE, weighted_theil_sen
from latprof_analysis.fit.wire import Crossing, Packets

CLASSES_AN_OCTAVE = 2
# Of fewer the low delay's own spread is not known, nor are so few of use.
FEWEST_OF_A_CLASS = 25
# A bend must be seen where there is one; so they span three octaves or nearly so.
FEWEST_CLASSES = 2 * FEWEST_BESIDE
# Neighbours in time share their noise: the sample is drawn anew by so many parts.
_PARTS = 50
_CONFIDENCE = 0.95
_RESAMPLES = 200
_ROUNDS_OF_SLOPE = 3
# A stage must hold all but so much of the growth with size, or the link's time is in
# others, too: at 15% a link of 965 Mbit/s was estimated at 977 to 1035 by transit.
_ELSEWHERE = 0.02
# So many sizes may have been laid out.
_FEW = 64
WHOLE = "end_to_end"
DEVICE = "device"  # from the device queue to arrival; only of TCP
_HOSTS = "over a third of the slope may be the hosts' own work on each byte"


@dataclass(frozen=True)
class Natural:
    """A sample of messages of one way: each array has the shape (n,)."""

    size_bytes: Floats  # more than 0
    t_ns: Floats  # when they were sent, on any clock
    # By stage, of WHOLE, and of DEVICE; NaN where a stamp is missing.
    delays_ns: Mapping[str, Floats]
    packets: Floats  # in which each went; NaN where not known
    resent: NDArray[np.bool_]  # whether segments of it were sent again
    stream: bool  # whether they are TCP's, which may send slower than the link carries


def size_class(size_bytes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the class of each size: two to an octave.

    >>> size_class(np.array([1, 64, 90, 91, 128.0])).tolist()
    [0, 12, 12, 13, 14]
    """
    octaves = np.log2(np.maximum(size_bytes, 1.0))
    classes: NDArray[np.int64] = np.floor(CLASSES_AN_OCTAVE * octaves).astype(np.int64)
    return classes


def are_free(size_bytes: NDArray[Any]) -> bool:
    """Whether sizes are as they came: most are not there often enough for a line.

    Examples
    --------
    >>> are_free(np.arange(64, 764)), are_free(np.repeat(np.arange(64, 764), 10))
    (True, False)
    """
    _, counts = np.unique(size_bytes, return_counts=True)
    often = counts[counts >= FEWEST_ROUND_TRIPS]
    return counts.size > _FEW and 2 * int(often.sum()) < size_bytes.size


def fit_natural(
    messages: Natural, quantity: str = WHOLE, *, reply_mode: ReplyMode = NO_REPLY
) -> Fit:
    """Fit bandwidth and fixed delay to one quantity of natural traffic.

    Bandwidth is that of payload, of hosts and link together, as messages met it. A
    long one shares the link with others' that are sent meanwhile: four connections
    that kept 100 Mbit/s a third busy got 93 to 96 of 96.5 possible.

    Parameters
    ----------
    messages : Natural
    quantity : str
        A key of its delays.
    reply_mode : 'echo' or int
        How they were answered, where the delays are round trips.

    Returns
    -------
    Fit
        ``rounds`` are the parts of the time that the bootstrap weighs. A line that
        has no bandwidth is 'none', whatever it is.
    """
    at, delay, slope, part = _classed(messages, quantity)
    classes = np.unique(at).size
    times = 2 if reply_mode == "echo" else 1
    need = f"a line needs {FEWEST_CLASSES} classes of size, two to an octave, with"
    few = f"{need} {FEWEST_OF_A_CLASS} messages each, got {classes}"
    against = few if classes < FEWEST_CLASSES else None
    against = against or _elsewhere(messages, quantity, slope) or _hosts(slope / times)
    unfitted = Fit(
        model="none",
        reason=against or "",
        caveats=(),
        reply_mode=reply_mode,
        factor=times,
        sizes=classes,
        rounds=_PARTS,
        n=at.size,
        confidence=_CONFIDENCE,
    )
    if against:
        return unfitted
    written = messages.delays_ns[quantity]
    low = low_delays(
        at,
        delay,
        part,
        fewest=FEWEST_OF_A_CLASS,
        resamples=_RESAMPLES,
        seed=1,
        step_ns=clock_step(written[np.isfinite(written)]),
    )
    crossing = Crossing.round_trip(low.size_bytes, Packets(), reply_mode)
    fit = fit_low_delays(crossing, low, unfitted)
    against = _against(messages, fit) if fit.model == "line" else None
    return refused(fit, against) if against else fit


def _against(messages: Natural, fit: Fit) -> str | None:
    """Say why a line of natural traffic gives no bandwidth, if so."""
    slope, fixed = fit.slope_ns_per_byte, fit.fixed_delay_seconds
    if not (slope and fixed and fit.bandwidth_bits_per_second):
        return _HOSTS
    if fixed.value <= 0:
        return "by the line a message of no bytes is there before it is sent"
    byte_ns = slope.value / fit.factor
    return _hosts(byte_ns) or _slowed(messages, byte_ns)


def _hosts(slope_ns: float) -> str | None:
    """Say that a slope may be copying more than a link; None if it is too steep.

    No growth at all is for the verdict.
    """
    return _HOSTS if slope_ns > 0 and host_share(slope_ns) > MOST_OF_HOSTS else None


def _elsewhere(messages: Natural, quantity: str, slope_ns: float) -> str | None:
    """Say that a stage holds but a part of what grows with size, if so."""
    if quantity == WHOLE:
        return None
    whole_ns = _classed(messages, WHOLE)[2]
    if whole_ns - slope_ns <= _ELSEWHERE * slope_ns:
        return None
    return "other stages grow with size, too: a part of the link's time is there"


def _slowed(messages: Natural, slope_ns: float) -> str | None:
    """Say why TCP may have sent slower than the link carries, if so."""
    if not messages.stream:
        return None
    classes = size_class(messages.size_bytes)
    packets = messages.packets[classes == classes.max()]
    packets = packets[np.isfinite(packets)]
    found = slowed_by_losses(classes.size, int(messages.resent.sum()))
    if found or not packets.size:
        return found
    at, _, slope, _ = _classed(messages, DEVICE)
    waited_ns = slope * float(np.ptp(at)) if at.size else np.inf
    return slowed_by_sender(float(np.median(packets)), slope_ns, waited_ns)


def _classed(messages: Natural, quantity: str) -> tuple[Floats, Floats, float, Floats]:
    """Return the mean size of each message's class, and its delay brought there.

    Only of classes with enough messages. Then the slope along which it was brought,
    through the classes' low delays, and the part of the time it was sent in.
    """
    delay, classes = messages.delays_ns[quantity], size_class(messages.size_bytes)
    known = np.isfinite(delay)
    counts = np.bincount(classes[known], minlength=classes.max(initial=0) + 1)
    known &= counts[classes] >= FEWEST_OF_A_CLASS
    size, delay, t_ns = messages.size_bytes[known], delay[known], messages.t_ns[known]
    _, of_class, counts = np.unique(
        classes[known], return_inverse=True, return_counts=True
    )
    middle = np.bincount(of_class, weights=size) / counts
    from_middle = size - middle[of_class]
    slope = _slope(middle, of_class, delay, from_middle)
    rank = np.argsort(np.argsort(t_ns, kind="stable"))
    part = rank * _PARTS // max(1, size.size)
    return middle[of_class], delay - slope * from_middle, slope, part.astype(np.float64)


def _slope(
    middle: Floats, of_class: NDArray[np.intp], delay: Floats, from_middle: Floats
) -> float:
    """Return the slope through low delays at classes' mean sizes, found in rounds."""
    slope = 0.0
    for _ in range(_ROUNDS_OF_SLOPE if middle.size > 1 else 0):
        moved = delay - slope * from_middle
        low = [np.quantile(moved[of_class == i], LOW) for i in range(middle.size)]
        (found,), _ = weighted_theil_sen(middle, np.array([low]))
        slope = max(0.0, float(found))
    return slope
