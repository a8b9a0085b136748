"""Datagrams' halves meet by flow and fingerprint.

Of those that are alike each meets the one sent nearest to when it was due, where
others show how long the way takes, and else they meet in their order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


ENOUGH = 16  # datagrams that show how long the way takes
# Around when it was due a datagram looks for its sent half here, nearest first.
NEAR = sorted(range(-8, 9), key=abs)
TIME_BITS = 42  # 73 minutes


def match_datagrams(
    sent: Array, ranges: Array, sent_flow: Array, range_flow: Array, slack_ns: int = 0
) -> tuple[Array, Array]:
    """Return indices of sent halves, and of the ranges that are their partners.

    Stamps of two hosts may be wrong by `slack_ns`. Each occurs once at most. Halves of
    TCP are left out, and what never left its host.
    """
    datagrams = np.flatnonzero((sent["key"] != 0) & (sent["xmit_ns"] != 0))
    received = np.flatnonzero(ranges["key"] != 0)
    # the rest would be sorted for nothing: a flood to a host that is not here
    datagrams = datagrams[_is_in(sent_flow[datagrams], range_flow[received])]
    if not len(datagrams) or not len(received):
        return np.empty(0, "i8"), np.empty(0, "i8")
    sent_keys = _keys(sent["key"][datagrams], sent_flow[datagrams])
    order = _order(sent_keys, sent["xmit_ns"][datagrams])
    datagrams, keys = datagrams[order], sent_keys[order]
    received = received[np.argsort(ranges["arrive_ns"][received], kind="stable")]
    wanted = _keys(ranges["key"][received], range_flow[received])
    low = _places(keys, wanted).clip(max=len(keys) - 1)
    arrive = ranges["arrive_ns"][received].astype("i8") + slack_ns
    xmit = sent["xmit_ns"][datagrams].astype("i8")
    choice = np.where(keys[low] == wanted, low, -1)
    again = np.r_[keys[1:] == keys[:-1], False][low]
    alike = np.flatnonzero((choice >= 0) & again)
    choice[alike] = -1
    choice[(choice >= 0) & (xmit[choice] > arrive)] = -1
    plain = np.flatnonzero(choice >= 0)
    if len(alike):
        group = low[alike], np.searchsorted(keys, wanted[alike], "right")
        if len(plain) >= ENOUGH:
            transit = arrive[plain] - xmit[choice[plain]]
            choice[alike] = _in_time(keys, xmit, *group, arrive[alike], transit)
        else:
            choice[alike] = _in_order(xmit, *group, arrive[alike])
    # of several received halves that are alike the first has the sent half
    found = np.flatnonzero(choice >= 0)
    chosen, first = np.unique(choice[found], return_index=True)
    return datagrams[chosen], received[found[first]]


def _order(keys: Array, xmit: Array) -> Array:
    """Give the order by key, and by time where keys are alike, which few are."""
    order = np.argsort(keys)
    same = keys[order[1:]] == keys[order[:-1]]
    alike = np.flatnonzero(np.r_[same, False] | np.r_[False, same])
    some = order[alike]
    order[alike] = some[np.lexsort((xmit[some], keys[some]))]
    return order


def _places(keys: Array, wanted: Array) -> Array:
    """Where each would stand among sorted keys.

    They are looked up in their order: one after the other in memory, not all over it.
    """
    order = np.argsort(wanted)
    places = np.empty(len(wanted), "i8")
    places[order] = np.searchsorted(keys, wanted[order])
    return places


def _is_in(flow: Array, others: Array) -> Array:
    """Whether flow indices are among others; -1 is one, too. Sorts nothing."""
    table = np.zeros(max(flow.max(initial=-1), others.max(initial=-1)) + 2, bool)
    table[others] = True
    return np.asarray(table[flow])


def _keys(fingerprints: Array, flow: Array) -> Array:
    """Mix a datagram's fingerprint with its flow's index."""
    odd = np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(fingerprints ^ ((flow + 1).astype("u8") * odd))


def _in_order(xmit: Array, low: Array, high: Array, arrive: Array) -> Array:
    """Give each group's n-th to arrive its n-th that was sent; -1 where that is not."""
    by_group = np.argsort(low, kind="stable")
    starts = np.searchsorted(low[by_group], low[by_group])
    choice = np.empty(len(low), "i8")
    choice[by_group] = low[by_group] + np.arange(len(low)) - starts
    inside = choice < high
    choice[~inside] = low[~inside]
    return np.where(inside & (xmit[choice] <= arrive), choice, -1)


def _in_time(
    keys: Array, xmit: Array, low: Array, high: Array, arrive: Array, transit: Array
) -> Array:
    """Give each the free one of its group that was sent nearest to when it was due.

    `transit` is what others took, and none is to take more than twice the longest.
    The IPv4 identification comes round after 65,536 datagrams, so one whose own
    partner was never seen must not take a later one's.
    """
    due = arrive - int(np.median(transit))
    since = arrive - 2 * int(transit.max())
    nearest = _nearest(keys, xmit, low, high, due)
    choice = np.full(len(low), -1, "i8")
    taken = np.zeros(len(xmit), bool)
    for offset in NEAR:
        asking = np.flatnonzero(choice < 0)
        at = nearest[asking] + offset
        inside = (at >= low[asking]) & (at < high[asking])
        asking, at = asking[inside], at[inside]
        free = ~taken[at] & (xmit[at] <= arrive[asking]) & (xmit[at] >= since[asking])
        asking, at = asking[free], at[free]
        order = np.argsort(np.abs(xmit[at] - due[asking]), kind="stable")
        given, first = np.unique(at[order], return_index=True)
        choice[asking[order][first]] = given
        taken[given] = True
    # what a group was given, it has in the order of arrival
    found = np.flatnonzero(choice >= 0)
    found = found[np.argsort(low[found], kind="stable")]
    choice[found] = np.sort(choice[found])
    return choice


def _nearest(keys: Array, xmit: Array, low: Array, high: Array, due: Array) -> Array:
    """Which of each group is nearest to a time; sorted by key, then time."""
    origin, last = xmit.max() - (1 << TIME_BITS) + 1, (1 << TIME_BITS) - 1
    group = np.cumsum(np.r_[0, keys[1:] != keys[:-1]]) << TIME_BITS
    wanted = group[low] | np.clip(due - origin, 0, last)
    right = np.searchsorted(group | np.maximum(xmit - origin, 0), wanted)
    right = np.clip(right, low, high - 1)
    left = np.maximum(right - 1, low)
    nearer = np.abs(xmit[left] - due) <= np.abs(xmit[right] - due)
    return np.asarray(np.where(nearer, left, right))
