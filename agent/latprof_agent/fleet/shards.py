"""Shares of a fleet: pairs of hosts for each process, and the agents that it asks.

Agents are in groups by a hash of their addresses; a shard has pairs of groups, and asks
the agents of these alone. So each pair of hosts has one shard, of N shards each has an
N-th of the pairs, and asks about sqrt(2/N) of all agents.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from latprof_agent.service.config import Address


class Shard(NamedTuple):
    """One of `of` shards, from 0.

    Examples
    --------
    >>> Shard(0, 28).groups  # 28 pairs of groups, a group with itself included
    7
    """

    number: int = 0
    of: int = 1

    @property
    def groups(self) -> int:
        """Into how many groups agents are divided."""
        count = 1
        while count * (count + 1) // 2 < self.of:
            count += 1
        return count

    def has(self, one: Address, other: Address) -> bool:
        """Whether what is between these two is of this shard."""
        if self.of == 1:
            return True
        return self._has(_group(one, self.groups), _group(other, self.groups))

    def _has(self, one: int, other: int) -> bool:
        least, most = sorted((one, other))
        return (most * (most + 1) // 2 + least) % self.of == self.number

    def asks(self, agent: Address) -> bool:
        """Whether it has any pair of this agent."""
        groups = self.groups
        mine = _group(agent, groups)
        return any(self._has(mine, other) for other in range(groups))


WHOLE = Shard()


def _group(agent: Address, groups: int) -> int:
    digest = hashlib.blake2b(str(agent).encode(), digest_size=8).digest()
    return int.from_bytes(digest) % groups
