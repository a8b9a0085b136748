"""Requests with their replies, from messages.csv, and what they say of the factor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.fit.estimates import ReplyMode
from latprof_analysis.fit.rounds import Floats, nth_in_run
from latprof_analysis.fit.slopes import theil_sen
from latprof_analysis.read.rows import Columns
from latprof_analysis.stages import BLANK
from latprof_analysis.stats.quantiles import quantiles_by

if TYPE_CHECKING:
    import pandas as pd

Ints = NDArray[np.int64]

# Columns of messages.csv that identify one direction of one conversation.
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


def rounds_of(size_bytes: ArrayLike, send_ns: ArrayLike) -> NDArray[np.int64]:
    """Return how many messages of the same size were sent before each.

    Where each size is sent once a round that is the round. Of other traffic it
    keeps neighbours in time near each other, which is what a bootstrap needs.

    Examples
    --------
    >>> rounds_of([64, 18, 64], [10, 20, 5]).tolist()
    [1, 0, 0]
    """
    sizes, sent = np.asarray(size_bytes), np.asarray(send_ns)
    order = np.lexsort((sent, sizes))
    found = np.empty(sizes.size, np.int64)
    found[order] = nth_in_run(np.diff(sizes[order], prepend=np.nan) != 0)
    return found


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
    >>> import pandas as pd
    >>> here, there = ["a", "b", "a"], ["b", "a", "b"]
    >>> trips, left_out = pair_round_trips(pd.DataFrame({
    ...     "source_address": here, "source_port": [1, 2, 1],
    ...     "destination_address": there, "destination_port": [2, 1, 2],
    ...     "kind": ["request", "reply", "request"], "size_bytes": [64, 8, 64],
    ...     "send_ns": [0, 60, 200], "read_ns": [50.0, 90.0, 240.0]}))
    >>> trips[["size_bytes", "rtt_ns", "request_ns", "reply_ns"]].values.tolist()
    [[64, 90, 50, 30]]
    >>> left_out
    {'no reply before the next request': 1}
    """
    import pandas as pd

    trips, left_out = paired(Columns.of(messages))
    return pd.DataFrame(trips), left_out


def paired(messages: Columns) -> tuple[dict[str, Ints], dict[str, int]]:
    """Do what `pair_round_trips` does, with arrays."""
    asked = messages.are("kind", "request")
    rows = messages.at(
        (asked | messages.are("kind", "reply")) & (messages.numbers["send_ns"] != BLANK)
    )
    of = _connections(rows, rows.are("kind", "request"))
    order = np.lexsort((rows.numbers["send_ns"], of))
    rows, of = rows.at(order), of[order]
    request, reply = rows.are("kind", "request"), rows.are("kind", "reply")
    size, send, read = (rows.numbers[n] for n in ("size_bytes", "send_ns", "read_ns"))
    answered = (_next(of, -1) == of) & _next(reply, False)
    pieces = answered & (_next(of, -1, 2) == of) & _next(reply, False, 2)
    whole = (read != BLANK) & (size != BLANK)
    whole &= _next(whole, False)
    # of no bytes there is nothing to fit, and no round trip takes no time
    some = (size > 0) & (_next(read, BLANK) > send)
    turns = _next(send, BLANK) >= read
    left = request.copy()
    why = {}
    for name, mask in (
        ("no reply before the next request", ~answered),
        ("the reply came in several messages", pieces),
        ("a stamp or a size is missing", ~whole),
        ("it has no bytes, or took no time", ~some),
        ("the reply began before the request was read", ~turns),
    ):
        why[name] = left & mask
        left &= ~mask
    trips = {
        "size_bytes": size,
        "reply_bytes": _next(size, BLANK),
        "send_ns": send,
        "rtt_ns": _next(read, BLANK) - send,
        "request_ns": read - send,
        "reply_ns": _next(read, BLANK) - _next(send, BLANK),
    }
    return {name: values[left] for name, values in trips.items()}, counted(why)


def checked_columns(messages: Columns | pd.DataFrame, names: Iterable[str]) -> Columns:
    """Return the columns of messages, or say which is missing."""
    rows = Columns.of(messages)
    missing = [name for name in names if name not in {*rows.numbers, *rows.texts}]
    if missing:
        raise ValueError(f"messages must have the column {missing[0]}, got none")
    return rows


def flows(rows: Columns) -> NDArray[np.int64]:
    """Number the directions of conversations that rows are of, by FLOW."""
    return _numbered(
        rows.texts[name][0] if name in rows.texts else rows.numbers[name]
        for name in FLOW
    )


def _connections(rows: Columns, is_request: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Number the conversations that rows are of, whichever way they go."""
    (source, names), (destination, others) = (
        rows.texts[f"{end}_address"] for end in ("source", "destination")
    )
    # the same number for an address at either end
    known = {name: i for i, name in enumerate(dict.fromkeys([*names, *others]))}
    source, destination = (
        np.array([*map(known.__getitem__, labels), -1])[codes]
        for codes, labels in ((source, names), (destination, others))
    )
    ports = rows.numbers["source_port"], rows.numbers["destination_port"]
    return _numbered(
        np.where(is_request, near, far)
        for near, far in (
            (source, destination),
            (destination, source),
            ports,
            ports[::-1],
        )
    )


def _numbered(columns: Iterable[NDArray[Any]]) -> NDArray[np.int64]:
    """Number the rows; those that are alike in all columns have the same number."""
    found: Any = 0
    for column in columns:
        _, values = np.unique(column, return_inverse=True)
        _, found = np.unique(
            found * np.int64(values.size + 1) + values, return_inverse=True
        )
    return np.asarray(found, np.int64)


def _next(values: NDArray[Any], last: Any, by: int = 1) -> NDArray[Any]:
    """Return the value of the row after each; of the last one what is given."""
    return np.append(values[by:], np.full(min(by, len(values)), last, values.dtype))


def counted(masks: Mapping[str, NDArray[np.bool_]]) -> dict[str, int]:
    """Return how many each mask holds, where it holds any."""
    return {why: int(mask.sum()) for why, mask in masks.items() if mask.any()}


def against_factor(
    trips: Mapping[str, Ints], reply_mode: ReplyMode, *, bent: bool = False
) -> str | None:
    """Return what in the trips contradicts the recorded reply mode.

    `bent` says that the round trips are no line but a hinge.
    """
    expected = trips["size_bytes"] if reply_mode == "echo" else reply_mode
    replies = trips["reply_bytes"]
    other = int((replies != expected).sum())
    if other:
        mode = "a full echo" if reply_mode == "echo" else f"{reply_mode} bytes"
        return f"{other} of {len(replies)} replies are not as recorded, {mode}"
    if reply_mode != "echo":
        return None
    slopes = [
        _growth(*quantiles_by(trips["size_bytes"], trips[name], 0.1), bent)
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


def _growth(sizes: Floats, low_ns: Floats, bent: bool) -> float:
    """Return how low delays grow with size: by a line, or where bent by their ends.

    Behind a token bucket's burst most sizes may be below the bend, where a slope is
    that of the hosts.
    """
    if len(low_ns) < 2:
        return 0.0
    return float(low_ns[-1] - low_ns[0]) if bent else theil_sen(sizes, low_ns)[0]
