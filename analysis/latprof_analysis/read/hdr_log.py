"""HdrHistogram's interval logs (format version 1.2 and 1.3), with V2 histograms.

    #[Histogram log format version 1.3]
    "StartTimestamp","EndTimestamp","Interval_Max","Interval_Compressed_Histogram"
    Tag=GET,0.127,1.003,2.769,HISTFAAAAEV42pNpmSz...

A histogram is base64 of zlib of a header and of counts: each a ZigZag LEB128 number, of
which a negative one stands for so many empty buckets. Counts of several intervals are
added up, by tag. The unit is that of whoever recorded them.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.read.buckets import Buckets
from latprof_analysis.read.paths import numbered_lines
from latprof_analysis.read.result import (
    NS_PER_UNIT,
    ReadError,
    Samples,
    Seen,
    Skipped,
    samples_of_statistics,
)

LATENCY = "a histogram's percentiles, in the unit that was given"
KIND = "latency"
_MATCH = re.compile(
    rb"^#\[Histogram log format version|^(?:Tag=[^,\n]+,)?[\d.]+,[\d.]+,[\d.]+,HIST",
    re.M,
)
_ROW = re.compile(rb"^(?:Tag=([^,\n]{1,200}),)?[\d.]+,[\d.]+,[\d.]+,(HIST[\w+/=]+)\s*$")
_COMPRESSED, _PLAIN = 0x1C849304, 0x1C849303
_HEADER = struct.Struct(">iiiiqqd")
# What a histogram of 5 digits up to an hour in ns unpacks to is less.
_MOST_BYTES = 8 << 20


def matches(seen: Seen) -> bool:
    """Whether a line is one of a log."""
    return bool(_MATCH.search(seen.start))


def read_hdr_log(path: Path, unit: str | None = None) -> Samples:
    """Read a log: ``kind`` is the tag.

    Parameters
    ----------
    unit : {'ns', 'us', 'ms', 's'}, optional
        Of the values that were recorded; without it a ReadError asks for it.
    """
    skipped = Skipped(path)
    found: dict[str, Buckets] = {}
    for line, raw in numbered_lines(path):
        if raw.startswith(b"#") or raw.startswith(b'"'):
            continue
        match = _ROW.match(raw)
        try:
            if match is None:
                raise ValueError("no interval of a histogram log")
            buckets = _decoded(match[2])
        except (ValueError, zlib.error, struct.error, binascii.Error) as error:
            skipped.add(line, f"{error}")
            continue
        if buckets.n:
            kind = match[1].decode("utf-8", "replace") if match[1] else KIND
            found[kind] = _together(found[kind] + buckets) if kind in found else buckets
    skipped.check(len(found), "it has no histogram that holds anything")
    if unit is None:
        raise ReadError(path, "its values have no unit; say it with --unit")
    scale = NS_PER_UNIT[unit]
    scaled = {
        kind: Buckets(scale * one.low_ns, scale * one.high_ns, one.count)
        for kind, one in found.items()
    }
    meta = {"latency": f"{LATENCY}: {unit}"}
    return samples_of_statistics(skipped, "hdr-log", meta, [], histograms=scaled)


def _together(buckets: Buckets) -> Buckets:
    """Add up the counts of equal buckets, so that memory does not grow with the log."""
    ends = np.stack([buckets.low_ns, buckets.high_ns], axis=1)
    unique, index = np.unique(ends, axis=0, return_inverse=True)
    counts = np.zeros(len(unique), np.int64)
    np.add.at(counts, index.ravel(), buckets.count)
    return Buckets(unique[:, 0], unique[:, 1], counts)


def _decoded(text: bytes) -> Buckets:
    """Return the buckets of a compressed histogram, in its own unit."""
    data = base64.b64decode(text, validate=True)
    cookie, length = struct.unpack_from(">ii", data)
    if cookie & ~0xF0 != _COMPRESSED & ~0xF0 or length < 0:
        raise ValueError("no compressed histogram of version 2")
    unpacker = zlib.decompressobj()
    plain = unpacker.decompress(data[8 : 8 + length], _MOST_BYTES)
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise ValueError("its histogram breaks off, or is larger than any")
    cookie, size, shift, digits, least, _most, ratio = _HEADER.unpack_from(plain)
    if cookie & ~0xF0 != _PLAIN & ~0xF0 or not 0 <= digits <= 5 or least < 1:
        raise ValueError("no histogram of version 2")
    if shift or ratio != 1.0 or size < 0:
        raise ValueError("a histogram that is shifted, or not of whole numbers")
    counts, at = _counts(plain[_HEADER.size : _HEADER.size + size])
    low, high = _ends(at, digits, least)
    return Buckets(low, high, counts)


def _counts(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the counts that are not 0, and their places."""
    counts: list[int] = []
    places: list[int] = []
    at = value = shift = 0
    for byte in data:
        # of nine bytes the last has eight bits of its own
        value |= (byte if shift == 56 else byte & 0x7F) << shift
        shift += 7
        if byte & 0x80 and shift <= 56:
            continue
        number = (value >> 1) ^ -(value & 1)
        if number < 0:
            at -= number
        else:
            if number:
                counts.append(number)
                places.append(at)
            at += 1
        value = shift = 0
    if shift or at > 1 << 32:
        raise ValueError("its counts break off")
    return np.array(counts, np.int64), np.array(places, np.int64)


def _ends(
    at: NDArray[np.int64], digits: int, least: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lowest and highest value of the buckets at places.

    Each octave has as many buckets as hold so many digits; the first has twice that.
    """
    half_bits = int(np.ceil(np.log2(2 * 10**digits))) - 1
    unit_bits = least.bit_length() - 1
    half = 1 << half_bits
    octave = (at >> half_bits) - 1
    within = (at & (half - 1)) + half
    within = np.where(octave < 0, within - half, within)
    octave = np.maximum(octave, 0)
    width = 2.0 ** (octave + unit_bits)
    low = within * width
    return low, low + width - 1
