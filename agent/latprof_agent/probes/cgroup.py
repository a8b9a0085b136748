"""Where cgroup v2 is: commands get groups there, and programs are attached to it."""

from __future__ import annotations

from pathlib import Path

MOUNTS = Path("/proc/self/mounts")


def cgroup2_mount(mounts: Path = MOUNTS) -> Path | None:
    """Find where cgroup v2 is mounted; not always /sys/fs/cgroup."""
    for line in mounts.read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place.encode().decode("unicode_escape"))
    return None
