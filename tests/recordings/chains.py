"""Programs as of causes.py, whose slow one waits for somebody who waits for others.

`python chains.py NAME`. `chain` says in which `stage` of its `reader` each slow one
was, in `words` what is said of that, each time as T, and in the order of time how long
the last of the chain had it by its own clock (`works_ms`), and all of them by the clock
of who asked (`asked_ms`).
"""

from __future__ import annotations

import json
import os
import queue
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from causes import HELD_SECONDS, ROUNDS, work
from paths import inside, linked
from talk import Truth, beside, exactly

Ask = Callable[[], None]
ASKED, ANSWERED = b"q" * 100, b"r" * 50


class Service:
    """A process of this name that does something for each request, and answers.

    `make` gives, in the process, what it does; it ends with its clients. Its own clock
    is asked between reading and answering.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Ask],
        serve: Callable[[socket.socket, Ask], None] | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.name = name
        self._read, write = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            Path("/proc/self/comm").write_text(name)
            self.times_ms: list[float] = []
            (serve or self.serve)(self._accepted(), self.timed(make()))
            os.write(write, json.dumps(self.times_ms).encode())
            os._exit(0)
        os.close(write)

    def _accepted(self) -> socket.socket:
        client, _ = self._listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def timed(self, do: Ask) -> Ask:
        """Note how long it takes each time."""

        def did() -> None:
            begin = time.perf_counter()
            do()
            self.times_ms.append((time.perf_counter() - begin) * 1e3)

        return did

    def serve(self, client: socket.socket, do: Ask) -> None:
        while client.recv(100, socket.MSG_WAITALL):
            do()
            client.sendall(ANSWERED)

    def asking(self) -> Ask:
        """Connect to it, and give what asks it and waits."""
        return asking(socket.create_connection(("127.0.0.1", self.port)))

    def ended(self) -> list[float]:
        """Wait for its end, and give its times."""
        times = os.read(self._read, 1 << 16)
        os.waitpid(self.pid, 0)
        found: list[float] = json.loads(times)
        return found

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}, port {self.port})"


def asking(sock: socket.socket) -> Ask:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask() -> None:
        sock.sendall(ASKED)
        exactly(sock, len(ANSWERED))

    return ask


def sleep() -> None:
    time.sleep(HELD_SECONDS)


def asleep() -> Ask:
    return sleep


def busy() -> Ask:
    return lambda: work(HELD_SECONDS)


ON_TIMER = "slept on a timer (clock_nanosleep)"


def asked(service: Service) -> list[float]:
    """Ask it all rounds; how long each took."""
    ask = service.asking()
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        ask()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def chain(
    words: str,
    works_ms: list[float],
    asked_ms: list[float],
    stage: str = "server",
    reader: str = "middle",
) -> Truth:
    found = {"stage": stage, "reader": reader, "words": words}
    return {"chain": found | {"works_ms": works_ms, "asked_ms": asked_ms}}


def asking_one_who(does: Callable[[], Ask], words: str) -> Truth:
    """A server that asks another one and waits in recv."""
    store = Service("store", does)
    middle = Service("middle", store.asking)
    asked_ms = asked(middle)
    middle.ended()
    words = f"slept in recvfrom, until {store} answered (its work T of T: {words})"
    return chain(words, store.ended(), asked_ms)


def asking_the_busy() -> Truth:
    """Of a server that asks another one, which takes so much of a CPU's time."""
    return asking_one_who(busy, "busy")


def asking_the_sleeping() -> Truth:
    """Of a server that asks another one, which waits for a timer."""
    return asking_one_who(asleep, ON_TIMER)


def asking_ten_times() -> Truth:
    """Of a server that asks another one again and again."""
    store = Service("store", lambda: lambda: time.sleep(HELD_SECONDS / 10))

    def asks() -> Ask:
        ask = store.asking()

        def ask_all() -> None:
            for _ in range(10):
                ask()

        return ask_all

    middle = Service("middle", asks)
    asked_ms = asked(middle)
    middle.ended()
    times_ms = store.ended()
    works_ms = [sum(times_ms[n * 10 : n * 10 + 10]) for n in range(ROUNDS)]
    words = (
        f"slept in recvfrom, until {store} answered 10 times (its work T of T: "
        f"{ON_TIMER})"
    )
    return chain(words, works_ms, asked_ms)


