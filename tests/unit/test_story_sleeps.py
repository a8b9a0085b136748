"""What a thread slept for and who woke it, from made recordings and stacks."""

from __future__ import annotations

import numpy as np
import pytest
from latprof_agent.capture.flight import WAKERS, wakers_of
from latprof_agent.probes.layout import layout_of
from latprof_agent.symbols.symbols import Symbols
from latprof_analysis.report.story_lines import (
    causes,
    conclusion,
    recorder_lines,
    story_lines,
)
from latprof_analysis.story.sleeps import Call, Wake, purpose, sleeping_in
from latprof_analysis.story.story import Flight, time_of
from latprof_analysis.story.system_calls import CALLS

FLIGHTS = layout_of().flights
MS = 1_000_000
X86_64 = CALLS["x86_64"]
READ, FUTEX, EPOLL, NANOSLEEP, EXCEPTION = 0, 202, 232, 230, 0xFFFF
WAIT, WAKE, LOCK_PI, WAIT_BITSET, LOCK_PI2, PRIVATE = 0, 1, 6, 9, 13, 128
SLEEPING, UNINTERRUPTIBLE, KILLABLE = 1, 2, 0x102
LIBC = ("libc.so.6+0x86130", "do_syscall_64 (kernel)", "futex_wait (kernel)")
MUSL = ("ld-musl-x86_64.so.1+0x5c5d7", "do_syscall_64 (kernel)")
UNLOCKS = Call(FUTEX, WAKE | PRIVATE, 1)
MUTEX = Call(FUTEX, WAIT | PRIVATE, 2)
LOCK, OTHER = "for a lock (mutex)", "for another thread (futex)"


def woken(by=UNLOCKS, frames=LIBC, thread=7):
    return Wake(1, thread, 7, "keeper", by, frames)


@pytest.mark.parametrize(
    ("call", "wake", "what"),
    [
        (MUTEX, woken(), LOCK),
        (MUTEX, woken(frames=("main", "__GI___lll_lock_wait", *LIBC[1:])), LOCK),
        (Call(FUTEX, WAIT, 2), woken(), LOCK),  # between processes
        # none of them is one for sure
        (MUTEX, None, OTHER),
        (MUTEX, woken(thread=0), OTHER),  # in time, not by who had it
        (MUTEX, woken(Call(FUTEX, WAKE | PRIVATE, 0x7FFFFFFF)), OTHER),  # a barrier
        (MUTEX, woken(Call(60)), OTHER),  # the kernel, of a thread that ends
        (MUTEX, woken(frames=MUSL), OTHER),  # its condition variable
        (MUTEX, woken(frames=("server+0x100",)), OTHER),
        (MUTEX, woken(frames=()), OTHER),
        (Call(FUTEX, WAIT | PRIVATE, 0), woken(), OTHER),
        (Call(FUTEX, WAIT_BITSET | PRIVATE, 2), woken(), OTHER),  # Rust's mutex
        (
            Call(FUTEX, WAIT_BITSET | PRIVATE | 256, 0),
            woken(),
            "for another thread (condition variable or the like, futex)",
        ),
        # the kernel itself knows whose they are
        (Call(FUTEX, LOCK_PI), None, "for a lock (priority-inheriting mutex)"),
        (Call(FUTEX, LOCK_PI2 | 128), None, "for a lock (priority-inheriting mutex)"),
    ],
)
def test_a_futex_is_told_a_lock_where_nothing_else_fits(call, wake, what):
    assert purpose(SLEEPING, call, wake, X86_64) == what


def kernel(*names):
    """Frames of the kernel, the innermost first as the kernel prints stacks."""
    return ("program", *(f"{name} (kernel)" for name in reversed(names)))


