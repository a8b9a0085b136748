"""How much of the traffic is sampled: as much as the agent can afford to join."""

from __future__ import annotations

import math
from dataclasses import dataclass

RECORDS_PER_SECOND = 2_000.0
# To join one takes so much; a part of what is allowed at most is spent on it.
RECORD_SECONDS = 10e-6
ALLOWED_SHARE = 1 / 10
# More at once than the rings hold until they are drained would be lost.
BURST_PER_SECOND = 5_000.0
# The blocks of small messages that are next to each other are chosen together.
SMALLEST_BLOCK_BITS = 8
SMALLEST_PERIOD_BITS = 16
FIRST_HALVINGS = 6
MOST_HALVINGS = 30


@dataclass
class SampleRate:
    """One message in 2**halvings is sampled; `allowance` is CPUs' worth of time."""

    allowance: float = math.inf
    halvings: int = FIRST_HALVINGS

    def bits(self) -> tuple[int, int]:
        """Of the block that is chosen in each period, and of the period."""
        block = max(SMALLEST_PERIOD_BITS - self.halvings, SMALLEST_BLOCK_BITS)
        return block, block + self.halvings

    def adapt(self, records: int, seconds: float, covered: float) -> bool:
        """Follow the traffic: so many records came while so much time was covered.

        True where the rate has changed.
        """
        if not seconds:
            return False
        afforded = self.allowance * ALLOWED_SHARE / RECORD_SECONDS
        load = records / seconds / min(RECORDS_PER_SECOND, afforded)
        if covered:
            load = max(load, records / covered / BURST_PER_SECOND)
        before = self.halvings
        if load > 1:
            self.halvings += math.ceil(math.log2(load))
        elif load < 1 / 4:
            self.halvings -= 1
        self.halvings = min(max(self.halvings, 0), MOST_HALVINGS)
        return self.halvings != before
