"""What needs rights of root says at once which are missing."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from latprof_agent import privileges
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
    _require_initial_namespace(command)


def require_capabilities(command: str) -> None:
    """Raise LatprofError where one is missing of those that measuring needs."""
    _require_initial_namespace(command)
    if missing := privileges.missing():
        raise LatprofError(
            f"cannot do {command}: user {os.geteuid()} does not have "
            f"{', '.join(missing)}, which loading probes needs; use sudo latprof "
            f"{command}, or add what is missing (systemd: AmbientCapabilities=, "
            "containers: securityContext.capabilities.add or --cap-add)"
        )


def _require_initial_namespace(command: str) -> None:
    with suppress(OSError):  # no /proc: then others will say it
        if _USER_NAMESPACE.stat().st_ino != _INITIAL:
            raise LatprofError(
                f"cannot do {command}: root of a user namespace may neither load "
                f"probes nor set up links; use sudo latprof {command} outside of it"
            )
