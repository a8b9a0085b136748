"""Studies of simulated runs, whose every figure follows from the parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from latprof_analysis.fit.line import fit_round_trips
from latprof_analysis.stages import STAGES, STAMPS
from latprof_analysis.stats.histogram import Histogram
from latprof_analysis.study import findings
from latprof_analysis.study.analysis import Study
from latprof_analysis.study.totals import percentiles

SIZES = (18, 256, 1024, 4096, 16384, 65507)
BANDWIDTH_BPS = 100e6
FIXED_NS = 2e6
_PERCENTILES = (50, 90, 99, 99.9)


def messages(n: int, seed: int = 1, kind: str = "request") -> pd.DataFrame:
    """Messages that spend their time mostly in transit, some in the send queue."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice(SIZES, n)
    stages = {
        "application": rng.integers(500, 2000, n),
        "send_queue": rng.exponential(40_000, n).astype(np.int64),
        "qdisc": rng.integers(0, 9000, n),
        "transit": (1e6 + 80 * sizes + rng.exponential(1e4, n)).astype(np.int64),
        "receive_stack": rng.integers(1000, 3000, n),
        "receive_queue": rng.exponential(30_000, n).astype(np.int64),
    }
    columns: dict[str, Any] = {
        "protocol": pd.Categorical(["tcp"] * n),
        "source_address": pd.Categorical(["10.0.0.1"] * n),
        "kind": pd.Categorical([kind] * n),
        "sequence": np.arange(n),
        "size_bytes": sizes,
        "retransmits": np.zeros(n, np.int64),
        "queue_bytes_at_arrival": rng.integers(0, 40_000, n),
    }
    stamp = 10**9 + 5_000_000 * np.arange(n)
    for name, stage in zip(STAMPS, ("", *STAGES), strict=True):
        stamp = stamp + stages[stage] if stage else stamp
        columns[f"{name}_ns"] = stamp
    columns |= {f"{name}_ns": times for name, times in stages.items()}
    columns["wakeup_ns"] = stages["receive_queue"] // 2
    columns["end_to_end_ns"] = columns["read_ns"] - columns["created_ns"]
    frame = pd.DataFrame(columns)
    whole = frame.select_dtypes("number").columns
    frame[whole] = frame[whole].astype("Int64")
    frame["run"] = pd.Categorical(["run-1"] * n)
    return frame


def round_trips(n: int, seed: int = 2) -> pd.DataFrame:
    """Full echoes over the known link, with up to 20 us of noise."""
    rng = np.random.default_rng(seed)
    rounds = -(-n // len(SIZES))
    sizes = np.concatenate([rng.permutation(SIZES) for _ in range(rounds)])[:n]
    rtt = FIXED_NS + 2 * 8e9 * sizes / BANDWIDTH_BPS + rng.uniform(0, 20_000, n)
    sent = 10**9 + 20_000_000 * np.arange(n)
    columns = {
        "sequence": np.arange(n),
        "size_bytes": sizes,
        "sent_ns": sent,
        "rtt_ns": rtt.astype(np.int64),
        "lost": np.zeros(n, np.int64),
    }
    frame = pd.DataFrame(columns).astype("Int64")
    frame["protocol"] = pd.Categorical(["tcp"] * n)
    frame["run"] = pd.Categorical(["run-1"] * n)
    return frame


def study(n: int = 3000, **changed: Any) -> Study:
    """A whole study; `changed` replaces keys of its document."""
    rows = pd.concat([messages(n), messages(n, 7, "reply")], ignore_index=True)
    for name in ("protocol", "kind", "run", "source_address"):
        rows[name] = rows[name].astype("category")
    trips = round_trips(min(n, 1200))
    kinds = {f"tcp {kind}": rows[rows["kind"] == kind] for kind in ("request", "reply")}
    document = {
        "kinds": {kind: _kind(some) for kind, some in kinds.items()},
        "messages": {kind: _found(some) for kind, some in kinds.items()},
        "round_trips": {"tcp": _trips(trips)},
        "fit": _fit(trips),
        "counters": {"datagrams_dropped_at_socket": 3},
        "lost_records": {"flows": 0},
        "records": 12,
        "kernel": "6.18.0",
        "capabilities": [
            {
                "quantity": "arrive (tcp)",
                "state": "partial",
                "source": "netif_receive_skb",
                "reason": "missing for segments that met a socket in use",
                "remedy": "",
            }
        ],
        "skipped_rows": 1,
        "skipped": ["run-1/messages.csv:3: size_bytes must be a number, got 'x'"],
        "notes": [],
        "warnings": [],
    }
    return study_of(document | changed, rows, trips)


def study_of(
    document: dict[str, Any], messages: pd.DataFrame, trips: pd.DataFrame | None = None
) -> Study:
    """Return a study of these rows."""
    found = Study(document)
    found.messages = messages
    found.round_trips = pd.DataFrame() if trips is None else trips
    return found


def _kind(some: pd.DataFrame) -> dict[str, Any]:
    whole = int(some["end_to_end_ns"].sum())
    stages = {}
    for name in (*STAGES, "wakeup", "end_to_end"):
        times = some[f"{name}_ns"].to_numpy("int64")
        stages[name] = {
            "n": len(times),
            "max_ns": int(times.max()),
            "mean_ns": float(times.mean()),
            "share_of_end_to_end": int(times.sum()) / whole,
            **{f"p{p:g}_ns": float(np.percentile(times, p)) for p in _PERCENTILES},
        }
    return {
        "messages": len(some),
        "complete": len(some),
        "stages": stages,
        "sizes": {
            str(size): {"end_to_end": histogram_percentiles(times)}
            for size, times in some.groupby("size_bytes")["end_to_end_ns"]
        },
        "by_packets": {"1": histogram_percentiles(some["end_to_end_ns"])},
    }


def histogram_percentiles(times: Any) -> dict[str, Any]:
    """Return what a run's summary has of so many times in ns."""
    histogram = Histogram()
    histogram.record(np.asarray(times, np.int64))
    return percentiles(histogram)


def _found(some: pd.DataFrame) -> dict[str, Any]:
    times = some["end_to_end_ns"].to_numpy("float64")
    usual = pd.Series(times).groupby(some["size_bytes"].to_numpy()).transform("median")
    n = len(some)
    when = findings.When(np.zeros(n, int), ["run-1"], np.arange(n) * 5e-3)
    return {
        "n": len(some),
        "tail": findings.tail(times, some["size_bytes"]),
        "time": findings.over_time(times - usual, when),
    }


def _fit(trips: pd.DataFrame) -> dict[str, Any]:
    sizes, rtt = (trips[name].to_numpy("float64") for name in ("size_bytes", "rtt_ns"))
    rounds = np.arange(len(trips)) // len(SIZES)
    return fit_round_trips(sizes, rtt, rounds, reply_mode="echo").as_dict()


def _trips(trips: pd.DataFrame) -> dict[str, Any]:
    return {"sent": len(trips) + 4, "lost": 4, "fit": _fit(trips)}
