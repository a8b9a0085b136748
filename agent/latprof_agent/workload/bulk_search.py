"""The highest rate with loss at or below a bound: a binary search over rates.

As RFC 2544 (26.1) finds the throughput of a device, but by trials of seconds in place
of a minute. So short a trial could be stored in queues on its way, and lose nothing at
a rate that no link carries: a rate counts only if it came out as fast as it went in.
And it may fail by chance, where a few datagrams decide or a host was busy: what bounds
the search at its end is repeated in a longer trial, and where that passes the search
goes on above. At last a longer trial confirms the rate that was found.
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

    seconds: float
    offered_bps: int
    sent_bps: float
    received_bps: float
    loss: float
    places: tuple[str, ...]  # where datagrams died, most of them first

    @property
    def rate_bps(self) -> int:
        """What was offered, or sent where it was as fast as it goes."""
        return self.offered_bps or round(self.sent_bps)

    @property
    def held_back(self) -> bool:
        """Whether less was sent than offered: a queue that is full stops its sender."""
        return self.sent_bps < self.offered_bps * (1 - _SLOWER)

    def passes(self, most_loss: float) -> bool:
        """Whether the rate was sent and carried, and not more than this share lost."""
        least = self.sent_bps * (1 - most_loss - _SLOWER)
        carried = self.loss <= most_loss and self.received_bps >= least
        return carried and not self.held_back

    def as_dict(self, most_loss: float) -> dict[str, Any]:
        """Return what was offered, sent and received, and if it passed."""
        return {
            "seconds": self.seconds,
            "offered_bps": self.offered_bps,
            "sent_bps": self.sent_bps,
            "received_bps": self.received_bps,
            "loss": self.loss,
            "passed": self.passes(most_loss),
        }


class RateSearch:
    """Rates to try, one after the other, each chosen by the result of the last.

    `confirming` says that the rate is found, and what is added next confirms it.
    """

    def __init__(
        self, most_loss: float, trial_seconds: float, confirm_seconds: float
    ) -> None:
        self._most_loss = most_loss
        self._trial_seconds = trial_seconds
        self._confirm_seconds = confirm_seconds
        self.trials: list[Trial] = []
        self.confirming = False
        self._confirmation: Trial | None = None
        self._best: Trial | None = None  # of those that passed
        self._failed: list[Trial] = []  # those above it

    def tries(self) -> Iterator[tuple[int, float]]:
        """Yield rates in bit/s, at first 0, and for how many seconds each.

        Each must be `add`ed before the next.
        """
        yield 0, self._trial_seconds
        if self._failed:
            # what came is a good guess: less loss leaves more to whoever receives
            first = self._failed[0]
            yield from self._narrowed(min(first.received_bps, first.rate_bps))
            yield from self._repeated()
        if self._best:
            self.confirming = True
            yield self._best.offered_bps, self._confirm_seconds

    def _narrowed(self, guess_bps: float) -> Iterator[tuple[int, float]]:
        """Yield a guess, one beside it, and then halves of what is between."""
        first = True
        while self._open():
            yield max(1000, round(guess_bps)), self._trial_seconds
            if not self._failed:
                return  # as fast as it goes failed by chance
            low_bps, high_bps = self._low_bps, self._high_bps
            near = guess_bps * (1 + RESOLUTION if low_bps else 1 - RESOLUTION)
            between = low_bps < near < high_bps
            guess_bps = near if between and first else (low_bps + high_bps) / 2
            first = False

    def _repeated(self) -> Iterator[tuple[int, float]]:
        """Yield the rate that failed above the best, and go on where it passes."""
        while self._best and self._failed and len(self.trials) < MOST_TRIALS:
            yield self._high_bps, self._confirm_seconds
            if self._best is not self.trials[-1]:
                return
            if self._failed:
                yield from self._narrowed(self._low_bps * (1 + RESOLUTION))

    def add(self, trial: Trial) -> None:
        """Take in what a rate gave."""
        if self.confirming:
            self._confirmation = trial
            return
        self.trials.append(trial)
        if trial.passes(self._most_loss):
            self._best = trial
            self._failed = [t for t in self._failed if t.rate_bps > trial.rate_bps]
        else:
            self._failed.append(trial)

    @property
    def _low_bps(self) -> int:
        return self._best.rate_bps if self._best else 0

    @property
    def _high_bps(self) -> int:
        return min(trial.rate_bps for trial in self._failed)

    def _open(self) -> bool:
        apart = self._high_bps - self._low_bps > RESOLUTION * self._high_bps
        return apart and len(self.trials) < MOST_TRIALS

    def as_dict(self) -> dict[str, Any]:
        """Return the highest rate that passed, and what stood above it."""
        most, last = self._most_loss, self._confirmation
        above = min(self._failed, key=lambda trial: trial.rate_bps, default=None)
        return {
            "most_loss": most,
            "rate_bps": self._best.sent_bps if self._best else 0.0,
            "failed_bps": above.rate_bps if above else None,
            "resolution": RESOLUTION,
            "bound": list(above.places) if above else [],
            "held_back": above is not None and above.held_back,
            "trial_seconds": self._trial_seconds,
            "trials": [trial.as_dict(most) for trial in self.trials],
            "confirmation": last.as_dict(most) if last else None,
        }
