"""Why one message was slow: what its reader's thread did while it waited.

From what a flight recorder kept: who had which CPU when, interrupts, and stacks. All
parts of a stage's time are of one of few kinds, and sum to it to the nanosecond; what
was not recorded is a part, too, so that no guess stands as a fact.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.story.answers import (
    NO_ANSWERS,
    QUEUE,
    WORK,
    Answer,
    Answers,
    Took,
)
from latprof_analysis.story.fields import (
    REAL_TIME,
    TASK_BY_LIMIT,
    TASK_RANK,
    TASK_THROTTLED,
    TASK_TIMED,
    field_text,
    flags_of,
    has_flag,
)
from latprof_analysis.story.quotas import Throttled, throttled
from latprof_analysis.story.sleeps import (
    BYTES,
    INPUTS,
    NO_CALL,
    TIMED_OUT,
    WAKES,
    Call,
    Wake,
    ended_by,
    is_of_futex,
    name_of,
    page_fault,
    purpose,
    together,
    wake_between,
)
from latprof_analysis.story.stacks import Stack, busy_in, folded, innermost
from latprof_analysis.story.system_calls import CALLS

Records = NDArray[Any]

QUEUED = "queued_packets"
UNKNOWN_WAIT = 0xFFFFFFFF
# Of those who had a CPU: nobody, and somebody whom no probe sees.
IDLE, UNTRACED = "idle", "untraced"
# Of a span: from this share on a sleep has what its waker did meanwhile.
_LONG_SHARE = 20
_MOST_DOINGS = 3
MOST_HOPS = 8  # from who waits to who is waited for
_UNKNOWN_CALL = Call(NO_CALL)


@dataclass(frozen=True)
class Flight:
    """What all CPUs did in some span of time.

    Attributes
    ----------
    begin_ns, end_ns : int
    rings : dict of ndarray of records
        By name: ``switches``, ``wakes``, ``interrupts``, ``samples`` and others. Fields
        as in bpf/records.h, the first of which is the time that they are in order of.
        Of switches each CPU's last one before `begin_ns` is there, too, and that by
        which each thread left last that came since.
    since_ns : dict of dict of int
        By ring and CPU: from this time on everything is there; 0 always.
    """

    begin_ns: int
    end_ns: int
    rings: dict[str, Records]
    since_ns: dict[str, dict[int, int]]

    @classmethod
    def cut(
        cls,
        rings: dict[str, Records],
        since_ns: dict[str, dict[int, int]],
        begin_ns: int,
        end_ns: int,
    ) -> Flight:
        """Keep what is in a span, of all that a recorder holds."""
        found = {}
        for ring, unordered in rings.items():
            t_ns = _time_of(unordered)
            kept = t_ns >= begin_ns
            if ring == QUEUED:
                # what stood before a packet came as much earlier as it waited
                kept = t_ns >= max(2 * begin_ns - end_ns, 0)
            if ring == "switches":
                order = np.argsort(t_ns, kind="stable")
                before = order[~kept[order]]
                came, cpus = np.unique(unordered["thread"][kept]), unordered["cpu"]
                for of, wanted in (
                    ("left_thread", came),
                    ("cpu", np.flatnonzero(np.bincount(cpus))),
                ):
                    kept[before[_lasts(unordered[of][before], wanted)]] = True
            records = unordered[kept]
            found[ring] = records[np.argsort(_time_of(records), kind="stable")]
        return cls(begin_ns, end_ns, found, since_ns)

    @property
    def switches(self) -> Records:
        """Who left each CPU, and who came."""
        return self.rings["switches"]

    @property
    def nbytes(self) -> int:
        """Of all records."""
        return sum(records.nbytes for records in self.rings.values())

    def since(self, ring: str, cpu: int | None = None) -> int:
        """Return when all is there of a ring of one CPU, or of all."""
        by_cpu = self.since_ns.get(ring, {})
        return max(by_cpu.values(), default=0) if cpu is None else by_cpu.get(cpu, 0)

    def covers(self, begin_ns: int, end_ns: int) -> bool:
        """Whether a span is in it, as far as the recorder went back."""
        return self.begin_ns <= begin_ns and end_ns <= self.end_ns


NO_FLIGHT = Flight(0, 0, {}, {})


def _time_of(records: Records) -> Records:
    """When each was written: the first field."""
    return np.asarray(records[(records.dtype.names or ("",))[0]])


_CHUNK = 4096


def _lasts(values: Records, wanted: Records) -> NDArray[np.intp]:
    """The last place of each value that is wanted, where there is one.

    From the end on: what is there often is found at once, and all need not be sorted.
    """
    found: list[int] = []
    for end in range(len(values), 0, -_CHUNK):
        begin = max(end - _CHUNK, 0)
        hits = begin + np.flatnonzero(np.isin(values[begin:end], wanted))
        seen, firsts = np.unique(values[hits][::-1], return_index=True)
        found += hits[::-1][firsts].tolist()
        wanted = np.setdiff1d(wanted, seen)
        if not len(wanted):
            break
    return np.array(found, np.intp)


@dataclass(frozen=True)
class Part:
    """Some of the time in which a thread did not read.

    Attributes
    ----------
    kind : str
        "busy" on a CPU, "waiting" for one, "throttled" by a quota or the limit of
        real-time tasks, "asleep", "interrupts", "not recorded".
    time_ns : int
    what : str
        The innermost function that it was busy in for 80% of its stacks or more, "" if
        there is none; in which call it slept.
    who : list of dict
        Others that it waited for: ``pid``, ``comm``, ``time_ns``, longest first; of a
        wait for a CPU who had that, ``lower_class`` where the scheduler prefers who
        waited, so that why this one had it is not known. Of a
        sleep who woke it, with ``thread``, and of a long one what that thread ``did``
        meanwhile: ``kind``, ``what``, ``time_ns``, longest first, and ``who`` as here.
        Where it waited for bytes of a socket that is its other end, with ``peer``:
        ``address`` and ``port``; how many ``answers`` it waited for; in which ``stage``
        (see `Took`) most of their time was, ``stage_ns`` of ``whole_ns``, in which that
        end ``did`` so; ``again`` (``pid``, ``comm``): for whom that end waits, who
        waits for it here; and ``queue``, of a device, as in `QueueWait`, or None.
    functions : list of dict
        The innermost of stacks while it was busy, or of what is not recorded otherwise:
        ``name``, ``samples``, most first.
    stacks : list of dict
        The stacks: ``frames``, the outermost first, and ``samples``, or where it slept
        ``time_ns``; at most 200. Shorter sleeps have none.
    cpu : int or None
        Of most of the time.
    """

    kind: str
    time_ns: int
    what: str = ""
    who: tuple[dict[str, Any], ...] = ()
    functions: tuple[dict[str, Any], ...] = ()
    stacks: tuple[dict[str, Any], ...] = ()
    cpu: int | None = None


# The functions that a task was in, by a record of `samples` or `wakes`.
Namer = Callable[[Any], Stack]


# The queue of a device in which an answer or its question was; None: not known.
QueueOf = Callable[[Answer], dict[str, Any] | None]
MOST_SPANS = 200  # of a time line


class ThreadTime(NamedTuple):
    """What a thread did in a span.

    Attributes
    ----------
    parts : list of Part
        The longest first; times sum to the span's.
    timeline : list of dict
        The same in the order of time: ``from_ns`` since the span began, ``time_ns``,
        ``kind`` and ``what`` as a part has them, ``cpu`` where it is one's. Of more
        than 200 the longest. Empty where nothing is recorded.
    """

    parts: list[Part]
    timeline: list[dict[str, Any]]


def time_of(
    flight: Flight,
    pid: int,
    begin_ns: int,
    end_ns: int,
    *,
    thread: int | None = None,
    name: Namer = lambda _sample: ("?",),
    calls: dict[int, str] = CALLS["x86_64"],
    answers: Answers = NO_ANSWERS,
    asker: int = 0,
    queue_of: QueueOf = lambda _answer: None,
    low_water_bytes: int = 0,
) -> ThreadTime:
    """Split the time of a process' thread that is on a CPU at the end of a span.

    Parameters
    ----------
    flight : Flight
    pid : int
        Of the process.
    begin_ns, end_ns : int
        CLOCK_MONOTONIC.
    thread : int, optional
        The one that did at `end_ns` what ends the span. By default the one of the
        process that has a CPU then, if there is one only.
    name : callable
        Names the functions that a record of `samples`, or of `wakes`, was in, the
        outermost first.
    calls : dict
        Names of system calls by number.
    answers : Answers
        What threads read that they had waited for.
    asker : int
        The process that waits for what the thread does; 0: not known.
    queue_of : callable
        Gives of an answer that was in a device's queue for most of its time, or whose
        question was, what stood in it.
    low_water_bytes : int
        Fewer bytes were there than this mark of their socket; 0: that is not so.
    """
    long_ns = (end_ns - begin_ns) // _LONG_SHARE
    walk = _Walk(flight, name, calls, answers, long_ns, (_Met(asker),), queue_of)
    return _thread_time(walk, pid, begin_ns, end_ns, thread, low_water_bytes)


def doings_of(
    flight: Flight,
    pid: int,
    thread: int,
    begin_ns: int,
    end_ns: int,
    *,
    name: Namer,
    calls: dict[int, str],
    answers: Answers = NO_ANSWERS,
    asker: int = 0,
) -> list[dict[str, Any]]:
    """Say what a thread did until it last had a CPU in a span, as `who` of a part does.

    Parameters as those of `time_of`.
    """
    switches = flight.switches
    mine = (switches["thread"] == thread) | (switches["left_thread"] == thread)
    rows = switches[mine & (switches["t_ns"] <= end_ns)]
    if len(rows) and rows[-1]["thread"] != thread:
        end_ns = int(rows[-1]["t_ns"])
    if end_ns <= begin_ns:
        return []
    long_ns = (end_ns - begin_ns) // _LONG_SHARE
    walk = _Walk(flight, name, calls, answers, long_ns, (_Met(asker),))
    return walk.doings(pid, thread, begin_ns, end_ns)


class _Met(NamedTuple):
    """A process, and its thread, that somebody waits for."""

    pid: int
    thread: int = 0


@dataclass(frozen=True)
class _Walk:
    """A story on its way from who waits to who is waited for; `path`: those until here.

    What takes less than `long_ns` is not followed.
    """

    flight: Flight
    name: Namer
    calls: dict[int, str]
    answers: Answers
    long_ns: int
    path: tuple[_Met, ...]
    queue_of: QueueOf = lambda _answer: None

    def to(self, pid: int, thread: int) -> _Walk:
        return replace(self, path=(*self.path, _Met(pid, thread)))

    def ended(self) -> _Walk:
        """As this, but whom others wait for is not asked any more."""
        rings = self.flight.rings | {WAKES: self.flight.rings[WAKES][:0]}
        flight = replace(self.flight, rings=rings)
        return replace(self, flight=flight, answers=NO_ANSWERS)

    def may_go_on(self, thread: int, time_ns: int) -> bool:
        known = {met.thread for met in self.path}
        far = len(self.path) > MOST_HOPS
        return time_ns >= self.long_ns and not far and thread not in known

    def waited_by(self, pid: int) -> _Met | None:
        """For whom a process waits that was met, but for the one that is met last."""
        found = [place for place, met in enumerate(self.path[:-1]) if met.pid == pid]
        if not pid or not found or pid == self.path[-1].pid:
            return None
        return self.path[found[-1] + 1]

    def doings(
        self, pid: int, thread: int, begin_ns: int, end_ns: int
    ) -> list[dict[str, Any]]:
        """What a thread did in a span at whose end it has a CPU."""
        return [
            {"kind": part.kind, "what": part.what, "time_ns": part.time_ns}
            | ({"who": list(part.who[:_MOST_DOINGS])} if part.who else {})
            for part in _thread_time(self, pid, begin_ns, end_ns, thread).parts[
                :_MOST_DOINGS
            ]
            if part.kind != "not recorded"
        ]


def _thread_time(
    walk: _Walk,
    pid: int,
    begin_ns: int,
    end_ns: int,
    thread: int | None,
    low_water_bytes: int = 0,
) -> ThreadTime:
    flight, name = walk.flight, walk.name
    if not flight.covers(begin_ns, end_ns):
        return _unrecorded(end_ns - begin_ns)
    thread = thread or thread_at(flight, pid, end_ns)
    if thread is None:
        return _unrecorded(end_ns - begin_ns, "which of its threads")
    since_ns = min(max(begin_ns, flight.since("switches")), end_ns)
    spans = _spans(flight, thread, since_ns, end_ns)
    if not spans:
        unseen = _unseen(flight, thread, [(begin_ns, end_ns)], name)
        return ThreadTime([unseen], [])
    found: list[Part] = []
    if since_ns > begin_ns:
        found.append(_unseen(flight, thread, [(begin_ns, since_ns)], name))
    sleeps = _Sleeps.of(walk.to(pid, thread), thread, low_water_bytes)
    in_order = [(span, _in_order(flight, span, sleeps)) for span in spans]
    in_order = _as_one_wait(in_order, sleeps)
    running = [part for span, parts in in_order if span.on_cpu for part in parts]
    found += _running(running, _stacks(flight, thread, spans, name))
    hidden = [(span.begin_ns, span.end_ns) for span, _ in in_order if span.untraced]
    if hidden:
        found.append(_unseen(flight, thread, hidden, name, UNTRACED))
    for span, parts in in_order:
        found += [] if span.on_cpu or span.untraced else parts
    parts = sorted(_merged(found), key=lambda part: -part.time_ns)
    return ThreadTime(parts, _timeline(begin_ns, in_order))


def _unrecorded(time_ns: int, what: str = "") -> ThreadTime:
    return ThreadTime([Part("not recorded", time_ns, what)], [])


def _unseen(
    flight: Flight,
    thread: int,
    spans: Sequence[tuple[int, int]],
    name: Namer,
    what: str = "",
) -> Part:
    """Time of which no switch says what a thread did; its stacks say that it ran."""
    samples = flight.rings["samples"]
    samples = samples[samples["thread"] == thread]
    found: Counter[Stack] = Counter()
    for begin_ns, end_ns in spans:
        within = (samples["t_ns"] > begin_ns) & (samples["t_ns"] <= end_ns)
        found.update(name(sample) for sample in samples[within])
    time_ns = sum(end_ns - begin_ns for begin_ns, end_ns in spans)
    functions, stacks = innermost(found), folded(found)
    return Part("not recorded", time_ns, what, functions=functions, stacks=stacks)


def _in_order(flight: Flight, span: _Span, sleeps: _Sleeps) -> list[Part]:
    """One after the other."""
    if not span.on_cpu:
        return _off_cpu(flight, span, sleeps)
    known = _said_of(flight, span)
    found = [Part("not recorded", known.begin_ns - span.begin_ns, _BUSY_OR_NOT)]
    at_ns = known.begin_ns
    for begin_ns, end_ns, name in _taken(flight, known):
        found.append(Part("busy", begin_ns - at_ns))
        found.append(Part("interrupts", end_ns - begin_ns, name))
        at_ns = end_ns
    found.append(Part("busy", span.end_ns - at_ns))
    return [replace(part, cpu=span.cpu) for part in found if part.time_ns]


def _timeline(
    begin_ns: int, in_order: Sequence[tuple[_Span, list[Part]]]
) -> list[dict[str, Any]]:
    """Return what a thread did in the order of time; of many spans the longest."""
    found: list[dict[str, Any]] = []
    for span, parts in in_order:
        at_ns = span.begin_ns
        for part in parts:
            who = ", ".join(map(name_of, part.who[:2]))
            if part.kind == "asleep" and who:
                who = f"{ended_by(part.who[0])} {who}"
            found.append(
                {
                    "from_ns": at_ns - begin_ns,
                    "time_ns": part.time_ns,
                    "kind": part.kind,
                    "what": ", ".join(filter(None, (part.what, who))),
                    "cpu": part.cpu,
                }
            )
            at_ns += part.time_ns
    return longest_spans(found)


def longest_spans(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep of a time line what stands in it, in its order."""
    longest = heapq.nlargest(MOST_SPANS, spans, key=lambda one: one["time_ns"])
    return sorted(longest, key=lambda one: one["from_ns"])