@pytest.mark.parametrize(
    ("names", "where", "mapped"),
    [
        (
            "request_wait_answer __fuse_simple_request fuse_send_read fuse_direct_io",
            *("fuse_simple_request", "fuse_simple_request"),
        ),
        (
            "io_schedule folio_wait_bit_common filemap_get_pages filemap_read"
            " fuse_file_read_iter vfs_read",
            *("fuse_file_read_iter", "filemap_get_pages"),
        ),
        (
            "io_schedule folio_wait_bit_common filemap_fault __do_fault"
            " handle_mm_fault exc_page_fault",
            *("do_fault", "filemap_fault"),
        ),
        ("jbd2_log_wait_commit ext4_sync_file do_fsync", *("ext4_sync_file",) * 2),
        ("schedule_timeout do_sys_poll __x64_sys_poll", *("do_sys_poll",) * 2),
        ("anon_pipe_read vfs_read ksys_read", *("anon_pipe_read",) * 2),
        (
            "wait_woken sk_wait_data tcp_recvmsg_locked tcp_recvmsg",
            *("tcp_recvmsg",) * 2,
        ),
        ("io_schedule folio_wait_bit vfs_read ext4_never", "", ""),
        ("? filemap_read vfs_read", *("filemap_read",) * 2),
        ("", "", ""),
    ],
)
def test_where_it_sleeps_is_the_innermost_function_that_tells_for_what(
    names, where, mapped
):
    wake = woken(frames=kernel(*names.split()))
    assert sleeping_in(wake) == where
    assert sleeping_in(wake, any_file=True) == mapped


def test_without_a_record_where_it_slept_is_not_told():
    assert sleeping_in(None) == ""


@pytest.mark.parametrize(
    ("state", "call", "names", "what"),
    [
        (KILLABLE, READ, "filemap_read ext4_file_read_iter", "ext4_file_read_iter"),
        # FUSE's may be interrupted first
        (SLEEPING, READ, "__fuse_simple_request", "fuse_simple_request"),
    ],
)
def test_a_disk_is_told_with_its_file_system(state, call, names, what):
    wake = woken(frames=kernel(*names.split()))
    told = purpose(state, Call(call), wake, X86_64)
    assert told == f"for a disk or file system (read; {what})"


@pytest.mark.parametrize(
    ("call", "names", "what"),
    [
        (READ, "anon_pipe_read vfs_read", "in read (anon_pipe_read)"),
        (READ, "", "in read"),
        (EPOLL, "schedule_hrtimeout_range ep_poll", "in epoll_wait"),
        (NANOSLEEP, "do_nanosleep", "on a timer (clock_nanosleep)"),
        (EXCEPTION, "handle_userfault", "for a page (page fault; handle_userfault)"),
        (999, "new_thing", "in system call 999 (new_thing)"),
    ],
)
def test_other_calls_are_told_with_where_they_sleep(call, names, what):
    wake = woken(frames=kernel(*names.split()))
    assert purpose(SLEEPING, Call(call), wake, X86_64) == what


READER, KEEPER, IDLE = (50, 51), (60, 61), (0, 0)
COMMS = {50: b"reader", 60: b"keeper"}


def switch(t_ns, left, came, *, cpu=0, state=0, call=MUTEX):
    row = np.zeros(1, FLIGHTS["switches"])
    row["t_ns"], row["cpu"], row["left_state"] = t_ns, cpu, state
    row["left_call"], row["left_operation"], row["left_value"] = call[:3]
    row["left_pid"], row["left_thread"] = left
    row["pid"], row["thread"] = came
    name = COMMS.get(came[0], b"other")
    row["comm"][0, : len(name)] = list(name)
    return row


def wake(t_ns, by=KEEPER, call=UNLOCKS, sleeper=READER):
    row = np.zeros(1, FLIGHTS["wakes"])
    row["t_ns"], row["user_frames"] = t_ns, 1
    row["pid"], row["thread"] = sleeper
    row["by_pid"], row["by_thread"] = by
    row["by_call"], row["by_operation"], row["by_value"] = call[:3]
    name = COMMS.get(by[0], b"other")
    row["comm"][0, : len(name)] = list(name)
    return row


def flight_of(switches, wakes, samples=()):
    made = {
        "switches": np.concatenate(switches),
        "wakes": np.concatenate([wake(0)[:0], *wakes]),
        "interrupts": np.zeros(0, FLIGHTS["interrupts"]),
        "samples": np.zeros(len(samples), FLIGHTS["samples"]),
    }
    for row, t_ns in zip(made["samples"], samples, strict=True):
        row["t_ns"], row["pid"], row["thread"], row["cpu"] = t_ns, *KEEPER, 1
    return Flight.cut(made, {}, 1, 10**12)


