"""Operations on stores (GET, SET, EXISTS, EVICT) -> figures of each cell of a table.

A cell is a backend, an operation and a payload. Two files come from the same rows:
ops.csv with figures of all repetitions, and remote_ops.csv as ProxyStore's benchmark
writes it, with its conventions: `read.proxystore` has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.read.operations_csv import FIRST, MEASURED, PARTS, Operations
from latprof_analysis.stages import BLANK
from latprof_analysis.stats.quantiles import samples_needed
from latprof_analysis.text import NS_PER_SECOND

# As the table has them: both receive queues are one.
SHARES = {
    "client": ("client_ns",),
    "network": ("network_ns",),
    "server": ("server_ns",),
    "receive_queue": ("server_queue_ns", "client_queue_ns"),
}
# The order of the published table.
OPS = ("GET", "SET", "EVICT", "EXISTS")
REMOTE_OPS_COLUMNS = (
    *("backend", "op", "payload_size_bytes", "repeat", "total_time_ms"),
    *("avg_time_ms", "min_time_ms", "max_time_ms", "avg_bandwidth_mbps"),
)
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_OPS_TIMES = ("mean", *_PERCENTILES, "min", "max")
OPS_COLUMNS = (
    *("backend", "op", "payload_size_bytes", "n", "wrong"),
    *(f"{name}_ns" for name in _OPS_TIMES),
    "megabits_per_second",
    "with_parts",
    *(f"{name}_share" for name in SHARES),
    *(f"{name}_p50_ns" for name in SHARES),
)
_FEWEST_TO_DROP = 3

Ints = NDArray[np.int64]


class OperationCell(NamedTuple):
    """The rows of one cell's measured operations."""

    backend: str
    op: str
    payload_bytes: int | None
    rows: Ints


def operation_figures(operations: Operations) -> dict[str, Any]:
    """Return what the table shows, and what is kept apart from it.

    Returns
    -------
    dict
        ``cells``: times of the measured operations of each cell in ns, percentiles
        None where there are too few, ``shares`` of its time as `SHARES` has them
        (None where no part is known); ``avg_time_ms`` is as in remote_ops.csv.
        ``first``: the first operation of each connection, in which it is made.
        ``warmup``: how many others are in no cell.

    Examples
    --------
    >>> from latprof_analysis.read.operations_csv import Operations
    >>> texts = {"backend": ["R"] * 3, "op": ["GET"] * 3, "phase": ["measured"] * 3}
    >>> columns = ("payload_size_bytes", "wrong", "start_ns", *PARTS)
    >>> numbers = {name: np.zeros(3, "i8") for name in columns}
    >>> numbers["time_ns"] = numbers["network_ns"] = np.array([8, 4, 6])
    >>> (cell,) = operation_figures(Operations(texts, numbers))["cells"]
    >>> cell["mean_ns"], cell["min_ns"], cell["shares"]["network"]
    (6.0, 4, 1.0)
    """
    first = operations.where(phase=FIRST)
    measured = operations.where(phase=MEASURED)
    return {
        "cells": [_figures(cell, operations) for cell in cells_of(operations)],
        "first": [
            {
                "backend": operations.texts["backend"][i],
                "op": operations.texts["op"][i],
                "time_ns": int(operations.numbers["time_ns"][i]),
            }
            for i in first.tolist()
        ],
        "warmup": len(operations.numbers["time_ns"]) - len(measured) - len(first),
    }


def cells_of(operations: Operations) -> list[OperationCell]:
    """Return the cells with measured operations, as the published table has them."""
    backends = list(dict.fromkeys(operations.texts["backend"]))
    found = []
    for backend in backends:
        for op in OPS:
            rows = operations.where(backend=backend, op=op, phase=MEASURED)
            payloads = operations.numbers["payload_size_bytes"][rows]
            for payload in np.unique(payloads).tolist():
                known = None if payload == BLANK else payload
                found.append(
                    OperationCell(backend, op, known, rows[payloads == payload])
                )
    return found


