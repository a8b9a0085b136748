"""What needs root says so at once."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from latprof_agent.errors import LatprofError

_USER_NAMESPACE = Path("/proc/self/ns/user")
_INITIAL = 0xEFFFFFFD  # its inode, PROC_USER_INIT_INO of include/linux/proc_ns.h


def require_root(command: str) -> None:
    """Raise LatprofError where the user is not root of the host."""
    if os.geteuid() != 0:
        raise LatprofError(
            f"cannot do {command}: this needs root, to load probes and make "
            f"namespaces; use sudo latprof {command}"
        )
    with suppress(OSError):  # no /proc: then others will say it
        if _USER_NAMESPACE.stat().st_ino != _INITIAL:
            raise LatprofError(
                f"cannot do {command}: root of a user namespace may neither load "
                f"probes nor set up links; use sudo latprof {command} outside of it"
            )