def told(flight, begin_ns, end_ns):
    def name(record):
        return LIBC if "by_pid" in record.dtype.names else ("main", "compress")

    return time_of(flight, 50, begin_ns, end_ns, thread=51, name=name).parts


def test_who_woke_it_is_told_with_what_that_thread_did_meanwhile():
    # the keeper sleeps for 10 ms, computes for 26, and unlocks
    flight = flight_of(
        [
            switch(1, IDLE, READER),
            switch(2, IDLE, KEEPER, cpu=1),
            switch(10 * MS, READER, IDLE, state=SLEEPING),
            switch(11 * MS, KEEPER, IDLE, cpu=1, state=SLEEPING, call=Call(NANOSLEEP)),
            switch(21 * MS, IDLE, KEEPER, cpu=1),
            switch(48 * MS, IDLE, READER),
        ],
        [
            wake(5 * MS),
            wake(47 * MS),
            wake(49 * MS, IDLE),
            wake(47 * MS, sleeper=KEEPER),
        ],
        range(22 * MS, 47 * MS, MS),
    )
    asleep, busy = told(flight, 10 * MS, 50 * MS)
    assert (asleep.kind, asleep.what, asleep.time_ns) == ("asleep", LOCK, 38 * MS)
    (who,) = asleep.who
    assert (who["pid"], who["thread"], who["comm"]) == (*KEEPER, "keeper")
    assert who["time_ns"] == 38 * MS
    assert who["did"] == [
        {"kind": "busy", "what": "compress", "time_ns": 27 * MS},
        {"kind": "asleep", "what": "on a timer (clock_nanosleep)"}
        | {"time_ns": 10 * MS},
    ]
    assert busy.who == ()


def test_of_an_interrupt_nobody_is_told():
    flight = flight_of(
        [
            switch(1, IDLE, READER),
            switch(10 * MS, READER, IDLE, state=SLEEPING),
            switch(40 * MS, IDLE, READER),
        ],
        [wake(40 * MS, IDLE)],
    )
    (asleep,) = told(flight, 10 * MS, 40 * MS)
    assert (asleep.what, asleep.who) == (OTHER, ())


def test_sleeps_that_the_same_thread_ended_are_one():
    rows, wakes = [switch(1, IDLE, READER), switch(2, IDLE, KEEPER, cpu=1)], []
    for begin in (10, 20, 30):
        rows.append(switch(begin * MS, READER, IDLE, state=SLEEPING))
        rows.append(switch((begin + 9) * MS, IDLE, READER))
        wakes.append(wake((begin + 8) * MS))
    asleep, _ = told(flight_of(rows, wakes), 10 * MS, 40 * MS)
    (who,) = asleep.who
    assert asleep.time_ns == who["time_ns"] == 27 * MS
    assert who["did"] == [{"kind": "busy", "what": "", "time_ns": 24 * MS}]
    assert asleep.stacks == ({"frames": list(LIBC), "time_ns": 27 * MS},)


MESSAGE = {
    **{"protocol": "tcp", "kind": "request", "sequence": 7, "size_bytes": 64},
    **{"sender_pid": 1, "reader_pid": 50, "sender_comm": "a", "reader_comm": "reader"},
    **{"end_to_end_ns": 40 * MS, "retransmits": 0},
}
BUSY = {"kind": "busy", "what": "compress", "time_ns": 30 * MS}


def story_of(*who, took_ns=38 * MS):
    part = {"kind": "asleep", "what": LOCK, "time_ns": took_ns, "who": list(who)}
    part |= {"functions": [], "cpu": None}
    stages = {"receive_queue": {"time_ns": 38 * MS, "parts": [part]}}
    return {"message": MESSAGE, "stages": stages}


def one(time_ns=38 * MS, thread=61, did=(BUSY,), comm="keeper"):
    who = {"pid": 60, "comm": comm, "thread": thread, "time_ns": time_ns}
    return who | {"did": list(did)}


