"""Packet-train dispersion of each direction, from messages.csv."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from latprof_analysis.fits.dispersion import fit_dispersion
from latprof_analysis.fits.train_result import Dispersion
from latprof_analysis.fits.trips import FLOW
from latprof_analysis.wire import Packets

_NEEDED = (
    *FLOW,
    "kind",
    "size_bytes",
    "packets",
    "retransmits",
    "queue_ns",
    "arrive_ns",
    "read_ns",
)
# A long stream is cut into trains of so many messages.
_PIECE = 256


def stage_dispersions(
    messages: pd.DataFrame,
    *,
    packets: Mapping[str, Packets] | None = None,
    confidence: float = 0.95,
) -> dict[tuple[str, str], Dispersion]:
    """Measure by protocol and direction at what rate back-to-back messages arrive.

    A train is what one flow sent while something of it was still on its way; a long
    one is cut into pieces. `arrive` of a message of many packets is that of its
    last, with all its bytes: messages take the place of packets. Trains in which
    segments were sent again, or datagrams of many packets lost, are left out: some
    of those packets crossed too, and none tells how many.

    Parameters
    ----------
    messages : DataFrame
        Columns of messages.csv.
    packets : mapping of str to Packets, optional
        By protocol, how messages are cut. Without it bandwidth is that of payload.

    Returns
    -------
    dict of (protocol, kind) to Dispersion

    Examples
    --------
    >>> import numpy as np
    >>> nth = np.arange(600)
    >>> start = 50_000_000 * (nth // 100)
    >>> messages = pd.DataFrame({
    ...     "protocol": "udp", "source_address": "a", "source_port": 1,
    ...     "destination_address": "b", "destination_port": 2, "kind": "message",
    ...     "size_bytes": 1500, "packets": 1, "retransmits": 0,
    ...     "queue_ns": start + nth, "arrive_ns": start + 120_000 * (nth % 100 + 1)})
    >>> messages["read_ns"] = messages["arrive_ns"]
    >>> found = stage_dispersions(messages)["udp", "message"]
    >>> round(found.bandwidth_bits_per_second.value / 1e6, 3), found.trains
    (100.0, 6)
    """
    missing = [name for name in _NEEDED if name not in messages]
    if missing:
        raise ValueError(f"messages must have the column {missing[0]}, got none")
    found: dict[tuple[str, str], Dispersion] = {}
    measured = messages[messages["kind"] != "warmup"]
    ways = measured.groupby(["protocol", "kind"], sort=True, observed=True)
    for (protocol, kind), rows in ways:
        cut = (packets or {}).get(str(protocol), Packets())
        arrivals = _arrivals(rows, cut)
        # messages of no bytes, where headers are not known, space out nothing
        whole = arrivals[~arrivals["spoilt"] & (arrivals["wire_bytes"] > 0)]
        dispersion = fit_dispersion(
            whole["train"],
            whole["arrive_ns"],
            whole["wire_bytes"],
            sent_ns=whole["queue_ns"],
            confidence=confidence,
        )
        spoilt = arrivals["train"][arrivals["spoilt"]].nunique()
        found[str(protocol), str(kind)] = _with_spoilt(dispersion, spoilt)
    return found


def _with_spoilt(found: Dispersion, trains: int) -> Dispersion:
    if not trains:
        return found
    why = "packets were lost or sent again"
    return replace(
        found,
        left_out=found.left_out | {why: trains},
        reason=f"{found.reason}; {trains} trains left out: {why}",
    )


def _arrivals(rows: pd.DataFrame, packets: Packets) -> pd.DataFrame:
    """Return messages that arrived, each with its train and bytes on the wire.

    ``spoilt`` marks trains of which packets crossed that no row tells of.
    """
    rows = rows[rows["queue_ns"].notna()]
    flow = rows.groupby(list(FLOW)).ngroup()
    rows = rows.assign(flow=flow).sort_values(["flow", "queue_ns"], kind="stable")
    rows["wire_bytes"] = packets.wire_bytes(
        rows["size_bytes"].to_numpy("float64", na_value=np.nan)
    )
    rows["train"] = _trains(rows)

    lost = rows["read_ns"].isna() & rows["arrive_ns"].isna()
    unseen = lost & (rows["packets"] > 1) | (rows["retransmits"] > 0)
    rows["spoilt"] = unseen.groupby(rows["train"]).transform("any")
    rows = rows[~lost]
    # Bytes of messages without a stamp go to the next of the train that has one.
    stamped = rows["arrive_ns"].notna()
    until = stamped[::-1].groupby(rows["train"][::-1]).cumsum()[::-1]
    rows["wire_bytes"] = (
        rows["wire_bytes"].groupby([rows["train"], until]).transform("sum")
    )
    return rows[stamped]


def _trains(rows: pd.DataFrame) -> pd.Series:
    """Return the train of each row; a new one begins where nothing is on its way."""
    come = rows["arrive_ns"].fillna(rows["read_ns"])
    so_far = come.groupby(rows["flow"]).cummax().groupby(rows["flow"]).ffill()
    new_flow = rows["flow"].ne(rows["flow"].shift())
    train = (new_flow | (rows["queue_ns"] > so_far.shift())).cumsum()
    piece = rows.groupby(train).cumcount() // _PIECE
    return train * (1 + len(rows) // _PIECE) + piece
