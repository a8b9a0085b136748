"""Text of the kernel has names of others in it, which may hold what ends a line."""

from __future__ import annotations

import os

import pytest
from latprof_agent.filters import places
from latprof_agent.kernel_text import lines_of
from latprof_agent.probes.cgroup import cgroup2_mount

ENDS = [b"\f", b"\v", b"\r", b"\x1c", b"\x85", "\x85".encode(), "\u2028".encode()]


@pytest.mark.parametrize("end", ENDS)
def test_a_line_ends_at_a_newline_only(tmp_path, end):
    text = b"one" + end + b"more\ntwo\n"
    (tmp_path / "maps").write_bytes(text)
    assert lines_of(tmp_path / "maps") == [b"one" + end + b"more", b"two"]


def test_an_empty_file_has_no_lines(tmp_path):
    (tmp_path / "maps").write_bytes(b"")
    assert lines_of(tmp_path / "maps") == []


@pytest.mark.parametrize("end", [*ENDS, "\u2003".encode()])
def test_a_mount_of_a_hostile_name_is_no_cgroup(tmp_path, end):
    mounts = tmp_path / "mounts"
    hostile = b"/home/eve/" + end + b"cgroup2" + end + b"/evil" + end + b"cgroup2"
    mounts.write_bytes(
        b"fuse" + end + b"x " + hostile + b" fuse.x rw,nosuid 0 0\n"
        b"cgroup2 /sys/fs/control\\040group\xff cgroup2 rw 0 0\n"
    )
    found = cgroup2_mount(mounts)
    assert found
    assert os.fsencode(found) == b"/sys/fs/control group\xff"


def test_a_device_of_a_hostile_name_is_one_device(tmp_path, monkeypatch):
    process = tmp_path / "7"
    (process / "ns").mkdir(parents=True)
    (process / "ns/net").write_bytes(b"")
    (process / "net").mkdir()
    line = "a\u2028b\u2003c: 0 0\n".encode()
    (process / "net/dev").write_bytes(b"head\nhead\n    lo: 1 2\n  " + line)
    monkeypatch.setattr(places, "PROC", tmp_path)
    monkeypatch.setattr(places.netns, "PROC", tmp_path)
    monkeypatch.setattr(places.netns, "NETNS_DIRECTORY", tmp_path / "none")
    assert places._interfaces() == {"lo", "a\u2028b\u2003c"}
