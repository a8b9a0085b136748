"""Bulk transfers -> figures: throughput, loss, and where each datagram died.

A run is made of parts: one protocol, with a number of channels, in one direction or
both. `direction_figures` makes figures of what `latprof-load bulk` says of a
direction, `balance` holds what was sent against what came and what was dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.study.setup import packets_of
from latprof_analysis.text import NS_PER_SECOND

# Of a direction, or with a channel's number of one channel of it.
COUNTS = (
    *("sent", "sent_bytes", "received", "received_bytes", "lost", "lost_in_socket"),
    *("socket_drops", "duplicates", "reordered", "extent_max", "loss_runs"),
    *("longest_loss_run", "longest_loss_run_at_most", "retransmits"),
)
BULK_COLUMNS = (
    *("part", "protocol", "channels", "direction", "channel"),
    *("client_average_bps", "client_max_bps", "server_average_bps", "server_max_bps"),
    *COUNTS,
    "receive_buffer_bytes",
)
ALL = "all"  # in the column `channel`: all of them together
SOCKET = "receive buffer"
BETWEEN = "between the hosts"
_ENDS = ("sender", "receiver")
_TOTALS = {"sender": "sent", "receiver": "received"}
# By direction: which program sends, and which receives.
_PROGRAMS = {"up": ("client", "server"), "down": ("server", "client")}

Floats = NDArray[np.float64]


def direction_figures(said: Mapping[str, Any], direction: str) -> dict[str, Any]:
    """Return the figures of one direction of a part.

    Parameters
    ----------
    said : mapping
        As `latprof-load bulk` writes it: ``channels``, each with ``sender`` and
        ``receiver``, None where that end did not report.
    direction : {'up', 'down'}
        Up is from the client to the server.

    Returns
    -------
    dict
        `COUNTS` of all channels; None where an end of one of them did not report.
        ``longest_loss_run`` is exact unless ``longest_loss_run_at_most`` is more:
        of many runs only the first are listed, and of the others it is known to a
        factor of 2.
        ``loss``: the share of what was sent. ``client`` and ``server``:
        ``average_bps`` between their first and last call, ``max_bps`` of a whole
        slot, payload only. ``slots``: ``slot_ns``, and by end the bit/s of each
        slot from when the first channel began. ``by_channel``: the same of each.

    Examples
    --------
    >>> one = {"sent": 4, "received": 3, "lost": 1, "bytes": 5000, "start_ns": 0,
    ...        "first_ns": 1, "last_ns": 10**9 + 1, "slot_ns": 5 * 10**8,
    ...        "slot_bytes": [2000, 3000]}
    >>> said = {"channels": [{"channel": 0, "sender": one, "receiver": one}]}
    >>> up = direction_figures(said, "up")
    >>> up["lost"], up["loss"], up["client"]["average_bps"]
    (1, 0.25, 40000.0)
    """
    channels = said["channels"]
    return {
        **_figures(channels, direction),
        "slots": _slots(channels),
        "by_channel": [
            {"channel": one["channel"], **_figures([one], direction)}
            for one in channels
        ],
    }


def _figures(channels: Sequence[Mapping[str, Any]], direction: str) -> dict[str, Any]:
    counts = {name: _count(channels, name) for name in COUNTS}
    sent, lost = counts["sent"], counts["lost"]
    senders = _halves(channels, "sender")
    receivers = _halves(channels, "receiver")
    programs = zip(_PROGRAMS[direction], (senders, receivers), strict=True)
    buffers = {half.get("receive_buffer_bytes") for half in receivers}
    return {
        **counts,
        "loss": lost / sent if sent and lost is not None else None,
        "receive_buffer_bytes": max(filter(None, buffers), default=None),
        **{program: _throughput(halves) for program, halves in programs},
    }


def _halves(channels: Sequence[Mapping[str, Any]], end: str) -> list[Mapping[str, Any]]:
    """Return what all channels say of an end; nothing where one did not."""
    found = [one[end] for one in channels]
    return found if all(found) else []


def _count(channels: Sequence[Mapping[str, Any]], name: str) -> int | None:
    """Sum up a figure of all channels, or find its maximum."""
    if name in ("sent", "sent_bytes", "retransmits"):
        halves = _halves(channels, "sender")
    else:
        halves = _halves(channels, "receiver")
    if name.startswith("longest_loss_run"):
        place = int(name.endswith("_at_most"))
        runs = [_longest_run(half)[place] for half in halves if "loss_run_list" in half]
        return max(runs) if runs and len(runs) == len(halves) else None
    key = "bytes" if name.endswith("_bytes") else name
    found = [half[key] for half in halves if half.get(key) is not None]
    if not found or len(found) < len(halves):
        return None
    return int(max(found) if name == "extent_max" else sum(found))


def _longest_run(half: Mapping[str, Any]) -> tuple[int, int]:
    """Return of how many the longest run of loss is, at least and at most.

    Item k of ``loss_run_lengths`` counts all runs of 2^k to 2^(k+1)-1.
    """
    listed = [run[1] for run in half["loss_run_list"]]
    longest = max(listed, default=0)
    lengths = half.get("loss_run_lengths")
    if half["loss_runs"] <= len(listed) or not lengths:  # a responder may report none
        return longest, longest
    least = 1 << (len(lengths) - 1)
    if sum(length >= least for length in listed) == lengths[-1]:
        return longest, longest
    return max(longest, least), 2 * least - 1


def _throughput(halves: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    there = [half for half in halves if half["last_ns"]]
    if not there:
        return {"average_bps": None, "max_bps": None}
    first_ns = min(half["first_ns"] for half in there)
    last_ns = max(half["last_ns"] for half in there)
    total = sum(half["bytes"] for half in there)
    took_ns = last_ns - first_ns
    starts_ns, slot_ns, rates = rates_over_time(there)
    whole = (starts_ns >= first_ns) & (starts_ns + slot_ns <= last_ns)
    average = 8 * total * NS_PER_SECOND / took_ns if took_ns else 0.0
    return {
        "average_bps": average or None,
        # spread in a slot, bytes of several channels even out: some slot had as much
        "max_bps": max(average, float(rates[whole].max())) if whole.any() else None,
    }


def rates_over_time(
    halves: Sequence[Mapping[str, Any]],
) -> tuple[Floats, int, Floats]:
    """Return the throughput of channels together, over time.

    Channels begin one after the other, so their slots do not meet: bytes are taken
    to be evenly spread in a slot.

    Parameters
    ----------
    halves : sequence of mapping
        One end of each channel: ``start_ns``, ``slot_ns`` and ``slot_bytes``.

    Returns
    -------
    tuple
        When slots begin in ns, their length in ns, and bit/s in each.

    Examples
    --------
    >>> one = {"start_ns": 0, "slot_ns": 1000, "slot_bytes": [4, 4]}
    >>> other = {"start_ns": 500, "slot_ns": 1000, "slot_bytes": [2]}
    >>> [rate.tolist() for rate in rates_over_time([one, other])[::2]]
    [[0.0, 1000.0], [40000000.0, 40000000.0]]
    """
    start_ns = min(half["start_ns"] for half in halves)
    slot_ns = max(half["slot_ns"] for half in halves)
    edges = [
        half["start_ns"]
        - start_ns
        + half["slot_ns"] * np.arange(len(half["slot_bytes"]) + 1.0)
        for half in halves
    ]
    count = int(np.ceil(max(edge[-1] for edge in edges) / slot_ns))
    grid = slot_ns * np.arange(count + 1.0)
    passed = np.zeros(count + 1)
    for edge, half in zip(edges, halves, strict=True):
        passed += np.interp(grid, edge, np.cumsum([0, *half["slot_bytes"]]))
    rates = 8 * np.diff(passed) * NS_PER_SECOND / slot_ns
    return start_ns + grid[:-1], slot_ns, rates


def _slots(channels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the throughput of both ends, each from when it began."""
    found: dict[str, Any] = {"slot_ns": 0}
    for end in _ENDS:
        halves = _halves(channels, end)
        rates: list[float] = []
        if halves:
            _, found["slot_ns"], per_slot = rates_over_time(halves)
            rates = [round(rate) for rate in per_slot.tolist()]
        found[f"{_TOTALS[end]}_bps"] = rates
    return found


