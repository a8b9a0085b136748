"""A bounded sample of messages for each end and class of size, newer ones likelier.

By forward decay [1]_: a message's chance to be kept falls by e in each `DECAY_NS`.
Its key is its age on that scale with Gumbel's noise, drawn once; the largest keys of
a cell are a weighted sample without replacement. So samples merge: the largest keys
of two are those of all that either has seen.

References
----------
.. [1] Cormode, Shkapenyuk, Srivastava and Xu (2009). Forward decay: a practical time
   decay model for streaming systems. ICDE 2009, 138-149.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np
from latprof_analysis.fit.natural import (
    DEVICE,
    FEWEST_CLASSES,
    FEWEST_OF_A_CLASS,
    WHOLE,
    Natural,
    size_class,
)
from latprof_analysis.records.message_rows import Messages
from latprof_analysis.stages import BLANK, STAGES
from numpy.typing import NDArray

DELAYS = (*STAGES[1:], WHOLE, DEVICE)  # when it was made no probe sees
# Half of what is kept is of the last 83 s; a slower link shows within 5 minutes.
DECAY_NS = 120_000_000_000
FORGOTTEN_NS = 8 * DECAY_NS
MOST_OF_A_CELL = 64
MOST_ROWS = 1 << 15  # 2.4 MB, and as much again while they are sorted
# Newcomers are sorted in when there are so many.
_NEWCOMERS = 1 << 13
# A group's fit is of one way between two addresses, if so many of its messages are.
_OF_ONE_WAY = 0.75
_PATH = ("protocol", "way", "source_address", "destination_address")
_CLASSES = 64  # of sizes below 2**32

_ROW = np.dtype(
    [
        ("key", "f8"),
        ("t_ns", "i8"),
        ("cell", "i8"),
        ("path", "i8"),
        ("size_bytes", "f4"),
        ("packets", "f4"),
        ("resent", "?"),
        ("stream", "?"),
        ("delays_ns", "f4", len(DELAYS)),
    ]
)

Ints = NDArray[np.int64]
Rows = NDArray[np.void]


class Reservoir:
    """Some messages of each group, direction and class of size."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = np.random.default_rng(seed)
        self._kept: Rows = np.empty(0, _ROW)
        self._new: list[Rows] = []
        # a full cell takes no key below its least
        self._full = np.empty(0, "i8")
        self._least = np.empty(0, "f8")

    def add(
        self,
        rows: Messages,
        delays_ns: dict[str, Ints],
        chosen: NDArray[np.intp],
        groups: Ints,
        way: int,
    ) -> None:
        """Take in the chosen rows, which one end of groups sent, or read.

        `way` is 0 or 1: what was sent and what was read are apart.
        """
        size = rows.numbers["size_bytes"][chosen]
        known = size > 0
        chosen, groups, size = chosen[known], groups[known], size[known]
        made = np.empty(len(chosen), _ROW)
        made["t_ns"] = rows.first_ns()[chosen]
        made["key"] = made["t_ns"] / DECAY_NS + self._rng.gumbel(size=len(chosen))
        classes = np.minimum(size_class(size), _CLASSES - 1)
        made["cell"] = (2 * groups + way) * _CLASSES + classes
        stays = self._may_stay(made)
        made, chosen = made[stays], chosen[stays]
        made["size_bytes"] = rows.numbers["size_bytes"][chosen]
        made["path"] = _paths(rows, chosen)
        packets = rows.numbers["packets"][chosen]
        made["packets"] = np.where(packets == BLANK, np.nan, packets)
        made["resent"] = rows.numbers["retransmits"][chosen] > 0
        made["stream"] = rows.texts["protocol"][0][chosen] == 0
        for i, name in enumerate(DELAYS):
            delay = delays_ns[name][chosen]
            made["delays_ns"][:, i] = np.where(delay == BLANK, np.nan, delay)
        self._new.append(made)
        if sum(map(len, self._new)) > _NEWCOMERS:
            self._sort_in()

    def ends(self, now_ns: int) -> list[tuple[int, int]]:
        """Return groups and directions that may have enough for a fit."""
        self._kept = self._kept[self._kept["t_ns"] > now_ns - FORGOTTEN_NS]
        self._sort_in()
        cells, counts = np.unique(self._kept["cell"], return_counts=True)
        ends, classes = np.unique(
            cells[counts >= FEWEST_OF_A_CLASS] // _CLASSES, return_counts=True
        )
        enough = ends[classes >= FEWEST_CLASSES]
        return [divmod(end, 2) for end in enough.tolist()]

    def messages(self, group: int, way: int) -> Natural | None:
        """Return what is kept of an end; None if too few are of one way."""
        first = (2 * group + way) * _CLASSES
        begin, end = np.searchsorted(self._kept["cell"], (first, first + _CLASSES))
        rows = self._kept[begin:end]
        paths, counts = np.unique(rows["path"], return_counts=True)
        if not len(paths) or counts.max() < _OF_ONE_WAY * len(rows):
            return None
        rows = rows[rows["path"] == paths[np.argmax(counts)]]
        return Natural(
            rows["size_bytes"].astype("f8"),
            rows["t_ns"].astype("f8"),
            {
                name: rows["delays_ns"][:, i].astype("f8")
                for i, name in enumerate(DELAYS)
            },
            rows["packets"].astype("f8"),
            rows["resent"],
            stream=bool(rows["stream"][0]),
        )

    def forget(self, groups: Container[int]) -> None:
        """Keep nothing of these groups."""
        self._sort_in()
        of = self._kept["cell"] // (2 * _CLASSES)
        gone = [group for group in np.unique(of).tolist() if group in groups]
        self._kept = self._kept[~np.isin(of, gone)]

    def _may_stay(self, made: Rows) -> NDArray[np.bool_]:
        if not len(self._full):
            return np.ones(len(made), bool)
        at = np.searchsorted(self._full, made["cell"])
        at[at == len(self._full)] = 0
        full = self._full[at] == made["cell"]
        return np.asarray(~full | (made["key"] > self._least[at]))

    def _sort_in(self) -> None:
        """Keep of each cell the largest keys; what is kept is in order of cells."""
        rows = np.concatenate([self._kept, *self._new])
        self._new = []
        order = np.lexsort((-rows["key"], rows["cell"]))
        cells, first, counts = np.unique(
            rows["cell"][order], return_index=True, return_counts=True
        )
        most = int(np.clip(MOST_ROWS // max(1, len(cells)), 1, MOST_OF_A_CELL))
        nth = np.arange(len(order)) - np.repeat(first, counts)
        self._kept = rows[order[nth < most]][:MOST_ROWS]
        full = counts >= most
        self._full = cells[full]
        self._least = rows["key"][order[first[full] + most - 1]]


def _paths(rows: Messages, chosen: NDArray[np.intp]) -> Ints:
    """Return a number for who sends to whom, between which addresses, and by what."""
    texts = [rows.texts[name] for name in _PATH]
    index = np.column_stack([index[chosen] for index, _ in texts])
    unique, place = np.unique(index, axis=0, return_inverse=True)
    words = [
        tuple(
            table[i] if i >= 0 else ""
            for i, (_, table) in zip(each, texts, strict=True)
        )
        for each in unique.tolist()
    ]
    return np.array([hash(each) for each in words], "i8")[place.reshape(-1)]
