"""Stories that `latprof run --story` left of a command's messages, with true sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from latprof_analysis.stages import EXCHANGE
from latprof_analysis.story.story import MOST_SPANS
from latprof_process import run


def check_parts(stories: list[dict[str, Any]]) -> None:
    """Parts sum to their stage, to the nanosecond."""
    for story in stories:
        for of in story["stages"].values():
            parts = of["parts"] or [of]
            assert sum(part["time_ns"] for part in parts) == of["time_ns"]
            check_timeline(of, parts)


def check_timeline(of: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    """Spans are in order, within the stage, and as long as what parts say."""
    spans, at_ns = of.get("timeline") or [], 0
    for span in spans:
        assert span["from_ns"] >= at_ns
        at_ns = span["from_ns"] + span["time_ns"]
    assert at_ns <= of["time_ns"]
    for kind in ("asleep", "waiting") if 0 < len(spans) < MOST_SPANS else ():
        whole_ns = sum(part["time_ns"] for part in parts if part["kind"] == kind)
        assert sum(s["time_ns"] for s in spans if s["kind"] == kind) == whole_ns


def first_parts(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What took most of each slow message's wait for its reader."""
    waits = [
        (story["stages"]["receive_queue"], story["message"]["end_to_end_ns"])
        for story in document["stories"]
    ]
    return [of["parts"][0] for of, whole_ns in waits if of["time_ns"] > whole_ns / 2]


def told_of(
    out: Path, *command: Any, limit: str = "10ms"
) -> tuple[dict[str, Any], str]:
    """Stories of what a command's messages met, and the command's own words."""
    words = ("run", "--quiet", "--no-lab", "--user=root", f"--story={limit}")
    latprof = run(*words, f"--out={out}", "--", *map(str, command))
    assert latprof.process.returncode == 0, latprof.err
    assert latprof.left() == []
    document = json.loads((out / "stories.json").read_text())
    check_parts(document["stories"])
    for story in document["stories"]:
        stages = sum(of["time_ns"] for of in story["stages"].values())
        assert stages == story["message"]["end_to_end_ns"]
    document["stories"] = of_messages(document)
    return document, latprof.err  # as the summary is on stdout


def of_messages(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Stories of messages, and not of exchanges, which may have been slow as well."""
    stories = document["stories"]
    return [story for story in stories if story["message"]["kind"] != EXCHANGE]