@dataclass(frozen=True)
class _Span:
    """A thread has a CPU, or has none; of the latter how it left and came again."""

    begin_ns: int
    end_ns: int
    on_cpu: bool
    cpu: int
    state: int | None = 0  # None: how it had left is not there
    call: Call = _UNKNOWN_CALL
    waited_ns: int = 0  # for a CPU; UNKNOWN_WAIT: not known
    queued_ns: int = 0  # of it, in the queue of the CPU that it got, at most
    untraced: bool = False  # it left or came without a word
    throttled: bool = False  # when it left: its group had no more of a quota
    rank: int = 0  # of the scheduler; 0: not known

    def clipped(self, begin_ns: int, end_ns: int) -> _Span:
        return replace(
            self, begin_ns=max(self.begin_ns, begin_ns), end_ns=min(self.end_ns, end_ns)
        )


def thread_at(flight: Flight, pid: int, *times_ns: int) -> int | None:
    """The thread of a process that has a CPU at all times; None: none, or several."""
    each = [_threads_at(flight, pid, at_ns) for at_ns in times_ns]
    found = set.intersection(*each)
    return found.pop() if len(found) == 1 else None


def _threads_at(flight: Flight, pid: int, at_ns: int) -> set[int]:
    """Threads of a process that have a CPU."""
    switches = flight.switches[flight.switches["t_ns"] <= at_ns]
    of_cpus = (switches[switches["cpu"] == n] for n in np.unique(switches["cpu"]))
    lasts = (of_cpu[-1] for of_cpu in of_cpus)
    return {int(last["thread"]) for last in lasts if last["pid"] == pid}


