"""The table's columns: what each shows, and which of them there is room for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from latprof_analysis.stats.kernel_histogram import edges_ns
from latprof_analysis.text import NOT_ENOUGH, short_duration, short_number

from latprof_agent.live.figures import Figure
from latprof_agent.live.glyphs import SPARK_WIDTH, Glyphs
from latprof_agent.live.names import rtt_source, stage_name
from latprof_agent.live.rows import Row
from latprof_agent.monitor.totals import Counted, Quantity

HOLDS = 0.005  # a standard error that two digits do not show
UNKNOWN = 0.5
LOUD_HURT = 0.05  # seconds lost a second: more than one wait of 50 ms
OF_RANGES = "*"  # behind a figure of readable ranges
_RATE = 4  # 1.2k, ~12k, ~.1M
_NEXT = {"k": "M", "M": "G", "G": "T", "T": "P"}
_PAIR = 11  # 1.4ms/100ms
_NAME_LEAST, _NAME_MOST = 16, 40


@dataclass(frozen=True)
class Column:
    """One column; its cells are `width` wide at most."""

    title: str
    unit: str
    width: int
    cell: Callable[[Row, Glyphs], str]
    to_left: bool = False
    loud: Callable[[Row], bool] = lambda _row: False  # what a reader must not miss

    def laid(self, text: str, glyphs: Glyphs) -> str:
        """Return a text in this column's width."""
        fitting = glyphs.cut(text, self.width)
        return fitting if self.to_left else fitting.strip().rjust(self.width)


def quantile_text(ns: float | None) -> str:
    """Write a quantile in ns; of what is in the first bucket only that is known.

    Examples
    --------
    >>> quantile_text(32.0), quantile_text(1_500.0), quantile_text(None)
    ('<64ns', '1.5us', '-')
    """
    first = float(edges_ns()[1])
    if ns is not None and ns < first:
        return f"<{short_duration(first)}"
    return short_duration(ns)


def estimated(value: float, error: float) -> str:
    """Write a number with the digits that hold, behind a `~` where it is scaled.

    `error` is one standard error, as a share of it. What is not known to a factor of
    two is a dash.

    Examples
    --------
    >>> [estimated(12_345, error) for error in (0.0, 0.03, 0.3, 0.6)]
    ['12k', '~12k', '~10k', '-']
    """
    if error <= HOLDS or not value:
        return short_number(value)
    if error > UNKNOWN:
        return NOT_ENOUGH
    text = short_number(held(value, error)).removeprefix("0")
    if len(text) > _RATE - 1:
        text = short_number(held(value, UNKNOWN)).removeprefix("0")  # one digit
    if len(text) > _RATE - 1:  # 100k
        text = f".{text[0]}{_NEXT[text[-1]]}"
    return f"~{text}"


def held(value: float, error: float) -> float:
    """Round a number to the digits that hold."""
    digits = 1 + max(0, math.floor(-math.log10(2 * error)))
    return round(value, digits - 1 - math.floor(math.log10(abs(value))))


def _rate(*counted: Counted) -> Callable[[Row, Glyphs], str]:
    return lambda row, _glyphs: estimated(row.rate(*counted), row.error(*counted))


def _bits(row: Row, _glyphs: Glyphs) -> str:
    counted = (Counted.SENT_BYTES, Counted.RECEIVED_BYTES)
    return estimated(row.bits_per_second, row.error(*counted))


def pair(figure: Figure | None) -> str:
    """Write p50/p99, a dash where values are too few."""
    if figure is None:
        return NOT_ENOUGH
    p50, p99 = (quantile_text(figure.quantile(name)) for name in ("p50", "p99"))
    return f"{p50}/{p99}" if p50 != NOT_ENOUGH else f"{NOT_ENOUGH} n={figure.n}"


def worst(row: Row) -> str:
    """Name what lost most time, with its p99; another percentile says which it is."""
    if row.worst is None:
        return NOT_ENOUGH
    figure, name = row.figures[row.worst], stage_name(row.worst)
    for percentile in ("p99", "p90", "p50"):
        if (value := figure.quantile(percentile)) is not None:
            which = "" if percentile == "p99" else f"{percentile[1:]}:"
            return f"{name} {which}{quantile_text(value)}"
    return f"{name} n={figure.n}"


