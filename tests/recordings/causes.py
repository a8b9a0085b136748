"""Programs as of talk.py, whose messages wait for a time and a cause that they know.

`python causes.py NAME`. `cause` says of each of `messages` slow ones, in which `stage`
most of its time is, what `kind` of part that is, words of `what` it says, and how long
it takes at least, in ms.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from paths import addressed, datagrams, hosts, ip, joined, linked, nft, stream
from talk import Truth, beside, exactly, pair

LIMIT = "100ms"  # a guest of its own emulator is slow
LIMITS = {"limited-reader": "20ms"}
ROUNDS, HELD_SECONDS = 6, 0.2


def slow_reads(
    wait: Callable[[], object], beside_it: Callable[[], None] = lambda: None
) -> None:
    """Each request waits until its reader has waited for something else."""
    client, server = pair()

    def answer() -> None:
        for _ in range(ROUNDS):
            wait()
            exactly(server, 100)
            server.sendall(b"r" * 50)

    thread = beside(answer)
    for _ in range(ROUNDS):
        client.sendall(b"q" * 100)
        beside_it()
        exactly(client, 50)
    thread.join()


def slow_answers(wait: Callable[[], object]) -> Truth:
    """Each request is read at once, and answered after a wait."""
    client, server = pair()

    def answer() -> None:
        for _ in range(ROUNDS):
            exactly(server, 100)
            wait()
            server.sendall(b"r" * 50)

    thread = beside(answer)
    for _ in range(ROUNDS):
        client.sendall(b"q" * 100)
        exactly(client, 50)
    thread.join()
    return {"exchanges": ROUNDS, "sent": 2 * ROUNDS}


def truth(kind: str, what: str = "", stage: str = "receive_queue") -> Truth:
    cause = {"stage": stage, "kind": kind, "what": what, "messages": ROUNDS}
    return {"cause": cause | {"least_ms": HELD_SECONDS * 1e3 * 0.9}}


def sleeping_reader() -> Truth:
    """On a timer."""
    slow_reads(lambda: time.sleep(HELD_SECONDS))
    return truth("asleep", "on a timer")


def work(seconds: float) -> None:
    """Take so much of a CPU's time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def sleeping_server() -> Truth:
    """On a timer, before it answers."""
    of = slow_answers(lambda: time.sleep(HELD_SECONDS))
    return of | truth("asleep", "on a timer", "server")


def busy_server() -> Truth:
    """So much of a CPU's time, before it answers."""
    return slow_answers(lambda: work(HELD_SECONDS)) | truth("busy", stage="server")


def busy_reader() -> Truth:
    """So much of a CPU's time."""

    slow_reads(lambda: work(HELD_SECONDS * 1.5))
    return truth("busy")


def piped_reader() -> Truth:
    """In a read of a pipe, into which another thread writes."""
    read, write = os.pipe()

    def give() -> None:
        time.sleep(HELD_SECONDS)
        os.write(write, b"x")

    slow_reads(lambda: bool(os.read(read, 1)), give)
    return truth("asleep", "in read")


def locked_reader() -> Truth:
    """For another thread, which holds a lock."""
    gate, ready = threading.Lock(), threading.Event()

    def enter() -> None:
        ready.wait()
        ready.clear()
        with gate:
            pass

    def hold() -> None:
        with gate:
            ready.set()
            time.sleep(HELD_SECONDS)

    slow_reads(enter, hold)
    return truth("asleep", "for another thread")


def reader_of_a_child() -> Truth:
    """For a process of its own to end."""

    def child() -> None:
        if not (pid := os.fork()):
            time.sleep(HELD_SECONDS)
            os._exit(0)
        os.waitpid(pid, 0)

    slow_reads(child)
    return truth("asleep", "wait4")


def stopped_reader() -> Truth:
    """A process that somebody stops for a time."""
    client, server = pair()
    pid = os.fork()
    if not pid:
        client.close()
        Path("/proc/self/comm").write_text("stopped")
        for _ in range(ROUNDS):
            exactly(server, 100)
            server.sendall(b"r" * 50)
        os._exit(0)
    server.close()
    for _ in range(ROUNDS):
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        client.sendall(b"q" * 100)
        time.sleep(HELD_SECONDS)
        os.kill(pid, signal.SIGCONT)
        exactly(client, 50)
    os.waitpid(pid, 0)
    return truth("asleep", "stopped")