def over_a_pipe() -> Truth:
    """Of a server that waits for a process behind a pipe, which asks another one."""
    store = Service("store", asleep)
    read, write = os.pipe()

    def asks() -> Ask:
        (its_read, to_helper), (from_helper, its_write) = os.pipe(), os.pipe()
        pid = os.fork()
        if not pid:
            Path("/proc/self/comm").write_text("helper")
            os.close(to_helper)
            ask = store.asking()
            while os.read(its_read, 1):
                ask()
                os.write(its_write, b"x")
            os._exit(0)
        os.close(its_read)
        os.write(write, str(pid).encode())

        def ask_helper() -> None:
            os.write(to_helper, b"x")
            os.read(from_helper, 1)

        return ask_helper

    middle = Service("middle", asks)
    asked_ms = asked(middle)
    helper = int(os.read(read, 100))
    middle.ended()
    words = (
        f"slept in read (anon_pipe_read), until helper (pid {helper}) woke it, which "
        f"slept in recvfrom for T of it, until {store} answered (its work T of T: "
        f"{ON_TIMER})"
    )
    return chain(words, store.ended(), asked_ms)


def proxied(client: socket.socket, ask: socket.socket) -> None:
    """Hand on what comes, both ways; wait in epoll."""
    ready = select.epoll()
    other = {client.fileno(): ask, ask.fileno(): client}
    for sock in (client, ask):
        ready.register(sock, select.EPOLLIN)
    while True:
        for number, _ in ready.poll():
            words = (client if other[number] is ask else ask).recv(100)
            if not words:
                return
            other[number].sendall(words)


def by_a_proxy() -> Truth:
    """Over a proxy, which waits in epoll for both of its ends."""
    store = Service("store", asleep)

    def serve(client: socket.socket, _do: Ask) -> None:
        proxied(client, socket.create_connection(("127.0.0.1", store.port)))

    proxy = Service("proxy", lambda: sleep, serve)
    asked_ms = asked(proxy)
    proxy.ended()
    words = f"slept in epoll_wait, until {store} answered (its work T of T: {ON_TIMER})"
    return chain(words, store.ended(), asked_ms, reader="proxy")


def by_a_pool() -> Truth:
    """Of a server whose one thread reads what another one waits for."""
    store = Service("store", asleep)

    def asks() -> Ask:
        sock = socket.create_connection(("127.0.0.1", store.port))
        answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()

        def read() -> None:
            while words := sock.recv(100):
                answers.put(words)

        beside(read)

        def ask() -> None:
            sock.sendall(ASKED)
            answers.get()

        return ask

    middle = Service("middle", asks)
    asked_ms = asked(middle)
    middle.ended()
    words = (
        f"slept for another thread (condition variable or the like, futex), until "
        f"middle (pid {middle.pid}, thread N) woke it, which slept in recvfrom for T "
        f"of it, until {store} answered (its work T of T: {ON_TIMER})"
    )
    return chain(words, store.ended(), asked_ms)


def over_three() -> Truth:
    """Of a server that asks another one, which asks a third."""
    last = Service("last", asleep)
    store = Service("store", last.asking)
    middle = Service("middle", store.asking)
    asked_ms = asked(middle)
    for one in (middle, store):
        one.ended()
    words = (
        f"slept in recvfrom, until {store} answered (its work T of T: slept in "
        f"recvfrom, until {last} answered (its work T of T: {ON_TIMER}))"
    )
    return chain(words, last.ended(), asked_ms)


def in_a_circle() -> Truth:
    """Of a server that asks another one, which asks the client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def back() -> Ask:
            return asking(socket.create_connection(("127.0.0.1", port)))

        store = Service("store", back)
        middle = Service("middle", store.asking)
        times: list[float] = []

        def answer() -> None:
            sock, _ = listener.accept()
            for _ in range(ROUNDS):
                exactly(sock, len(ASKED))
                begin = time.perf_counter()
                sleep()
                times.append((time.perf_counter() - begin) * 1e3)
                sock.sendall(ANSWERED)

        thread = beside(answer)
        asked_ms = asked(middle)
        thread.join()
    for one in (middle, store):
        one.ended()
    own = f"python3 (pid {os.getpid()}, port {port})"
    words = (
        f"slept in recvfrom, until {store} answered (its work T of T: slept in "
        f"recvfrom, until {own} answered, which waits for middle (pid "
        f"{middle.pid}) again (its work T of T: "
        f"{ON_TIMER}))"
    )
    return chain(words, times, asked_ms)


UNSEEN = 253  # a protocol for experiments, RFC 3692


def asking_the_unseen() -> Truth:
    """Of a server that waits for packets of a protocol that nobody watches."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        with raw("127.0.0.2", "127.0.0.1") as sock:
            os.write(write, b"x")
            for _ in range(ROUNDS):
                sock.recv(1000)
                sleep()
                sock.send(ANSWERED)
        os._exit(0)
    os.read(read, 1)

    def asks() -> Ask:
        sock = raw("127.0.0.1", "127.0.0.2")

        def ask() -> None:
            sock.send(ASKED)
            sock.recv(1000)

        return ask

    middle = Service("middle", asks)
    asked_ms = asked(middle)
    os.waitpid(pid, 0)
    return chain("slept in recvfrom (skb_recv_datagram)", middle.ended(), asked_ms)


