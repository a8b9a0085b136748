"""Figures as text for people, by the same rules everywhere.

What was measured has three digits, a rate four, and so many that an interval has two
ends; what somebody chose has no digits that say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

NS_PER_SECOND = 1e9
NOT_ENOUGH = "-"
_TIMES = (("s", NS_PER_SECOND), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))
_MULTIPLES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_RATES = (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0))

_MOST_DIGITS = 8

Write = Callable[[float, int], str]


def _scaled(value: float, units: tuple[tuple[str, float], ...], digits: int) -> str:
    """Write so many digits in the largest unit of which there is one.

    Of the smallest unit, which is what was counted, a whole number is written whole.
    """
    least = max(digits, 3)  # 999.7 us are 1.00 ms, also where there is little room
    found = (u for u in units if abs(float(f"{value / u[1]:.{least}g}")) >= 1)
    unit, size = next(found, units[-1])
    if size == units[-1][1] and value == int(value):
        return f"{int(value)} {unit}"
    return f"{fixed(value / size, digits)} {unit}"


def fixed(value: float, digits: int) -> str:
    """Write so many digits, trailing zeros too, and no sign before a zero.

    Examples
    --------
    >>> [fixed(value, 3) for value in (6, 3.427, 9.997, 120.4, 1234.5, -0.0)]
    ['6.00', '3.43', '10.0', '120', '1234', '0.00']
    """
    before = len(str(int(abs(float(f"{value:.{digits}g}")))))  # 9.997 is 10.0
    text = f"{value:.{max(0, digits - before)}f}"
    return text if float(text) else text.removeprefix("-")


def duration(ns: float | None, digits: int = 3) -> str:
    """Write a duration in ns that was measured.

    Examples
    --------
    >>> [duration(ns) for ns in (702, 6000, 999_700, 2.354, None)]
    ['702 ns', '6.00 us', '1.00 ms', '2.35 ns', '-']
    """
    return NOT_ENOUGH if ns is None else _scaled(ns, _TIMES, digits)


def duration_band(low_ns: float | None, high_ns: float | None) -> str:
    """Write between which durations in ns one lies; None is an end that is open.

    Examples
    --------
    >>> duration_band(4096, 8192), duration_band(8192, None), duration_band(4, 4)
    ('4.10 to 8.19 us', 'above 8.19 us', '4 ns')
    """
    if high_ns is None:
        return NOT_ENOUGH if low_ns is None else f"above {duration(low_ns)}"
    low, high = duration(low_ns or 0), duration(high_ns)
    if low == high:
        return high
    number, unit = low.split(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def rate(bits_per_second: float | None, digits: int = 4) -> str:
    """Write a rate in bit/s that was measured."""
    if bits_per_second is None:
        return NOT_ENOUGH
    return _scaled(bits_per_second, _RATES, digits)


def given_duration(ns: float | None, digits: int = 3) -> str:
    """Write a duration in ns that somebody chose: without digits that say nothing.

    Examples
    --------
    >>> given_duration(1_000_000), given_duration(2_500_000), given_duration(0)
    ('1 ms', '2.5 ms', '0 ns')
    """
    return _bare(duration(ns, digits))


def given_rate(bits_per_second: float | None) -> str:
    """Write a rate in bit/s that somebody chose.

    Examples
    --------
    >>> given_rate(100_000_000), given_rate(1_500_000)
    ('100 Mbit/s', '1.5 Mbit/s')
    """
    return _bare(rate(bits_per_second))


def given_bytes(n: float) -> str:
    """Write bytes with the unit that fits.

    Examples
    --------
    >>> given_bytes(770_400), given_bytes(900), given_bytes(1_250_000)
    ('770 kB', '900 B', '1.25 MB')
    """
    for size, unit in ((1e6, "MB"), (1e3, "kB")):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:.0f} B"


def _bare(text: str) -> str:
    value, space, unit = text.partition(" ")
    return (value.rstrip("0").rstrip(".") if "." in value else value) + space + unit


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
    estimate: Mapping[str, Any] | None, write: Write, scale: float = 1.0
) -> str:
    """Write an estimate with its interval, the unit once where it is the same."""
    if not estimate:
        return NOT_ENOUGH
    value, low, high = (estimate[key] * scale for key in ("value", "low", "high"))
    digits = digits_for(low, high, write, 4)
    texts = [write(end, digits) for end in (value, low, high)]
    units = {text.split()[1] for text in texts}
    first, *ends = texts if len(units) > 1 else [texts[0], *map(_number, texts[1:])]
    return f"{first} [{', '.join(ends)}]"


def digits_for(low: float, high: float, write: Write, least: int) -> int:
    """Return how many digits an interval needs to have two ends."""
    enough = (n for n in range(least, _MOST_DIGITS) if write(low, n) != write(high, n))
    return next(enough, least)


def span(low: float, high: float, write: Write, least: int) -> str:
    """Write from what to what, the unit once where it is the same.

    Examples
    --------
    >>> span(2e6, 3e6, duration, 3), span(2e3, 3e6, duration, 3)
    ('2.00 to 3.00 ms', '2.00 us to 3.00 ms')
    >>> span(1.012e6, 1.012e6, duration, 4)
    '1.012 ms'
    """
    digits = digits_for(low, high, write, least)
    first, last = write(low, digits), write(high, digits)
    if first == last:
        return first
    if first.split()[1] == last.split()[1]:
        first = _number(first)
    return f"{first} to {last}"


def _number(text: str) -> str:
    return text.split(maxsplit=1)[0]


def rate_span(low: float, high: float | None) -> str:
    """Write from which rate to which, the unit once where it is the same.

    Examples
    --------
    >>> rate_span(98.66e6, 101.84e6), rate_span(998e6, 1002e6), rate_span(5e9, None)
    ('98.66 to 101.8 Mbit/s', '998.0 Mbit/s to 1.002 Gbit/s', '5.000 Gbit/s or more')
    """
    return f"{rate(low)} or more" if high is None else span(low, high, rate, 4)


def counts(found: dict[str, int]) -> str:
    """Name what is not zero."""
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in found.items() if n)


def plural(n: int, noun: str) -> str:
    """Count a noun."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def counted(n: int, noun: str) -> str:
    """Count a noun of which there may be many: with thousands apart."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint at the word that may have been meant, or nothing."""
    from difflib import get_close_matches

    longer = [k for k in known if len(word) > 2 and k.startswith(word)]
    near = longer[:1] or get_close_matches(word, known, 1)
    return f"; did you mean {near[0]}" if near else ""
