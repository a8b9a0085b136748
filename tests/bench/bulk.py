"""Bulk transfers over a bare veth, against iperf3 in the same lab."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path

from figure import Figure, figure, in_turn, ratios
from latprof_agent.lab.lab import Lab
from programs import generator, output_of, plain_lab, responder
from progress import Progress

ROUNDS = 7
SECONDS = "2"
SIZE = "1400"
IPERF3 = "iperf3"
# What each way of sending is called, and how it is asked for.
WAYS = {
    "udp": [],
    "udp, 8 channels": ["--channels", "8"],
    "udp, a packet each": ["--send-way", "sendmmsg", "--receive-way", "recvmmsg"],
    "tcp": ["--protocol", "tcp"],
}
IPERF3_WAYS = {
    "iperf3 udp": ["-u", "-b", "0", "-l", SIZE],
    "iperf3 tcp": [],
}


def _ours_bps(lab: Lab, options: list[str]) -> float:
    """What `latprof-load bulk` received; every datagram is accounted for."""
    program = generator()
    words = ["--address", lab.b_address]
    with responder(lab, program, "echo", *words) as line:
        words += ["--port", line.split()[1], "--duration", SECONDS, *options]
        up = json.loads(output_of(lab, program, "bulk", *words))["up"]
    if up["sent"] != up["received"] + up.get("lost_in_socket", 0):
        raise ValueError(f"a bare veth must lose nothing, got {up['lost']} lost")
    return float(up["received_bps"])


def _iperf3_bps(lab: Lab, options: list[str]) -> float:
    """What iperf3 received, as it says."""
    words = ["-c", lab.b_address, "-t", SECONDS, "--json", *options]
    # What it prints first, it prints when it listens.
    with responder(lab, IPERF3, "-s", "-1", "--forceflush"):
        end = json.loads(output_of(lab, IPERF3, *words))["end"]
    sent = end.get("sum", {})
    if "lost_percent" in sent:
        return float(sent["bits_per_second"] * (1 - sent["lost_percent"] / 100))
    return float(end["sum_received"]["bits_per_second"])


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """All of them in turn."""
    with plain_lab() as lab:
        found: dict[str, list[float]] = {}
        peers = IPERF3_WAYS if shutil.which(IPERF3) else {}
        for i, way in in_turn([*WAYS, *peers], ROUNDS):
            progress(f"bulk: {way}, round {i + 1} of {ROUNDS}")
            bps = (
                _ours_bps(lab, WAYS[way])
                if way in WAYS
                else _iperf3_bps(lab, IPERF3_WAYS[way])
            )
            found.setdefault(way, []).append(bps)
    yield from _figures(found)


def _figures(found: dict[str, list[float]]) -> Iterator[Figure]:
    note = ", ".join(
        f"{way} {statistics.median(bps) / 1e9:.1f} Gbit/s" for way, bps in found.items()
    )
    yield figure(
        "bulk udp received, 8 channels/1 channel",
        "x",
        ratios(found["udp, 8 channels"], found["udp"]),
        bar=0.9,
        note=note,
        more_is_better=True,
    )
    for way in WAYS:
        peer = f"{IPERF3} {way.partition(',')[0]}"
        if peer in found and "channels" not in way:
            yield figure(
                f"bulk {way} received, latprof-load/iperf3",
                "x",
                ratios(found[way], found[peer]),
                bar=1.0,
                goal=1.5 if "udp" in way else None,
                more_is_better=True,
            )
