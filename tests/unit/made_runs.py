"""Run folders with messages of a known distribution."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
from latprof_agent.sinks.round_trip_rows import COLUMNS
from latprof_analysis.csv_cells import cell_of
from latprof_analysis.read.schema import MESSAGES, ROUND_TRIPS
from latprof_analysis.stages import STAMPS
from message_rows import message

SIZES = (18, 1024, 65507)


def messages(count: int, seed: int = 1) -> list[dict]:
    """Requests and replies over TCP and UDP; some lack `arrive`, some died."""
    rng = np.random.default_rng(seed)
    gaps = rng.lognormal(8, 1, (count, len(STAMPS))).astype(int)
    stamps = np.arange(count)[:, None] * 1000 + 10**12 + np.cumsum(gaps, axis=1)
    rows = []
    for i, row in enumerate(stamps.tolist()):
        stamped = [None if name == "arrive" and i % 10 == 0 else stamp
                   for name, stamp in zip(STAMPS, row, strict=True)]  # fmt: skip
        if i % 50 == 7:
            stamped[4:] = [None] * 3
        rows.append(
            message(
                tuple(stamped),
                kind=("request", "reply")[i % 2] if i >= 6 else "warmup",
                protocol=("tcp", "udp")[i // 2 % 2],
                size_bytes=SIZES[i % 3],
                packets=1 + SIZES[i % 3] // 1448,
                sequence=i + 1,
                source_address="10.0.0.1",
                source_port=7,
                sender_comm="latprof-load",
            )
        )
    return rows


def round_trips(count: int) -> list[dict]:
    """Rounds of each size once; every 20th request was lost."""
    return [
        {
            "protocol": "udp",
            "sequence": 6 + i,
            "size_bytes": SIZES[i % 3],
            "reply_bytes": SIZES[i % 3],
            "intended_ns": 1000 * i,
            "sent_ns": 1000 * i + i % 7,
            "received_ns": None if i % 20 == 19 else 1000 * i + 900,
            "rtt_ns": None if i % 20 == 19 else 900 - i % 7,
            "lost": int(i % 20 == 19),
        }
        for i in range(count)
    ]


def write_table(path: Path, rows: list[dict]) -> Path:
    """Write rows as the agent does."""
    names = MESSAGES.names if path.stem == "messages" else COLUMNS
    lines = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    text = "".join(",".join(line) + "\n" for line in lines)
    path.write_bytes(text.encode())
    return path


def _cell(value: object) -> str:
    if isinstance(value, str):
        return cell_of(value)
    return "" if value is None else str(value)


def write_run(folder: Path, count: int = 300, seed: int = 1) -> Path:
    """Write a run folder with so many messages."""
    folder.mkdir(parents=True)
    write_table(folder / "messages.csv", messages(count, seed))
    write_table(folder / "round_trips.csv", round_trips(count // 2))
    plan = {"sizes": list(SIZES), "reply_bytes": None, "interval_ns": 0}
    run = {"format": 1, "state": "done", "folder": "x", "workload": {"plan": plan}}
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "summary.json").write_text('{"format": 1}')
    return folder


def as_parquet(path: Path) -> Path:
    """Write a CSV as pandas writes it to Parquet."""
    texts = dict.fromkeys((*MESSAGES.texts, *ROUND_TRIPS.texts), "string")
    frame = pd.read_csv(path, dtype_backend="numpy_nullable", dtype=texts)
    frame.to_parquet(path.with_suffix(".parquet"), row_group_size=70)
    path.unlink()
    return path.with_suffix(".parquet")
