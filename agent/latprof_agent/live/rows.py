"""What a window says of each group, and which group hurts most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from latprof_agent.live.figures import Figure, Figures
from latprof_agent.live.names import EXCHANGE, NETWORK_RTT, PATH, group_name
from latprof_agent.monitor.totals import (
    Counted,
    Fit,
    Group,
    GroupTotals,
    Quantity,
    Totals,
)

# What a lost packet costs that nothing sends again sooner: the least timeout of
# Linux' TCP (TCP_RTO_MIN), and what waits for a datagram waits longer still.
LOSS_SECONDS = 0.2
WAITS = tuple(q for q in PATH if q != Quantity.END_TO_END)
_AFTER_TIMEOUT = ("timeout", "handshake")


@dataclass(frozen=True)
class Row:
    """One group in one window."""

    group: Group
    totals: GroupTotals
    figures: dict[Quantity, Figure]
    seconds: float
    fits: dict[Quantity, Fit]

    @cached_property
    def name(self) -> str:
        return group_name(self.group)

    def rate(self, *counted: Counted) -> float:
        """Return how many of these there were a second."""
        n = sum(self.totals.counted[each] for each in counted)
        return n / self.seconds if self.seconds > 0 else 0.0

    def error(self, *counted: Counted) -> float:
        """Return the standard error of what these counted, as a share of it."""
        n = sum(self.totals.counted[each] for each in counted)
        return self.totals.error(*counted) / n if n else 0.0

    @property
    def bits_per_second(self) -> float:
        return 8 * self.rate(Counted.SENT_BYTES, Counted.RECEIVED_BYTES)

    @property
    def dropped(self) -> int:
        return self.totals.drops.total()

    @property
    def resent(self) -> int:
        return self.totals.retransmits.total()

    @property
    def dropped_by_place(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for drop, packets in self.totals.drops.items():
            found[drop.place] += packets
        return found

    @cached_property
    def exchange(self) -> Figure | None:
        """Response time where a client's end was seen, else server time."""
        return self._first(EXCHANGE)[1]

    @cached_property
    def network_rtt(self) -> tuple[Quantity | None, Figure | None]:
        """The network RTT of the best source, and which."""
        return self._first(NETWORK_RTT)

    @cached_property
    def worst(self) -> Quantity | None:
        """What lost most time; where nothing did, the stage of the largest mean."""
        slow = {q: f.slow_ns for q, f in self.figures.items() if f.slow_ns}
        order: dict[Quantity, float] = slow or {
            q: f.mean_ns for q, f in self.figures.items() if q in WAITS
        }
        return max(order, key=lambda quantity: order[quantity], default=None)

    @cached_property
    def hurt(self) -> float:
        """Seconds lost in each second: the order of the table.

        What took over `SLOW` times the median of its quantity counts with its time
        beyond that median, of the quantity where this is most: one wait may show in
        several. To it come LOSS_SECONDS for each segment that was sent again after
        a timeout, and for each packet dropped that no segment made good. What was
        sent again sooner costs what the times of its messages show.
        """
        if self.seconds <= 0:
            return 0.0
        slow = max((f.slow_ns for f in self.figures.values()), default=0.0) / 1e9
        late = sum(self.totals.retransmits[cause] for cause in _AFTER_TIMEOUT)
        gone = max(0, self.dropped - self.resent)
        return (slow + LOSS_SECONDS * (late + gone)) / self.seconds

    @property
    def is_empty(self) -> bool:
        t = self.totals
        return not (self.figures or t.drops or t.retransmits or any(t.counted.values()))

    def _first(
        self, wanted: tuple[Quantity, ...]
    ) -> tuple[Quantity | None, Figure | None]:
        found = next((q for q in wanted if q in self.figures), None)
        return found, self.figures[found] if found else None


def rows_of(window: Totals, figures: Figures) -> list[Row]:
    """Return a row for each group in which anything happened."""
    fits: dict[Group, dict[Quantity, Fit]] = {}
    for (group, quantity), fit in window.fits.items():
        fits.setdefault(group, {})[quantity] = fit
    rows = (
        Row(group, of, figures[group], window.own.seconds, fits.get(group, {}))
        for group, of in window.groups.items()
    )
    return [row for row in rows if not row.is_empty]


def _p50(figure: Figure | None) -> float:
    return (figure and figure.quantile("p50")) or 0.0


# By name; the largest comes first, or the first in the alphabet.
SORTS: dict[str, Callable[[Row], float]] = {
    "hurt": lambda row: row.hurt,
    "exchange": lambda row: _p50(row.exchange),
    "network RTT": lambda row: _p50(row.network_rtt[1]),
    "exchanges": lambda row: row.rate(Counted.EXCHANGES),
    "messages": lambda row: row.rate(Counted.SENT_MESSAGES, Counted.RECEIVED_MESSAGES),
    "bits": lambda row: row.bits_per_second,
    "lost": lambda row: row.dropped + row.resent,
    "name": lambda row: 0.0,
}


def ordered(rows: list[Row], sort: str, *, backwards: bool = False) -> list[Row]:
    """Sort rows; equal ones by name."""
    last_first = backwards and sort == "name"
    by_name = sorted(rows, key=lambda row: (row.name, row.group), reverse=last_first)
    return sorted(by_name, key=SORTS[sort], reverse=not backwards)
