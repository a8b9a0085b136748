"""Values with units on the command line: rates, times, sizes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

_VALUE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z/]*)")
_RATES = {"": 1, "bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_SIZES = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6}
_SIZES |= {"kib": 1 << 10, "mib": 1 << 20}
_MOST_DIGITS = 18  # more could not be held in 64 bits

RING_BYTES = 1 << 12, 1 << 30


def _value(text: str, units: dict[str, int], what: str) -> int:
    found = _VALUE.fullmatch(text.strip())
    unit = found[2].lower().removesuffix("/s") if found else ""
    if not found or unit not in units or len(text) > _MOST_DIGITS:
        names = ", ".join(name for name in units if name)
        raise argparse.ArgumentTypeError(
            f"must be {what}, a number and one of {names}, got {text!r}"
        )
    return round(float(found[1]) * units[unit])


def rate(text: str) -> int:
    """100mbit, 1gbit, 64000: bits per second."""
    return _value(text, _RATES, "a rate")


def time_ns(text: str) -> int:
    """1ms, 250us, 1.5s: nanoseconds."""
    if text.strip() == "0":
        return 0
    return _value(text, _TIMES, "a time")


def interval_ns(text: str) -> int:
    """Read a time above 0 and within a minute, in nanoseconds."""
    value = time_ns(text)
    if not 1 <= value <= 60 * 10**9:
        raise argparse.ArgumentTypeError(f"must be from 1ns to 60s, got {text}")
    return value


def size(text: str) -> int:
    """64, 64k, 1MiB: bytes."""
    return _value(text, _SIZES, "a size")


def sizes(text: str) -> tuple[int, ...]:
    """Sizes with commas between, each once."""
    found = tuple(size(part) for part in text.split(","))
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"must name each size once, got {text}")
    return found


def ring_bytes(text: str) -> int:
    """Read a size that a ring can have."""
    value = size(text)
    low, high = RING_BYTES
    if not low <= value <= high or value & (value - 1):
        raise argparse.ArgumentTypeError(
            f"must be a power of two from {low} to {high} bytes, got {text}"
        )
    return value


def ports(text: str) -> tuple[int, ...]:
    """Read up to 8 ports, with commas between."""
    one = number(1, 65535)
    found = tuple(int(one(part)) for part in text.split(","))
    if len(found) > 8:
        raise argparse.ArgumentTypeError(f"must be at most 8 ports, got {len(found)}")
    return found


def number(low: float, high: float, kind: type = int) -> Callable[[str], float]:
    """Make a converter for numbers of a range."""

    def convert(text: str) -> float:
        try:
            value: float = kind(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f"must be from {low} to {high}, got {text}"
            )
        return value

    return convert
