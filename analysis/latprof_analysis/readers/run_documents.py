"""A run's run.json and summary.json, as far as they are what latprof writes.

Who reads a document from here on needs no doubts about it: what is wrong is left
out, and named in a note.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from latprof_analysis.readers.json_file import read_json
from latprof_analysis.readers.result import ReadError
from latprof_analysis.readers.shapes import (
    COUNT,
    FLAG,
    NUMBER,
    POSITIVE,
    TEXT,
    Shape,
    WrongShapeError,
    any_shape,
    both,
    check_plain,
    each,
    maybe,
    named,
    record,
)

# They hold no rows: the largest seen, of 10,000 ways, has 4 MB.
MOST_BYTES = 64 << 20

_COUNTS = named(COUNT)
_PLAN = record(
    {},
    {
        "sizes": each(COUNT),
        "reply_bytes": maybe(POSITIVE),
        "interval_ns": COUNT,
        "poisson": FLAG,
        "client_cpu": maybe(COUNT),
        "server_cpu": maybe(COUNT),
        "congestion": maybe(TEXT),
        "seed": maybe(COUNT),
    },
)
_WORKLOAD = record(
    {},
    {
        "plan": maybe(_PLAN),
        "command": each(TEXT),
        "attached": maybe(record({"to": TEXT})),
        "runs": each(record({}, {"seconds": NUMBER, "late": COUNT})),
    },
)
_LAB = record(
    {},
    {
        "known": record(
            {},
            {
                "kind": TEXT,
                "rate_bps": maybe(NUMBER),
                "rate_is_token_bucket": FLAG,
                "burst_bytes": maybe(NUMBER),
                "qdisc": maybe(TEXT),
                "delay_ns": NUMBER,
                "loss": NUMBER,
                "mtu_bytes": COUNT,
                "link_header_bytes": COUNT,
            },
        ),
        "addresses": record({}, {"a": TEXT, "b": TEXT}),
        "settings": maybe(record({}, {"congestion_control": maybe(TEXT)})),
    },
)
# What is told of a run whatever else is wrong.
_NAMES: dict[str, Shape] = dict.fromkeys(
    ("name", "state", "host", "kernel", "machine", "clock"), TEXT
)
_RUN = record({}, {**_NAMES, "workload": maybe(_WORKLOAD), "lab": maybe(_LAB)})
_OF_INTERFACE = ("x_packets", "x_dropped")
_END = record(
    {},
    {
        "qdiscs": each(
            record({"kind": TEXT, "sent_packets": COUNT, "dropped_packets": COUNT})
        ),
        "interface": maybe(
            record({f"{w}{n}": COUNT for w in "rt" for n in _OF_INTERFACE})
        ),
    },
)
_SUMMARY = {
    "records": COUNT,
    "lost_records": _COUNTS,
    "counters": _COUNTS,
    "unmatched": _COUNTS,
    "no_exchange": named(_COUNTS),
    "unread_at_close": COUNT,
    "link_counters": maybe(
        record(
            {},
            {
                "a": _END,
                "b": _END,
                "netem": maybe(named(_END)),
                "emulator": maybe(
                    named(both(named(NUMBER), record({"packets_in": COUNT})))
                ),
            },
        )
    ),
    "untraced_time": record({"periods": COUNT, "seconds": NUMBER}),
    "capabilities": each(
        record(
            {"quantity": TEXT, "state": TEXT},
            {"source": TEXT, "reason": TEXT, "remedy": TEXT},
        )
    ),
    "cost": record(
        {
            "agent_cpu_seconds": NUMBER,
            "wall_seconds": NUMBER,
            "agent_cpu_share": NUMBER,
            "agent_peak_bytes": COUNT,
        },
        {"probes_cpu_share": maybe(NUMBER)},
    ),
    "warnings": each(TEXT),
}


def read_documents(folder: Path, name: str, notes: list[str]) -> dict[str, Any]:
    """Return run.json and summary.json as far as there; notes on what is not."""
    found: dict[str, Any] = {}
    for part, check in (("run", _checked_run), ("summary", _checked_summary)):
        path = folder / f"{part}.json"
        if not path.is_file():
            notes.append(f"{name}: {path.name} is missing: the run was killed")
            continue
        try:
            document = read_json(path, MOST_BYTES)
        except ReadError as error:
            notes.append(f"{name}: {error}")
            continue
        odd: list[str] = []
        found[part] = check(document, odd)
        notes += [
            f"{name}: {path.name} is not as latprof writes it: {why}" for why in odd
        ]
    state = found.get("run", {}).get("state")
    if state not in (None, "done"):
        notes.append(f"{name}: run.json says that the run is {state!s:.20}")
    return found


def _checked_run(document: dict[str, Any], odd: list[str]) -> dict[str, Any]:
    """Return a run.json; of one that is wrong anywhere no more than names."""
    try:
        check_plain(document, "")
        _RUN(document, "")
    except WrongShapeError as error:
        odd.append(f"{error}; no fit of its round trips")
        return {k: document[k] for k in _NAMES if isinstance(document.get(k), str)}
    return document


def _checked_summary(document: dict[str, Any], odd: list[str]) -> dict[str, Any]:
    """Return the parts of a summary.json that are right."""
    found = {}
    for part, value in document.items():
        try:
            check_plain(value, part)
            _SUMMARY.get(part, any_shape)(value, part)
        except WrongShapeError as error:
            odd.append(f"{error}; {part} is left out")
        else:
            found[part] = value
    return found
