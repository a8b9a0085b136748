"""A mesh's tests as TMSN's stress test logs them (`latprof_analysis.read.tmsn`)."""

from __future__ import annotations

from collections.abc import Sequence

from latprof_analysis.study.mesh import Cell, HostCounts, PairTrips, host_counts

_NS_PER_MS = 1_000_000


def tmsn_log(
    tests: Sequence[tuple[int, Cell, PairTrips]],
    hosts: Sequence[str],
    *,
    star: bool = False,
) -> str:
    """Write tests, each with its number from 1, in their order.

    The first host is the one that logs; lines of the others, which it gets by TMSN's
    heartbeats, are as of the test's end. In a star nobody else sends: means are over
    echoes.
    """
    lines, last = ["running 1 test"], 0
    for number, cell, trips in tests:
        if number != last:
            lines.append(f"start new test, {number - 1}")
        last = number
        ms = f"{cell.interval_ns / _NS_PER_MS:g}"
        lines.append(f"load_size,{cell.size_bytes},pkg_interval,{ms}")
        names = ["local", *hosts[1:]]
        counts = host_counts(trips, len(hosts))
        lines += (
            f"stress perf,{cell.size_bytes},{name},{_perf(host, star)}"
            for name, host in zip(names, counts, strict=True)
        )
    return "\n".join([*lines, ""])


def _perf(host: HostCounts, star: bool) -> str:
    """Write a machine's counts, sums of times in us, and averages as TMSN divides."""
    msg, hb = (host.msg_echo, host.hb_echo) if star else (host.msg, host.hb)
    averages = _average(host.msg_us, msg), _average(host.hb_us, hb)
    return ",".join(map(str, (host.total, *host, *averages)))


def _average(sum_us: int, received: int) -> str:
    if not received:
        return "inf" if sum_us else "NaN"
    return repr(sum_us / received)
