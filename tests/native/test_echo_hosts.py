"""What one host, and all of them, may take of `latprof-load echo`.

A host of its own is each address of 127.0.0.0/8 that a client comes from.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import load_peer as peer
import pytest
from bulk_peer import bulk
from load_peer import LOOPBACK, Refused, echo, greet, hello, load, pingpong, session
from test_echo import (
    ARRIVALS,
    CPU,
    HOST_CPU,
    HOST_MEMORY,
    HOST_SESSIONS,
    WORKLOAD,
    is_over,
    one_line,
    status,
    wait_for,
)

OTHER = "127.0.0.2"
MIB = 1 << 20
WORKING = {"think_ns": 10**7}  # between each request and its reply
ENDLESS = ("--rounds", 10**9)


def connect(port: int, source: str = LOOPBACK) -> socket.socket:
    where = (LOOPBACK, port)
    return socket.create_connection(where, peer.DEADLINE_S, (source, 0))


def refusal(port: int, said: bytes, source: str = LOOPBACK) -> int:
    with pytest.raises(Refused) as refused, connect(port, source) as c:
        greet(c, said)
    return int(refused.value.args[0])


def why_ended(port: int, token: bytes) -> int:
    """Ask for no session, but why that one was ended."""
    return refusal(port, hello(workload=0, own=struct.unpack(">2Q", token)))


def answers(stream: socket.socket) -> bool:
    stream.sendall(peer.request(1, 64))
    return len(peer.receive_message(stream)) == 64


def work_until_ended(stream: socket.socket) -> None:
    """Have it work without a pause, by requests that come before it is done."""
    stream.settimeout(peer.DEADLINE_S)
    sequence = 0
    with suppress(ConnectionError):
        for sequence in range(4):
            stream.sendall(peer.request(sequence, 64))
        while peer.receive_message(stream):
            sequence += 1
            stream.sendall(peer.request(sequence, 64))


def test_a_host_has_so_many_sessions_and_another_its_own(tmp_path):
    with echo("--max-host-sessions", 2) as server, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(session(server.port, hello()))
        assert refusal(server.port, hello()) == HOST_SESSIONS
        run = pingpong(tmp_path, server.port)
        other = stack.enter_context(connect(server.port, OTHER))
        greet(other, hello())
        assert answers(other)
        served = server.stop()
    one_line(run, "as many sessions of this host as it may", "--max-host-sessions")
    assert (served["refused_host_sessions"], served["sessions"]) == (2, 3)


def test_silent_clients_of_one_host_cannot_have_the_memory_of_all(tmp_path):
    """Each asks for 64 MiB, which may take thrice as much, sends it and reads none."""
    largest = 64 * MIB
    said = hello(largest=largest)
    words = ("--max-host-memory", 256 * MIB)
    with echo(*words) as server, ExitStack() as stack:
        silent = stack.enter_context(connect(server.port))
        greet(silent, said)
        assert [refusal(server.port, said) for _ in range(2)] == [HOST_MEMORY] * 2
        silent.sendall(peer.HEADER.pack(1, 1, largest, 1, 1) + bytes(largest - 18))
        wait_for(lambda: status(server.process, "VmRSS") > largest // 1024)
        other = stack.enter_context(connect(server.port, OTHER))
        greet(other, said)  # there is room for it
        assert answers(other)
        assert status(server.process, "VmHWM") < 256 << 10
        run = pingpong(tmp_path, server.port, "--sizes", "32mib")
        silent.close()
        wait_for(lambda: status(server.process, "Threads") == 2)
        again = stack.enter_context(connect(server.port))
        greet(again, said)
        served = server.stop()
    one_line(run, "of this host have as much memory", "--max-host-memory")
    assert (served["refused_host_memory"], served["sessions"]) == (3, 3)


def test_who_takes_too_much_cpu_time_is_ended_and_may_ask_why():
    """2% of a CPU, and twice as much for ten seconds: 0.2 s of work are too much."""
    with echo("--max-host-cpu", 2) as server, ExitStack() as stack:
        other = stack.enter_context(connect(server.port, OTHER))
        greet(other, hello())
        quiet = stack.enter_context(connect(server.port))
        greet(quiet, hello())
        busy = stack.enter_context(connect(server.port))
        token = greet(busy, hello(**WORKING)).token
        work_until_ended(busy)
        assert why_ended(server.port, token) == HOST_CPU
        assert why_ended(server.port, bytes(range(16))) == WORKLOAD
        assert refusal(server.port, hello()) == HOST_CPU  # what it took is to be paid
        assert answers(quiet), "of those of the host the busiest goes"
        assert answers(other)
        with connect(server.port, OTHER) as more:
            greet(more, hello())
        served = server.stop()
    assert (served["ended_host_cpu"], served["ended_cpu"]) == (1, 0)
    # a question is no session that was refused
    assert (served["refused_host_cpu"], served["refused_workload"]) == (1, 0)


def test_all_hosts_together_have_a_bound_and_the_busiest_goes():
    with echo("--max-cpu", 2) as server, ExitStack() as stack:
        quiet = stack.enter_context(connect(server.port))
        greet(quiet, hello())
        busy = stack.enter_context(connect(server.port, OTHER))
        token = greet(busy, hello(**WORKING)).token
        work_until_ended(busy)
        assert why_ended(server.port, token) == CPU
        assert refusal(server.port, hello()) == CPU
        assert answers(quiet)
        served = server.stop()
    assert (served["ended_cpu"], served["refused_cpu"]) == (1, 1)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_the_client_says_why_its_session_was_ended(tmp_path, protocol):
    words = ("--protocol", protocol, "--think", "10ms", *ENDLESS)
    with echo("--max-host-cpu", 2) as server:
        run = pingpong(tmp_path, server.port, *words)
        later = pingpong(tmp_path, server.port)
        served = server.stop()
    one_line(run, "lost the responder", "it ended the session", "its --max-host-cpu")
    one_line(later, "refused", "more CPU time than its --max-host-cpu")
    # what was measured until then is whole
    assert 0 < run.summary["received"] <= served["messages"]
    assert run.summary["corrupt"] == 0
    assert served["ended_host_cpu"] == 1


# Beside other load a stream takes 2% of a CPU only after a minute.
@pytest.mark.thorough
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_bulk_channels_threads_are_all_counted(protocol, direction):
    words = ("--protocol", protocol, "--direction", direction, "--duration", 25)
    with echo("--max-host-cpu", 2) as server:
        code, _, stderr = bulk(server.port, *words)
        served = server.stop()
    assert code == 1
    assert "it ended the session: its sessions of this host took more CPU" in stderr
    assert stderr.count("\n") == 1
    assert served["ended_host_cpu"] == 1


def test_a_peak_is_no_reason_to_end_a_session(tmp_path):
    """At 100% of a CPU, which one thread cannot take more of."""
    words = ("--think", "1ms", "--rounds", 3000)
    with echo("--max-host-cpu", 100, "--max-cpu", 100) as server:
        run = pingpong(tmp_path, server.port, *words)
        served = server.stop()
    assert run.status == 0, run.stderr
    assert (run.summary["received"], served["ended_host_cpu"]) == (3000, 0)


def test_connections_of_one_host_do_not_crowd_out_those_of_another():
    with echo() as server, ExitStack() as stack:
        early = stack.enter_context(connect(server.port))
        flood = [
            stack.enter_context(connect(server.port, OTHER))
            for _ in range(2 * ARRIVALS)
        ]
        assert is_over(flood[ARRIVALS])  # the newest 63 stay
        greet(early, hello())
        assert answers(early)
        served = server.stop()
    assert served["crowded_out"] == ARRIVALS + 1


@pytest.mark.parametrize("limit", [(), ("--max-rate", "1gib")])
def test_a_client_knows_of_a_rate_that_holds_answers_back(tmp_path, limit):
    with echo(*limit) as server:
        run = pingpong(tmp_path, server.port, "--rounds", 5)
        code, said, stderr = bulk(server.port, "--bytes", "1mib")
        server.stop()
    assert (run.status, code) == (0, 0), (run.stderr, stderr)
    rate = 1 << 30 if limit else 0
    assert (run.summary["max_rate_bytes"], said["max_rate_bytes"]) == (rate, rate)


@contextmanager
def addresses(*given: str) -> Iterator[Path]:
    """A network namespace with these on its loopback; its path."""
    script = "ip link set lo up; " + "".join(
        f"ip addr add {one}/64 dev lo nodad; " for one in given
    )
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-ec", f"{script} echo ready; read _"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdin
        assert holder.stdout
        assert holder.stdout.readline() == "ready\n"
        yield Path(f"/proc/{holder.pid}/ns/net")
        holder.stdin.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")
def test_a_host_of_ipv6_is_a_64(tmp_path):
    first, same, other = "fd00:0:0:1::1", "fd00:0:0:1::2", "fd00:0:0:2::1"
    with addresses(first, same, other) as netns:
        words = ("--netns", netns, "--address")
        with echo(*words, "::", "--max-host-sessions", 1) as server:
            # who connects to an address of its own has it, too
            one = load(
                *("pingpong", *words, first, "--port", server.port),
                *("--interval", "10ms", *ENDLESS),
            )
            wait_for(lambda: status(server.process, "Threads") == 2)
            refused = pingpong(tmp_path, server.port, *words, same)
            served = pingpong(tmp_path, server.port, *words, other, "--rounds", 5)
            one.terminate()
            one.communicate(timeout=peer.DEADLINE_S)
            server.stop()
    one_line(refused, "as many sessions of this host as it may")
    assert served.status == 0, served.stderr
