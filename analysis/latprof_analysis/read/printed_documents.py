"""What commands print with --json, as shapes: `latprof schema` has their JSON Schemas.

A document's version is raised where a member that is here goes, is of another type or
unit, or means something else; a new member needs no new version. Members that are not
here may change: they are there to look at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from latprof_analysis.read.json_document import (
    ANY,
    ANYTHING,
    COUNT,
    FLAG,
    NUMBER,
    REAL,
    TEXT,
    Maybe,
    Shape,
    json_schema,
)
from latprof_analysis.read.stories import STORIES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_Members = dict[str, Shape]
_OBJECT: _Members = {ANY: ANYTHING}
# Percentiles in ns, by their names (p50_ns); null where n is too small for one.
_FIGURES: _Members = {"n": COUNT, "max_ns?": Maybe(REAL), ANY: Maybe(REAL)}
_COUNTS: _Members = {ANY: COUNT}
_CAPABILITY: Shape = dict.fromkeys(
    ("quantity", "state", "source", "reason", "remedy"), TEXT
)
_INTERVAL: _Members = {"value": REAL, "low": Maybe(REAL), "high": Maybe(REAL)}
_KIND: _Members = {
    **dict.fromkeys(("messages", "complete", "bytes", "packets"), COUNT),
    "retransmits": COUNT,
    "stages": {ANY: _FIGURES},
    "halves": _OBJECT,
}
_EXCHANGES: _Members = {
    **dict.fromkeys(("exchanges", "timed", "paused", "pipelined"), COUNT),
    **dict.fromkeys(("requests", "replies", "request_bytes", "reply_bytes"), COUNT),
    "parts": {ANY: _FIGURES},
}
_ROUND_TRIPS: _Members = {
    "sent": COUNT,
    "lost": COUNT,
    "loss_ratio": Maybe(NUMBER),
    "achieved_per_second": Maybe(NUMBER),
    "offered_per_second": Maybe(NUMBER),
    "rtt": _FIGURES,
    "lateness": _FIGURES,
}
_ONE_WAY: _Members = {
    **dict.fromkeys(("size_bytes", "n"), COUNT),
    "transit_min_ns": Maybe(REAL),
    "transit_p10_ns": Maybe(REAL),
}
_FIT: _Members = {
    **dict.fromkeys(("model", "reason"), TEXT),
    "caveats": [TEXT],
    **dict.fromkeys(("n", "sizes"), COUNT),
    "confidence": NUMBER,
    **dict.fromkeys(
        ("bandwidth_bits_per_second", "fixed_delay_seconds", "slope_ns_per_byte"),
        Maybe(_INTERVAL),
    ),
}
# Of messages, whatever measured them: of a run, and of runs that are analysed.
_MESSAGES: _Members = {
    "format": COUNT,
    "workload": Maybe(_OBJECT),
    "lab": Maybe(_OBJECT),
    "kinds": {ANY: _KIND},
    "exchanges": {ANY: _EXCHANGES},
    "round_trips": {ANY: _ROUND_TRIPS},
    "one_way": {ANY: _ONE_WAY},
    "fit": Maybe(_FIT),
    "slowest": Maybe(_OBJECT),
    **dict.fromkeys(("warmup_messages", "train_messages", "loaded_messages"), COUNT),
    "stamps_backwards": COUNT,
    "missing_stamps": _COUNTS,
    "warnings": [TEXT],
}
_RUN: _Members = {
    **_MESSAGES,
    "state": TEXT,
    "failure": Maybe(TEXT),
    "folder": Maybe(TEXT),
    "kernel": TEXT,
    "records": COUNT,
    "lost_records": _COUNTS,
    "unmatched": _COUNTS,
    "counters": {ANY: REAL},
    "unread_at_close": COUNT,
    "capabilities": [_CAPABILITY],
    "untraced_time?": {"periods": COUNT, "seconds": NUMBER},
    "cost?": Maybe({ANY: Maybe(REAL)}),
    **dict.fromkeys(("mesh?", "bulk?", "ops?", "load?", "clocks?"), Maybe(_OBJECT)),
}
# Of the recording of a run, or of one of `watch`, which counts by groups.
_REBUILT: _Members = {
    **{f"{name.removesuffix('?')}?": shape for name, shape in _RUN.items()},
    **{
        name: _RUN[name]
        for name in (
            *("format", "state", "failure", "folder", "kernel"),
            *("lost_records", "unmatched", "capabilities", "warnings"),
        )
    },
    "sampled?": _OBJECT,
    "coverage_ratio?": Maybe(NUMBER),
    "by?": [TEXT],
    "groups?": [_OBJECT],
    "exemplars?": [_OBJECT],
}
_SWEEP: _Members = {
    "format": COUNT,
    "line": TEXT,
    **dict.fromkeys(("seed", "repeat", "planned"), COUNT),
    "swept": [{"name": TEXT, "values": [ANYTHING]}],
    "folders": [TEXT],
    "rows": [
        {
            "combination": _OBJECT,
            **dict.fromkeys(("runs", "runs_done"), COUNT),
            "failures": [TEXT],
        }
    ],
    "knees": [ANYTHING],
    "runs": [
        {
            "combination": _OBJECT,
            "repeat": COUNT,
            "folder": Maybe(TEXT),
            "state": TEXT,
            "failure": Maybe(TEXT),
            "warnings": [TEXT],
        }
    ],
}
_SETUP: _Members = {
    **_MESSAGES,
    "runs": {ANY: {"name": TEXT, **dict.fromkeys(("messages", "round_trips"), COUNT)}},
    "notes": [TEXT],
    "skipped_rows": COUNT,
    "skipped": [TEXT],
}
_SAMPLE_KIND: _Members = {
    "n": COUNT,
    **dict.fromkeys(("sent", "lost"), Maybe(COUNT)),
    "sizes": {ANY: _OBJECT},
    "histogram": Maybe(_OBJECT),
}
# Of run folders, or of other tools' files: each has what it has.
_ANALYZE: _Members = {
    **{f"{name.removesuffix('?')}?": shape for name, shape in _SETUP.items()},
    "format": COUNT,
    "notes": [TEXT],
    "warnings": [TEXT],
    "skipped_rows": COUNT,
    "skipped": [TEXT],
    "setups?": [_SETUP],
    "input?": {
        **dict.fromkeys(("rows", "skipped_rows"), COUNT),
        "format": TEXT,
        "lost": Maybe(COUNT),
        "meta": _OBJECT,
    },
    "latency?": TEXT,
    "samples?": {
        "n": COUNT,
        "lost": Maybe(COUNT),
        "kinds": {ANY: _SAMPLE_KIND},
    },
    "transfers?": [
        {
            **dict.fromkeys(("protocol", "direction"), TEXT),
            **dict.fromkeys(("sent_bytes", "received_bytes"), Maybe(NUMBER)),
            **dict.fromkeys(
                ("sent_bits_per_second", "received_bits_per_second"), Maybe(NUMBER)
            ),
        }
    ],
}
_CHANGE: _Members = {
    "a": Maybe(_OBJECT),
    "b": Maybe(_OBJECT),
    "ratio": Maybe(_INTERVAL),
    "verdict": TEXT,
    "reason": Maybe(TEXT),
}
_OF_RUNS: _Members = {**_CHANGE, **dict.fromkeys(("side", "protocol", "unit"), TEXT)}
_COMPARE: _Members = {
    "format": COUNT,
    **dict.fromkeys(("answer", "baseline", "correction", "drawn"), TEXT),
    **dict.fromkeys(("confidence", "alpha", "smallest"), NUMBER),
    "sides": [{"name": TEXT, "runs": [TEXT], "values": COUNT}],
    "counts": {ANY: _COUNTS},
    "detectable": {ANY: {ANY: Maybe(REAL)}},
    "groups": [
        {
            **dict.fromkeys(("side", "kind", "stage", "verdict"), TEXT),
            "size_bytes": Maybe(COUNT),
            "percentiles": {ANY: _CHANGE},
        }
    ],
    "loss": [_OF_RUNS],
    "throughput": [_OF_RUNS],
    "figures": [{"kind": TEXT, "statistic": TEXT, "size_bytes": Maybe(COUNT)}],
    "setup_differences": {ANY: [_OBJECT]},
    "warnings": [TEXT],
    "gate": Maybe({"outcome": TEXT, "limits": _OBJECT, "findings": [_OBJECT]}),
}
_LIVE_FIGURES: _Members = {
    **dict.fromkeys(("n", "count"), COUNT),
    "count_relative_error": Maybe(NUMBER),
    ANY: Maybe(REAL),
}
_WATCH: _Members = {
    "format": COUNT,
    "kernel": TEXT,
    "t_ns": COUNT,
    **dict.fromkeys(("unix_seconds", "seconds"), NUMBER),
    "by": [TEXT],
    "gone": [TEXT],
    "groups": [
        {
            "name": TEXT,
            "group": {ANY: ANYTHING},
            **dict.fromkeys(("messages", "bytes", "packets", "retransmits"), COUNT),
            "measured": _COUNTS,
            "relative_error": {ANY: Maybe(REAL)},
            "stages": {ANY: _LIVE_FIGURES},
            "exchanges": {
                **dict.fromkeys(("exchanges", "unanswered"), COUNT),
                "parts": {ANY: _LIVE_FIGURES},
            },
            "drops": [{"packets": COUNT}],
        }
    ],
    "lost_records": _COUNTS,
    "unmatched": _COUNTS,
    "capabilities": [_CAPABILITY],
    "cost": {ANY: Maybe(REAL)},
}
_ECHO: _Members = {
    "workloads": [TEXT],
    "secret": FLAG,
    **dict.fromkeys(("connections", "sessions", "messages", "bytes"), COUNT),
    "seconds": NUMBER,
    "folder": Maybe(TEXT),
}
_FLEET: _Members = {
    "format": COUNT,
    **dict.fromkeys(("unix_seconds", "seconds"), NUMBER),
    "figures_age_seconds": Maybe(REAL),
    "agents": [
        {
            "address": TEXT,
            **dict.fromkeys(("name", "problem"), Maybe(TEXT)),
            **dict.fromkeys(("records", "lost_records"), COUNT),
            "age_seconds": Maybe(REAL),
            "pulls": _COUNTS,
        }
    ],
    "pairs": [
        {
            "hosts": [Maybe(TEXT)],
            **dict.fromkeys(("state", "reason"), TEXT),
            **dict.fromkeys(("wall_offset_ns", "low_ns", "high_ns"), Maybe(REAL)),
            "drift_ppb": REAL,
            "base_round_trip_ns": Maybe(REAL),
            "packets": [COUNT],
        }
    ],
    "messages": [
        {
            "clocks": _COUNTS,
            "transit": _OBJECT,
            "queueing": _OBJECT,
            "transit_error_ns": Maybe(REAL),
            "resent_segments": _COUNTS,
        }
    ],
    "exchanges": [{"response": _OBJECT}],
}
_STORY: _Members = {
    **STORIES,
    "causes": [{"cause": TEXT, "share": NUMBER}],
}


class Document(NamedTuple):
    """What a command prints; a line each of those that print several."""

    about: str
    version: int
    shape: Shape


DOCUMENTS = {
    "analyze": Document("what run folders and other tools' files hold", 1, _ANALYZE),
    "compare": Document("what changed from a baseline", 1, _COMPARE),
    "echo": Document("what a responder answered", 1, _ECHO),
    "fleet": Document("an interval of many agents, a line each", 1, _FLEET),
    "join": Document("a run of several hosts, on one clock", 1, _RUN),
    "probes": Document("what this kernel lets latprof measure", 1, [_CAPABILITY]),
    "rebuild": Document("a run, or what was watched, from its recording", 1, _REBUILT),
    "report": Document(
        "files that were written, and what they are of",
        1,
        {"report": [TEXT], "study": _ANALYZE},
    ),
    "run": Document("a run, as summary.json has it", 1, _RUN),
    "story": Document("why slow messages were slow", 1, _STORY),
    "sweep": Document("of `latprof run --sweep` or --repeat: all its runs", 1, _SWEEP),
    "watch": Document("an interval, a line each", 1, _WATCH),
}


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document, by its name in `DOCUMENTS`."""
    about, version, shape = DOCUMENTS[name]
    return {
        "$schema": DIALECT,
        "title": f"latprof {name} --json: {about}",
        "version": version,
        **json_schema(shape),
    }


def broken(old: Any, new: Any, where: str = "") -> list[str]:
    """Name what a schema promised and another does not: all but new members."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key, inner in old.items():
            place = f"{where}/{key}"
            if key == "title" and not where:
                continue
            if key not in new:
                found.append(place)
            else:
                found += broken(inner, new[key], place)
        return found
    if where.endswith("/required"):
        return [f"{where}: {name}" for name in old if name not in new]
    return [] if old == new else [where]
