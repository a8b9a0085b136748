"""Rows as the totals take them in, from lists of dictionaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from latprof_analysis.read.schema import MESSAGES, Schema
from latprof_analysis.stages import BLANK, STAMPS, stages_of


@dataclass
class MessageRows:
    """The rows by column, and one by one; of messages unless told."""

    each: list[dict[str, Any]]
    schema: Schema = MESSAGES

    def __post_init__(self) -> None:
        columns = self.schema.columns
        texts = [c.name for c in columns if c.kind == "text"]
        self.numbers = {
            name: np.array(
                [BLANK if r.get(name) is None else r[name] for r in self.each], "i8"
            )
            for name in (c.name for c in columns if c.kind != "text")
        }
        self.texts = {}
        for name in texts:
            # in the order in which they come, as a file's labels are
            labels = list(dict.fromkeys(r[name] for r in self.each if r.get(name)))
            codes = [labels.index(r[name]) if r.get(name) else -1 for r in self.each]
            self.texts[name] = np.array(codes, "i4"), labels

    def __len__(self) -> int:
        return len(self.each)

    def row(self, i: int) -> dict[str, Any]:
        return {name: self.each[i].get(name) for name in (*self.numbers, *self.texts)}


def message(
    stamps: tuple[int | None, ...],
    kind: str = "request",
    protocol: str = "tcp",
    **values: Any,
) -> dict[str, Any]:
    """A message with these stamps, and the stages that follow from them."""
    taken = {
        name: np.array([stamp or 0], "i8")
        for name, stamp in zip(STAMPS, stamps, strict=True)
    }
    stages = {name: int(v[0]) for name, v in stages_of(taken).items()}
    return {
        "protocol": protocol,
        "kind": kind,
        "size_bytes": 64,
        "packets": 1,
        "hops": 0,
        **{f"{name}_ns": v or None for name, v in zip(STAMPS, stamps, strict=True)},
        **{f"{n}_ns": None if v == BLANK else v for n, v in stages.items()},
        **values,
    }