# From a wake until who was asleep comes to an idle CPU, at most.
_WAKES_NS = 100_000


def _threads_of(flight: Flight, pid: int, begin_ns: int, end_ns: int) -> set[int]:
    """Threads of a process that had a CPU in a span."""
    switches = flight.switches[flight.switches["t_ns"] <= end_ns]
    found: set[int] = set()
    for cpu in np.unique(switches["cpu"]):
        of_cpu = switches[switches["cpu"] == cpu]
        earlier = np.searchsorted(of_cpu["t_ns"], np.uint64(begin_ns), "right")
        came = of_cpu[max(earlier - 1, 0) :]  # the first of them has it at first
        found |= set(came["thread"][came["pid"] == pid].tolist())
    return found


def _spans(flight: Flight, thread: int, begin_ns: int, end_ns: int) -> list[_Span]:
    """What a thread that has a CPU at the end did, without gaps.

    There are tasks of which no switch is seen: where a thread leaves twice or comes
    twice, one came or left between unseen, and what it did meanwhile is not known.
    """
    switches = flight.switches
    mine = (switches["thread"] == thread) | (switches["left_thread"] == thread)
    rows = switches[mine & (switches["t_ns"] <= end_ns)]
    if not len(rows):
        return []
    # the last one before shows what it was at before; another for good measure
    first = int(np.searchsorted(rows["t_ns"], np.uint64(begin_ns), side="right"))
    rows = rows[max(first - 2, 0) :]
    found: list[_Span] = []
    came_ns, cpu = begin_ns, -1
    left: Any = None
    on_cpu: bool | None = None
    for row in rows:
        t_ns = int(row["t_ns"])
        if row["left_thread"] == thread:
            unseen = on_cpu is False
            found.append(
                _Span(came_ns, t_ns, not unseen, int(row["cpu"]), untraced=unseen)
            )
            came_ns, left, on_cpu = t_ns, row, False
        if row["thread"] == thread:
            cpu = int(row["cpu"])
            found.append(_came(came_ns, t_ns, left if on_cpu is False else None, row))
            if on_cpu:
                found[-1] = replace(found[-1], untraced=True)
            came_ns, on_cpu = t_ns, True
    unseen = on_cpu is False
    found.append(_Span(came_ns, end_ns, not unseen, cpu, untraced=unseen))
    clipped = [span.clipped(begin_ns, end_ns) for span in found]
    return [span for span in clipped if span.end_ns > span.begin_ns]


