"""What was transferred in each direction, as iperf3 tells it, for each writer."""

from __future__ import annotations

from typing import Any

from latprof_analysis.text import NOT_ENOUGH, duration, percent, rate

TITLE = "what was transferred, as the file tells it"
JITTER = "Jitter is the receiver's, smoothed as in RFC 3550."
COLUMNS = ("sent", "received", "lost", "jitter", "resent")


def transfer_rows(document: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return of each direction its name and the texts of COLUMNS.

    Examples
    --------
    >>> ((_, *texts),) = transfer_rows({"transfers": [{
    ...     "protocol": "UDP", "direction": "to the client", "packets": 125.0,
    ...     "lost_packets": 7.0, "jitter_ns": 19900.9, "retransmits": None,
    ...     "sent_bits_per_second": 999852.0, "received_bits_per_second": None}]})
    >>> texts
    ['999.9 kbit/s', '-', '7 of 125 (5.6%)', '19.9 us', '-']
    """
    return [
        (
            f"{transfer['protocol']} {transfer['direction']}",
            rate(transfer["sent_bits_per_second"]),
            rate(transfer["received_bits_per_second"]),
            _lost(transfer["lost_packets"], transfer["packets"]),
            duration(transfer["jitter_ns"]),
            _count(transfer["retransmits"]),
        )
        for transfer in document.get("transfers") or ()
    ]


def _count(n: float | None) -> str:
    return NOT_ENOUGH if n is None else f"{n:.0f}"


def _lost(lost: float | None, packets: float | None) -> str:
    if lost is None or not packets:
        return NOT_ENOUGH
    return f"{lost:.0f} of {packets:.0f} ({percent(lost / packets)})"