def full_window() -> Truth:
    """A sender whose peer has no room: what it says waits in its own socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    size = 60_000
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * size)
    for _ in range(ROUNDS):
        client.sendall(b"m" * size)
        time.sleep(HELD_SECONDS)
        exactly(server, size)
    return truth("held", "window", "send_queue")


def resent_fast() -> Truth:
    """What a packet filter drops, until later ones are acknowledged: no timer is it."""
    with hosts(2) as (here, there):
        joined(here, there)
        addressed(here, "10.77.0.1/24")
        addressed(there, "10.77.0.2/24")
        ip(f"netns exec {here} sysctl -qw net.ipv4.tcp_early_retrans=0")  # no probe
        ip(f"-n {here} route change 10.77.0.0/24 dev e0 rto_min 5s")
        client, server = stream(here, there, "10.77.0.2")
        for _ in range(2):  # so that its RTT is known
            client.sendall(b"q" * 10)
            exactly(server, 10)
        nft(
            there,
            "table ip t { chain c { type filter hook input priority 0; "
            "ip length 300-400 numgen inc mod 2 == 0 drop; }; }",
        )
        for _ in range(ROUNDS):
            client.sendall(b"m" * 300)
            time.sleep(HELD_SECONDS)
            for _ in range(5):
                client.sendall(b"m" * 10)
            exactly(server, 350)
        found = truth("lost", "sent again by a fast retransmit", "transit")
        found["cause"]["what"] = (
            "at a packet filter (NETFILTER_DROP in nft_do_chain), "
            "sent again by a fast retransmit"
        )
        return found


LOW_WATER = 4096


def patient_reader() -> Truth:
    """In a call that takes no fewer bytes than its socket's low water mark."""
    client, server = pair()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, LOW_WATER)

    def answer() -> None:
        for _ in range(ROUNDS):
            exactly(server, 100 + LOW_WATER)
            server.sendall(b"r" * 50)

    thread = beside(answer)
    for _ in range(ROUNDS):
        time.sleep(0.02)  # it is in its call: what is there before it takes at once
        client.sendall(b"q" * 100)
        time.sleep(HELD_SECONDS)
        client.sendall(b"q" * LOW_WATER)
        exactly(client, 50)
    thread.join()
    return truth("asleep", f"for more bytes (recvfrom; SO_RCVLOWAT {LOW_WATER})")


def timed_reader() -> Truth:
    """In a wait for another thread, which has a timeout and runs out."""
    slow_reads(lambda: bool(threading.Event().wait(HELD_SECONDS)))
    return truth("asleep", "on a timer (futex with a timeout)")


def interpreted_reader() -> Truth:
    """For the lock of its interpreter, 5 ms at a time: one call of another has it."""
    asked = threading.Semaphore(0)
    count = 1_000_000
    begin = time.perf_counter()
    sum(range(count))
    count = int(count * 1.5 * HELD_SECONDS / (time.perf_counter() - begin))

    def hold() -> None:
        for _ in range(ROUNDS):
            asked.acquire()
            sum(range(count))  # one call, in which the lock stays

    def wait() -> None:
        time.sleep(0.02)  # until the message is there
        asked.release()
        time.sleep(0.001)

    holder = beside(hold)
    slow_reads(wait)
    holder.join()
    found = truth("asleep", "for another thread")
    found["cause"]["who"] = "python3"
    return found


def displaced_reader() -> Truth:
    """For its CPU, which a real-time process has; a new connection for each."""
    cpu = min(os.sched_getaffinity(0))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pid = os.fork()
        if not pid:
            os.sched_setaffinity(0, {cpu})
            for _ in range(ROUNDS):
                with listener.accept()[0] as server:
                    exactly(server, 100)
                    server.sendall(b"r" * 50)
            os._exit(0)
        for _ in range(ROUNDS):
            client = socket.create_connection(listener.getsockname())
            time.sleep(0.02)  # it waits for the request
            with real_time(cpu):
                client.sendall(b"q" * 100)
                time.sleep(HELD_SECONDS)
            exactly(client, 50)
            client.close()
        os.waitpid(pid, 0)
    found = truth("waiting")
    found["cause"]["who"] = "first"
    return found


