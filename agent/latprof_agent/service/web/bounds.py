"""How much clients may ask for: each by its requests, all together by CPU time."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from selectors import EpollSelector, SelectorKey

_MOST_CLIENTS = 1024
_NETWORK_BITS = 64  # of IPv6: one host may have all addresses of its network


@dataclass
class Bucket:
    """So many requests may come at once; then one follows as another is over."""

    most: float
    per_second: float
    _left: float = field(init=False)
    _at: float = field(init=False)

    def __post_init__(self) -> None:
        self._left, self._at = self.most, time.monotonic()

    def take(self) -> bool:
        """Take one, if there is one."""
        now = time.monotonic()
        self._left = min(self.most, self._left + (now - self._at) * self.per_second)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Clients:
    """A bucket for each client: those of the newest that asked."""

    def __init__(self, most: float, per_second: float) -> None:
        self._most, self._per_second = most, per_second
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, client: str) -> bool:
        """Take one of this client's requests, if there is one."""
        if client not in self._buckets:
            self._buckets[client] = Bucket(self._most, self._per_second)
        self._buckets.move_to_end(client)
        if len(self._buckets) > _MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return self._buckets[client].take()


def client_of(address: str) -> str:
    """Name whom an address belongs to: of IPv6 it is a network.

    Examples
    --------
    >>> client_of("::ffff:192.0.2.1"), client_of("2001:db8::7%eth1")
    ('192.0.2.1', '2001:db8::')
    """
    found = ip_address(address.partition("%")[0])
    if not isinstance(found, IPv6Address):
        return address
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    rest = 128 - _NETWORK_BITS
    return str(IPv6Address(int(found) >> rest << rest))


class PacedSelector(EpollSelector):
    """Has its thread rest so long that it takes no more than a share of one CPU.

    The bound holds whatever clients do, as all that they cause comes by an event. What
    was not used is kept for later, up to `burst_seconds`.
    """

    def __init__(self, share: float, burst_seconds: float) -> None:
        super().__init__()
        self._share = share
        self._burst = self._credit = burst_seconds
        self._paid: tuple[float, float] | None = None  # until when, and CPU time then
        self._hurry = threading.Event()

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Wait for events; the thread's own rest comes first."""
        self._pay()
        return super().select(timeout)

    def hurry(self) -> None:
        """Rest no more; from any thread."""
        self._hurry.set()

    def _pay(self) -> None:
        now, used = time.monotonic(), time.thread_time()
        if self._paid:
            earned = (now - self._paid[0]) * self._share
            self._credit += earned - (used - self._paid[1])
            self._credit = min(self._credit, self._burst)
        self._paid = now, used
        if self._credit < 0.0:
            self._hurry.wait(-self._credit / self._share)
