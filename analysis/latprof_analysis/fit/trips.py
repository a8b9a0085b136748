"""Requests with their replies, from messages.csv, and what they say of the factor."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from latprof_analysis.fit.estimates import ReplyMode
from latprof_analysis.fit.slopes import theil_sen

# What tells one direction of one conversation, in messages.csv.
FLOW = (
    "protocol",
    "source_address",
    "source_port",
    "destination_address",
    "destination_port",
)

# An echo's two directions differ by less than this in their time for a byte, even
# where the link does; below it, one of them does not carry the bytes at its rate.
_LEAST_SHARE = 0.02


def rounds_of(size_bytes: pd.Series, send_ns: pd.Series) -> pd.Series:
    """Return how many messages of the same size were sent before each.

    Where each size is sent once a round that is the round. Of other traffic it
    keeps neighbours in time near each other, which is what a bootstrap needs.
    """
    in_order = size_bytes.loc[send_ns.sort_values(kind="stable").index]
    return in_order.groupby(in_order).cumcount().loc[size_bytes.index]


def pair_round_trips(messages: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Pair requests with their replies, where they take turns on a connection.

    Returns
    -------
    trips : DataFrame
        ``size_bytes``, ``reply_bytes``, ``send_ns``, ``rtt_ns`` (request sent to
        reply read), ``request_ns`` and ``reply_ns`` (each way, sent to read).
    left_out : dict of str to int
        Requests without such a reply, by why.

    Examples
    --------
    >>> here, there = ["a", "b", "a"], ["b", "a", "b"]
    >>> trips, left_out = pair_round_trips(pd.DataFrame({
    ...     "source_address": here, "source_port": [1, 2, 1],
    ...     "destination_address": there, "destination_port": [2, 1, 2],
    ...     "kind": ["request", "reply", "request"], "size_bytes": [64, 8, 64],
    ...     "send_ns": [0, 60, 200], "read_ns": [50.0, 90.0, 240.0]}))
    >>> trips[["size_bytes", "rtt_ns", "request_ns", "reply_ns"]].values.tolist()
    [[64.0, 90.0, 50.0, 30.0]]
    >>> left_out
    {'no reply before the next request': 1}
    """
    rows = messages[messages["kind"].isin(["request", "reply"])]
    is_request = rows["kind"].eq("request")
    ends = {}
    for end in ("address", "port"):
        source, destination = (
            rows[f"{which}_{end}"].astype(object) for which in ("source", "destination")
        )
        ends[f"near_{end}"] = source.where(is_request, destination)
        ends[f"far_{end}"] = destination.where(is_request, source)
    rows = rows.assign(**ends)
    rows["of"] = rows.groupby(list(ends)).ngroup()
    rows = rows[rows["send_ns"].notna()].sort_values(["of", "send_ns"], kind="stable")
    good = rows["kind"].eq("request")
    nth, after = rows.shift(-1), rows.shift(-2)
    answered = nth["of"].eq(rows["of"]) & nth["kind"].eq("reply")
    pieces = answered & after["of"].eq(rows["of"]) & after["kind"].eq("reply")
    whole = rows["read_ns"].notna() & nth["read_ns"].notna()
    whole &= rows["size_bytes"].notna() & nth["size_bytes"].notna()
    # of no bytes there is nothing to fit, and no round trip takes no time
    some = (rows["size_bytes"] > 0) & (nth["read_ns"] > rows["send_ns"])
    turns = nth["send_ns"] >= rows["read_ns"]
    left_out = {}
    for why, passed in (
        ("no reply before the next request", answered),
        ("the reply came in several messages", ~pieces),
        ("a stamp or a size is missing", whole),
        ("it has no bytes, or took no time", some.fillna(False)),
        ("the reply began before the request was read", turns),
    ):
        if (good & ~passed).any():
            left_out[why] = int((good & ~passed).sum())
        good = good & passed
    trips = pd.DataFrame(
        {
            "size_bytes": rows["size_bytes"],
            "reply_bytes": nth["size_bytes"],
            "send_ns": rows["send_ns"],
            "rtt_ns": nth["read_ns"] - rows["send_ns"],
            "request_ns": rows["read_ns"] - rows["send_ns"],
            "reply_ns": nth["read_ns"] - nth["send_ns"],
        }
    )
    return trips[good], left_out


def check_columns(messages: pd.DataFrame, names: Sequence[str]) -> None:
    """Say which column is missing, if one is."""
    missing = [name for name in names if name not in messages]
    if missing:
        raise ValueError(f"messages must have the column {missing[0]}, got none")


def against_factor(
    trips: pd.DataFrame, reply_mode: ReplyMode, *, bent: bool = False
) -> str | None:
    """Return what in the trips contradicts the recorded reply mode.

    `bent` says that the round trips are no line but a hinge.
    """
    told = trips["size_bytes"] if reply_mode == "echo" else reply_mode
    other = int(trips["reply_bytes"].ne(told).sum())
    if other:
        mode = "a full echo" if reply_mode == "echo" else f"{reply_mode} bytes"
        return f"{other} of {len(trips)} replies are not as recorded, {mode}"
    if reply_mode != "echo":
        return None
    slopes = [
        _growth(low_by_size(trips[name], trips["size_bytes"]), bent)
        for name in ("request_ns", "reply_ns")
    ]
    least = slopes.index(min(slopes))
    if slopes[least] < _LEAST_SHARE * max(slopes):
        name = ("request", "reply")[least]
        return (
            f"the {name}'s own time does not grow with size, so the factor 2 of an"
            " echo does not hold: one direction waits while the other catches up,"
            " as of a token bucket without gaps; use short replies or one-way figures"
        )
    return None


def low_by_size(delay_ns: pd.Series, size_bytes: pd.Series) -> pd.Series:
    """Return the 10th percentile of the delays of each size, ascending in size."""
    return delay_ns.groupby(size_bytes).quantile(0.1).dropna()


def _growth(low: pd.Series, bent: bool) -> float:
    """Return how low delays grow with size: by a line, or where bent by their ends.

    Behind a token bucket's burst most sizes may be below the bend, where a slope is
    that of the hosts.
    """
    if len(low) < 2:
        return 0.0
    if bent:
        return float(low.iloc[-1] - low.iloc[0])
    return theil_sen(low.index.to_numpy("float64"), low.to_numpy("float64"))[0]
