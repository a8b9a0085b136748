"""The highest rate with loss at or below a bound: a binary search over rates.

As RFC 2544 (26.1) finds the throughput of a device, with trials of seconds in place of
a minute. So short a trial could be stored in queues on its way, and lose nothing at a
rate that no link carries: a rate counts only if it came out as fast as it went in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

RESOLUTION = 0.01  # the search ends where its bounds are so close
MOST_TRIALS = 20
# What came may be so much slower than what was sent: the ends of a short trial.
_SLOWER = 0.005


@dataclass(frozen=True)
class Trial:
    """One try; an offered rate of 0 is as fast as it goes."""

    offered_bps: int
    sent_bps: float
    received_bps: float
    loss: float
    places: tuple[str, ...]  # where datagrams died, most of them first

    @property
    def held_back(self) -> bool:
        """Whether less was sent than offered: a queue that is full stops its sender."""
        return self.sent_bps < self.offered_bps * (1 - _SLOWER)

    def passes(self, most_loss: float) -> bool:
        """Whether the rate was sent and carried, and not more than this share lost."""
        least = self.sent_bps * (1 - most_loss - _SLOWER)
        carried = self.loss <= most_loss and self.received_bps >= least
        return carried and not self.held_back


class RateSearch:
    """Rates to try, one after the other, each told by what the last one gave."""

    def __init__(self, most_loss: float) -> None:
        self._most_loss = most_loss
        self.trials: list[Trial] = []
        self._low_bps = 0.0
        self._high_bps = 0.0

    def rates(self) -> Iterator[int]:
        """Yield rates in bit/s, at first 0; each must be `add`ed before the next."""
        yield 0
        if self.trials[0].passes(self._most_loss):
            self._low_bps = self._high_bps = self.trials[0].sent_bps
            return
        # what came is a good guess: less loss leaves more to whoever receives
        guess = min(self.trials[0].received_bps, self._high_bps)
        while self._open():
            yield max(1000, round(guess))
            middle = (self._low_bps + self._high_bps) / 2
            near = guess * (1 + RESOLUTION if self._low_bps else 1 - RESOLUTION)
            between = self._low_bps < near < self._high_bps
            guess = near if between and len(self.trials) == 2 else middle

    def add(self, trial: Trial) -> None:
        """Take in what a rate gave."""
        self.trials.append(trial)
        rate_bps = trial.offered_bps or trial.sent_bps
        if trial.passes(self._most_loss):
            self._low_bps = max(self._low_bps, rate_bps)
        else:
            self._high_bps = min(self._high_bps or rate_bps, rate_bps)

    def _open(self) -> bool:
        apart = self._high_bps - self._low_bps > RESOLUTION * self._high_bps
        return apart and len(self.trials) < MOST_TRIALS

    def as_dict(self) -> dict[str, Any]:
        """Return the highest rate that passed, and what stood above it."""
        passed = [t for t in self.trials if t.passes(self._most_loss)]
        failed = [t for t in self.trials if t not in passed]
        above = min(failed, key=lambda t: t.offered_bps or t.sent_bps, default=None)
        return {
            "most_loss": self._most_loss,
            "rate_bps": max((trial.sent_bps for trial in passed), default=0.0),
            "failed_bps": self._high_bps if failed else None,
            "resolution": RESOLUTION,
            "bound": list(above.places) if above else [],
            "held_back": above is not None and above.held_back,
            "trials": [
                {
                    "offered_bps": trial.offered_bps,
                    "sent_bps": trial.sent_bps,
                    "received_bps": trial.received_bps,
                    "loss": trial.loss,
                    "passed": trial in passed,
                }
                for trial in self.trials
            ],
        }