def balance(
    directions: Mapping[str, Mapping[str, Any]],
    dropped: Sequence[Mapping[str, Any]],
    session_packets: int,
) -> dict[str, Any] | None:
    """Hold what was sent against what came, and what died at each place.

    Parameters
    ----------
    directions : mapping
        By name what `direction_figures` returned of datagrams.
    dropped : sequence of mapping
        Places of the path with ``place`` and ``packets``, as each one's own counter
        has it. A packet must be a datagram.
    session_packets : int
        Of those dropped: packets of the sessions themselves, which are no data.

    Returns
    -------
    dict or None
        ``sent``, ``received``, ``places`` (the receive buffers first) and
        ``session_packets``; ``unexplained`` is what remains of sent minus all the
        others. None where an end did not report.

    Examples
    --------
    >>> up = {"sent": 9, "received": 4, "lost_in_socket": 3}
    >>> found = balance({"up": up}, [{"place": "qdisc of a", "packets": 3}], 1)
    >>> found["unexplained"]
    0
    """
    ends = list(directions.values())
    names = ("sent", "received", "lost_in_socket")
    if not ends or any(one[name] is None for one in ends for name in names):
        return None
    sent, received, in_socket = (sum(one[name] for one in ends) for name in names)
    places = [{"place": SOCKET, "packets": in_socket}, *map(dict, dropped)]
    died = sum(place["packets"] for place in places) - session_packets
    return {
        "sent": sent,
        "received": received,
        "places": places,
        "session_packets": session_packets,
        "unexplained": sent - received - died,
    }