def _figures(cell: OperationCell, operations: Operations) -> dict[str, Any]:
    numbers = operations.numbers
    time_ns = numbers["time_ns"][cell.rows]
    median = float(np.median(time_ns))
    payload = cell.payload_bytes
    shares = shares_of(operations, cell.rows)
    whole = np.all([~np.isnan(values) for values in shares.values()], axis=0)
    together = {share: values[whole] for share, values in shares.items()}
    timed_ns = time_ns[whole].sum()
    return {
        "backend": cell.backend,
        "op": cell.op,
        "payload_size_bytes": payload,
        "n": len(time_ns),
        "wrong": int(numbers["wrong"][cell.rows].sum()),
        "avg_time_ms": float(_kept_ms(cell, operations).mean()),
        "mean_ns": float(time_ns.mean()),
        **{f"{name}_ns": _percentile(time_ns, p) for name, p in _PERCENTILES.items()},
        "min_ns": int(time_ns.min()),
        "max_ns": int(time_ns.max()),
        "megabits_per_second": (
            8e-6 * payload / (median / NS_PER_SECOND) if payload and median else None
        ),
        "with_parts": int(whole.sum()),
        "shares": {
            share: float(ns.sum() / timed_ns) if timed_ns else None
            for share, ns in together.items()
        },
        "parts_p50_ns": {
            share: float(np.median(ns)) if whole.any() else None
            for share, ns in together.items()
        },
    }


def shares_of(operations: Operations, rows: Ints) -> dict[str, NDArray[np.float64]]:
    """Return the parts of operations as the table has them, in ns.

    NaN of an operation of which not all parts are known.
    """
    parts = {name: operations.numbers[name][rows] for name in PARTS}
    whole = np.all([values != BLANK for values in parts.values()], axis=0)
    return {
        share: np.where(whole, np.sum([parts[name] for name in names], axis=0), np.nan)
        for share, names in SHARES.items()
    }


def cell_name(cell: Mapping[str, Any]) -> str:
    """Name a cell.

    Examples
    --------
    >>> cell_name({"backend": "REDIS", "op": "GET", "payload_size_bytes": 1000})
    'REDIS GET 1000 B'
    """
    size = cell["payload_size_bytes"]
    name = f"{cell['backend']} {cell['op']}"
    return name if size is None else f"{name} {size} B"


def _kept_ms(cell: OperationCell, operations: Operations) -> NDArray[np.float64]:
    """Return the times that ProxyStore's benchmark keeps of each run, in ms."""
    numbers = operations.numbers
    in_order = cell.rows[np.argsort(numbers["start_ns"][cell.rows])]
    run = numbers["run"][in_order] if "run" in numbers else np.zeros(len(in_order))
    times_ms = np.asarray(numbers["time_ns"][in_order] / 1e6)
    return np.concatenate([_inner(times_ms[run == one]) for one in np.unique(run)])


def _inner(times_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    return times_ms[1:-1] if len(times_ms) >= _FEWEST_TO_DROP else times_ms


def _percentile(values: Ints, p: float) -> float | None:
    return float(np.quantile(values, p)) if len(values) >= samples_needed(p) else None


def ops_rows(figures: Mapping[str, Any]) -> list[list[Any]]:
    """Return the rows of ops.csv, by `OPS_COLUMNS`; None is blank."""
    plain = OPS_COLUMNS[: OPS_COLUMNS.index("with_parts") + 1]
    return [
        [
            *(cell[name] for name in plain),
            *(cell["shares"][share] for share in SHARES),
            *(cell["parts_p50_ns"][share] for share in SHARES),
        ]
        for cell in figures["cells"]
    ]


def remote_ops_rows(operations: Operations) -> list[list[Any]]:
    """Return the rows of remote_ops.csv, by `REMOTE_OPS_COLUMNS`; None is blank.

    With the conventions of ProxyStore's benchmark: of three repetitions or more the
    first and the last are in no figure, ``avg_bandwidth_mbps`` is of megabytes a
    second, and payloads are written as floats.
    """
    found = []
    for cell in cells_of(operations):
        kept = _kept_ms(cell, operations)
        mean = float(kept.mean())
        payload = cell.payload_bytes
        found.append(
            [
                *(cell.backend, cell.op, None if payload is None else float(payload)),
                *(len(cell.rows), float(kept.sum()), mean),
                *(float(kept.min()), float(kept.max())),
                payload / 1e6 / (mean / 1e3) if payload and mean else None,
            ]
        )
    return found
