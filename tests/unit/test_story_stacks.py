"""Stacks of a story: which function a thread was in, and which message is meant."""

from __future__ import annotations

import json

import pytest
from latprof_agent import cli
from latprof_analysis.story.stacks import (
    MOST_STACKS,
    busy_in,
    folded,
    function_of,
    innermost,
)

SAVE = ("main", "rewriteAppendOnlyFile")


@pytest.mark.parametrize(
    ("stacks", "name"),
    [
        # of what it called each has a part
        ({(*SAVE, "memcpy"): 5, (*SAVE, "crc64"): 5}, "rewriteAppendOnlyFile"),
        ({(*SAVE, "memcpy"): 8, SAVE: 2}, "memcpy"),
        ({(*SAVE, "memcpy"): 7, ("main", "serve"): 3}, "main"),
        ({("...", "a"): 6, ("...", "b"): 4}, ""),  # "..." is no function
        ({("?",): 10}, ""),
        ({("main", "f", "g", "f"): 10}, "f"),  # it calls itself
        ({("main", "write", "do_syscall_64 (kernel)"): 9}, "write"),
        ({("bare+0x10",): 5, ("bare+0x20",): 5}, "bare"),
        ({}, ""),
    ],
)
def test_the_innermost_function_of_most_stacks_is_told(stacks, name):
    assert function_of(stacks) == name


def test_stacks_are_kept_with_how_often_there_was_each_the_most_first():
    stacks = {("main", str(i)): i + 1 for i in range(MOST_STACKS + 1)}
    kept = folded(stacks)
    assert len(kept) == MOST_STACKS
    assert kept[0] == {"frames": ["main", "200"], "samples": 201}
    assert min(one["samples"] for one in kept) == 2
    assert innermost({("a", "b"): 1, ("c", "b"): 2, ("b", "a"): 1}) == (
        {"name": "b", "samples": 3},
        {"name": "a", "samples": 1},
    )


def test_a_sequence_of_several_flows_is_told_by_way(tmp_path, capsys):
    ways = "client -> server:80", "client -> server:81"
    message = {
        **{"protocol": "tcp", "kind": "request", "sequence": 7, "size_bytes": 64},
        **{"sender_pid": 1, "reader_pid": 2, "sender_comm": "a", "reader_comm": "b"},
        **{"end_to_end_ns": 10_000_000, "retransmits": 0},
    }
    document = {
        **{"format": 1, "limit_ns": 1_000_000, "slow_messages": 2},
        "recorder": {"copies": 1, "skipped": 0, "symbols": "bcc"},
        "stories": [{"message": message | {"way": w}, "stages": {}} for w in ways],
    }
    (tmp_path / "stories.json").write_text(json.dumps(document))
    assert cli.main(["story", str(tmp_path), "--message=7"]) == 0
    told = capsys.readouterr().out
    assert "2 messages are called 7: client -> server:80#7, client" in told
    assert cli.main(["story", str(tmp_path), f"--message={ways[1]}#7", "--json"]) == 0
    (story,) = json.loads(capsys.readouterr().out)["stories"]
    assert story["message"]["way"] == ways[1]

    (tmp_path / "stories.json").write_text(json.dumps(document | {"format": 2}))
    assert cli.main(["story", str(tmp_path)]) == 1
    assert "it has format 2; this latprof reads 1" in capsys.readouterr().err


def _calls(*names, count=1, frame="f"):
    """Stacks of which no function is in many."""
    return {
        (f"{frame}{i}", f"__x64_sys_{name} (kernel)", f"{name}{i} (kernel)"): 1
        for name in names
        for i in range(count)
    }


def _own(count):
    return {("main+0x1", f"own{i}"): 1 for i in range(count)} | {
        (f"other{i}",): 1 for i in range(count)
    }


@pytest.mark.parametrize(
    ("stacks", "what"),
    [
        ({}, ""),
        ({("main", "a"): 9, ("main", "b"): 1}, "a"),
        ({("a",): 3, ("b",): 3, ("c",): 3, ("d",): 1}, ""),  # few, which are named
        (_calls("read", "write", count=4), "system calls (read, write)"),
        (_own(6), "many functions of its program"),
        (_own(3) | _calls("openat", count=5), "its program and system calls (openat)"),
        ({(f"k{i} (kernel)",): 1 for i in range(9)}, "the kernel"),
    ],
)
def test_of_no_single_function_it_is_said_what_they_are(stacks, what):
    assert busy_in(stacks) == what
