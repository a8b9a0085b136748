"""What summary.json and run.json say of a mesh, as far as anybody reads it."""

from __future__ import annotations

from latprof_analysis.read.json_document import (
    ANY,
    COUNT,
    FLAG,
    NUMBER,
    POSITIVE,
    TEXT,
    Maybe,
    Shape,
)
from latprof_analysis.stages import STAGES

# What the hosts of a lab may be called: two, or more.
LAB_HOSTS = ("a", "b", *(f"h{number}" for number in range(32)))
_PERCENTILES = ("p50_ns", "p90_ns", "p95_ns", "p99_ns", "max_ns")
_TIMES: dict[str, Shape] = {"n": COUNT, **dict.fromkeys(_PERCENTILES, Maybe(NUMBER))}
_SINCE: Shape = {**_TIMES, "mean_ns": Maybe(NUMBER)}
_LOAD: Shape = {
    f"{of}_{what}_per_second": NUMBER
    for of in ("offered", "achieved")
    for what in ("messages", "bytes")
}
_STAGES: Shape = {
    "n": COUNT,
    **{f"{name}_ns": Maybe(NUMBER) for name in (*STAGES, "end_to_end")},
}
_COUNTED = ("total", "msg", "msg_echo", "hb", "hb_echo")
_AVERAGES = ("avg_msg", "avg_hb", "std_msg", "std_hb")
_GROWS: Shape = Maybe({"kind": TEXT, "stage": TEXT, "from_ns": NUMBER, "to_ns": NUMBER})
_BUSY: Shape = {"processors": {"busy": NUMBER}, ANY: {ANY: NUMBER}}
_PAIR: Shape = {
    **dict.fromkeys(("source", "destination"), TEXT),
    **dict.fromkeys(("sent", "lost"), COUNT),
    **dict.fromkeys(("p50_ns", "mean_ns", "max_ns"), Maybe(NUMBER)),
}
_CELL: Shape = {
    **dict.fromkeys(("size_bytes", "interval_ns", "tests"), POSITIVE),
    "table": {
        "load": COUNT,
        **dict.fromkeys(_COUNTED, NUMBER),
        **dict.fromkeys(_AVERAGES, Maybe(NUMBER)),
    },
    **dict.fromkeys(("sent", "lost"), COUNT),
    **dict.fromkeys(("intended", "real"), _SINCE),
    "lateness": _TIMES,
    "load": _LOAD,
    "hosts": {ANY: _LOAD},
    "backlog": {"at_end": COUNT, "most": COUNT, "left_share": NUMBER},
    "wire_bps": Maybe(NUMBER),
    "utilisation": Maybe(NUMBER),
    "pairs": [_PAIR],
    "stages": {"request?": _STAGES, "reply?": _STAGES, "elsewhere_ns?": NUMBER},
    "busy": _BUSY,
    "grows": _GROWS,
}
_TRIAL: Shape = {
    "interval_ns": POSITIVE,
    "left_share": NUMBER,
    "utilisation": Maybe(NUMBER),
    "p50_ns": Maybe(NUMBER),
    "kept_up": FLAG,
}
_KNEE: Shape = {
    "size_bytes": POSITIVE,
    **dict.fromkeys(("interval_ns", "beyond_ns"), Maybe(POSITIVE)),
    **dict.fromkeys(("utilisation", "expected_ns"), Maybe(NUMBER)),
    "grows": _GROWS,
    "busy": Maybe(_BUSY),
    "trials": [_TRIAL],
}
MESH: Shape = {
    "protocol": TEXT,
    "hosts": [TEXT],
    "star?": FLAG,
    "reply_bytes": Maybe(POSITIVE),
    "heartbeat_interval_ns": POSITIVE,
    "rate_bps": Maybe(NUMBER),
    "cells": [_CELL],
    "knees": [_KNEE],
}
MESH_PLAN: Shape = {
    "protocol": TEXT,
    "hosts": POSITIVE,
    "interval_ns": POSITIVE,
    "poisson?": FLAG,
    "reply_bytes?": Maybe(POSITIVE),
    "to?": [TEXT],
}