@contextmanager
def real_time(cpu: int) -> Iterator[None]:
    """A process that has taken a CPU from all others."""
    read, write = os.pipe()
    over = mmap.mmap(-1, 1)
    pid = os.fork()
    if not pid:
        Path("/proc/self/comm").write_text("first")
        os.sched_setaffinity(0, {cpu})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        time.sleep(0.001)  # it comes again by its own name
        os.write(write, b"x")
        while not over[0]:
            pass
        os._exit(0)
    os.read(read, 1)
    os.close(read)
    os.close(write)
    try:
        yield
    finally:
        over[0] = 1
        os.waitpid(pid, 0)


def limited_reader() -> Truth:
    """For its CPU, which normal tasks have for 5% of the time beside real-time ones.

    A process of that CPU says when its share begins: then a message comes.
    """
    cpu = min(os.sched_getaffinity(0))
    client, server = pair()
    over = mmap.mmap(-1, 1)
    begins, begun = os.pipe()
    normal = os.fork()
    if not normal:
        Path("/proc/self/comm").write_text("normal")
        os.sched_setaffinity(0, {cpu})
        last = time.monotonic()
        while not over[0]:
            now = time.monotonic()
            if now - last > HELD_SECONDS:
                os.write(begun, b"x")
            last = now
        os._exit(0)
    reader = os.fork()
    if not reader:
        Path("/proc/self/comm").write_text("reader")
        os.sched_setaffinity(0, {cpu})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        for _ in range(ROUNDS):
            exactly(server, 100, socket.MSG_DONTWAIT)
            server.sendall(b"r" * 50)
        os._exit(0)
    os.sched_setaffinity(0, os.sched_getaffinity(0) - {cpu})
    for _ in range(ROUNDS):
        os.read(begins, 1)
        client.sendall(b"q" * 100)
        exactly(client, 50)
    os.waitpid(reader, 0)
    over[0] = 1
    os.waitpid(normal, 0)
    found = truth("throttled", "by the limit of real-time tasks")
    # of each second 50 ms are left to others; of them some pass before it comes
    found["cause"] |= {"who": "normal", "least_ms": 30}
    return found


def outweighed_reader() -> Truth:
    """For its CPU, which a task of a lower class has: groups share it, not tasks."""
    cpu = min(os.sched_getaffinity(0))
    with group() as light, group() as heavy:
        set_weight(light, 1)
        client, server = pair()
        over = mmap.mmap(-1, 1)
        lower = os.fork()
        if not lower:
            Path("/proc/self/comm").write_text("lower")
            (heavy / "cgroup.procs").write_text(str(os.getpid()))
            os.sched_setaffinity(0, {cpu})
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            while not over[0]:
                pass
            os._exit(0)
        reader = os.fork()
        if not reader:
            Path("/proc/self/comm").write_text("reader")
            os.sched_setaffinity(0, {cpu})
            (light / "cgroup.procs").write_text(str(os.getpid()))
            work(0.05)  # until it has used up what it had not used before
            server.sendall(b"b")
            for _ in range(ROUNDS):
                work(0.004)  # for which others have a hundred times as long
                exactly(server, 100)
                server.sendall(b"r" * 50)
            os._exit(0)
        exactly(client, 1)
        for _ in range(ROUNDS):
            client.sendall(b"q" * 100)
            exactly(client, 50)
        os.waitpid(reader, 0)
        over[0] = 1
        os.waitpid(lower, 0)
    found = truth("waiting")
    found["cause"] |= {"who": "lower", "lower_class": True}
    return found


PERIOD_SECONDS, QUOTA_SECONDS = 0.6, 0.05


def throttled_reader() -> Truth:
    """Its control group uses the CPU time up that it may have, before each read."""
    with limited_group() as limited:
        client, server = pair()
        pid = os.fork()
        if not pid:
            client.close()
            (limited / "cgroup.procs").write_text(str(os.getpid()))
            work(QUOTA_SECONDS * 1.2)  # so that the first message meets a whole period
            server.sendall(b"b")
            for _ in range(ROUNDS):
                work(QUOTA_SECONDS * 1.2)
                exactly(server, 100)
                server.sendall(b"r" * 50)
            os._exit(0)
        server.close()
        exactly(client, 1)
        before_ms = throttled_ms(limited)
        for _ in range(ROUNDS):
            client.sendall(b"q" * 100)
            exactly(client, 50)
        os.waitpid(pid, 0)
        found = truth("throttled", f"control group {limited.name}")
        return found | {"throttled_ms": throttled_ms(limited) - before_ms}


