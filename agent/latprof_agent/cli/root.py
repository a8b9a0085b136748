"""What needs root says so at once."""

from __future__ import annotations

import os

from latprof_agent.errors import LatprofError


def require_root(command: str) -> None:
    """Raise LatprofError where the user is not root."""
    if os.geteuid() != 0:
        raise LatprofError(
            f"cannot do {command}: this needs root, to load probes and make "
            f"namespaces; use sudo latprof {command}"
        )
