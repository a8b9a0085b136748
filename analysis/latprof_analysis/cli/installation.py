"""What keeps an installed latprof from starting, each in one line."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from latprof_analysis.errors import LatprofError
from latprof_analysis.extras import extra_of, not_installed

# What numpy's wheels for x86_64 are compiled for: x86-64-v2, of which they use no
# cmpxchg16b. On less an illegal instruction ends the process before it can say why.
_X86_64_V2 = frozenset(("popcnt", "sse4_1", "sse4_2", "ssse3"))


def check_processor(
    cpuinfo: Path = Path("/proc/cpuinfo"), machine: str = os.uname().machine
) -> None:
    """Raise LatprofError on an x86-64 processor that lacks what numpy is built for.

    What cannot be read is no reason to refuse.
    """
    if machine != "x86_64":
        return
    try:
        with cpuinfo.open() as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return
    if flags and (lacks := _X86_64_V2 - set(flags.split())):
        raise LatprofError(
            f"cannot start: this processor has no {', '.join(sorted(lacks))}, which "
            "numpy is compiled for (x86-64-v2); use another host, or give the virtual "
            "machine its host's processor"
        )


def not_loaded(
    error: ImportError,
    prefix: str = sys.prefix,
    built_for: str = str(sysconfig.get_config_var("SOABI")),
) -> LatprofError:
    """Make one line of what cannot be imported; raises it again where it is a bug.

    That it is where we run from a checkout, and not from an environment.
    """
    if isinstance(error, ModuleNotFoundError) and extra_of(error.name):
        return not_installed("go on", error.name)
    if not Path(__file__).is_relative_to(prefix):
        raise error
    # numpy's own words are many lines; their cause is one
    cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    why = " ".join(str(cause).split())
    if "musl" in built_for:
        how = "this Python is musl's, and latprof is compiled for glibc: use the image"
    elif "GLIBC_" in why:
        how = "this glibc is too old: use Debian 12, Ubuntu 22.04, RHEL 9 or later"
    else:
        how = "its files are not whole, or of several versions: install latprof again"
    return LatprofError(f"cannot load what latprof needs: {why}; {how}")
