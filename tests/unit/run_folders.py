"""Run folders as `latprof run` writes them, of simulated links whose truth is known."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from latprof_analysis.read.schema import MESSAGES, ROUND_TRIPS, STAGES, STAMPS
from simulated_links import Fifo, ping_pong

LINK = {
    "kind": "emulator",
    "rate_bps": 100_000_000,
    "rate_is_token_bucket": False,
    "burst_bytes": None,
    "queue_bytes": None,
    "qdisc": None,
    "delay_ns": 1_000_000,
    "loss": 0.0,
    "mtu_bytes": 1500,
    "link_header_bytes": 0,
}


def run_json(reply="echo", sizes=(), *, host="h", link=LINK, state="done"):
    """What a run says of itself."""
    plan = {
        "sizes": list(sizes),
        "reply_bytes": None if reply == "echo" else reply,
        "interval_ns": 0,
        "poisson": False,
        "client_cpu": None,
        "server_cpu": None,
        "congestion": None,
    }
    lab = {
        "known": link,
        "addresses": {"a": "10.0.0.1", "b": "10.0.0.2"},
        "settings": {"congestion_control": "cubic"},
    }
    return {
        "format": 1,
        "state": state,
        "host": host,
        "kernel": "6.1",
        "workload": {"plan": plan, "command": []},
        "lab": lab if link else None,
    }


def message_rows(messages):
    """Fill in what a run writes of each message; all times whole nanoseconds."""
    rows = messages.copy()
    for stamp in STAMPS:
        rows[f"{stamp}_ns"] = rows[f"{stamp}_ns"].round().astype("int64")
    for stage, since, until in zip(STAGES, STAMPS, STAMPS[1:], strict=False):
        rows[f"{stage}_ns"] = rows[f"{until}_ns"] - rows[f"{since}_ns"]
    rows["wakeup_ns"] = 0
    rows["end_to_end_ns"] = rows["read_ns"] - rows["created_ns"]
    rows["hops"] = rows["queue_bytes_at_arrival"] = 0
    rows["translated"] = pd.NA
    for end in ("sender", "reader"):
        rows[f"{end}_pid"], rows[f"{end}_comm"] = 7, "ping"
    return rows.reindex(columns=[column.name for column in MESSAGES.columns])


def round_trip_rows(rows):
    """The round trips of requests and replies that take turns."""
    requests = rows[rows["kind"] == "request"].reset_index(drop=True)
    replies = rows[rows["kind"] == "reply"].reset_index(drop=True)
    trips = pd.DataFrame(
        {
            "protocol": requests["protocol"],
            "sequence": np.arange(len(requests)),
            "size_bytes": requests["size_bytes"],
            "reply_bytes": replies["size_bytes"],
            "intended_ns": requests["send_ns"],
            "sent_ns": requests["send_ns"],
            "received_ns": replies["read_ns"],
            "rtt_ns": replies["read_ns"] - requests["send_ns"],
            "lost": 0,
        }
    )
    # without a load no run has its column
    names = [name for name in ROUND_TRIPS.names if name != "phase"]
    return trips.reindex(columns=names)


def write_run(folder, *, seed=1, reply="echo", there=None, back=None, **about):
    """Write the run folder of a ping-pong; returns its messages.csv as a frame."""
    rows = message_rows(ping_pong(seed, there or Fifo(), back or Fifo(), reply))
    sizes = np.unique(rows.loc[rows["kind"] == "request", "size_bytes"]).tolist()
    folder.mkdir(parents=True)
    rows.to_csv(folder / "messages.csv", index=False)
    round_trip_rows(rows).to_csv(folder / "round_trips.csv", index=False)
    run = run_json(reply, sizes, **about)
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "summary.json").write_text(json.dumps({"format": 1, "state": "done"}))
    return rows
