"""Figures that five measurements published, as their texts print them."""

import csv
from pathlib import Path

SEEDS = Path(__file__).parent.parent / "data" / "seeds"


def _tmsn():
    with (SEEDS / "tmsn_published.csv").open() as file:
        rows = list(csv.reader(file))[1:]
    tables = {}
    for name, machines, *figures in rows:
        table = tables.setdefault((name, int(machines)), [])
        table.append(tuple(float(figure) for figure in figures))
    return tables


# TMSN, by file and machines. Size, received in total, messages, heartbeats, their
# echoes, mean round trip of messages and "of heartbeats" in us, and both deviations.
TMSN = _tmsn()

# ProxyStore: its table of means in ms. Endpoint, Redis.
PROXYSTORE = {
    ("GET", 1000): (1.605, 0.227),
    ("GET", 10_000): (1.987, 0.155),
    ("GET", 100_000): (7.639, 0.236),
    ("GET", 1_000_000): (68.930, 0.803),
    ("GET", 10_000_000): (608.133, 9.151),
    ("SET", 1000): (1.620, 0.155),
    ("SET", 10_000): (2.113, 0.167),
    ("SET", 100_000): (7.925, 0.182),
    ("SET", 1_000_000): (72.135, 0.744),
    ("SET", 10_000_000): (611.600, 6.503),
    ("EVICT", None): (1.381, 0.106),
    ("EXISTS", None): (1.434, 0.158),
}


# MCDTP: by channels average and maximum of server and client, and percent lost
MCDTP = {
    1: (1.146, 4.385, 1.018, 3.879, 14.06),
    2: (2.893, 6.998, 2.398, 5.934, 19.64),
    4: (0.545, 12.065, 0.52, 11.755, 87.97),
}


# CLEAR: slope in ms a byte, intercept in ms
CLEAR = ("0.0000016977", "0.082", "0.0818")