@pytest.mark.parametrize(
    ("who", "end"),
    [
        (
            [one()],
            "lock (mutex), until keeper (pid 60, thread 61) woke it, which was busy in"
            " compress for 30.0 ms of it",
        ),
        (
            [one(thread=60, did=[{**BUSY, "kind": "asleep", "what": "in read"}])],
            "until keeper (pid 60) woke it, which slept in read for 30.0 ms of it",
        ),
        # for less than half of it that thread did the same
        ([one(did=[{**BUSY, "time_ns": 9 * MS}])], "(pid 60, thread 61) woke it"),
        ([one(did=[])], "(pid 60, thread 61) woke it"),
        ([one(10 * MS), one(9 * MS, comm="b")], "which slept for a lock (mutex)"),
        ([], "which slept for a lock (mutex)"),
    ],
)
def test_a_sentence_tells_who_woke_it_most_of_the_time(who, end):
    assert conclusion(story_of(*who)).endswith(end)


@pytest.mark.parametrize(
    ("what", "end"),
    [
        ("", "did something that the recorder has no more"),
        (
            "untraced",
            "not recorded (the kernel hides a task that came or left)",
        ),
        ("which of its threads", "that is not recorded (which of its threads)"),
    ],
)
def test_what_is_not_recorded_is_told_with_its_reason(what, end):
    story = story_of()
    story["stages"]["receive_queue"]["parts"][0] |= {
        **{"kind": "not recorded", "what": what},
    }
    assert conclusion(story).endswith(end)


@pytest.mark.parametrize(
    ("symbols", "told"),
    [
        ("bcc", []),
        ("none needed", []),
        ("file and offset", ["install python3-bpfcc"]),
        ("no access", ["may not open their files"]),
    ],
)
def test_why_functions_have_no_names_is_told_with_what_to_do(symbols, told):
    lines = list(recorder_lines({"skipped": 0, "symbols": symbols}))
    assert len(lines) == len(told)
    assert all(words in line for words, line in zip(told, lines, strict=True))


def test_of_several_each_ones_share_is_told():
    first, second = one(20 * MS), one(18 * MS, thread=60, comm="b")
    lines = list(story_lines(story_of(first, second)))
    assert lines[-1].endswith(
        "asleep for a lock (mutex), woken by keeper (pid 60, thread 61) 20.0 ms,"
        " b (pid 60) 18.0 ms"
    )


def test_causes_of_many_stories_are_by_process():
    document = {"limit_ns": 0, "stories": [story_of(one()), story_of(one(thread=62))]}
    (cause,) = causes(document)
    expected = "receive_queue: asleep for a lock (mutex), woken by keeper (pid 60)"
    assert cause["cause"] == expected


def test_many_processes_of_one_program_are_one_cause():
    def by(*pids):
        stories = [story_of(one() | {"pid": pid}) for pid in pids]
        return [one["cause"] for one in causes({"limit_ns": 0, "stories": stories})]

    asleep = "receive_queue: asleep for a lock (mutex), woken by keeper"
    assert by(1, 2, 3) == [f"{asleep} (pid {pid})" for pid in (1, 2, 3)]
    assert by(1, 2, 3, 4) == [f"{asleep} (4 processes)"]


def test_who_wakes_often_is_noted():
    rows = [
        wake(1, (100 + i, 100 + i)) for i in range(2 * WAKERS) for _ in range(i + 1)
    ]
    rows += [wake(1, IDLE)] * 99 + [wake(1, (999, 999), sleeper=(1, 1))] * 99
    found = wakers_of(np.concatenate(rows), {50})
    assert found == set(range(100 + WAKERS, 100 + 2 * WAKERS))


def test_where_a_sleeper_was_is_named_as_a_stack_is():
    row = wake(1)[0]
    row["kernel"][0], row["kernel_frames"], row["user"][0] = 1, 1, 2
    assert Symbols().stack(row) == ("?", "? (kernel)")


TIMED = Call(FUTEX, WAIT_BITSET, 0, timed=True)
RAN_OUT = "on a timer (futex with a timeout)"
CONDITION = "for another thread (condition variable or the like, futex)"


