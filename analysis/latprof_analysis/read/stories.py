"""stories.json: why slow messages were slow, as `latprof run --story` left it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from latprof_analysis.read.json_document import (
    ANY,
    COUNT,
    FLAG,
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
_PART: Shape = {
    "kind": TEXT,
    "time_ns": COUNT,
    "what": TEXT,
    "who": [{"pid": COUNT, "comm": TEXT, "time_ns": COUNT}],
    "functions": [{"name": TEXT, "samples": COUNT}],
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
_STORIES: Shape = {
    "limit_ns": COUNT,
    "slow_messages": COUNT,
    "recorder": {"copies": COUNT, "skipped": COUNT, "symbols": TEXT},
    "stories": [
        {
            "message": {
                **dict.fromkeys(("protocol", "kind"), TEXT),
                **dict.fromkeys(("sequence", "size_bytes"), Maybe(COUNT)),
                **dict.fromkeys(("sender_pid", "reader_pid"), Maybe(COUNT)),
                "reader_thread?": Maybe(COUNT),
                **dict.fromkeys(("sender_comm", "reader_comm"), Maybe(TEXT)),
                **dict.fromkeys(("end_to_end_ns",), COUNT),
                "retransmits": Maybe(COUNT),
            },
            "stages": {
                ANY: {
                    "time_ns": COUNT,
                    "parts": Maybe([_PART]),
                    "queue?": Maybe(_QUEUE),
                }
            },
        }
    ],
}


def read_stories(folder: Path) -> dict[str, Any]:
    """Return the stories of a run folder.

    Raises
    ------
    ReadError
        There are none, or they are no stories.
    """
    path = folder / STORIES_FILE
    if not path.exists():
        raise ReadError(path, "there is none: it is made by `latprof run --story TIME`")
    document = read_json(path)
    try:
        check_plain(document, "")
        check_shape(document, _STORIES, "")
    except WrongShapeError as error:
        raise ReadError(path, str(error)) from error
    return document
