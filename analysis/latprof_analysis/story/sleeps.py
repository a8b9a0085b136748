"""What a thread slept for, and who woke it: by its system call and a wake's record.

A call shows for what it sleeps; where several things do the same call, the stack in
the kernel and the waker's own call distinguish them, or nothing does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.story.fields import TASK_THROTTLED, field_text, has_flag
from latprof_analysis.story.stacks import KERNEL, Stack

WAKES = "wakes"
UNINTERRUPTIBLE = 2
STOPPED = 4 | 8 | 0x8000  # TASK_STOPPED, TASK_TRACED, TASK_FROZEN
EXCEPTION, NO_CALL = 0xFFFF, 0xFFFE
_OF_NO_NAME = {
    NO_CALL: "in the kernel",
    0xFFFD: "in a system call of a 32-bit program",
}
_ACCORD = ("nanosleep", "clock_nanosleep")
TIMED_OUT = "on a timer (futex with a timeout)"
_FUTEX_KINDS = re.compile(r"for (a lock|another thread) \(")
_PAGE = "for a page ("
_MOVES = (
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "preadv",
    "pwritev",
)
_DISK = ("fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "msync", *_MOVES)
# A thread waits in them for bytes that others send ...
BYTES = frozenset(
    (
        *("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll"),
        *("select", "pselect6", "read", "readv", "recvfrom", "recvmsg", "recvmmsg"),
        "io_uring_enter",
    )
)
# ... or for anything else of others: it has nothing in hand.
INPUTS = BYTES | {"accept", "accept4", "pause", "rt_sigtimedwait"}
# They wait for whatever they were given: where in the kernel says nothing more.
_FOR_MANY = re.compile(r"(epoll_p?wait|p?select|p?poll)\d*$|^pause$|^rt_sigtimedwait$")

# linux/futex.h
_FUTEX_FLAGS = 128 | 256  # FUTEX_PRIVATE_FLAG, FUTEX_CLOCK_REALTIME
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1
_FUTEX_WAIT_BITSET = 9
_FUTEX_LOCKS = (6, 13)  # FUTEX_LOCK_PI, FUTEX_LOCK_PI2
_TAKEN_AND_WAITED_FOR = 2  # glibc's lowlevellock
_GLIBC = re.compile(
    r"(libc(-2\.\d+)?|libpthread(-2\.\d+)?)\.so(\.\d)?\+|.*lll_lock_wait"
)

# Of the kernel's functions: how it sleeps, not for what.
_SLEEPING = re.compile(
    r"(^|_)(schedule|sleep|wait|waiting|lock|locked|lockref|completion|rwsem|mutex)(_|$)"
)
_ANY_FILE = re.compile(r"^_*(filemap|generic|page_cache|folio|pagecache)_")
_ENTRIES = re.compile(
    r"^_*(vfs|ksys|x64_sys|arm64_sys|se_sys|sys|entry|invoke_syscall|el0|asm|exc)_"
    r"|^_*(do_syscall|do_user_addr_fault|do_page_fault|do_mem_abort|handle_mm_fault)"
)


class Call(NamedTuple):
    """A system call: its number, and of its arguments the second and the third.

    `timed`: it has a fourth, which of a futex is a timeout; older recordings do not
    say so.
    """

    number: int
    operation: int = 0
    value: int = 0
    timed: bool = False


@dataclass(frozen=True)
class Wake:
    """A sleep's end.

    Attributes
    ----------
    t_ns : int
    thread, pid : int
        Of who woke; 0: an interrupt, or not known.
    comm : str
    call : Call
        That it did it in.
    frames : tuple of str
        Where the sleeper was, the outermost first.
    throttled : bool
        The sleeper's control group had used its CPU quota up then.
    """

    t_ns: int
    thread: int
    pid: int
    comm: str
    call: Call
    frames: Stack
    throttled: bool = False

    @property
    def waker_is_known(self) -> bool:
        """Whether it is known who woke."""
        return self.thread > 0


def wake_between(
    wakes: NDArray[Any], begin_ns: int, end_ns: int, name: Callable[[Any], Stack]
) -> Wake | None:
    """What ended a sleep, of the records of one thread in order of time."""
    place = int(np.searchsorted(wakes["t_ns"], np.uint64(end_ns), "right")) - 1
    if place < 0 or int(wakes["t_ns"][place]) <= begin_ns:
        return None
    record = wakes[place]
    return Wake(
        int(record["t_ns"]),
        int(record["by_thread"]),
        int(record["by_pid"]),
        field_text(record["comm"]),
        Call(
            int(record["by_call"]),
            int(record["by_operation"]),
            int(record["by_value"]),
        ),
        name(record),
        has_flag(record, "sleeper_flags", TASK_THROTTLED),
    )


def purpose(state: int, call: Call, wake: Wake | None, calls: dict[int, str]) -> str:
    """Name what a sleep was for, as far as a call, a state and a wake show it."""
    name = calls.get(call.number, "")
    if state & STOPPED:
        return "stopped (by a signal, a tracer or a freezer)"
    if call.number == EXCEPTION:
        return f"{_PAGE}{_with('page fault', sleeping_in(wake, any_file=True))})"
    if name == "futex":
        return _of_futex(call, wake, calls)
    if name in _ACCORD:
        return f"on a timer ({name})"
    where = "" if _FOR_MANY.search(name) else sleeping_in(wake)
    # of FUSE a call may be interrupted, so that its state is another one
    if name in _DISK and (state & UNINTERRUPTIBLE or where.startswith("fuse_")):
        return f"for a disk or file system ({_with(name, where)})"
    text = _OF_NO_NAME.get(call.number) or f"in {name or f'system call {call.number}'}"
    return f"{text} ({where})" if where else text


def is_of_futex(what: str) -> bool:
    """Whether a sleep was for another thread, or a lock that one has."""
    return bool(_FUTEX_KINDS.match(what))


def page_fault(what: str) -> str:
    """Leave out where in the kernel a sleep for a page was; others stay."""
    return _PAGE if what.startswith(_PAGE) else what


def _with(name: str, where: str) -> str:
    return f"{name}; {where}" if where else name


def _of_futex(call: Call, wake: Wake | None, calls: dict[int, str]) -> str:
    """A lock, or something else; where that is not sure, another thread."""
    if call.timed and wake and not wake.waker_is_known:
        return TIMED_OUT  # only threads end it otherwise
    operation = call.operation & ~_FUTEX_FLAGS
    if operation in _FUTEX_LOCKS:
        return "for a lock (priority-inheriting mutex)"
    if operation == _FUTEX_WAIT_BITSET and call.value != _TAKEN_AND_WAITED_FOR:
        return "for another thread (condition variable or the like, futex)"
    if operation == _FUTEX_WAIT and call.value == _TAKEN_AND_WAITED_FOR:
        # So do others for other ends: who unlocks wakes one, who opens a barrier all;
        # and a C library of its own waits so for a condition.
        one = wake and wake.waker_is_known and _wakes_one(wake.call, calls)
        if one and wake and _GLIBC.match(_innermost_of_program(wake)):
            return "for a lock (mutex)"
    return "for another thread (futex)"


def _wakes_one(call: Call, calls: dict[int, str]) -> bool:
    return (
        calls.get(call.number) == "futex"
        and call.operation & ~_FUTEX_FLAGS == _FUTEX_WAKE
        and call.value == 1
    )


def _innermost_of_program(wake: Wake) -> str:
    own = [frame for frame in wake.frames if not frame.endswith(KERNEL)]
    return own[-1] if own else ""


def sleeping_in(wake: Wake | None, *, any_file: bool = False) -> str:
    """Return the kernel's function that a thread slept in, "" where it is not known.

    The innermost but for those that only sleep, and, unless `any_file`, for those of
    the page cache, which are the same for all file systems.
    """
    kernel = [f for f in wake.frames if f.endswith(KERNEL)] if wake else []
    innermost = ""
    for frame in reversed(kernel):
        name = frame.removesuffix(KERNEL)
        if _ENTRIES.search(name):
            break
        if name == "?" or _SLEEPING.search(name):
            continue
        if any_file or not _ANY_FILE.search(name):
            return name.lstrip("_")
        innermost = innermost or name.lstrip("_")
    return innermost


# Of several answers of one end, whose time was longest in the same stage.
_PEER_SUMS = ("answers", "stage_ns", "whole_ns")


def together(who: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Make one of each of those that were waited for, the longest first."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for one in who:
        peer = one.get("peer", {})
        end = (peer.get(name) for name in ("address", "port", "stage"))
        of = one["pid"], one["comm"], one.get("thread"), one.get("lower_class")
        key = *of, *end
        known = found.get(key)
        if known is None:
            found[key] = one
            continue
        found[key] = known | {"time_ns": known["time_ns"] + one["time_ns"]}
        if "did" in one:
            found[key]["did"] = _did_together([*known["did"], *one["did"]])
        if peer:
            sums = {name: known["peer"][name] + peer[name] for name in _PEER_SUMS}
            found[key]["peer"] = peer | sums
    return tuple(sorted(found.values(), key=lambda one: -one["time_ns"]))


def _did_together(did: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in did:
        # busy in functions that differ is busy in none
        key = one["kind"], "" if one["kind"] == "busy" else one["what"]
        if key not in found:
            found[key] = one
            continue
        what = one["what"] if one["what"] == found[key]["what"] else key[1]
        time_ns = found[key]["time_ns"] + one["time_ns"]
        found[key] = found[key] | {"what": what, "time_ns": time_ns}
        if who := together((*found[key].get("who", ()), *one.get("who", ()))):
            found[key]["who"] = list(who)
    return sorted(found.values(), key=lambda one: -int(one["time_ns"]))


def ended_by(who: dict[str, Any]) -> str:
    """Say how it ended a sleep, before its name."""
    return "answered by" if who.get("peer", {}).get("answers") else "woken by"


def name_of(who: dict[str, Any]) -> str:
    """Name a process that was waited for, or the other end of a socket."""
    peer, comm = who.get("peer", {}), who["comm"] or "an unknown process"
    if not peer:
        return f"{comm} (pid {who['pid']})"
    if who["pid"]:
        return f"{comm} (pid {who['pid']}, port {peer['port']})"
    host = peer["address"]
    return f"[{host}]:{peer['port']}" if ":" in host else f"{host}:{peer['port']}"
