"""Stacks of functions: counted, and the function that most of them were in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Stack = tuple[str, ...]  # the outermost function first

KERNEL = " (kernel)"  # behind names of the kernel's functions
DROPPED = "..."  # stands for frames that are not known
MOST_STACKS = 200
SHARE = 0.8
FEW = 3  # functions that a sentence names
# Where names come from, of stories that a recording without its end tells.
NAMES_NOT_RECORDED = "not recorded"
# Any system call or fault is in them, or they are none: they explain nothing.
_ENTRIES = (
    "?",
    "entry_SYSCALL_64_after_hwframe (kernel)",
    "do_syscall_64 (kernel)",
    "x64_sys_call (kernel)",
    "asm_exc_page_fault (kernel)",
    "exc_page_fault (kernel)",
    DROPPED,
)


def folded(
    stacks: Mapping[Stack, int], of: str = "samples"
) -> tuple[dict[str, Any], ...]:
    """As they are written: ``frames``, and how many or how long, most first.

    At most 200; `of` is "samples", or "time_ns" of those that slept.
    """
    order = sorted(stacks, key=lambda stack: (-stacks[stack], stack))
    return tuple(
        {"frames": list(stack), of: stacks[stack]} for stack in order[:MOST_STACKS]
    )


def innermost(stacks: Mapping[Stack, int]) -> tuple[dict[str, Any], ...]:
    """Count the functions that ran themselves: ``name``, ``samples``, most first."""
    counts: Counter[str] = Counter()
    for stack, samples in stacks.items():
        counts[stack[-1] if stack else "?"] += samples
    return tuple({"name": n, "samples": c} for n, c in counts.most_common())


def function_of(stacks: Mapping[Stack, int]) -> str:
    """Return the innermost function that 80% of stacks are in, "" where none is.

    In it, or in what it called: the one whose doing that time was. Of code without
    names the file is given.

    Parameters
    ----------
    stacks : mapping of tuple of str to int
        Functions, the outermost first, and how many samples there are.

    Examples
    --------
    >>> function_of({("main", "save", "memcpy"): 7, ("main", "save", "crc"): 3})
    'save'
    """
    whole = sum(stacks.values())
    inside: Counter[str] = Counter()
    depths: Counter[str] = Counter()
    for frames, samples in stacks.items():
        stack = [frame.partition("+0x")[0] for frame in frames]
        for name in set(stack) - set(_ENTRIES):
            inside[name] += samples
            depths[name] += samples * _last(stack, name)
    found = [name for name, samples in inside.items() if samples >= SHARE * whole]
    return max(found, key=lambda name: depths[name] / inside[name], default="")


# Of a system call, on x86-64 and arm64.
_CALL = re.compile(r"__(?:x64|arm64|se)_sys_(\w+) \(kernel\)")
_MOST_CALLS = 3


def busy_in(stacks: Mapping[Stack, int]) -> str:
    """Return the function of `function_of`, or the system calls, if there is none.

    Where 80% of stacks are neither in one function nor in system calls, whether they
    are in the program, in the kernel or in both. "" without any stack, and where few
    functions ran themselves, which `innermost` has.

    Examples
    --------
    >>> calls = [f"__x64_sys_{name} (kernel)" for name in ("read", "write")]
    >>> busy_in({(calls[i % 2], f"f{i} (kernel)"): 1 for i in range(9)})
    'system calls (read, write)'
    """
    if found := function_of(stacks):
        return found
    whole = sum(stacks.values())
    calls: Counter[str] = Counter()
    program = 0
    for stack, samples in stacks.items():
        if not stack or not stack[-1].endswith(KERNEL):
            program += samples
        elif called := next(filter(None, map(_CALL.match, stack)), None):
            calls[called[1]] += samples
    few = sum(one["samples"] for one in innermost(stacks)[:FEW])
    if few >= SHARE * whole:
        return ""
    most = ", ".join(name for name, _ in calls.most_common(_MOST_CALLS))
    of_calls = f"system calls ({most})"
    if sum(calls.values()) >= SHARE * whole:
        return of_calls
    if program >= SHARE * whole:
        return "many functions of its program"
    if program <= (1 - SHARE) * whole:
        return f"the kernel, of it {of_calls}" if calls else "the kernel"
    return f"its program and {of_calls if calls else 'the kernel'}"


def _last(stack: Sequence[str], name: str) -> int:
    """How far from the outermost a function is, where it calls itself the last."""
    return max(depth for depth, one in enumerate(stack) if one == name)
