"""Load probes for trial, apart from any recording: does the kernel take them?"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from latprof_agent import _drain
from latprof_agent.privileges import what_forbids_bpf
from latprof_agent.probes.layout import OBJECT, OLD_OBJECT, layout_of

SEE_OFFER = "run `latprof probes` to see what this kernel offers"
ANOTHER_CLANG = (
    "build it with another clang (14, 16, 19 and 22 are tested), or report it"
)

# What all programs are built with, with the first Linux that has it.
_STORAGE = "TASK_STORAGE"
_NEEDED = (
    ("bpf_map_type", "BPF_MAP_TYPE_TASK_STORAGE", _STORAGE, "5.11"),
    ("bpf_func_id", "BPF_FUNC_loop", "bpf_loop", "5.17"),
)

# What else the programs need that the object for kernels without it has not.
_REGISTERS = "bpf_task_pt_regs", "5.15"
_NOT_IN_OLD = {
    "on_accept4": _REGISTERS,
    "on_accept6": _REGISTERS,
    "on_flight_wake": _REGISTERS,
}

# An errno that the kernel keeps to itself: the C library has no word for it.
_WORDLESS = re.compile(r"(ERROR: strerror_r\(-524\)=\d+|Unknown error 524)")
_NOT_SUPPORTED = "Operation not supported (ENOTSUPP)"
# What the verifier took, and yet may not be attached anywhere: no trampolines.
_NO_FENTRY = re.compile(r"failed to attach: " + _WORDLESS.pattern)
_WITH_FENTRY = "use a kernel that has fentry (on arm64 Linux 6.4 or later)"

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
    remedy: str = ""  # where this kernel alone is at fault


def first_line(error: OSError) -> str:
    """Return the first line of libbpf's reason, or the system's words."""
    lines = (error.strerror or "").strip().splitlines()
    reasons = [line for line in lines if "Retrying" not in line]
    why = reasons[0] if reasons else os.strerror(error.errno or 0)
    return _WORDLESS.sub(_NOT_SUPPORTED, why)


@cache
def _lacks() -> tuple[tuple[str, str], ...]:
    """What of `_NEEDED` this kernel's types lack, and the releases that have it.

    Where they cannot be read, nothing is known to lack: who asks for a hook says why.
    """
    found = []
    with suppress(OSError):
        for enum, label, what, release in _NEEDED:
            known = _drain.kernel_enum(enum)
            if known and label not in known:
                found.append((what, release))
    return tuple(found)


def kernel_object() -> Path:
    """Return the object that this kernel is to take: see bpf/old.bpf.h."""
    return OLD_OBJECT if dict(_lacks()).get(_STORAGE) else OBJECT


def missing_basis(programs: Sequence[str]) -> Refusal | None:
    """Return what these programs need and this kernel lacks, or nothing."""
    if kernel_object() == OBJECT:
        return _without(_lacks())
    return _without({_NOT_IN_OLD[p] for p in programs if p in _NOT_IN_OLD})


def missing_counting() -> Refusal | None:
    """Return what counting in the kernel needs and this kernel lacks, or nothing.

    Without bpf_loop it is more than the verifier follows.
    """
    return _without([lack for lack in _lacks() if lack[0] != _STORAGE])


def _without(lacks: Collection[tuple[str, str]]) -> Refusal | None:
    if not lacks:
        return None
    names = ", ".join(f"{what} (of Linux {release})" for what, release in lacks)
    newest = max((release for _, release in lacks), key=_by_number)
    return Refusal(f"kernel has no {names}", remedy=f"use Linux {newest} or later")


def _by_number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


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
    if forbidden := what_forbids_bpf():
        return Refusal(forbidden[0], program, remedy=forbidden[1])
    if not ended or error.errno == errno.EPERM:
        remedy = _WITH_FENTRY if _NO_FENTRY.search(text) else ""
        return Refusal(first_line(error), program, remedy=remedy)
    log = "\n".join(line for line in log.splitlines() if "libbpf: " not in line)
    return Refusal(_verifiers_words(log), program, log)


def refusal(
    programs: Sequence[str], *, attach: bool = False, cgroup: int = -1, hertz: int = 0
) -> Refusal | None:
    """Return why the kernel refuses these programs, or nothing.

    No protocol is on, so that no socket is watched. With `hertz` they are attached to
    the clock of each CPU, so many times a second.
    """
    built = kernel_object()
    layout = layout_of(built)
    trial = _drain.Drain(str(built))
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