def _came(left_ns: int, came_ns: int, left: Any, came: Any) -> _Span:
    """The time without a CPU that a thread's coming ends."""
    rank = flags_of(came, "left_flags", TASK_RANK)
    off = _Span(left_ns, came_ns, False, int(came["cpu"]), None, rank=rank)
    if left is None:
        queued_ns = int(came["waited_ns"])
        return replace(off, waited_ns=queued_ns, queued_ns=queued_ns)
    return replace(
        off,
        state=int(left["left_state"]),
        call=Call(
            int(left["left_call"]),
            int(left["left_operation"]),
            int(left["left_value"]),
            has_flag(left, "left_flags", TASK_TIMED),
        ),
        waited_ns=_waited(left, came),
        queued_ns=_queued(left, came),
        throttled=has_flag(left, "left_flags", TASK_THROTTLED),
    )


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


def _stacks(
    flight: Flight, thread: int, spans: Sequence[_Span], name: Namer
) -> Counter[Stack]:
    """Count the stacks of a thread while it had a CPU."""
    found: Counter[Stack] = Counter()
    for span in spans:
        if span.on_cpu:
            samples = _within(flight.rings["samples"], span, "t_ns", "t_ns")
            found.update(name(s) for s in samples[samples["thread"] == thread])
    return found


