"""What run.json says of a run of any kind: what ran, and on which host."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from typing import Any

from latprof_analysis.records.joiner import UNREAD_AT_CLOSE
from latprof_analysis.records.path_devices import with_last_devices

from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.sinks.sink import Tally


def with_counts(
    description: dict[str, Any],
    tally: Tally,
    passed: list[dict[str, Any]],
    link: str,
) -> dict[str, Any]:
    """Add to a description what was counted.

    `passed` is what `PathDevices.as_list` gives; `link` is the lab's interface.
    """
    unmatched = dict(tally.unmatched)
    unread = unmatched.pop(UNREAD_AT_CLOSE, 0)
    return description | {
        "counters": tally.counters,
        "unmatched": unmatched,
        "unread_at_close": unread,
        "path_devices": passed,
        "capabilities": with_last_devices(description["capabilities"], passed, link),
    }


def described(
    folder: RunFolder,
    state: str,
    *,
    name: str,
    arguments: Sequence[str],
    workload: dict[str, Any],
    lab: dict[str, Any] | None,
    capabilities: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return the document as of now."""
    uname = platform.uname()
    return {
        "format": 1,
        "state": state,
        "name": name,
        "arguments": list(arguments),
        "written_unix_seconds": time.time(),
        "folder": str(path) if (path := folder.found()) else None,
        "host": uname.node,
        "kernel": uname.release,
        "machine": uname.machine,
        "clock": "CLOCK_MONOTONIC, one host",
        "workload": workload,
        "lab": lab,
        "capabilities": capabilities,
    }