def balance_between(
    directions: Mapping[str, Mapping[str, Any]], dropped: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Hold what was sent to another host against what came, and what died here.

    What neither this host nor a receiver's socket has dropped was lost between the
    hosts, or below the socket in the other one's kernel: no counter has that.

    Parameters
    ----------
    directions : mapping
        As of `balance`.
    dropped : sequence of mapping
        Places of this host with ``place`` and ``packets``; its counters have packets
        of others, too.

    Returns
    -------
    dict or None
        As of `balance`, with `BETWEEN` as the last place and ``unexplained`` None: so
        many were lost there at least, and exactly so many where this host dropped
        none. What it dropped beyond what was lost is in ``session_packets``.

    Examples
    --------
    >>> up = {"sent": 9, "received": 4, "lost_in_socket": 2}
    >>> found = balance_between({"up": up}, [{"place": "qdisc of eth0", "packets": 1}])
    >>> found["places"][-1], found["unexplained"]
    ({'place': 'between the hosts', 'packets': 2}, None)
    """
    found = balance(directions, dropped, 0)
    if found is None:
        return None
    left = found["unexplained"]
    between = {"place": BETWEEN, "packets": max(0, left)}
    return found | {
        "places": [*found["places"], between],
        "session_packets": max(0, -left),
        "unexplained": None,
    }


def bulk_document(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the section `bulk` of a summary: parts by protocol and channels.

    `runs` are those of ``workload`` in run.json. Of several run folders each part and
    search names its own: ``run``.
    """
    parts = [run["bulk"] for run in runs if "bulk" in run]
    return {
        "parts": sorted(parts, key=lambda p: (p["protocol"] != "udp", p["channels"])),
        "searches": sorted(
            (run["search"] for run in runs if "search" in run),
            key=lambda search: search["channels"],
        ),
    }


def named_directions(
    parts: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, Mapping[str, Any], str, Mapping[str, Any]]]:
    """Yield a name, the part, the direction and its figures, of each of them."""
    for part in parts:
        directions = part["directions"]
        for direction in (way for way in _PROGRAMS if way in directions):
            name = f"{part['protocol']} {part['channels']}"
            name += f" {direction}" if len(directions) > 1 else ""
            yield name + of_run(part), part, direction, directions[direction]


