"""Figures as text for people: three or four digits and a unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NS_PER_SECOND = 1e9
NOT_ENOUGH = "-"
_TIMES = (("s", NS_PER_SECOND), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))
_MULTIPLES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_RATES = (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0))

Write = Callable[[float, int], str]


def _scaled(value: float, units: tuple[tuple[str, float], ...], digits: int) -> str:
    seen = abs(float(f"{value:.{max(digits, 3)}g}"))  # 999.7 us are 1.00 ms
    unit, size = next((u for u in units if seen >= u[1]), units[-1])
    return f"{_digits(value / size, digits)} {unit}"


def _digits(value: float, digits: int) -> str:
    """Write so many digits, trailing zeros too, but whole numbers as they are."""
    if value == int(value):
        return str(int(value))
    before = len(str(int(abs(float(f"{value:.{digits}g}")))))  # 9.97 is 10, not 10.0
    return f"{value:.{max(0, digits - before)}f}"


def duration(ns: float | None, digits: int = 3) -> str:
    """Write a duration in ns."""
    return NOT_ENOUGH if ns is None else _scaled(ns, _TIMES, digits)


def rate(bits_per_second: float | None, digits: int = 4) -> str:
    """Write a rate in bit/s."""
    if bits_per_second is None:
        return NOT_ENOUGH
    return _scaled(bits_per_second, _RATES, digits)


def percent(share: float | None) -> str:
    """Write a share of the whole."""
    return NOT_ENOUGH if share is None else f"{100 * share:.1f}%"


def short_duration(ns: float | None) -> str:
    """Write a duration in ns where there is little room: two digits, or three.

    Examples
    --------
    >>> [short_duration(ns) for ns in (1_370_000, 999_400, 999_700, 9_970, 40, None)]
    ['1.4ms', '999us', '1.0ms', '10us', '40ns', '-']
    """
    return duration(ns, 2).replace(" ", "")


def short_percent(share: float | None) -> str:
    """Write a share of the whole in percent, without the sign.

    Examples
    --------
    >>> [short_percent(share) for share in (0.928, 0.004, 0.0, 1.0, None)]
    ['93', '0.4', '0', '100', '-']
    """
    if share is None:
        return NOT_ENOUGH
    value = 100 * share
    return f"{value:.1f}" if 0.05 <= value < 1 else f"{value:.0f}"


def short_number(value: float | None) -> str:
    """Write a number where there is little room: two digits, or three; hundredths.

    Examples
    --------
    >>> [short_number(n) for n in (0, 7, 0.25, 640, 1250, 99_960, 3_200_000, None)]
    ['0', '7', '0.25', '640', '1.2k', '100k', '3.2M', '-']
    """
    if value is None:
        return NOT_ENOUGH
    if 0 < abs(value) < 1:
        return f"{value:.2f}"
    return _scaled(value, _MULTIPLES, 2).replace(" ", "")


def with_interval(
    estimate: dict[str, Any] | None, write: Write, scale: float = 1.0
) -> str:
    """Write an estimate with its interval, the unit once where it is the same."""
    if not estimate:
        return NOT_ENOUGH
    texts = [write(estimate[key] * scale, 4) for key in ("value", "low", "high")]
    units = {text.split()[1] for text in texts}
    low, high = texts[1:]
    if len(units) == 1:
        low, high = (text.split()[0] for text in texts[1:])
    return f"{texts[0]} [{low}, {high}]"


def rate_span(low: float, high: float | None) -> str:
    """Write from which rate to which, the unit once where it is the same.

    Examples
    --------
    >>> rate_span(98.66e6, 101.84e6), rate_span(998e6, 1002e6), rate_span(5e9, None)
    ('98.66 to 101.8 Mbit/s', '998 Mbit/s to 1.002 Gbit/s', '5 Gbit/s or more')
    """
    if high is None:
        return f"{rate(low)} or more"
    first, last = rate(low), rate(high)
    if first.split()[1] == last.split()[1]:
        first = first.split()[0]
    return f"{first} to {last}"


def counts(found: dict[str, int]) -> str:
    """Name what is not zero."""
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in found.items() if n)


def plural(n: int, noun: str) -> str:
    """Count a noun."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def printable(text: str, width: int = 5000) -> str:
    """Return a text as one line that a terminal does not act on, and not too long.

    What is no visible character (controls, changes of direction, no width, half of
    a pair) becomes a question mark. Any path is shorter than the usual width.

    Examples
    --------
    >>> printable("run\\x1b[2J\\u202eA")
    'run?[2J?A'
    """
    safe = "".join(c if c.isprintable() else "?" for c in text)
    return safe if len(safe) <= width else safe[: width - 3] + "..."


def percentile_name(p: float) -> str:
    """Name a percentile.

    Examples
    --------
    >>> percentile_name(0.5), percentile_name(0.999)
    ('p50', 'p99.9')
    """
    return f"p{round(100 * p, 6):g}"
