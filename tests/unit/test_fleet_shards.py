"""Shards of a fleet: each pair of hosts has one, which asks both."""

from __future__ import annotations

from itertools import combinations

import pytest
from latprof_agent.fleet.shards import Shard
from latprof_agent.service.config import Address

AGENTS = [Address(f"node{n}", 9989) for n in range(60)]


@pytest.mark.parametrize("of", [1, 2, 3, 4, 6, 7, 28])
def test_each_pair_has_one_shard_that_asks_both(of):
    shards = [Shard(number, of) for number in range(of)]
    for one, other in combinations(AGENTS, 2):
        (mine,) = (shard for shard in shards if shard.has(one, other))
        assert mine.has(other, one)
        assert mine.asks(one)
        assert mine.asks(other)


def test_a_shard_asks_no_agent_but_those_of_its_pairs():
    shard = Shard(7, 28)
    assert shard.groups == 7
    asked = [agent for agent in AGENTS if shard.asks(agent)]
    groups = {
        frozenset(other for other in AGENTS if shard.has(one, other)) for one in asked
    }
    assert len(groups) == 2  # of two groups, each has all pairs with the other
    assert sum(map(len, groups)) == len(asked)
    assert 0 < len(asked) < len(AGENTS)
