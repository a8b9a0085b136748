"""What TMSN published of its set-ups: the rows of its machine `local`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_NS_PER_MS = 1_000_000


class Published(NamedTuple):
    """A row of a published table: means over its tests."""

    received: float  # messages, by `local`
    round_trip_us: float


# By hosts and interval, by size: of the first of two logs, where there are two, and of
# the first row of a size that stands there twice.
_ROWS: Mapping[tuple[int, int], Mapping[int, Published]] = {
    (3, 50): {
        1024: Published(200.0, 662.2295),
        5120: Published(200.0, 739.7485),
        10240: Published(200.0, 1240.2325),
        102400: Published(200.0, 1752.8565),
        204800: Published(200.0, 3242.232874),
    },
    (10, 50): {
        1024: Published(900.0, 658.622778),
        5120: Published(900.0, 734.341556),
        10240: Published(900.0, 1284.516111),
        102400: Published(900.0, 1819.284556),
        204800: Published(899.6, 4333.769686),
    },
    (10, 10): {
        1024: Published(900.0, 2850.096528),
        5120: Published(900.0, 693.735079),
        10240: Published(900.0, 1201.930952),
        102400: Published(900.0, 2799.381905),
        204800: Published(900.0, 187150.17127),
    },
}


def published_of(hosts: int, interval_ns: int, size_bytes: int) -> Published | None:
    """Return the row of the same set-up; None where none was published.

    Examples
    --------
    >>> published_of(3, 50_000_000, 1024).received
    200.0
    >>> published_of(3, 10_000_000, 1024)  # 10 ms were between 10 machines only
    """
    interval_ms, rest = divmod(interval_ns, _NS_PER_MS)
    rows = {} if rest else _ROWS.get((hosts, interval_ms), {})
    return rows.get(size_bytes)