@pytest.mark.parametrize(
    ("by", "what"),
    [(0, RAN_OUT), (7, CONDITION)],  # an interrupt, a thread
)
def test_a_futex_with_a_timeout_that_no_thread_ended_ran_out(by, what):
    assert purpose(SLEEPING, TIMED, woken(thread=by), X86_64) == what
    without = TIMED._replace(timed=False)
    assert purpose(SLEEPING, without, woken(thread=by), X86_64) == CONDITION


def asked_again(*, gap_ns, last_ns, wakes):
    """A reader that sleeps 5 ms four times, each ended by a timer, and once more."""
    rows = [switch(1, IDLE, READER), switch(2, IDLE, KEEPER, cpu=1)]
    ends, at = [], 10 * MS
    for took_ns in (*[5 * MS] * 4, last_ns):
        left = switch(at, READER, IDLE, state=SLEEPING, call=TIMED)
        left["left_flags"] = 1  # TASK_TIMED
        at += took_ns
        rows += [left, switch(at, IDLE, READER)]
        ends.append(at)
        at += gap_ns
    woken_at = [wake(end, IDLE) for end in ends[:4]]
    return flight_of(rows, [*woken_at, *wakes(ends[4])]), at


@pytest.mark.parametrize("last_ns", [4 * MS, MS // 2])
def test_sleeps_begun_again_are_of_who_ended_the_last(last_ns):
    """Of a short one no wake is written: that thread alone ran of its process."""

    def wakes(end_ns):
        return [wake(end_ns)] if last_ns > MS else []

    flight, end_ns = asked_again(gap_ns=5_000, last_ns=last_ns, wakes=wakes)
    if last_ns < MS:
        switches = flight.rings["switches"]
        switches["pid"][switches["thread"] == KEEPER[1]] = READER[0]
    asleep, busy = told(flight, 10 * MS, end_ns)
    assert (asleep.what, asleep.time_ns) == (CONDITION, 20 * MS + last_ns)
    (who,) = asleep.who
    assert (who["thread"], who["time_ns"]) == (KEEPER[1], 20 * MS + last_ns)
    # that thread had its CPU for all of the time
    whole_ns = 20 * MS + last_ns + 4 * 5_000
    assert who["did"] == [{"kind": "busy", "what": "", "time_ns": whole_ns}]
    assert busy.time_ns == 5 * 5_000


def test_a_last_sleep_that_may_have_run_out_is_of_nobody():
    """Nothing is written of it, and it took as long as those before."""
    flight, end_ns = asked_again(gap_ns=5_000, last_ns=5 * MS, wakes=lambda _end: [])
    switches = flight.rings["switches"]
    switches["pid"][switches["thread"] == KEEPER[1]] = READER[0]
    parts = [part for part in told(flight, 10 * MS, end_ns) if part.kind == "asleep"]
    assert {part.what: part.time_ns for part in parts} == {
        RAN_OUT: 20 * MS,
        CONDITION: 5 * MS,
    }
    assert [part.who for part in parts] == [(), ()]


def test_sleeps_with_work_between_are_not_one_wait():
    flight, end_ns = asked_again(
        gap_ns=2 * MS, last_ns=4 * MS, wakes=lambda end_ns: [wake(end_ns)]
    )
    found = {part.what: part.time_ns for part in told(flight, 10 * MS, end_ns)}
    assert found == {RAN_OUT: 20 * MS, CONDITION: 4 * MS, "": 5 * 2 * MS}


def test_pages_are_one_cause_however_the_kernel_gets_them():
    rows, wakes = [switch(1, IDLE, READER)], []
    for begin in (10, 20, 30):
        rows.append(switch(begin * MS, READER, IDLE, state=2, call=Call(EXCEPTION)))
        rows.append(switch((begin + 9) * MS, IDLE, READER))
        wakes.append(wake((begin + 8) * MS))
    names = iter(["filemap_fault", "shmem_fault", "filemap_fault"] * 2)

    def name(_record):
        return kernel(next(names))

    asleep, _ = time_of(flight_of(rows, wakes), 50, 10 * MS, 40 * MS, name=name).parts
    assert asleep.time_ns == 27 * MS
    assert asleep.what.startswith("for a page (page fault; ")
