"""Where cgroup v2 is: commands get groups there, and programs are attached to it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from latprof_agent.kernel_text import lines_of

MOUNTS = Path("/proc/self/mounts")
_ROOT_INODE = 1  # of the root of all control groups, in every kernel with cgroup v2
_ESCAPED = re.compile(rb"\\([0-3][0-7]{2})")


def cgroup2_mount(mounts: Path = MOUNTS) -> Path | None:
    """Find where cgroup v2 is mounted; not always /sys/fs/cgroup."""
    for line in lines_of(mounts):
        _, place, kind, *_ = line.split(b" ")
        if kind == b"cgroup2":
            return Path(os.fsdecode(_ESCAPED.sub(_byte, place)))
    return None


def is_root(mount: Path) -> bool:
    """Whether all control groups are below: not so in a namespace of their own."""
    return mount.stat().st_ino == _ROOT_INODE


def _byte(escaped: re.Match[bytes]) -> bytes:
    """What a blank or a newline is written as, in octal digits."""
    return bytes([int(escaped[1], 8)])
