"""Load probes for trial, apart from any recording: does the kernel take them?"""

from __future__ import annotations

import os
from collections.abc import Sequence

from latprof_agent import _drain
from latprof_agent.probes.layout import OBJECT, layout_of

SEE_OFFER = "run `latprof probes` to see what this kernel offers"


def first_line(error: OSError) -> str:
    """Return the first line of libbpf's reason, or the system's words."""
    lines = (error.strerror or "").strip().splitlines()
    telling = [line for line in lines if "Retrying" not in line]
    return telling[0] if telling else os.strerror(error.errno or 0)


def refusal(
    programs: Sequence[str], *, attach: bool = False, cgroup: int = -1, hertz: int = 0
) -> str:
    """Return why the kernel refuses these programs, or nothing.

    No protocol is on, so that no socket is watched. With `hertz` they are attached to
    the clock of each CPU, so many times a second.
    """
    layout = layout_of()
    trial = _drain.Drain(str(OBJECT))
    try:
        trial.set_options(bytes(layout.options.itemsize))
        for program in programs:
            trial.enable(program)
        trial.load()
        for program in programs if attach else ():
            if hertz:
                trial.attach_clock(program, hertz)
            else:
                trial.attach(program, cgroup)
    except OSError as error:
        return first_line(error)
    finally:
        trial.close()
    return ""