def _running(parts: Sequence[Part], stacks: Counter[Stack]) -> list[Part]:
    """Time on CPUs, put together: busy, and in which functions; interrupts."""
    times: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    cpus: Counter[int | None] = Counter()
    for part in parts:
        times[part.kind] += part.time_ns
        cpus[part.cpu] += part.time_ns if part.kind != "not recorded" else 0
        if part.kind == "interrupts":
            taken[part.what] += part.time_ns
    if not cpus:
        return []
    cpu = cpus.most_common(1)[0][0]
    busy = Part(
        "busy",
        times["busy"],
        busy_in(stacks),
        functions=innermost(stacks),
        stacks=folded(stacks),
        cpu=cpu,
    )
    words = ", ".join(text for text, _ in taken.most_common(3))
    found = (
        busy,
        Part("interrupts", times["interrupts"], words, cpu=cpu),
        Part("not recorded", times["not recorded"], _BUSY_OR_NOT, cpu=cpu),
    )
    return [part for part in found if part.time_ns]


_BUSY_OR_NOT = "on a CPU, busy or interrupted"


def _said_of(flight: Flight, span: _Span) -> _Span:
    """Of a time on a CPU the end: before, it may have been an interrupt, too."""
    since_ns = max(span.begin_ns, flight.since("interrupts", span.cpu))
    return replace(span, begin_ns=min(since_ns, span.end_ns))


# Of linux/interrupt.h.
_SOFT_INTERRUPTS = (
    "HI",
    "TIMER",
    "NET_TX",
    "NET_RX",
    "BLOCK",
    "IRQ_POLL",
    "TASKLET",
    "SCHED",
    "HRTIMER",
    "RCU",
)


def _taken(flight: Flight, span: _Span) -> Iterator[tuple[int, int, str]]:
    """Begin, end and name of what interrupts took of a span, in order.

    One may come upon another, which has the time before and after it.
    """
    rows = _within(flight.rings["interrupts"], span, "from_ns", "until_ns")
    begins = np.maximum(rows["from_ns"].astype("i8"), span.begin_ns)
    ends = np.minimum(rows["until_ns"].astype("i8"), span.end_ns)
    interrupts = [
        (int(begins[i]), int(ends[i]), _interrupt_name(rows[i]))
        for i in np.lexsort((-ends, begins))
    ]
    under_way: list[tuple[int, str]] = []
    at_ns = span.begin_ns
    for begin_ns, end_ns, name in (*interrupts, (span.end_ns, span.end_ns, "")):
        while under_way:
            last_ns, last = under_way[-1]
            until_ns = min(last_ns, begin_ns)
            if until_ns > at_ns:
                yield at_ns, until_ns, last
                at_ns = until_ns
            if last_ns > begin_ns:
                break
            under_way.pop()
        at_ns = begin_ns
        # it ends no later than what it came upon
        under_way.append((min([end_ns, *(u for u, _ in under_way[-1:])]), name))


