"""Stories as a run writes them, of names that somebody chose to do harm."""

from __future__ import annotations

from typing import Any

from latprof_analysis.read.stories import check_stories

MS = 1_000_000
SCRIPT = "</script><script>alert(1)</script>"
HOSTILE = (SCRIPT, 'std::map<a, "b">', "=cmd()", "\x1b[31mred", "\u202egnol", "a\nb")


def part(kind: str, time_ns: int, **more: Any) -> dict[str, Any]:
    fields = {"what": "", "who": [], "functions": [], "stacks": [], "cpu": None}
    return {"kind": kind, "time_ns": time_ns, **fields, **more}


def story(read_ns: int, took_ns: int, **message: Any) -> dict[str, Any]:
    """A reader that was busy in a function for most of it, and slept for the rest."""
    asleep_ns = took_ns // 4
    stacks = [
        {"frames": ["main", name, "inner"], "samples": 2 + i}
        for i, name in enumerate(HOSTILE)
    ]
    sleeps = [
        {"frames": [SCRIPT, "futex_wait (kernel)"], "time_ns": asleep_ns - MS},
        {"frames": [SCRIPT], "time_ns": MS // 2},
    ]
    parts = [
        part("busy", took_ns - asleep_ns, what=SCRIPT, stacks=stacks, cpu=1),
        part("asleep", asleep_ns, what="for another thread (futex)", stacks=sleeps),
    ]
    spans = [
        {"from_ns": 0, "time_ns": asleep_ns, "kind": "asleep", "what": "", "cpu": None},
        {
            "from_ns": asleep_ns,
            "time_ns": took_ns - asleep_ns,
            "kind": "busy",
            "what": "",
            "cpu": 1,
        },
    ]
    sent_ns = read_ns - took_ns - 3000
    stamps = {"send_ns": sent_ns, "ready_ns": sent_ns + 3000, "read_ns": read_ns}
    return {
        "message": {
            "protocol": "tcp",
            "kind": "message",
            "sequence": 7,
            "size_bytes": 100,
            "retransmits": 0,
            "sender_pid": 1,
            "sender_comm": "client",
            "reader_pid": 2,
            "reader_comm": "server",
            "end_to_end_ns": took_ns + 3000,
            **stamps,
            **message,
        },
        "stages": {
            "send_queue": {"time_ns": 3000, "parts": None},
            "receive_queue": {"time_ns": took_ns, "parts": parts, "timeline": spans},
        },
    }


def document(*stories: dict[str, Any]) -> dict[str, Any]:
    found = {
        "format": 1,
        "limit_ns": 10 * MS,
        "slow_messages": len(stories),
        "recorder": {"copies": 1, "skipped": 0, "symbols": "bcc"},
        "stories": sorted(stories, key=lambda s: -s["message"]["end_to_end_ns"]),
    }
    check_stories(found)
    return found
