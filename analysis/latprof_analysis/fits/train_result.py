"""What trains of messages say of a link, with its uncertainty."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from latprof_analysis.fits.fit_result import Estimate, Model


@dataclass(frozen=True)
class LogGP:
    """Parameters of the LogGP model, each None where the data cannot tell it.

    Attributes
    ----------
    model : {'line', 'hinge', 'none'}
        What describes the gap against size; only a line gives g and G.
    reason : str
        Why this model.
    missing : dict of str to str
        Why a parameter is None.
    gap_per_byte_ns : Estimate or None
        G: time per byte of a long message, on the wire if headers were told.
    gap_ns : Estimate or None
        g: the least time between two messages.
    overhead_ns : Estimate or None
        o: time for which the sender's CPU is busy with one message.
    latency_ns : Estimate or None
        L: from the sender's hand to the receiver's, of the first byte.
    bandwidth_bits_per_second : Estimate or None
        1 / G.
    n : int
        Trains and single messages.
    """

    model: Model
    reason: str
    missing: dict[str, str]
    n: int
    confidence: float
    gap_per_byte_ns: Estimate | None = None
    gap_ns: Estimate | None = None
    overhead_ns: Estimate | None = None
    latency_ns: Estimate | None = None
    bandwidth_bits_per_second: Estimate | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Dispersion:
    """The rate at which back-to-back packets arrive.

    Attributes
    ----------
    state : {'measured', 'none'}
    reason : str
        Why there is a number, or none.
    bandwidth_bits_per_second : Estimate or None
        Of the slowest link on the way, of the bytes that were given. ``n`` is the
        number of trains.
    trains, packets : int
        What it rests on.
    left_out : dict of str to int
        Trains that say nothing of the link, by why.
    """

    state: Literal["measured", "none"]
    reason: str
    trains: int
    packets: int
    left_out: dict[str, int]
    confidence: float
    bandwidth_bits_per_second: Estimate | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for JSON."""
        return asdict(self)