def search_name(search: Mapping[str, Any]) -> str:
    """Name what a search found.

    Examples
    --------
    >>> search_name({"channels": 4})
    'udp 4 highest rate'
    """
    return f"udp {search['channels']} highest rate"


def of_run(part: Mapping[str, Any]) -> str:
    """Name the run of a part or search, where those of several stand together."""
    return f", run {part['run']}" if "run" in part else ""


def sent_received(
    figures: Mapping[str, Any], direction: str
) -> tuple[float | None, float | None]:
    """Return the average throughput at the sending and at the receiving end, bit/s."""
    sender, receiver = (figures[end]["average_bps"] for end in _PROGRAMS[direction])
    return sender, receiver


def offered_share(part: Mapping[str, Any], run: Mapping[str, Any]) -> float | None:
    """Return the share of the link's rate that a part's datagrams offer, each way.

    Parameters
    ----------
    part : mapping
    run : mapping
        ``workload`` and ``lab`` of run.json.

    Returns
    -------
    float or None
        Headers are counted. None of TCP, which offers what is taken, of what is sent
        as fast as it goes, and of a link without a rate.
    """
    lab = run["lab"]
    rate_bps = lab["known"]["rate_bps"] if lab else None
    offered_bps = part["offered_bps"]
    if part["protocol"] != "udp" or not offered_bps or not rate_bps:
        return None
    size = run["workload"]["bulk"]["datagram_bytes"]
    wire_bytes = float(packets_of(lab, "udp").wire_bytes(size))
    return float(offered_bps * wire_bytes / size / rate_bps)


def joined_balances(
    parts: Sequence[Mapping[str, Any]],
) -> dict[int, dict[str, Any]]:
    """Return by channels what `balance` found, the parts of several runs added up.

    What one of them does not know is None.

    Examples
    --------
    >>> one = {"sent": 9, "received": 7, "session_packets": 1, "unexplained": 0}
    >>> one["places"] = [{"place": "link", "packets": 3}]
    >>> both = joined_balances([{"channels": 4, "balance": one}] * 2)
    >>> both[4]["sent"], both[4]["places"]
    (18, [{'place': 'link', 'packets': 6}])
    """
    by_channels: dict[int, list[Mapping[str, Any]]] = {}
    for part in parts:
        if part["balance"]:
            by_channels.setdefault(part["channels"], []).append(part["balance"])
    return {channels: _joined(balances) for channels, balances in by_channels.items()}


def _joined(balances: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("sent", "received", "session_packets", "unexplained"):
        counts = [one[name] for one in balances]
        found[name] = None if None in counts else sum(counts)
    died: dict[str, int] = {}
    for place in (place for one in balances for place in one["places"]):
        died[place["place"]] = died.get(place["place"], 0) + place["packets"]
    places = [{"place": place, "packets": n} for place, n in died.items()]
    return found | {"places": places}


def bulk_rows(parts: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Return the rows of bulk.csv, by `BULK_COLUMNS`; None is blank."""
    rows = []
    for part in parts:
        names = [part[name] for name in BULK_COLUMNS[:3]]
        for direction, figures in part["directions"].items():
            for one in ({"channel": ALL, **figures}, *figures["by_channel"]):
                ends = [
                    one[end][name]
                    for end in ("client", "server")
                    for name in ("average_bps", "max_bps")
                ]
                counts = [one[name] for name in COUNTS]
                end = [one["receive_buffer_bytes"]]
                rows.append([*names, direction, one["channel"], *ends, *counts, *end])
    return rows