def raw(here: str, there: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, UNSEEN)
    sock.bind((here, 0))
    sock.connect((there, 0))
    return sock


def asking_by_datagrams() -> Truth:
    """Of a server that asks another one by UDP."""
    ends = [socket.socket(type=socket.SOCK_DGRAM) for _ in range(2)]
    for end in ends:
        end.bind(("127.0.0.1", 0))
    here, there = ends
    here.connect(there.getsockname())
    there.connect(here.getsockname())
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        Path("/proc/self/comm").write_text("names")
        times = []
        for _ in range(ROUNDS):
            there.recv(100)
            begin = time.perf_counter()
            sleep()
            times.append((time.perf_counter() - begin) * 1e3)
            there.send(ANSWERED)
        os.write(write, json.dumps(times).encode())
        os._exit(0)

    def asks() -> Ask:
        def ask() -> None:
            here.send(ASKED)
            here.recv(100)

        return ask

    port = there.getsockname()[1]
    middle = Service("middle", asks)
    asked_ms = asked(middle)
    middle.ended()
    times = json.loads(os.read(read, 1 << 16))
    os.waitpid(pid, 0)
    words = (
        f"slept in recvfrom, until names (pid {pid}, port {port}) answered (its work T "
        f"of T: {ON_TIMER})"
    )
    return chain(words, times, asked_ms)


def read_after_asking() -> Truth:
    """Of a message that its reader reads once another one has answered."""
    store = Service("store", asleep)

    def serve(client: socket.socket, ask: Ask) -> None:
        for _ in range(ROUNDS):
            ask()
            exactly(client, len(ASKED))
            client.sendall(ANSWERED)

    middle = Service("middle", store.asking, serve)
    client_ms, own_ms = asked(middle), middle.ended()
    asked_ms = [*map(max, zip(client_ms, own_ms, strict=True))]
    words = f"slept in recvfrom, until {store} answered (its work T of T: {ON_TIMER})"
    return chain(words, store.ended(), asked_ms, "receive_queue")


def answered_through_a_queue() -> Truth:
    """Of a server that is answered from another host, behind 25 kB at 1 Mbit/s."""
    with linked() as (here, there):
        words = f"-n {there} qdisc add dev e0 root tbf rate 1mbit burst 2kb limit 1mb"
        subprocess.run(["tc", *words.split()], check=True)
        listener = inside(there, lambda: socket.create_server(("10.77.0.2", 0)))
        flood = inside(there, lambda: socket.socket(type=socket.SOCK_DGRAM))

        def floods() -> Ask:
            def fill() -> None:
                for _ in range(25):
                    flood.sendto(b"f" * 1000, ("10.77.0.1", 9))

            return fill

        store = Service("store", floods, listener=listener)

        def asks() -> Ask:
            sock = inside(here, socket.socket)
            sock.connect(("10.77.0.2", store.port))
            return asking(sock)

        middle = Service("middle", asks)
        asked_ms = asked(middle)
        middle.ended()
        times_ms = store.ended()
    words = (
        f"slept in recvfrom, until {store} answered (its reply T of T in tbf N: of e0 "
        f"behind N kB, of which python3 (pid {os.getpid()} and 2 more with its socket) "
        "N%)"
    )
    # behind 25 datagrams of 1042 bytes, less what leaves at once and meanwhile
    works_ms = [(25 * 1042 - 2048) * 8e-3 - spent_ms for spent_ms in times_ms]
    return chain(words, works_ms, asked_ms)


def full_window_of_a_sleeper() -> Truth:
    """A message for which there is no room: its reader sleeps."""
    size = 60_000
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        pid = os.fork()
        if not pid:
            Path("/proc/self/comm").write_text("reader")
            server, _ = listener.accept()
            for _ in range(ROUNDS):
                time.sleep(HELD_SECONDS)
                exactly(server, size)
                server.sendall(ANSWERED)
            os._exit(0)
        client = socket.create_connection(listener.getsockname())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * size)
    asked_ms = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        client.sendall(b"m" * size)
        exactly(client, len(ANSWERED))
        asked_ms.append((time.perf_counter() - begin) * 1e3)
    os.waitpid(pid, 0)
    words = f"held by a zero window, while reader (pid {pid}) {ON_TIMER} for T of it"
    return chain(words, [], asked_ms, "send_queue", "reader")


CHAINS = {
    chain.__name__.replace("_", "-"): chain
    for chain in (
        *(asking_the_busy, asking_the_sleeping, asking_the_unseen),
        *(asking_ten_times, over_a_pipe),
        *(asking_by_datagrams, by_a_proxy, by_a_pool, over_three, in_a_circle),
        *(read_after_asking, answered_through_a_queue, full_window_of_a_sleeper),
    )
}


if __name__ == "__main__":
    print(json.dumps(CHAINS[sys.argv[1]]()))
