"""Load probes for trial, apart from any recording: does the kernel take them?"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from latprof_agent import _drain
from latprof_agent.probes.layout import OBJECT, layout_of

SEE_OFFER = "run `latprof probes` to see what this kernel offers"
ANOTHER_CLANG = "build it with another clang (14, 16 and 19 are tested), or report it"

# As libbpf names the program at fault.
_PROGRAM = re.compile(r"\bprog '(\w+)'")
_LOG_END = "-- END PROG LOAD LOG --"
# Of the verifier's log: instructions, what registers hold, sources, ways and counts.
_STEP = re.compile(
    r"\s*(;|\d+: |from \d+ |(frame\d+:)?\s*R\d+(_\w+)?=|fp-\d+|processed \d+ insns"
    r"|(cur|old) state:|caller:|callee:|mark_precise:|verification time|stack depth)"
)
_SOURCE = re.compile(r"^;.* @ (\S+:\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Refusal:
    """Why the kernel does not take programs."""

    why: str
    program: str = ""  # the one at fault, where libbpf names one
    verifier_log: str = ""  # its end, where the verifier has refused it


def first_line(error: OSError) -> str:
    """Return the first line of libbpf's reason, or the system's words."""
    lines = (error.strerror or "").strip().splitlines()
    reasons = [line for line in lines if "Retrying" not in line]
    return reasons[0] if reasons else os.strerror(error.errno or 0)


def _verifiers_words(log: str) -> str:
    said = [line for line in log.splitlines() if line and not _STEP.match(line)]
    sources = _SOURCE.findall(log)
    where = f" ({sources[-1]})" if sources else ""
    return (said[-1].strip() if said else "it says not why") + where


def refusal_in(error: OSError) -> Refusal:
    """Read why programs were not loaded.

    What the verifier refuses has a log; a missing right has none, or is EPERM.
    """
    text = error.strerror or ""
    named = _PROGRAM.search(text)
    program = named[1] if named else ""
    log, ended, _ = text.partition(_LOG_END)
    if not ended or error.errno == errno.EPERM:
        return Refusal(first_line(error), program)
    log = "\n".join(line for line in log.splitlines() if "libbpf: " not in line)
    return Refusal(_verifiers_words(log), program, log)


def refusal(
    programs: Sequence[str], *, attach: bool = False, cgroup: int = -1, hertz: int = 0
) -> Refusal | None:
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
        return refusal_in(error)
    finally:
        trial.close()
    return None
