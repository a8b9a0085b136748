"""A run folder of any size, with rows as `latprof run` writes them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from latprof_agent import _rows
from latprof_analysis.records.message_rows import COLUMNS, KINDS, REPLY, REQUEST
from latprof_analysis.stages import BLANK, STAMPS, stages_of

SIZES = np.array([18, 256, 1024, 4096, 16384, 32768, 65507])
ROWS_AT_ONCE = 250_000
# Of each stage: mean of the logarithm of its ns, and its standard deviation.
_STAGES = ((7, 0.3), (8, 1.0), (8.5, 0.8), (13.8, 0.2), (7.5, 0.5), (9.4, 0.7))
_NS_PER_BYTE = 80  # of a link of 100 Mbit/s
_NO_ARRIVE, _DIED = 0.02, 0.001


def write_messages(path: Path, count: int) -> None:
    """Write messages.csv: requests and replies of seven sizes over TCP and UDP."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(descriptor, (",".join(COLUMNS) + "\n").encode())
        for first in range(0, count, ROWS_AT_ONCE):
            rows = min(ROWS_AT_ONCE, count - first)
            columns = _numbers(first, rows) | _texts(first, rows)
            _rows.write(descriptor, [columns[name] for name in COLUMNS], rows)
    finally:
        os.close(descriptor)


def _stamps(first: int, sizes: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([1, first])
    count = len(sizes)
    times = 10**12 + 5_000 * np.arange(first, first + count)
    stamps = {"created": times}
    for name, (mean, deviation) in zip(STAMPS[1:], _STAGES, strict=True):
        gap = rng.lognormal(mean, deviation, count).astype("i8")
        times = times + gap + (_NS_PER_BYTE * sizes if name == "arrive" else 0)
        stamps[name] = times
    died = rng.random(count) < _DIED
    unseen = {"arrive": died | (rng.random(count) < _NO_ARRIVE)}
    for name in ("arrive", "ready", "read"):
        stamps[name] = np.where(unseen.get(name, died), 0, stamps[name])
    return stamps


def _numbers(first: int, count: int) -> dict[str, np.ndarray]:
    number = np.arange(first, first + count)
    sizes = np.random.default_rng([2, first]).choice(SIZES, count)
    stamps = _stamps(first, sizes)
    reply = number % 2 == 1
    whole = stamps["read"] > 0
    waited = stamps["read"] - stamps["ready"]
    columns = {
        "source_port": np.where(reply, 43049, 41764),
        "destination_port": np.where(reply, 41764, 43049),
        "sequence": 1000 * number + 1,
        "size_bytes": sizes,
        "packets": -(-sizes // 1448),
        "retransmits": np.where(_is_udp(number), BLANK, number % 1000 == 0),
        "hops": np.zeros(count),
        "queue_bytes_at_arrival": number % 3 * 1280,
        "sender_pid": np.where(reply, 14912, 14913),
        "reader_pid": np.where(reply, 14913, 14912),
        "reader_thread": np.where(reply, 14913, 14912),
        "wakeup_ns": np.where(whole, waited // 2, BLANK),
        "probe_statistics": np.where(number % 50 == 0, 1, BLANK),
        **{f"{k}_ns": np.where(v > 0, v, BLANK) for k, v in stamps.items()},
        **{f"{name}_ns": v for name, v in stages_of(stamps).items()},
    }
    return {name: values.astype("i8") for name, values in columns.items()}


def _is_udp(number: np.ndarray) -> np.ndarray:
    return number // 1000 % 2 == 1


def _texts(first: int, count: int) -> dict[str, tuple[np.ndarray, list[str]]]:
    number = np.arange(first, first + count)
    reply = number % 2
    hosts = ["10.203.0.1", "10.203.0.2"]
    ways = [f"latprof-load {arrow} latprof-load:43049" for arrow in ("->", "<-")]
    found = {
        "protocol": (_is_udp(number), ["tcp", "udp"]),
        "source_address": (reply, hosts),
        "destination_address": (1 - reply, hosts),
        "translated": (np.full(count, -1), []),
        "way": (reply, ways),
        "kind": (np.where(reply == 1, REPLY, REQUEST), KINDS),
        "sender_comm": (0 * number, ["latprof-load"]),
        "reader_comm": (0 * number, ["latprof-load"]),
        "reader_thread_comm": (0 * number, ["latprof-load"]),
    }
    return {name: (codes.astype("i4"), words) for name, (codes, words) in found.items()}