@contextmanager
def limited_group() -> Iterator[Path]:
    """A control group with a CPU quota."""
    period, quota = (round(s * 1e6) for s in (PERIOD_SECONDS, QUOTA_SECONDS))
    with group() as made:
        if OLD_GROUPS.exists():
            (made / "cpu.cfs_period_us").write_text(str(period))
            (made / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (made / "cpu.max").write_text(f"{quota} {period}")
        yield made


OLD_GROUPS, NEW_GROUPS = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


@contextmanager
def group() -> Iterator[Path]:
    """A control group of CPUs, of version 1 or 2."""
    name = f"latprof-test-{secrets.token_hex(4)}"
    made = (OLD_GROUPS if OLD_GROUPS.exists() else NEW_GROUPS) / name
    if not OLD_GROUPS.exists():
        (NEW_GROUPS / "cgroup.subtree_control").write_text("+cpu")
    made.mkdir()
    try:
        yield made
    finally:
        made.rmdir()


def set_weight(made: Path, percent: int) -> None:
    """Give a group so much of what others have, where both could run."""
    if OLD_GROUPS.exists():
        (made / "cpu.shares").write_text(str(1024 * percent // 100))
    else:
        (made / "cpu.weight").write_text(str(percent))


def throttled_ms(limited: Path) -> float:
    """How long its processes were kept from CPUs, as the kernel sums it up."""
    lines = (limited / "cpu.stat").read_text().splitlines()
    counted = {key: int(value) for key, value in map(str.split, lines)}
    if "throttled_usec" in counted:
        return counted["throttled_usec"] / 1e3
    return counted["throttled_time"] / 1e6


SILENT = """
table arp late { chain c { type filter hook input priority 0; drop; }; }
table ip6 late {
  chain c { type filter hook input priority 0; icmpv6 type nd-neighbor-solicit drop; };
}
"""


def speak_again(host: str) -> None:
    """After a while."""
    time.sleep(HELD_SECONDS)
    nft(host, "delete table arp late; delete table ip6 late")


def late_address(to: str, ends: Callable[..., tuple[socket.socket, ...]]) -> Truth:
    """A next hop says late who it is: its link address is asked for until then."""
    with linked() as (here, there):
        for host, own in ((here, 1), (there, 2)):
            ip(f"-n {host} addr add fd77::{own}/64 dev e0 nodad")
        for family in ("ipv4", "ipv6"):
            asks = f"net.{family}.neigh.e0"
            often = f"{asks}.retrans_time_ms=20 {asks}.mcast_solicit=1000"
            ip(f"netns exec {here} sysctl -qw {often}")
        client, server = ends(here, there, to)

        def answer() -> None:
            for _ in range(ROUNDS):
                asked, sender = server.recvfrom(100)
                if sender:
                    server.sendto(asked, sender)
                else:
                    server.sendall(asked)

        thread = beside(answer)
        for _ in range(ROUNDS):
            nft(there, SILENT)
            ip(f"-n {here} neigh flush dev e0")
            client.sendall(b"q" * 100)
            speaks = beside(speak_again, there)
            exactly(client, 100)
            speaks.join()
        thread.join()
    what = f"{to} (neighbour resolution)"
    waiting = truth("waiting for the link address of", what, "send_queue")
    return {"exchanges": ROUNDS, "sent": 2 * ROUNDS} | waiting


def late_neighbour() -> Truth:
    """Of a TCP connection."""
    return late_address("10.77.0.2", stream)


def late_neighbour_of_a_datagram() -> Truth:
    """Of datagrams, by IPv6."""
    return late_address("fd77::2", datagrams)


CAUSES = {
    cause.__name__.replace("_", "-"): cause
    for cause in (
        *(sleeping_reader, busy_reader, piped_reader, locked_reader),
        *(reader_of_a_child, stopped_reader, patient_reader, full_window),
        *(sleeping_server, busy_server),
        *(timed_reader, interpreted_reader, displaced_reader, throttled_reader),
        *(late_neighbour, late_neighbour_of_a_datagram),
        *(limited_reader, outweighed_reader),
        resent_fast,
    )
}


if __name__ == "__main__":
    print(json.dumps(CAUSES[sys.argv[1]]()))