def _network_rtt(row: Row, _glyphs: Glyphs) -> str:
    source, figure = row.network_rtt
    if source is None or figure is None:
        return NOT_ENOUGH
    return f"{quantile_text(figure.quantile('p50'))} {rtt_source(source)[0]}"


def lost(row: Row) -> str:
    """Say how many packets were dropped, and where most; else sent again."""
    if row.dropped:
        place, most = row.dropped_by_place.most_common(1)[0]
        more = "+" if most < row.dropped else ""
        return f"{short_number(row.dropped)}{more} {place}"
    return f"{short_number(row.resent)} again" if row.resent else "0"


def _of_stage(row: Row, stage: str) -> tuple[Quantity | None, Figure | None]:
    """Find a stage of messages, else of ranges."""
    for name in (stage, f"range_{stage}"):
        if name in row.figures:
            return Quantity(name), row.figures[Quantity(name)]
    return None, None


def _stage_column(stage: str) -> Column:
    def cell(row: Row, _glyphs: Glyphs) -> str:
        quantity, figure = _of_stage(row, stage)
        of_ranges = quantity is not None and quantity != stage
        return pair(figure) + (OF_RANGES if of_ranges else "")

    return Column(stage, "p50/p99", max(_PAIR + 1, len(stage)), cell)


def _spark_column(stage: str) -> Column:
    def cell(row: Row, glyphs: Glyphs) -> str:
        _, figure = _of_stage(row, stage)
        return glyphs.sparked(figure.shape) if figure else " " * SPARK_WIDTH

    return Column("", "1us..1s", SPARK_WIDTH, cell, to_left=True)


_NAME = Column("group", "", _NAME_LEAST, lambda row, _: row.name, to_left=True)
_LOST = Column(
    "lost", "most at", 9, lambda row, _: lost(row), loud=lambda row: bool(row.dropped)
)
# In the order in which they get room.
_WANTED = (
    Column("worst", "p99, or 90: 50:", 22, lambda row, _: worst(row)),
    Column("exchange", "p50/p99", _PAIR, lambda row, _: pair(row.exchange)),
    Column("net RTT", "p50", 7, _network_rtt),
    Column("exch", "/s", _RATE, _rate(Counted.EXCHANGES)),
    _LOST,
    Column("bit", "/s", _RATE, _bits),
    Column(
        "hurt",
        "s/s",
        _RATE,
        lambda row, _: estimated(row.hurt, row.totals.error_of_all()),
        loud=lambda row: row.hurt > LOUD_HURT,
    ),
    Column("msgs", "/s", _RATE, _rate(Counted.SENT_MESSAGES)),
    *(
        make(stage)
        for stage in ("send_queue", "receive_queue", "qdisc", "receive_stack")
        for make in (_stage_column, _spark_column)
    ),
    *(_stage_column(stage) for stage in ("wakeup", "transit", "end_to_end")),
)
# Left to right; what is not named comes behind.
_PLACES = (
    *("group", "hurt", "worst", "exchange", "net RTT", "exch", "msgs"),
    *("lost", "bit"),
)


def with_whole_losses(rows: Sequence[Row]) -> list[Column]:
    """Return the wanted columns; where that of losses needs more room, it is first."""
    longest = max((len(lost(row)) for row in rows), default=0)
    if longest <= _LOST.width:
        return list(_WANTED)
    others = (column for column in _WANTED if column is not _LOST)
    return [replace(_LOST, width=longest), *others]


def fitting(width: int, wanted: Sequence[Column] = _WANTED) -> list[Column]:
    """Choose and place the columns that there is room for, with a blank between."""
    left = width - _NAME.width
    chosen = []
    for column in wanted:
        if column.width + 1 > left:
            break
        left -= column.width + 1
        chosen.append(column)
    name_width = min(_NAME.width + left, _NAME_MOST) if width > _NAME.width else width
    name = Column("group", "", max(1, name_width), _NAME.cell, to_left=True)
    there = [name, *chosen]
    first = [c for title in _PLACES for c in there if c.title == title]
    return first + [c for c in there if c not in first]