def _interrupt_name(row: Any) -> str:
    number = int(row["number"])
    if not row["soft"]:
        return f"interrupt {number}"
    known = number < len(_SOFT_INTERRUPTS)
    return f"soft interrupt {_SOFT_INTERRUPTS[number] if known else number}"


def _within(records: Records, span: _Span, begin: str, end: str) -> Records:
    inside = (records["cpu"] == span.cpu) & (records[end] > span.begin_ns)
    return np.asarray(records[inside & (records[begin] < span.end_ns)])


_SLEPT_OR_WAITED = "asleep, or waiting for a CPU"


def _off_cpu(flight: Flight, span: _Span, sleeps: _Sleeps) -> list[Part]:
    """Time without a CPU: first asleep, if it left to sleep, and then waiting."""
    whole_ns = span.end_ns - span.begin_ns
    if span.untraced:
        return [Part("not recorded", whole_ns, "untraced")]
    wake = sleeps.wake(span) if span.state else None
    if span.state == 0:
        waited_ns = whole_ns
    elif span.waited_ns != UNKNOWN_WAIT:
        waited_ns = min(span.waited_ns, whole_ns)
    elif span.state is None:
        waited_ns = 0
    elif wake:
        waited_ns = span.end_ns - wake.t_ns
    else:
        return [Part("not recorded", whole_ns, _SLEPT_OR_WAITED)]
    found = []
    if whole_ns > waited_ns:
        before = Part("not recorded", whole_ns - waited_ns)
        if span.state is not None:
            before = sleeps.part(span, wake, before.time_ns)
        found.append(before)
    if waited_ns:
        wait = replace(span, begin_ns=span.end_ns - waited_ns)
        kept = span.throttled if span.state == 0 else bool(wake and wake.throttled)
        held = throttled(
            flight.rings, sleeps.thread, (wait.begin_ns, span.end_ns), kept
        )
        found += _waiting(flight, wait, held)
    return found


def _waiting(flight: Flight, wait: _Span, held: Throttled | None) -> list[Part]:
    """A wait for a CPU, of which a quota may have had a part."""
    # before it was in another CPU's queue, of which nothing is known
    queued_from_ns = wait.end_ns - wait.queued_ns
    if held:
        own_ns = max(held.begin_ns - queued_from_ns, 0)
        earlier = replace(wait, end_ns=held.begin_ns, queued_ns=own_ns)
        before = _waiting(flight, earlier, None)
        after = _waiting(flight, replace(wait, begin_ns=held.end_ns), None)
        time_ns = held.end_ns - held.begin_ns
        return [*before, Part("throttled", time_ns, held.what, cpu=wait.cpu), *after]
    if wait.end_ns <= wait.begin_ns:
        return []
    begin_ns = max(queued_from_ns, wait.begin_ns)
    had, limited = _occupants(flight, replace(wait, begin_ns=begin_ns))
    limited_ns = sum(one["time_ns"] for one in limited)
    time_ns = wait.end_ns - wait.begin_ns - limited_ns
    found = (
        Part("waiting", time_ns, "", had, cpu=wait.cpu),
        Part("throttled", limited_ns, _BY_LIMIT, limited, cpu=wait.cpu),
    )
    return [part for part in found if part.time_ns]


_BY_LIMIT = "by the limit of real-time tasks"
_Who = tuple[dict[str, Any], ...]


# A thread that asks again and again is on a CPU in between for less of a sleep.
_ASKS_SHARE = 0.25
# A sleep of less than so much of those before has not run out as they did.
_CUT_SHARE = 0.9


def _as_one_wait(
    in_order: list[tuple[_Span, list[Part]]], sleeps: _Sleeps
) -> list[tuple[_Span, list[Part]]]:
    """Give sleeps that ran out, and were begun again, to who ended the last of them.

    A thread waits so for Python's interpreter lock: 5 ms at a time.
    """
    found = list(in_order)
    run: list[int] = []  # places of sleeps that ran out, each right before the next
    slept_ns = 0
    for i, (span, parts) in enumerate(in_order):
        first = parts[0] if parts else None
        if span.on_cpu:
            if span.end_ns - span.begin_ns > _ASKS_SHARE * slept_ns:
                run = []
        elif not first or first.kind != "asleep":
            run = []
        elif first.what == TIMED_OUT:
            run.append(i)
            slept_ns = first.time_ns
        else:
            is_wait = run and is_of_futex(first.what)
            if is_wait and (wake := sleeps.ended_by_thread(span, slept_ns)):
                _give_to_last(found, [*run, i], wake, sleeps)
            run = []
    return found


