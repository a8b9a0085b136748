"""What this process must have before it does anything: streams, and room by its limits.

Below these limits libraries fail in the middle of something: with pages of their own
words, with the wrong reason, or they wait for good.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from latprof_analysis.errors import LatprofError

_OPEN_FILES = 128  # a run has 70
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def open_standard_streams() -> None:
    """Open /dev/null in place of closed ones, whose numbers our files would get."""
    for number, (name, mode) in enumerate(
        (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
    ):
        try:
            os.fstat(number)
        except OSError:
            # the lowest number that is free, so this one; children have it, too
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def check_limits(address_space_bytes: int) -> None:
    """Raise LatprofError where a limit of this process is too low for any work."""
    if not find_spec("resource"):
        return  # the analysis on a system that has none
    import resource

    for limit, least, what, word in (
        (resource.RLIMIT_NOFILE, _OPEN_FILES, "open files", "ulimit -n"),
        (
            resource.RLIMIT_AS,
            address_space_bytes,
            "bytes of address space",
            "ulimit -v",
        ),
        # most of the address space is libraries, and room that is never used
        (resource.RLIMIT_DATA, address_space_bytes // 2, "bytes of data", "ulimit -d"),
    ):
        allowed = resource.getrlimit(limit)[0]
        if allowed != resource.RLIM_INFINITY and allowed < least:
            raise LatprofError(
                f"cannot start: {what} are limited to {allowed}, and {least} are "
                f"needed; raise `{word}`"
            )


def keep_blas_small() -> None:
    """Let NumPy begin no threads: each takes 40 MB of address space, and none has work.

    Told to the libraries alone: os.environ, which a COMMAND gets, stays as it is.
    """
    if _BLAS_THREADS not in os.environ:
        os.putenv(_BLAS_THREADS, "1")
