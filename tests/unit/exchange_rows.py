"""Rows of exchanges as the totals take them in, from lists of dictionaries."""

from __future__ import annotations

from typing import Any

import pandas as pd
from latprof_analysis.read.schema import EXCHANGES

COLUMNS = [column.name for column in EXCHANGES.columns]
TEXTS = [column.name for column in EXCHANGES.columns if column.kind == "text"]
STAMPS = ("request_sent", "request_ready", "request_read", "reply_sent", "reply_read")


def exchange(stamps: tuple[int | None, ...], **values: Any) -> dict[str, Any]:
    """An exchange with these stamps, and the parts that follow from them."""
    sent, ready, read, replied, got = stamps
    began = next((s for s in (ready, sent) if s is not None), None)
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {
        "protocol": "tcp",
        "way": "cli -> srv:80",
        "kind": "exchange",
        "client_comm": "cli",
        "server_comm": "srv",
        "client_pid": 7,
        "server_pid": 812,
        "requests": 1,
        "request_bytes": 64,
        "replies": 1,
        "reply_bytes": 100,
        "retransmits": 0,
    }
    row |= {f"{name}_ns": s for name, s in zip(STAMPS, stamps, strict=True)}
    row["response_ns"] = _between(sent, got)
    if ready is not None or read is not None or replied is not None:
        row["request_way_ns"] = _between(sent, ready)
        row["server_ns"] = _between(_last(sent, ready), replied)
        row["server_queue_ns"] = _between(_last(sent, ready), read)
        row["server_work_ns"] = _between(_last(sent, ready, read), replied)
        if began is not None:
            row["reply_way_ns"] = _between(_last(sent, ready, replied), got)
    return row | values


def _last(*stamps: int | None) -> int | None:
    return next((s for s in reversed(stamps) if s is not None), None)


def _between(since: int | None, until: int | None) -> int | None:
    return None if since is None or until is None else until - since


def frame_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The rows as a table of all columns."""
    frame = pd.DataFrame(rows, columns=COLUMNS)
    kinds = {c: "category" if c in TEXTS else "Int64" for c in COLUMNS}
    return frame.astype(kinds)


def write_exchanges(path: Any, rows: list[dict[str, Any]]) -> None:
    """Write exchanges.csv."""
    frame_of(rows).to_csv(path, index=False)
