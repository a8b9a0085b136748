"""Expected failures.

LatprofError      one line for the user, exit code 1
├─ UsageError     a value that cannot be used, exit code 2
├─ LabError       namespaces, links and qdiscs
├─ CaptureError   loading, attaching and draining the probes
├─ StoreError     the run folder
├─ FilterError    what a filter names is not there
├─ WorkloadError  the generator or the user's command
├─ LendError      a recording that another host has
├─ ContainerError names of containers, as their runtime has them
└─ InterruptedRun ended by the user before anything was recorded
"""

from __future__ import annotations

from collections.abc import Callable

from latprof_analysis.errors import (
    LatprofError,
    UsageError,
    refusals_in_one_line,
    remedy,
)

__all__ = [
    "LatprofError",
    "UsageError",
    "close_after",
    "refusals_in_one_line",
    "remedy",
]


class LabError(LatprofError):
    """Namespaces, links and qdiscs."""


class CaptureError(LatprofError):
    """Loading, attaching and draining the probes."""


class StoreError(LatprofError):
    """The run folder."""


class FilterError(LatprofError):
    """What a filter names is not there."""


class WorkloadError(LatprofError):
    """The generator or the user's command."""


class LendError(LatprofError):
    """A recording that another host has: why it is not had."""


class ContainerError(LatprofError):
    """Names of containers, as their runtime has them."""


class InterruptedRun(LatprofError):
    """Ended by the user before anything was recorded."""


def close_after(first: BaseException | None, close: Callable[[], None]) -> None:
    """Close what ends by an error, or well: what that raises never hides the error.

    It is a note of the first error, which is to be raised again.
    """
    try:
        close()
    except LatprofError as error:
        if not isinstance(first, LatprofError):
            raise
        first.add_note(str(error))
