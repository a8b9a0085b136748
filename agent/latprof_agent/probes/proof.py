"""`python -m latprof_agent.probes.proof`: can what was built measure on this kernel?

For the set-up. A line says why not. The exit status is 1 where the kernel's verifier
refuses what was built, with the end of its log on standard error; a kernel that lacks
hooks, or a container without the rights, is no failure of the build.
"""

from __future__ import annotations

import sys

from latprof_agent.errors import CaptureError
from latprof_agent.probes.catalogue import (
    Capability,
    proven_capabilities,
    require_both_halves,
)


def _refused_by_verifier(found: list[Capability]) -> list[Capability]:
    return [one for one in found if one.verifier_log]


def main() -> int:
    """Try all programs of a run, and say what keeps it from following messages."""
    found: list[Capability] = []
    try:
        found = proven_capabilities()
        require_both_halves(found)
    except CaptureError as error:
        sys.stdout.write(f"{error}\n")
        refused = _refused_by_verifier(found)
        sys.stderr.writelines(f"{one.reason}\n{one.verifier_log}\n" for one in refused)
        return 1 if refused else 0
    for one in _refused_by_verifier(found):
        sys.stdout.write(f"cannot measure {one.quantity}: {one.reason}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
