"""Values on the command line: rates, times, sizes, shares, each with its unit.

A reader takes the text and returns the value, or raises `ArgumentTypeError` with
"must be <what>, got <text>", which the parser puts behind the option's name.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from decimal import Decimal
from typing import TypeVar

_T = TypeVar("_T")
_N = TypeVar("_N", int, float)

_VALUE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z%/]*)")
_RATES = {"": 1, "bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9}
_TIMES |= {"h": 3600 * 10**9}
_SIZES = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6}
_SIZES |= {"g": 10**9, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_MOST_DIGITS = 18  # more could not be held in 64 bits
_NS_PER_SECOND = 10**9

RING_BYTES = 1 << 12, 1 << 30


def _refuse(what: str, text: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"must be {what}, got {text!r}")


def _value(text: str, units: dict[str, int], what: str) -> int:
    found = _VALUE.fullmatch(text.strip())
    unit = found[2].lower().removesuffix("/s") if found else ""
    if not found or unit not in units or len(text) > _MOST_DIGITS:
        raise _refuse(what, text)
    return round(Decimal(found[1]) * units[unit])


def rate(text: str) -> int:
    """100mbit, 1gbit, 64000: bits per second."""
    return _value(text, _RATES, "a rate like 64kbit, 100mbit or 2gbit")


def time_ns(text: str) -> int:
    """1ms, 250us, 1.5s, 0: nanoseconds."""
    units = _TIMES | ({"": 1} if text.strip() == "0" else {})
    return _value(text, units, "a time like 250us, 5ms or 2s")


def signed_time_ns(text: str) -> int:
    """1ms, -250us: nanoseconds."""
    bare = text.strip()
    return -time_ns(bare[1:]) if bare.startswith("-") else time_ns(bare)


def duration_seconds(text: str) -> float:
    """10s, 500ms, 2min, or seconds without a unit."""
    units = _TIMES | {"": _NS_PER_SECOND}
    return _value(text, units, "a time like 10s, 500ms or 2min") / _NS_PER_SECOND


def size(text: str) -> int:
    """64, 64k, 1MiB: bytes."""
    return _value(text, _SIZES, "a size like 18, 64k or 1MiB")


def share(text: str) -> float:
    """1%, 0.01: a part of the whole. Only a percentage can be more than that.

    A 5 without a unit would be read as 5% by some and as 500% by others.
    """
    found = _VALUE.fullmatch(text.strip())
    number, unit = (Decimal(found[1]), found[2]) if found else (Decimal(0), "?")
    if unit not in ("", "%") or (not unit and number > 1) or len(text) > _MOST_DIGITS:
        raise _refuse("a share like 1% or 0.01", text)
    return float(number / 100 if unit else number)


def count(text: str) -> int:
    """Read a whole number."""
    if not re.fullmatch(r"[0-9]{1,19}", text.strip()):
        raise _refuse("a whole number", text)
    return int(text)


def number(text: str) -> float:
    """Read a number."""
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", text.strip()):
        raise _refuse("a number like 3 or 1.5", text)
    return float(text)


def within(read: Callable[[str], _N], low: str, high: str) -> Callable[[str], _N]:
    """Make a reader that also refuses what is out of bounds, which it reads itself."""
    least, most = read(low), read(high)

    def convert(text: str) -> _N:
        value = read(text)
        if not least <= value <= most:
            raise _refuse(f"from {low} to {high}", text)
        return value

    return convert


def listed(read: Callable[[str], _T]) -> Callable[[str], tuple[_T, ...]]:
    """Make a reader of several values with commas between, each once."""

    def convert(text: str) -> tuple[_T, ...]:
        found = tuple(read(part) for part in text.split(","))
        if len(set(found)) < len(found):
            raise _refuse("different values with commas between", text)
        return found

    return convert


def either(word: str, read: Callable[[str], _T]) -> Callable[[str], _T | str]:
    """Make a reader that also takes one word as it is."""

    def convert(text: str) -> _T | str:
        if text == word:
            return word
        try:
            return read(text)
        except argparse.ArgumentTypeError as error:
            message = str(error).replace("must be ", f"must be {word} or ", 1)
            raise argparse.ArgumentTypeError(message) from error

    return convert


sizes = listed(size)

FULL = "full"  # of a reply: as long as its request


def words(text: str) -> tuple[str, ...]:
    """Words with commas between."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def percentiles(text: str) -> tuple[float, ...]:
    """p50,p99.9: fractions."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"p?([0-9]{1,2}(?:\.[0-9]{1,6})?)", part.strip())
        if not match or not 0 < float(match[1]) < 100:
            raise _refuse("percentiles like p50,p99.9", text)
        found.append(round(float(match[1]) / 100, 9))
    return tuple(dict.fromkeys(found))


def ring_bytes(text: str) -> int:
    """Read a size that a ring can have."""
    value = size(text)
    low, high = RING_BYTES
    if not low <= value <= high or value & (value - 1):
        raise _refuse(f"a power of two from {low} to {high} bytes", text)
    return value


port = within(count, "1", "65535")
ports = listed(port)
