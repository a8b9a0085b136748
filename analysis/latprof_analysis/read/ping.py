"""ping's text: of iputils, busybox and BSD, in any language, with any option.

A line is a reply; its number says what was lost between. The last lines count what
was sent and received. Without lines of replies (``-q``, ``-f``) their least, mean and
greatest time is all there is. A reply that came twice counts once.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.read.paths import numbered_lines
from latprof_analysis.read.result import (
    Losses,
    Part,
    ReadError,
    Samples,
    Seen,
    Skipped,
    Statistic,
    add_losses,
    samples_of_parts,
)

LATENCY = "round trip time of an ICMP echo, as ping measures it"
_MS = 1e6
# "64 bytes from host (1.2.3.4): icmp_seq=1 ttl=64 time=0.05 ms"; of other languages
# other words, and a decimal comma
_REPLY = re.compile(
    r"^(?:\[\d+\.\d+\] )?(\d{1,6}) [^\W\d]+ [^\W\d]+ .{1,300}?: "
    r"(?:icmp_)?seq=(\d{1,9})\b(?:.*?[^\W\d]+=(\d{1,9}(?:[.,]\d{1,9})?) ms)?(.*)"
)
_TARGET = re.compile(r"^PING6? ?(?:\(.{1,99}--> )?([^\s()]{1,255}?):?(?:[\s(]|$)")
_COUNTED = re.compile(r"^(\d{1,15}) [^\d,]+, (\d{1,15})\b[^\d,]*,.*%")
_DUPLICATES = re.compile(r"\+(\d{1,15}) dup")
_NUMBER = r"(\d{1,9}(?:[.,]\d{1,9})?)"
_TIMES = re.compile(rf"min/avg/max\S* = {_NUMBER}/{_NUMBER}/{_NUMBER}")
_MATCH = re.compile(
    rb"^PING |^(?:\[\d+\.\d+\] )?\d+ \S+ \S+ [^\n]{1,300}: (?:icmp_)?seq=\d+ ", re.M
)
# The number in a packet has 16 bits.
_WRAP = 1 << 16
_CUT = "ping's last lines are missing: what it sent behind its last reply is not known"


@dataclass
class _Test:
    """What one ping said."""

    target: str = "ping"
    whole: bool = False  # from its first line
    numbers: array[int] = field(default_factory=lambda: array("q"))
    times_ms: array[float] = field(default_factory=lambda: array("d"))
    size_bytes: int | None = None
    duplicates: int = 0
    counted: tuple[int, int] | None = None
    statistics_ms: tuple[float, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.numbers or self.counted)

    @property
    def losses(self) -> Losses | None:
        """What ping counted; None where it did not, or more came than it had sent."""
        sent, received = self.counted or (-1, 0)
        return Losses(sent, sent - received) if sent >= received else None


def matches(seen: Seen) -> bool:
    """Whether a line looks as one of ping's."""
    return bool(_MATCH.search(seen.start))


def read_ping(path: Path) -> Samples:
    """Read what ping printed, also of several one after another.

    ``kind`` is the target. Of each that was sent there is a row, in this order, as
    far as its lines and its count agree. ``meta["duplicates"]`` are left out.
    """
    skipped = Skipped(path)
    tests = _tests(path, skipped)
    losses: dict[str, Losses] = {}
    silent: set[str] = set()
    parts: list[Part] = []
    statistics: list[Statistic] = []
    for test in tests:
        if test.numbers:
            times_ns, counted = _in_order(test)
            parts.append(Part(test.target, times_ns, test.size_bytes))
        else:
            counted = test.losses
            statistics += _statistics(test)
        if counted is None:
            silent.add(test.target)
        else:
            add_losses(losses, test.target, *counted)
    meta: dict[str, Any] = {
        "latency": LATENCY,
        "duplicates": sum(test.duplicates for test in tests),
        "reply_modes": {test.target: "echo" for test in tests},
    }
    if not all(test.counted for test in tests):
        meta["notes"] = [_CUT]
    losses = {kind: one for kind, one in losses.items() if kind not in silent}
    return samples_of_parts(skipped, "ping", meta, parts, statistics, losses=losses)


def _tests(path: Path, skipped: Skipped) -> list[_Test]:
    """Return what each ping said that said anything."""
    tests = [_Test()]
    for line, raw in numbered_lines(path):
        text = raw.decode("utf-8", "replace").strip("\r\n")
        if match := _TARGET.match(text):
            tests.append(_Test(match[1], whole=True))
        elif match := _REPLY.match(text):
            if match[3] is None:
                skipped.add(line, "a reply without a time")
            else:
                _add(tests[-1], match)
        elif match := _COUNTED.match(text):
            tests[-1].counted = int(match[1]), int(match[2])
        elif match := _TIMES.search(text):
            tests[-1].statistics_ms = tuple(map(_number, match.groups()))
    skipped.check(sum(len(test.numbers) for test in tests))
    found = [test for test in tests if not test.is_empty]
    if not found:
        raise ReadError(path, "ping printed neither replies nor what it had sent")
    return found


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def _add(test: _Test, reply: re.Match[str]) -> None:
    if "DUP" in reply[4]:
        test.duplicates += 1
        return
    number = int(reply[2])
    if test.numbers:
        # the nearest to the one before of all that end in these 16 bits
        number += round((test.numbers[-1] - number) / _WRAP) * _WRAP
    test.numbers.append(number)
    test.times_ms.append(_number(reply[3]))
    test.size_bytes = int(reply[1])


def _statistics(test: _Test) -> Iterator[Statistic]:
    """Give the statistics of a test of which no reply was printed."""
    received = test.counted[1] if test.counted else None
    for name, ms in zip(("min", "mean", "max"), test.statistics_ms, strict=False):
        yield Statistic(test.target, name, _MS * ms, received)


def _in_order(test: _Test) -> tuple[NDArray[np.float64], Losses | None]:
    """Return the times in ns in the order sent, NaN where lost, and what was lost.

    Without the lines of all replies what was lost has no place.
    """
    numbers, times_ns = np.array(test.numbers), _MS * np.array(test.times_ms)
    first = int(numbers.min())
    if test.whole:  # iputils counts from 1, others from 0
        first = min(first, 1)
    length = int(numbers.max()) + 1 - first
    counted = test.losses
    if test.counted:
        fits = counted is not None and length <= counted.sent
        length = test.counted[0] if fits and test.counted[1] == numbers.size else 0
    if not 0 < length <= 2 * numbers.size + _WRAP:
        return times_ns[np.argsort(numbers, kind="stable")], counted
    placed = np.full(length, np.nan)
    placed[numbers - first] = times_ns
    found = Losses(length, int(np.isnan(placed).sum()))
    return placed, found if test.counted or test.whole else None
