"""stories.json: why slow messages were slow, as `latprof run --story` left it.

Or a folder of `latprof agent`, in which each file has the same with one story.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from latprof_analysis.read.json_document import (
    ANY,
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    Maybe,
    Shape,
    WrongShapeError,
    check_plain,
    check_shape,
    read_json,
)
from latprof_analysis.read.result import ReadError

STORIES_FILE = "stories.json"
# Of an agent's: when, and how long it took; both in us, written in hexadecimal.
NAME = re.compile(r"([0-9a-f]{13})-([0-9a-f]{1,12})\.json")
_MADE_BY = (
    "it is made by `latprof run --story TIME`, or by `latprof agent --story-dir DIR`"
)
_ENDS = ("source", "destination")
_PART: Shape = {
    "kind": TEXT,
    "time_ns": COUNT,
    "what": TEXT,
    "who": [
        {
            **{"pid": COUNT, "comm": TEXT, "time_ns": COUNT, "thread?": COUNT},
            "lower_class?": FLAG,
            "did?": [{"kind": TEXT, "what": TEXT, "time_ns": COUNT}],
        }
    ],
    "functions": [{"name": TEXT, "samples": COUNT}],
    # how many of what ran, how long what slept
    "stacks?": [{"frames": [TEXT], "samples?": COUNT, "time_ns?": COUNT}],
    "cpu": Maybe(COUNT),
}
_QUEUE: Shape = {
    **dict.fromkeys(("name", "kind", "within"), TEXT),
    "fifo": FLAG,
    **dict.fromkeys(("backlog_bytes", "own_bytes"), COUNT),
    "before": [
        {
            **dict.fromkeys(("pid", "processes", "bytes"), COUNT),
            **dict.fromkeys(("comm", "flow"), TEXT),
            "own": FLAG,
        }
    ],
}
_READS: Shape = {
    "messages": Maybe(COUNT),
    "bytes": COUNT,
    "complete": FLAG,
    "senders": [
        {
            **dict.fromkeys(("way", "comm"), TEXT),
            **dict.fromkeys(("own", "in_hand"), FLAG),
            **dict.fromkeys(("pid", "flows", "bytes"), COUNT),
            **dict.fromkeys(("messages", "time_ns"), Maybe(COUNT)),
        }
    ],
}
_TCP: Shape = {
    **dict.fromkeys(("cwnd_packets", "in_flight_packets", "window_bytes"), COUNT),
    **dict.fromkeys(("unsent_bytes", "mss_bytes", "least_rtt_us", "rto_us"), COUNT),
    **dict.fromkeys(("ssthresh_packets", "pacing_bytes_per_second"), Maybe(COUNT)),
}
FORMAT = 1
STORIES: dict[str, Shape] = {
    "format?": COUNT,
    "limit_ns": Maybe(COUNT),
    "quantile?": NUMBER,
    "slow_messages": COUNT,
    **dict.fromkeys(("slow_exchanges?", "slow_flows?", "flows_with_story?"), COUNT),
    "more_flows?": FLAG,
    "exchange_limit_ns?": Maybe(COUNT),
    "sample?": [
        {
            "message": {"kind": TEXT, "end_to_end_ns": COUNT},
            "stages": {ANY: {"time_ns": COUNT, "parts": Maybe([_PART])}},
            "stands_for": NUMBER,
        }
    ],
    "recorder": {"copies": COUNT, "skipped": COUNT, "symbols": TEXT},
    "stories": [
        {
            "message": {
                **dict.fromkeys(("protocol", "kind"), TEXT),
                **dict.fromkeys(("sequence", "size_bytes"), Maybe(COUNT)),
                **dict.fromkeys(("sender_pid", "reader_pid"), Maybe(COUNT)),
                "reader_thread?": Maybe(COUNT),
                **dict.fromkeys(("entry_queued?", "low_water_bytes?"), COUNT),
                **dict.fromkeys(("sender_comm", "reader_comm"), Maybe(TEXT)),
                "reader_thread_comm?": Maybe(TEXT),
                **dict.fromkeys(("end_to_end_ns",), Maybe(COUNT)),
                "retransmits": Maybe(COUNT),
                **{f"{end}_address?": Maybe(TEXT) for end in _ENDS},
                **{f"{end}_port?": Maybe(COUNT) for end in _ENDS},
            },
            "stages": {
                ANY: {
                    "time_ns": COUNT,
                    "parts": Maybe([_PART]),
                    "queue?": Maybe(_QUEUE),
                    "timeline?": [
                        {
                            **dict.fromkeys(("from_ns", "time_ns"), COUNT),
                            **dict.fromkeys(("kind", "what"), TEXT),
                            "cpu": Maybe(COUNT),
                            "tcp?": _TCP,
                        }
                    ],
                    "reads?": Maybe(_READS),
                    "accept?": Maybe({"waited_ns": Maybe(COUNT)}),
                }
            },
            "id?": TEXT,
            "unix_seconds?": NUMBER,
        }
    ],
}


def read_stories(path: Path) -> dict[str, Any]:
    """Return the stories of a run folder, a folder of an agent's, or a file.

    Of several files the stories are together, the slowest first; `limit_ns` is the
    lowest.

    Raises
    ------
    ReadError
        There are none, or they are no stories.
    """
    if not path.is_dir():
        return _read(path)
    if (path / STORIES_FILE).exists():
        return _read(path / STORIES_FILE)
    files = sorted(file for file in path.glob("*.json") if NAME.fullmatch(file.name))
    if not files:
        raise ReadError(path / STORIES_FILE, f"there is none: {_MADE_BY}")
    return _together([document for file in files if (document := _if_there(file))])


def check_stories(document: Any) -> None:
    """Raise WrongShapeError where a document is not what is read here."""
    check_plain(document, "")
    check_shape(document, STORIES, "")


def took_ns(story: dict[str, Any]) -> int:
    """Return how long a message took, as far as it is known."""
    whole_ns = story["message"]["end_to_end_ns"]
    if whole_ns is not None:
        return int(whole_ns)
    return sum(of["time_ns"] for of in story["stages"].values())


def _if_there(file: Path) -> dict[str, Any] | None:
    try:
        return _read(file)
    except ReadError:
        if file.exists():
            raise
        return None  # the agent has made room meanwhile


def stories_of_runs(folders: Iterable[Path], notes: list[str]) -> dict[str, Any] | None:
    """Return the stories of those run folders that have some, together.

    None: none has. What cannot be read is named in a line of `notes`.
    """
    found = []
    for folder in folders:
        file = folder / STORIES_FILE
        if file.is_file():
            try:
                found.append(_read(file))
            except ReadError as error:
                notes.append(f"stories are left out: {error}")
    return _together(found) if found else None


def _together(documents: list[dict[str, Any]]) -> dict[str, Any]:
    recorders = [d["recorder"] for d in documents]
    symbols = sorted({r["symbols"] for r in recorders} - {"none needed"})
    quantiles = [d["quantile"] for d in documents if "quantile" in d]
    has_sample = any(d.get("sample") for d in documents)
    return {
        **{name: _least(documents, name) for name in ("limit_ns", "exchange_limit_ns")},
        **({"quantile": min(quantiles)} if quantiles else {}),
        **{name: sum(d.get(name, 0) for d in documents) for name in _COUNTS},
        "more_flows": any(d.get("more_flows") for d in documents),
        "sample": [one for d in documents for one in _sample(d)] if has_sample else [],
        "recorder": {
            "copies": sum(r["copies"] for r in recorders),
            "skipped": sum(r["skipped"] for r in recorders),
            "symbols": symbols[0] if symbols else "none needed",
        },
        "stories": sorted(
            (story for d in documents for story in d["stories"]),
            key=took_ns,
            reverse=True,
        ),
    }


_COUNTS = ("slow_messages", "slow_exchanges", "slow_flows", "flows_with_story")


def _least(documents: list[dict[str, Any]], name: str) -> int | None:
    """Return the lowest of their limits; None where one has none."""
    limits = [d.get(name, d["limit_ns"]) for d in documents]
    return None if None in limits else min(limits, default=None)


def _sample(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return those that stand for all slow ones: the stories, if there are no more."""
    sample: list[dict[str, Any]] = document.get("sample") or [
        story | {"stands_for": 1} for story in document["stories"]
    ]
    return sample


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise ReadError(path, f"there is none: {_MADE_BY}")
    document = read_json(path)
    try:
        check_stories(document)
    except WrongShapeError as error:
        raise ReadError(path, str(error)) from error
    written = document.get("format", FORMAT)
    if written != FORMAT:
        raise ReadError(path, f"it has format {written}; this latprof reads {FORMAT}")
    return document
