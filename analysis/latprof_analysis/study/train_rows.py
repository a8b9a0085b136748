"""Rows of round_trips.csv -> trains of messages, one entry for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.stages import BLANK

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LOST = "a reply did not come"
COLUMNS = (
    *("sequence", "size_bytes", "sent_ns", "received_ns"),
    *("train", "train_messages", "train_gap_ns"),
    *("send_returned_ns", "receive_called_ns"),
)


class Trains(NamedTuple):
    """Columns as `fit_loggp` names them, and how many trains are in none, by why."""

    columns: dict[str, NDArray[Any]]
    left_out: dict[str, int]


class TrainRows:
    """Round trips of one protocol of a run that sent trains; 80 bytes of each."""

    def __init__(self) -> None:
        self._parts: list[dict[str, Ints]] = []

    def add(self, numbers: Mapping[str, Ints], rows: NDArray[np.intp]) -> None:
        """Take in rows of round_trips.csv, those of single messages with them."""
        self._parts.append({name: numbers[name][rows] for name in COLUMNS})

    def extend(self, later: TrainRows) -> None:
        """Add what follows in the file."""
        self._parts += later._parts

    def __bool__(self) -> bool:
        return any((part["train"] != BLANK).any() for part in self._parts)

    @property
    def first_sequence(self) -> int:
        """Of the run's first message."""
        return min(int(part["sequence"].min()) for part in self._parts)

    def trains(self, messages_per_round: int) -> Trains:
        """Put messages of a train together; a single message is one of its own.

        A train is whole if all its replies came.
        """
        numbers = {
            name: np.concatenate([part[name] for part in self._parts])
            for name in COLUMNS
        }
        number, sequence = numbers["train"], numbers["sequence"]
        # those without a number are each their own
        alone = number == BLANK
        key = np.where(alone, sequence, sequence.max() + 1 + number)
        order = np.lexsort((sequence, key))
        numbers = {name: values[order] for name, values in numbers.items()}
        begins = np.flatnonzero(np.diff(key[order], prepend=BLANK))
        alone = alone[order][begins]
        count = np.diff(np.append(begins, len(order)))
        sent, received = numbers["sent_ns"], numbers["received_ns"]
        # BLANK is before all times
        least = np.minimum.reduceat(np.minimum(sent, received), begins)
        last = np.maximum.reduceat(received, begins)
        asked = np.where(alone, 1, numbers["train_messages"][begins])
        left = np.ones(len(begins), bool)
        why = {}
        for name, mask in (
            (LOST, least == BLANK),
            ("it is not whole in the file", count != asked),
            ("it has no bytes", numbers["size_bytes"][begins] <= 0),
            ("it took no time", last <= sent[begins]),
            ("others were on their way", _met(sent[begins], last)),
        ):
            why[name] = left & mask
            left &= ~mask
        first = begins[left]
        train_ns = last - sent[begins]
        send_ns = _took(sent, numbers["send_returned_ns"])
        receive_ns = _took(numbers["receive_called_ns"], received)
        spacing_ns = np.where(alone, 0, np.maximum(numbers["train_gap_ns"][begins], 0))
        index = (numbers["sequence"][first] - self.first_sequence) // messages_per_round
        columns = {
            "size_bytes": numbers["size_bytes"][first],
            "messages": asked[left],
            "spacing_ns": spacing_ns[left],
            "train_ns": train_ns[left],
            "round_index": index,
            "send_ns": send_ns[first],
            "receive_ns": receive_ns[first],
        }
        counts = {name: int(mask.sum()) for name, mask in why.items() if mask.any()}
        return Trains(columns, counts)


def _met(sent_ns: Ints, last_ns: Ints) -> NDArray[np.bool_]:
    """Return which were on their way while others were, as an open loop lets them."""
    order = np.argsort(sent_ns, kind="stable")
    before = np.maximum.accumulate(last_ns[order])
    begun = sent_ns[order][1:] < before[:-1]
    met = np.zeros(len(order), bool)
    met[order[1:][begun]] = True
    met[order[:-1][begun]] = True
    return met


def together(of_runs: Iterable[Trains]) -> Trains:
    """Put the trains of several runs together, with rounds of their own."""
    parts: list[dict[str, NDArray[Any]]] = []
    before, left_out = 0, Counter[str]()
    for columns, left in of_runs:
        rounds = columns["round_index"] + before
        parts.append(columns | {"round_index": rounds})
        before = int(rounds.max(initial=before - 1)) + 1
        left_out.update(left)
    names = parts[0] if parts else ()
    columns = {name: np.concatenate([p[name] for p in parts]) for name in names}
    return Trains(columns, dict(left_out))


def _took(begin_ns: Ints, end_ns: Ints) -> Floats:
    """Return how long calls took; NaN where that is not known."""
    known = (begin_ns != BLANK) & (end_ns >= begin_ns)
    return np.where(known, end_ns - begin_ns, np.nan)
