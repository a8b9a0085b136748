"""Why one message was slow: what its reader's thread did while it waited.

From what a flight recorder kept: who had which CPU when, interrupts, and stacks. All
parts of a stage's time are of one of few kinds, and sum to it to the nanosecond; what
was not recorded is a part, too, so that no guess is told as a fact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Records = NDArray[Any]

UNKNOWN_WAIT = 0xFFFFFFFF
_SLEEPS = ("nanosleep", "clock_nanosleep")
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
_UNINTERRUPTIBLE = 2
_STOPPED = 4 | 8 | 0x8000  # TASK_STOPPED, TASK_TRACED, TASK_FROZEN
_EXCEPTION, _NO_CALL = 0xFFFF, 0xFFFE
# Of Linux on x86-64, and of the common table that arm64 has: what programs sleep in.
_X86_64 = {
    **{0: "read", 1: "write", 7: "poll", 17: "pread64", 18: "pwrite64", 19: "readv"},
    **{20: "writev", 23: "select", 26: "msync", 34: "pause", 35: "nanosleep"},
    **{42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg"},
    **{
        47: "recvmsg",
        61: "wait4",
        74: "fsync",
        75: "fdatasync",
        128: "rt_sigtimedwait",
    },
    **{162: "sync", 202: "futex", 230: "clock_nanosleep", 232: "epoll_wait"},
    **{270: "pselect6", 271: "ppoll", 277: "sync_file_range", 281: "epoll_pwait"},
    **{288: "accept4", 295: "preadv", 296: "pwritev", 299: "recvmmsg", 306: "syncfs"},
    **{307: "sendmmsg", 426: "io_uring_enter", 441: "epoll_pwait2"},
}
_GENERIC = {
    **{22: "epoll_pwait", 63: "read", 64: "write", 65: "readv", 66: "writev"},
    **{67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev", 72: "pselect6"},
    **{73: "ppoll", 81: "sync", 82: "fsync", 83: "fdatasync", 84: "sync_file_range"},
    **{98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 137: "rt_sigtimedwait"},
    **{202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg"},
    **{212: "recvmsg", 227: "msync", 242: "accept4", 243: "recvmmsg", 260: "wait4"},
    **{267: "syncfs", 269: "sendmmsg", 426: "io_uring_enter", 441: "epoll_pwait2"},
}
CALLS = {"x86_64": _X86_64, "aarch64": _GENERIC}


@dataclass(frozen=True)
class Flight:
    """What all CPUs did in some span of time.

    Attributes
    ----------
    begin_ns, end_ns : int
    since_ns : int
        Of all CPUs everything is there from this time on.
    switches, interrupts, samples : ndarray of records
        Fields as in bpf/records.h, in order of time. Of switches each CPU's last one
        before `begin_ns` is there, too, and that by which each thread left last.
    """

    begin_ns: int
    end_ns: int
    since_ns: int
    switches: Records
    interrupts: Records
    samples: Records

    @classmethod
    def cut(
        cls,
        switches: Records,
        interrupts: Records,
        samples: Records,
        begin_ns: int,
        end_ns: int,
    ) -> Flight:
        """Keep what is in a span, of all that a recorder holds."""
        switches = switches[np.argsort(switches["t_ns"], kind="stable")]
        cpus = np.unique(switches["cpu"])
        firsts = [int(switches["t_ns"][switches["cpu"] == cpu].min()) for cpu in cpus]
        before = switches[switches["t_ns"] < begin_ns]
        kept = switches["t_ns"] >= begin_ns
        for of in ("cpu", "left_thread"):
            kept[_lasts(before[of])] = True
        interrupts = interrupts[interrupts["until_ns"] >= begin_ns]
        samples = samples[samples["t_ns"] >= begin_ns]
        return cls(
            begin_ns,
            end_ns,
            max(firsts, default=end_ns),
            switches[kept],
            interrupts[np.argsort(interrupts["from_ns"], kind="stable")],
            samples[np.argsort(samples["t_ns"], kind="stable")],
        )

    @property
    def nbytes(self) -> int:
        """Of all records."""
        return self.switches.nbytes + self.interrupts.nbytes + self.samples.nbytes

    def covers(self, begin_ns: int, end_ns: int) -> bool:
        """Whether a span is in it, as far as the recorder went back."""
        return self.begin_ns <= begin_ns and end_ns <= self.end_ns


def _lasts(values: Records) -> NDArray[np.intp]:
    """The last place of each value."""
    _, firsts = np.unique(values[::-1], return_index=True)
    return np.asarray(len(values) - 1 - firsts)


@dataclass(frozen=True)
class Part:
    """Some of the time in which a thread did not read.

    Attributes
    ----------
    kind : str
        "busy" on a CPU, "waiting" for one, "asleep", "interrupts", "not recorded".
    time_ns : int
    what : str
        Where it was busy (functions), in which call it slept.
    who : list of dict
        Others that it waited for: ``pid``, ``comm``, ``time_ns``, longest first.
    functions : list of dict
        Of stacks while it was busy: ``name``, ``samples``, most first.
    cpu : int or None
        Of most of the time.
    """

    kind: str
    time_ns: int
    what: str = ""
    who: tuple[dict[str, Any], ...] = ()
    functions: tuple[dict[str, Any], ...] = ()
    cpu: int | None = None


Namer = Callable[[Any], str]  # the function that a sample's task was in


def parts_of(
    flight: Flight,
    pid: int,
    begin_ns: int,
    end_ns: int,
    *,
    name: Namer = lambda _sample: "?",
    calls: dict[int, str] = _X86_64,
) -> list[Part]:
    """Split the time of a process' thread that is on a CPU at the end of a span.

    Parameters
    ----------
    flight : Flight
    pid : int
        Of the process; whichever of its threads runs at `end_ns` is followed.
    begin_ns, end_ns : int
        CLOCK_MONOTONIC.
    name : callable
        Names the function that a record of `samples` was in.
    calls : dict
        Names of system calls by number.

    Returns
    -------
    list of Part
        The longest first; times sum to ``end_ns - begin_ns``.
    """
    thread = _thread_at(flight, pid, end_ns)
    if thread is None or not flight.covers(begin_ns, end_ns):
        return [Part("not recorded", end_ns - begin_ns)]
    since_ns = min(max(begin_ns, flight.since_ns), end_ns)
    spans = _spans(flight, thread, since_ns, end_ns)
    found = [Part("not recorded", since_ns - begin_ns)] if since_ns > begin_ns else []
    found += _running(flight, thread, [s for s in spans if s.on_cpu], name)
    for span in spans:
        if not span.on_cpu:
            found += _off_cpu(flight, span, calls)
    return sorted(_merged(found), key=lambda part: -part.time_ns)


@dataclass(frozen=True)
class _Span:
    """A thread has a CPU, or has none; of the latter how it left and came again."""

    begin_ns: int
    end_ns: int
    on_cpu: bool
    cpu: int
    state: int | None = 0  # None: how it had left is not there
    call: int = _NO_CALL
    waited_ns: int = 0  # for a CPU; UNKNOWN_WAIT: not known
    queued_ns: int = 0  # of it, in the queue of the CPU that it got, at most

    def clipped(self, begin_ns: int, end_ns: int) -> _Span:
        return replace(
            self, begin_ns=max(self.begin_ns, begin_ns), end_ns=min(self.end_ns, end_ns)
        )


def _thread_at(flight: Flight, pid: int, at_ns: int) -> int | None:
    """The thread of a process that has a CPU at some time; None: none, or several."""
    switches = flight.switches[flight.switches["t_ns"] <= at_ns]
    lasts = (switches[switches["cpu"] == cpu][-1] for cpu in np.unique(switches["cpu"]))
    found = [int(last["thread"]) for last in lasts if last["pid"] == pid]
    return found[0] if len(found) == 1 else None


def _spans(flight: Flight, thread: int, begin_ns: int, end_ns: int) -> list[_Span]:
    """What a thread that has a CPU at the end did, without gaps."""
    switches = flight.switches
    mine = (switches["thread"] == thread) | (switches["left_thread"] == thread)
    rows = switches[mine & (switches["t_ns"] <= end_ns)]
    found: list[_Span] = []
    came_ns, cpu = begin_ns, -1
    left: Any = None
    on_cpu: bool | None = None
    for row in rows:
        t_ns = int(row["t_ns"])
        if row["left_thread"] == thread:
            found.append(_Span(came_ns, t_ns, True, int(row["cpu"])))
            came_ns, left, on_cpu = t_ns, row, False
        if row["thread"] == thread:
            cpu = int(row["cpu"])
            if on_cpu is False:
                off = _Span(came_ns, t_ns, False, cpu, int(left["left_state"]))
                found.append(
                    replace(
                        off,
                        call=int(left["left_call"]),
                        waited_ns=_waited(left, row),
                        queued_ns=_queued(left, row),
                    )
                )
            elif on_cpu is None:
                queued_ns = int(row["waited_ns"])
                off = _Span(came_ns, t_ns, False, cpu, None)
                found.append(replace(off, waited_ns=queued_ns, queued_ns=queued_ns))
            came_ns, on_cpu = t_ns, True
    found.append(_Span(came_ns, end_ns, True, cpu))
    clipped = [span.clipped(begin_ns, end_ns) for span in found]
    return [span for span in clipped if span.end_ns > span.begin_ns]


def _waited(left: Any, came: Any) -> int:
    """How long a thread waited for a CPU, by the scheduler, since it had left one."""
    if came["waited_ns"] == UNKNOWN_WAIT:
        return UNKNOWN_WAIT
    # the low bits of sums that the scheduler adds to
    return (int(came["delay_ns"]) - int(left["left_delay_ns"])) & 0xFFFFFFFF


def _queued(left: Any, came: Any) -> int:
    """How long of it in the queue of the CPU that it got.

    The scheduler's own stamp is of the last time that it was put there, which a CPU
    that it had before need not be.
    """
    same = left["cpu"] == came["cpu"]
    return UNKNOWN_WAIT if same else int(came["waited_ns"])


def _running(
    flight: Flight, thread: int, spans: Sequence[_Span], name: Namer
) -> list[Part]:
    """Time on CPUs: what interrupts took of it, and in which functions it was."""
    taken: Counter[tuple[int, int]] = Counter()
    names: Counter[str] = Counter()
    cpus: Counter[int] = Counter()
    for span in spans:
        cpus[span.cpu] += span.end_ns - span.begin_ns
        for row in _within(flight.interrupts, span, "from_ns", "until_ns"):
            overlap = min(int(row["until_ns"]), span.end_ns)
            overlap -= max(int(row["from_ns"]), span.begin_ns)
            taken[int(row["soft"]), int(row["number"])] += overlap
        samples = _within(flight.samples, span, "t_ns", "t_ns")
        names.update(name(s) for s in samples[samples["thread"] == thread])
    if not cpus:
        return []
    cpu = cpus.most_common(1)[0][0]
    interrupts = min(sum(taken.values()), sum(cpus.values()))
    functions = tuple(
        {"name": text, "samples": count} for text, count in names.most_common()
    )
    busy = Part(
        "busy",
        sum(cpus.values()) - interrupts,
        str(functions[0]["name"]) if functions else "",
        functions=functions,
        cpu=cpu,
    )
    found = [busy] if busy.time_ns else []
    if interrupts:
        words = ", ".join(
            f"{'soft interrupt' if soft else 'interrupt'} {number}"
            for (soft, number), _ in taken.most_common(3)
        )
        found.append(Part("interrupts", interrupts, words, cpu=cpu))
    return found


def _within(records: Records, span: _Span, begin: str, end: str) -> Records:
    inside = (records["cpu"] == span.cpu) & (records[end] > span.begin_ns)
    return np.asarray(records[inside & (records[begin] < span.end_ns)])


def _off_cpu(flight: Flight, span: _Span, calls: dict[int, str]) -> list[Part]:
    """Time without a CPU: first asleep, if it left to sleep, and then waiting."""
    whole_ns = span.end_ns - span.begin_ns
    unknown = span.waited_ns == UNKNOWN_WAIT
    waited_ns = 0 if unknown else min(span.waited_ns, whole_ns)
    if span.state == 0:
        waited_ns = whole_ns
    found = []
    if whole_ns > waited_ns:
        before = Part("not recorded", whole_ns - waited_ns)
        if span.state is not None:
            before = replace(before, kind="asleep", what=_sleep(span, calls))
        found.append(before)
    if waited_ns:
        # before it was in another CPU's queue, of which nothing is told
        begin_ns = span.end_ns - min(span.queued_ns, waited_ns)
        who = _occupants(flight, replace(span, begin_ns=begin_ns))
        found.append(Part("waiting", waited_ns, "", who, cpu=span.cpu))
    return found


def _sleep(span: _Span, calls: dict[int, str]) -> str:
    """What a sleep was for, as far as a call and a state tell."""
    state = span.state or 0
    waits = state & _UNINTERRUPTIBLE
    stopped = state & _STOPPED
    if stopped or span.call == _EXCEPTION:
        by = "stopped (by a signal, a tracer or a freezer)"
        return by if stopped else "for a page (page fault)"
    name = calls.get(span.call, "")
    if name == "futex":
        return "for another thread (futex)"  # a mutex, a condition, a join
    if name in _SLEEPS:
        return f"of its own accord ({name})"
    if waits and name in _DISK:
        return f"for a disk or file system ({name})"
    if span.call == _NO_CALL:
        return "in the kernel"
    return f"in {name or f'system call {span.call}'}"


def _occupants(flight: Flight, span: _Span) -> tuple[dict[str, Any], ...]:
    """Who had a CPU in a span, longest first."""
    of_cpu = flight.switches[flight.switches["cpu"] == span.cpu]
    t_ns = of_cpu["t_ns"].astype("i8")
    ends = np.r_[t_ns[1:], np.iinfo("i8").max] if len(t_ns) else t_ns
    overlap = np.minimum(ends, span.end_ns) - np.maximum(t_ns, span.begin_ns)
    times: Counter[tuple[int, str]] = Counter()
    for row, took_ns in zip(of_cpu, overlap.tolist(), strict=True):
        if took_ns > 0:
            comm = bytes(row["comm"]).partition(b"\0")[0].decode(errors="replace")
            times[int(row["pid"]), comm if row["thread"] else "idle"] += took_ns
    return tuple(
        {"pid": pid, "comm": comm, "time_ns": took_ns}
        for (pid, comm), took_ns in times.most_common()
    )


def _merged(parts: Sequence[Part]) -> list[Part]:
    """Make one of those that say the same."""
    found: dict[tuple[str, str], Part] = {}
    for part in parts:
        key = part.kind, part.what
        one = found.get(key)
        if one is None:
            found[key] = part
            continue
        times: Counter[tuple[int, str]] = Counter()
        for other in (*one.who, *part.who):
            times[other["pid"], other["comm"]] += other["time_ns"]
        who = tuple(
            {"pid": pid, "comm": comm, "time_ns": took_ns}
            for (pid, comm), took_ns in times.most_common()
        )
        longer = one if one.time_ns >= part.time_ns else part
        time_ns = one.time_ns + part.time_ns
        found[key] = replace(one, time_ns=time_ns, who=who, cpu=longer.cpu)
    return list(found.values())
