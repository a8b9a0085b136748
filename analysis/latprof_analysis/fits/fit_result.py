"""What a fit of round trip times says, with its uncertainty."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from latprof_analysis.fits.hinges import Bends
from latprof_analysis.fits.residuals import Residuals

Model = Literal["line", "hinge", "none"]
# A full echo, or replies of so many bytes.
ReplyMode = Literal["echo"] | int


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval and the round trips behind it."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class RateRange:
    """Between which rates the link's own lies, in bit/s, and why no closer.

    Attributes
    ----------
    low : float
    high : float or None
        Those of the bandwidth's interval, widened by what else may be in the slope;
        None where all of it may be the hosts'.
    reason : str
        Empty where that is all of it.
    """

    low: float
    high: float | None
    reason: str = ""


@dataclass(frozen=True)
class Segment:
    """The line on one side of a hinge's knot.

    Its bandwidth is ``factor / slope`` and no more: which of the two sides shows the
    link, if one does, and whether the factor holds there, the delays do not tell.
    """

    slope_ns_per_byte: Estimate
    bandwidth_bits_per_second: Estimate | None
    intercept_seconds: Estimate


@dataclass(frozen=True)
class Hinge:
    """Two lines that meet at messages of `knot_bytes`.

    Intervals take as known which sizes lie on which side; the knot's is bounded by
    the two sizes around it.
    """

    knot_bytes: Estimate
    below: Segment
    above: Segment


@dataclass(frozen=True)
class PacketCost:
    """What a packet takes beyond the bytes of it and its headers.

    Attributes
    ----------
    reason : str
        What was found, or why nothing is told.
    per_packet_ns : Estimate or None
        For one packet and one crossing.
    bandwidth_bits_per_second : Estimate or None
        At which the bytes alone cross; equal to the line's where packets take
        nothing.
    """

    reason: str
    per_packet_ns: Estimate | None = None
    bandwidth_bits_per_second: Estimate | None = None


@dataclass(frozen=True)
class Fit:
    """What the round trip times say of the link.

    Attributes
    ----------
    model : {'line', 'hinge', 'none'}
        What describes the delays. Only a line gives a bandwidth.
    reason : str
        Why this model.
    caveats : tuple of str
        What a reader of the figures should know.
    reply_mode : 'echo' or int
        As given: a full echo, or replies of so many bytes.
    factor : int
        How often a byte of the message crosses the link in the round trip, and
        so by how much the slope exceeds that of one crossing: 2 for a full echo
        that is sent after the whole request, 1 for a reply of fixed size. The
        bandwidth is ``factor / slope``. It does not hold where the directions
        overlap (an echo of bytes as they come, token buckets that refill while
        the other direction sends): there a full echo too has the slope of one
        crossing.
    bandwidth_bits_per_second : Estimate or None
        Wire rate, headers counted; that of hosts and link together. For a full echo
        over unequal directions the harmonic mean of both.
    link_rate_range : RateRange or None
        Where `bandwidth_bits_per_second` holds more than the link, or misses some of
        it, the link's own rate is between these.
    goodput_bits_per_second : Estimate or None
        What it carries of long messages' payload.
    fixed_delay_seconds : Estimate or None
        Bandwidth-independent delay of the whole round trip: both directions and
        both hosts, at the 10th percentile. Not halved, since nothing here tells
        how it divides. Takes a short reply's own bytes to cross at the same
        rate as the request's.
    slope_ns_per_byte : Estimate or None
        Slope of the round trip time per byte of payload, headers included and
        no factor applied.
    unexplained_share : float or None
        Share of the variance of the delays per size that the line leaves.
    delta_bic : float or None
        How much better a hinge describes them; None if there were too few sizes
        to tell.
    hinge : Hinge or None
        The two lines, where ``model`` is 'hinge'.
    bends : Bends or None
        One to three bends, where a hinge is better than a line by BIC, be they too
        small to refuse a line or not.
    host_share : float or None
        Share of the slope that may be the hosts' own work on each byte: the link's
        own rate may be higher by as much. Of datagrams it is measured. Of transit,
        which has none of that work, it is what the stamps may be off.
    packet_cost : PacketCost or None
        What packets take beyond their bytes, by a fit of its own; where that is
        much, the line's bandwidth is lower than the link's.
    residuals : Residuals or None
        What the line leaves of each size's delays; given for a refused line too.
    host_limited : bool or None
        The slope is so small that the hosts' own work is over a tenth of it: there
        is then no bandwidth.
    sizes, rounds, n : int
        What the fit rests on: message sizes, rounds, round trips.
    """

    model: Model
    reason: str
    caveats: tuple[str, ...]
    reply_mode: ReplyMode
    factor: int
    sizes: int
    rounds: int
    n: int
    confidence: float
    bandwidth_bits_per_second: Estimate | None = None
    link_rate_range: RateRange | None = None
    goodput_bits_per_second: Estimate | None = None
    fixed_delay_seconds: Estimate | None = None
    slope_ns_per_byte: Estimate | None = None
    unexplained_share: float | None = None
    delta_bic: float | None = None
    hinge: Hinge | None = None
    bends: Bends | None = None
    packet_cost: PacketCost | None = None
    residuals: Residuals | None = None
    host_share: float | None = None
    host_limited: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for JSON."""
        return asdict(self) | {
            "caveats": list(self.caveats),
            "bends": _listed(asdict(self.bends)) if self.bends else None,
            "residuals": _listed(asdict(self.residuals)) if self.residuals else None,
        }


def _listed(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}
