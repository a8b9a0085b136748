"""Where cgroup v2 is: commands get groups there, and programs are attached to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from latprof_agent.kernel_text import lines_of

MOUNTS = Path("/proc/self/mounts")
_FIRST_PROCESS = Path("/proc/1")  # the host's, where we share its pid namespace
_ROOT_INODE = 1  # of the root of all control groups, in every kernel with cgroup v2
_ESCAPED = re.compile(rb"\\([0-3][0-7]{2})")


def cgroup2_mount(mounts: Path = MOUNTS) -> Path | None:
    """Find where cgroup v2 is mounted first; not always /sys/fs/cgroup."""
    return next(_mounts(mounts), None)


def widest_mount(mounts: Path = MOUNTS, first: Path = _FIRST_PROCESS) -> Path | None:
    """Find a mount from whose root all control groups are seen, else the first.

    A container with a cgroup namespace of its own sees them where the host's mount is
    given to it, e.g. at /host/sys/fs/cgroup, or where the host's first process has it.
    """
    whole = (place for place in _mounts(mounts) if is_root(place))
    of_first = (
        first / "root" / place.relative_to("/")
        for place in _mounts(first / "mounts")
        if is_root(first / "root" / place.relative_to("/"))
    )
    return next(whole, None) or next(of_first, None) or cgroup2_mount(mounts)


def is_root(mount: Path) -> bool:
    """Whether all control groups are below: not so in a namespace of their own."""
    with suppress(OSError):  # it may not be looked at
        return mount.stat().st_ino == _ROOT_INODE
    return False


def _mounts(mounts: Path) -> Iterator[Path]:
    with suppress(OSError):  # of another process: only for who may trace it
        for line in lines_of(mounts):
            _, place, kind, *_ = line.split(b" ")
            if kind == b"cgroup2":
                yield Path(os.fsdecode(_ESCAPED.sub(_byte, place)))


def _byte(escaped: re.Match[bytes]) -> bytes:
    """What a blank or a newline is written as, in octal digits."""
    return bytes([int(escaped[1], 8)])