def _give_to_last(
    found: list[tuple[_Span, list[Part]]], run: list[int], wake: Wake, sleeps: _Sleeps
) -> None:
    """Have sleeps be for the same as the last of them, and by who ended that."""
    begin_ns, last = found[run[0]][0].begin_ns, found[run[-1]][1][0]
    slept_ns = sum(found[i][1][0].time_ns for i in run)
    who = sleeps.waker(begin_ns, wake, slept_ns)
    for i in run:
        span, (first, *rest) = found[i]
        # what that thread did meanwhile stands with the last
        of = who | {"time_ns": first.time_ns, "did": who["did"] if i == run[-1] else []}
        found[i] = span, [replace(first, what=last.what, who=(of,)), *rest]


@dataclass(frozen=True)
class _Sleeps:
    """What a thread slept for in a span, and who woke it."""

    walk: _Walk
    thread: int
    wakes: Records  # of the thread
    low_water_bytes: int

    @classmethod
    def of(cls, walk: _Walk, thread: int, low_water_bytes: int) -> _Sleeps:
        wakes = walk.flight.rings[WAKES]
        return cls(walk, thread, wakes[wakes["thread"] == thread], low_water_bytes)

    def wake(self, span: _Span) -> Wake | None:
        """What ended the sleep with which a time without a CPU began."""
        return wake_between(self.wakes, span.begin_ns, span.end_ns, self.walk.name)

    def ended_by_thread(self, span: _Span, timeout_ns: int) -> Wake | None:
        """Who ended a wait of a futex; of a short one its process' only other thread.

        Of a short one nothing is written. One that is over before its timeout was ended
        by a thread: if one of its process ran then, by that, unless others share it.
        """
        wake = self.wake(span)
        if wake:
            return wake if wake.waker_is_known else None
        slept_ns = span.end_ns - span.begin_ns
        if span.waited_ns == UNKNOWN_WAIT or slept_ns > _CUT_SHARE * timeout_ns:
            return None  # not known when it was woken, or it may have run out
        flight = self.walk.flight
        switches = flight.switches
        mine = switches[switches["thread"] == self.thread]
        at_ns = span.end_ns - min(span.waited_ns, slept_ns)
        pid = int(mine["pid"][-1]) if len(mine) else 0
        ran = _threads_of(flight, pid, at_ns - _WAKES_NS, at_ns) - {self.thread}
        if len(ran) != 1:
            return None
        (thread,) = ran
        name = switches["comm"][switches["thread"] == thread][-1]
        return Wake(at_ns, thread, pid, field_text(name), _UNKNOWN_CALL, ())

    def part(self, span: _Span, wake: Wake | None, time_ns: int) -> Part:
        """A sleep of so long, with which a time without a CPU began."""
        calls = self.walk.calls
        name, mark = calls.get(span.call.number, ""), self.low_water_bytes
        who: tuple[dict[str, Any], ...] = ()
        for_more = bool(mark) and name in INPUTS
        answer = None if for_more else self._answer(span, wake)
        # where in the kernel it waits for a socket says no more than whose it is
        of = None if answer else wake
        what = purpose(span.state or 0, span.call, of, calls)
        if for_more:
            # no bytes but those that reach the mark wake it
            what = f"for more bytes ({name}; SO_RCVLOWAT {mark})"
        if answer:
            # it may have been there when the story's time began
            came = answer.ready_ns > span.begin_ns
            who = (self._answerer(answer, time_ns),) if came else ()
        elif wake and wake.waker_is_known:
            who = (self.waker(span.begin_ns, wake, time_ns),)
        stacks = folded({wake.frames: time_ns}, "time_ns") if wake else ()
        return Part("asleep", time_ns, what, who, stacks=stacks)

    def _answer(self, span: _Span, wake: Wake | None) -> Answer | None:
        """What ended a wait for bytes of a socket."""
        if not span.state or self.walk.calls.get(span.call.number) not in BYTES:
            return None
        if wake:
            return self.walk.answers.ending(self.thread, wake.t_ns)
        if span.waited_ns == UNKNOWN_WAIT:
            return None
        # of a short sleep, and where there was no room, nothing is written
        at_ns = max(span.end_ns - span.waited_ns, span.begin_ns)
        return self.walk.answers.ending(self.thread, at_ns)

    def waker(self, begin_ns: int, wake: Wake, time_ns: int) -> dict[str, Any]:
        """Who woke it, and of a long sleep what that thread did meanwhile."""
        who = {"pid": wake.pid, "comm": wake.comm, "time_ns": time_ns}
        did: list[dict[str, Any]] = []
        if self.walk.may_go_on(wake.thread, time_ns):
            did = self.walk.doings(wake.pid, wake.thread, begin_ns, wake.t_ns)
        return who | {"thread": wake.thread, "did": did}

    def _answerer(self, answer: Answer, time_ns: int) -> dict[str, Any]:
        """Who sent what it waited for, and of a long sleep what that end did."""
        pid, took, walk = answer.peer.pid, answer.took, self.walk
        thread = _answering(walk.flight, pid, took) if took and pid else 0
        again = walk.waited_by(pid)
        did: list[dict[str, Any]] = []
        if took and thread and walk.may_go_on(thread, time_ns):
            to = walk.ended() if again else walk
            did = to.doings(pid, thread, took.begin_ns, took.end_ns)
        return {
            **{"pid": pid, "comm": answer.peer.comm, "time_ns": time_ns},
            **{"thread": thread, "did": did},
            "peer": {
                **{"address": answer.peer.address, "port": answer.peer.port},
                "answers": 1 if took else 0,
                "stage": took.stage if took else "",
                "stage_ns": took.end_ns - took.begin_ns if took else 0,
                "whole_ns": took.whole_ns if took else 0,
                "again": _named(walk.flight, again) if again else None,
                "queue": walk.queue_of(answer) if took else None,
            },
        }


