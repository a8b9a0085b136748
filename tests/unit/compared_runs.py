"""Run folders whose stages are known, to be compared."""

import json

import numpy as np
import pandas as pd
from latency_series import pareto_series
from latprof_analysis.read.schema import MESSAGES

STAGES_NS = {
    "application": 1e3,
    "send_queue": 2e3,
    "qdisc": 4e3,
    "transit": 1e6,
    "receive_stack": 2e3,
    "receive_queue": 1e4,
}
SIZES = (64, 4096)


def write_run(folder, seed, *, rounds=300, factors=None, run=None, lost=0.0):
    """Write messages.csv, round_trips.csv and run.json.

    `factors` raise the times of stages: {"transit": 1.1}.
    """
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    n = rounds * len(SIZES)
    sizes = np.concatenate([rng.permutation(SIZES) for _ in range(rounds)])
    send = 10**12 + np.arange(n) * 2 * 10**7
    messages = pd.concat(
        [
            _messages(rng, kind, sizes, send + shift, factors or {})
            for kind, shift in (("request", 0), ("reply", 5 * 10**6))
        ]
    )
    messages.to_csv(folder / "messages.csv", index=False)
    _round_trips(rng, messages, sizes, send, lost).to_csv(
        folder / "round_trips.csv", index=False
    )
    described = {"format": 1, "state": "done", "kernel": "6.1", **(run or {})}
    (folder / "run.json").write_text(json.dumps(described))
    (folder / "summary.json").write_text("{}")
    return str(folder)


def _messages(rng, kind, sizes, send, factors):
    """Rows whose stages vary by a Pareto tail around what they are known to be."""
    n = sizes.size
    frame = pd.DataFrame({c.name: pd.NA for c in MESSAGES.columns}, index=range(n))
    frame = frame.assign(
        protocol="tcp", kind=kind, sequence=np.arange(n) + 1, size_bytes=sizes
    )
    total = np.zeros(n, np.int64)
    for stage, typical in STAGES_NS.items():
        scatter = 0.9 + 0.1 * pareto_series(rng, n, 0.3) / 1000
        values = (typical * factors.get(stage, 1.0) * scatter).astype(np.int64)
        frame[f"{stage}_ns"] = values
        total += values
    frame["send_ns"], frame["end_to_end_ns"] = send, total
    return frame


def _round_trips(rng, messages, sizes, send, lost):
    way = messages["end_to_end_ns"].to_numpy("int64").reshape(2, -1).sum(axis=0)
    gone = rng.random(sizes.size) < lost
    return pd.DataFrame(
        {
            "protocol": "tcp",
            "sequence": np.arange(sizes.size),
            "size_bytes": sizes,
            "reply_bytes": sizes,
            "intended_ns": send,
            "sent_ns": send,
            "received_ns": pd.array(send + way, "Int64").astype(object),
            "rtt_ns": pd.array(way, "Int64").astype(object),
            "lost": gone.astype(int),
        }
    ).assign(
        received_ns=lambda f: f["received_ns"].where(~gone, ""),
        rtt_ns=lambda f: f["rtt_ns"].where(~gone, ""),
    )
