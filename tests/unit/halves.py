"""Records of the rings as a test makes them, and what a joiner makes of these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from latprof_agent.probes.layout import layout_of
from latprof_analysis.records.flows import IPPROTO_TCP
from latprof_analysis.records.joiner import Joiner

LAYOUT = layout_of()
DRAIN_NS = 20_000_000
SENDER, RECEIVER = 1, 2


@dataclass(frozen=True)
class Record:
    """A record of a ring, when it was made and when it was in the ring."""

    ring: str
    values: tuple[tuple[str, int], ...]
    made_ns: int
    seen_ns: int


def record(ring: str, made_ns: int, delay_ns: int, **values: int) -> Record:
    return Record(ring, tuple(values.items()), made_ns, made_ns + delay_ns)


def announcements(flow: int, *sides: int) -> list[Record]:
    return [
        record("flows", 0, 0, flow=flow, side=side, protocol=IPPROTO_TCP)
        for side in sides
    ]


def batch_of(records: list[Record]) -> dict:
    """One drain's arrays."""
    batch = {}
    for ring, dtype in LAYOUT.rings.items():
        mine = [r for r in records if r.ring == ring]
        batch[ring] = np.zeros(len(mine), dtype)
        for i, found in enumerate(mine):
            for name, value in found.values:
                batch[ring][name][i] = value
    return batch


def joined(records: list[Record]) -> tuple[list, dict[str, int]]:
    """Drain every 20 ms what is in the rings by then; all pairs, and the counts."""
    joiner, pairs = Joiner(LAYOUT), []
    waiting = sorted(records, key=lambda r: r.seen_ns)
    now = 0
    while waiting:
        now += DRAIN_NS
        ready = [r for r in waiting if r.seen_ns <= now]
        waiting = waiting[len(ready) :]
        pairs += rows_of(joiner.feed(batch_of(ready), now))
    pairs += rows_of(joiner.finish())
    return sorted(pairs), joiner.unmatched


def rows_of(found) -> list:
    """(flow or key, end, read) of each pair; 0 for a half that is not there."""
    rows = []
    for s, r in zip(found.sent_index, found.received_index, strict=True):
        half = found.sent[s] if s >= 0 else found.received[r]
        read_ns = int(found.received[r]["read_ns"]) if r >= 0 else 0
        rows.append((int(half["flow"]), int(half["key"]), int(half["end"]), read_ns))
    return rows


def message(flow: int, end: int, at_ns: int) -> Record:
    return record("sent_messages", at_ns, 0, flow=flow, end=end, xmit_ns=at_ns)


def range_of(flow: int, end: int, at_ns: int, key: int = 0, start: int = 0) -> Record:
    values = {"flow": flow, "start": start, "end": end, "key": key}
    values |= {"read_ns": at_ns}
    return record("received_ranges", at_ns, 0, **values)


UDP = 17
BOTH = {"first_sequence": 11, "first_answer": 22}
# what each end of a connection knows: the sender's own, and what the NAT made of it
ENDS = {
    SENDER: {"flow": 5, "source": "10.0.0.1", "destination": "10.0.0.254"},
    RECEIVER: {"flow": 6, "source": "10.1.0.254", "destination": "10.1.0.2"},
}


def mapped(address: str) -> list[int]:
    return [0] * 10 + [255, 255, *map(int, address.split("."))]


def announced(side: int, **values: object) -> np.ndarray:
    """An announcement by one end of the connection above."""
    made = np.zeros(1, LAYOUT.rings["flows"])
    told = {"side": side, "protocol": IPPROTO_TCP, **BOTH, **ENDS[side], **values}
    for name, value in told.items():
        made[name] = mapped(value) if isinstance(value, str) else value
    return made


def half_rows(ring: str, stamp: str, rows) -> np.ndarray:
    made = np.zeros(len(rows), LAYOUT.rings[ring])
    for i, (flow, key, at_ns) in enumerate(rows):
        made[i]["flow"], made[i]["key"], made[i][stamp] = flow, key, at_ns
    return made
