"""Families as protobuf, which alone has native histograms for Prometheus.

What prometheus_client does not write: MetricFamily of io.prometheus.client, as
github.com/prometheus/client_model has it, each with its length before it. Numbers
here are those of its fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from prometheus_client import Metric
from prometheus_client.samples import Exemplar as Mark

from latprof_agent.service.metrics.buckets import (
    SCHEMA,
    ZERO_THRESHOLD_SECONDS,
    NativeBuckets,
    native,
)
from latprof_agent.service.metrics.families import (
    Family,
    Histograms,
    Labels,
    Row,
    seconds,
)

CONTENT_TYPE = (
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; "
    "encoding=delimited"
)
# MetricType, and the field of Metric that holds its value in a field 1
_TYPES = {"counter": (0, 3), "gauge": (1, 2)}
_HISTOGRAM = 4


def write(families: Iterable[Family]) -> bytes:
    """Write them, histograms with classic and native buckets."""
    return b"".join(_delimited(_family(family)) for family in families)


def _family(family: Family) -> bytes:
    if isinstance(family, Histograms):
        name, kind, metrics = family.name, _HISTOGRAM, _histograms(family)
    else:
        name, (kind, _) = family.name, _TYPES[family.type]
        name += "_total" if family.type == "counter" else ""
        metrics = _plain(family)
    return b"".join(
        (
            _text(1, name),
            _text(2, family.documentation),
            _number(3, kind),
            *(_field(4, metric) for metric in metrics),
            _text(5, family.unit) if family.unit else b"",
        )
    )


def _plain(family: Metric) -> Iterator[bytes]:
    _, place = _TYPES[family.type]
    for sample in family.samples:
        yield _labels(sample.labels) + _field(place, _double(1, sample.value))


def _histograms(family: Histograms) -> Iterator[bytes]:
    edges = [_double(2, float(name)) for name in family.buckets.names]
    rows = iter(family.rows)
    for part in family.counts():
        for counts, own in zip(
            family.buckets.cumulative(part), _natives(native(part)), strict=True
        ):
            yield _histogram(next(rows), counts, edges, own)


def _histogram(row: Row, counts: list[int], edges: list[bytes], own: bytes) -> bytes:
    """Write one, with its native buckets as they are written already."""
    numbers = [_varint(count) for count in counts]
    classic = [
        _CLASSIC[len(number)] + number + edge
        for number, edge in zip(numbers, edges, strict=True)
    ]
    marks = sorted(row.marks.items(), key=lambda item: item[1].timestamp or 0)
    for i, mark in marks[-1:]:
        # of several, which are one series, Prometheus 2.42 drops the older aloud
        classic[i] = _field(3, _number(1, counts[i]) + edges[i] + _mark(3, mark))
    histogram = b"".join(
        (
            _VARINTS[1] + numbers[-1],
            _double(2, seconds(row.histogram.sum_ns)),
            *classic,
            own,
            *[_mark(16, mark) for _, mark in marks],
        )
    )
    return _labels(row.labels) + _field(7, histogram)


def _natives(part: NativeBuckets) -> Iterator[bytes]:
    """Write schema, zero bucket, spans and deltas of each histogram."""
    rows = np.arange(len(part.zero) + 1)
    data, ends = _varints(_zigzag(part.delta))
    delta_ends = ends[np.searchsorted(part.row, rows)].tolist()
    run_ends = np.searchsorted(part.run_row, rows).tolist()
    spans = [
        _span(gap, length)
        for gap, length in zip(
            _zigzag(part.gap).tolist(), part.length.tolist(), strict=True
        )
    ]
    head = _number(5, _zigzag(np.array([SCHEMA])).item())
    head += _double(6, ZERO_THRESHOLD_SECONDS)
    for i, zero in enumerate(part.zero.tolist()):
        yield b"".join(
            (
                head,
                _number(7, zero),
                *spans[run_ends[i] : run_ends[i + 1]],
                _field(13, data[delta_ends[i] : delta_ends[i + 1]]),
            )
        )


def _mark(number: int, mark: Mark) -> bytes:
    whole, part = divmod(round(float(mark.timestamp or 0) * 1e3), 10**3)
    when = _number(1, whole) + _number(2, part * 10**6)
    return _field(
        number, _labels(mark.labels) + _double(2, mark.value) + _field(3, when)
    )


def _labels(labels: Labels) -> bytes:
    return b"".join([_label(name, value) for name, value in labels.items()])


@lru_cache(maxsize=4096)
def _label(name: str, value: str) -> bytes:
    return _field(1, _text(1, name) + _text(2, value))


@lru_cache(maxsize=4096)
def _span(gap: int, length: int) -> bytes:
    return _field(12, _number(1, gap) + _number(2, length))


_ONE_BYTE = [bytes([i]) for i in range(256)]


def _varint(value: int) -> bytes:
    if value < 1 << 7:
        return _ONE_BYTE[value]
    if value < 1 << 14:
        return _ONE_BYTE[value & 0x7F | 0x80] + _ONE_BYTE[value >> 7]
    return _ONE_BYTE[value & 0x7F | 0x80] + _varint(value >> 7)


def _varints(values: NDArray[np.uint64]) -> tuple[bytes, NDArray[np.int64]]:
    """Write them one after the other; gives where each begins, and the end."""
    bits = int(values.max(initial=1)).bit_length()
    shift = np.arange(-(-bits // 7), dtype="u8") * np.uint64(7)
    left = values[:, None] >> shift
    there = left > 0
    there[:, 0] = True
    groups = (left & np.uint64(0x7F)).astype("u1")
    groups[:, :-1] |= there[:, 1:].astype("u1") << 7
    ends = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return groups[there].tobytes(), ends


def _zigzag(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).astype("u8")


def _keys(wire_type: int) -> list[bytes]:
    """Write what stands before a field's value, by the field's number."""
    return [_varint(number << 3 | wire_type) for number in range(17)]


_VARINTS, _FIXED64, _BYTES = _keys(0), _keys(1), _keys(2)
# What begins a classic bucket whose count takes so many bytes, and its edge nine.
_CLASSIC = [_BYTES[3] + _varint(1 + size + 9) + _VARINTS[1] for size in range(11)]


def _delimited(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _field(number: int, data: bytes) -> bytes:
    return _BYTES[number] + _varint(len(data)) + data


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _number(number: int, value: int) -> bytes:
    return _VARINTS[number] + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _FIXED64[number] + struct.pack("<d", value)