def _answering(flight: Flight, pid: int, took: Took) -> int:
    """Which thread of the other end had the most of the time; 0: none, or not known.

    Who answers has a CPU then: where several have one, it is who read the question.
    """
    if took.stage == QUEUE:
        return took.thread
    if took.stage != WORK:
        return 0
    found = _threads_at(flight, pid, took.end_ns)
    if took.thread in found:
        return took.thread
    return found.pop() if len(found) == 1 else 0


def _named(flight: Flight, met: _Met) -> dict[str, Any]:
    """A process by the name of its thread that was met."""
    came = flight.switches[flight.switches["thread"] == met.thread]
    name = field_text(came["comm"][-1]) if len(came) else ""
    return {"pid": met.pid, "comm": name}


def _occupants(flight: Flight, wait: _Span) -> tuple[_Who, _Who]:
    """Who had a CPU while a task waited for it, longest first.

    The second are those that had it by the limit of real-time tasks, of which the one
    that waited is one.
    """
    places = np.flatnonzero(flight.switches["cpu"] == wait.cpu)
    t_ns = flight.switches["t_ns"][places].astype("i8")
    # with who had it at first, and who left it last
    first = max(int(np.searchsorted(t_ns, wait.begin_ns, "right")) - 1, 0)
    last = int(np.searchsorted(t_ns, wait.end_ns)) + 1
    of_cpu, t_ns = flight.switches[places[first:last]], t_ns[first:last]
    ends = np.r_[t_ns[1:], np.iinfo("i8").max] if len(t_ns) else t_ns
    overlap = np.minimum(ends, wait.end_ns) - np.maximum(t_ns, wait.begin_ns)
    # somebody else left than had come: one or both came or left unseen
    seen = np.r_[of_cpu["thread"][:-1] == of_cpu["left_thread"][1:], [True]]
    times: Counter[tuple[int, str, bool, bool]] = Counter()
    names: dict[int, str] = {}
    for row, known, took_ns in zip(of_cpu, seen, overlap.tolist(), strict=False):
        if took_ns > 0:
            pid = int(row["pid"])
            names[pid] = field_text(row["comm"])  # the last, where it had several
            who = (pid, "") if row["thread"] else (0, IDLE)
            lower, limited = _had_it_by(row, wait) if known else (False, False)
            times[*(who if known else (0, UNTRACED)), lower, limited] += took_ns
    had: list[dict[str, Any]] = []
    by_limit: list[dict[str, Any]] = []
    for (pid, comm, lower, limited), took_ns in times.most_common():
        one: dict[str, Any] = {"pid": pid, "comm": comm or names[pid]}
        one |= {"time_ns": took_ns, **({"lower_class": True} if lower else {})}
        (by_limit if limited else had).append(one)
    return tuple(had), tuple(by_limit)


def _had_it_by(came: Any, wait: _Span) -> tuple[bool, bool]:
    """Whether who came is of a lower class than who waits, or has the limit's time."""
    limited = wait.rank == REAL_TIME and has_flag(came, "left_flags", TASK_BY_LIMIT)
    rank = flags_of(came, "left_flags", TASK_RANK)
    lower = bool(came["thread"]) and 0 < rank < wait.rank
    return lower and not limited, limited


def _merged(parts: Sequence[Part]) -> list[Part]:
    """Make one of those that say the same."""
    found: dict[tuple[str, str], Part] = {}
    slept: defaultdict[tuple[str, str], Counter[Stack]] = defaultdict(Counter)
    for part in parts:
        key = part.kind, page_fault(part.what)
        for stack in part.stacks if part.kind == "asleep" else ():
            slept[key][tuple(stack["frames"])] += stack["time_ns"]
        one = found.get(key)
        if one is None:
            found[key] = part
            continue
        who = together((*one.who, *part.who))
        longer = one if one.time_ns >= part.time_ns else part
        time_ns = one.time_ns + part.time_ns
        what = longer.what
        found[key] = replace(one, time_ns=time_ns, what=what, who=who, cpu=longer.cpu)
    for key, stacks in slept.items():
        found[key] = replace(found[key], stacks=folded(stacks, "time_ns"))
    return list(found.values())
