"""What `latprof-load echo` lets in, and what it does with all others.

The peers here know the handshake from its description alone; the proofs are those of
Python's hmac.
"""

from __future__ import annotations

import os
import re
import select
import socket
import struct
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import load_peer as peer
import pytest
from load_peer import (
    BEGIN,
    LOOPBACK,
    Refused,
    datagram_session,
    echo,
    greet,
    hello,
    load,
    pingpong,
    raw_peer,
    session,
)

SECRET = b"0123456789abcdef0123456789abcdef"
VERSION, WORKLOAD, MESSAGE, DURATION, BUSY, WRONG_SECRET, TERMS = range(1, 8)
MEMORY, HOST_SESSIONS, HOST_MEMORY, CPU, HOST_CPU, IDLE, OVERLONG = range(8, 15)
ARRIVALS = 64  # that may be without a session at once
ARRIVAL_SECONDS = 5
WATCH_SECONDS = 1  # how often it looks whose time is over
OTHER_ADDRESS = "127.0.0.2"


@pytest.fixture
def secret_file(tmp_path):
    return write_secret(tmp_path / "secret", SECRET)


def write_secret(path: Path, secret: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(secret + b"\n")
    path.chmod(mode)
    return path


def connect(port: int) -> socket.socket:
    return socket.create_connection((LOOPBACK, port), peer.DEADLINE_S)


def is_over(stream: socket.socket, seconds: float = peer.DEADLINE_S) -> bool:
    """Whether the other end ends it within this time, without a word."""
    if not select.select([stream], [], [], seconds)[0]:
        return False
    try:
        return stream.recv(1) == b""
    except ConnectionResetError:
        return True


def status(process, name: str) -> int:
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(text.partition(f"{name}:")[2].split()[0])


def files_of(process) -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


def wait_until_alone(process, files: int) -> None:
    """Until its sessions are over: their threads, and then their sockets, are gone."""
    wait_for(lambda: status(process, "Threads") == 1 and files_of(process) == files)


def wait_for(condition) -> None:
    deadline = time.monotonic() + peer.DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        select.select([], [], [], 0.01)


def one_line(run, *said: str) -> None:
    assert run.status == 1
    assert run.stderr.count("\n") == 1
    for words in said:
        assert words in run.stderr


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_who_knows_the_secret_is_served(tmp_path, secret_file, protocol):
    words = ("--protocol", protocol, "--secret-file", secret_file, "--rounds", 20)
    with echo("--secret-file", secret_file) as server:
        run = pingpong(tmp_path, server.port, *words)
        with session(server.port, hello(), SECRET) as c:
            c.sendall(peer.request(1, 64))
            assert len(peer.receive_message(c)) == 64
        served = server.stop()
    assert run.status == 0, run.stderr
    assert (served["messages"], served["sessions"]) == (21, 2)


def test_who_does_not_know_the_secret_is_refused_in_one_line(tmp_path, secret_file):
    other = write_secret(tmp_path / "other", SECRET[::-1])
    with echo("--secret-file", secret_file) as server:
        wrong = pingpong(tmp_path, server.port, "--secret-file", other)
        none = pingpong(tmp_path, server.port)
        with pytest.raises(Refused) as refused, connect(server.port) as c:
            said = hello()
            c.sendall(said)
            challenge = peer.receive_exactly(c, peer.CHALLENGE.size)
            c.sendall(peer.proof(SECRET[::-1], b"client", said, challenge))
            accept = peer.receive_exactly(c, peer.ACCEPT.size + peer.PROOF_BYTES)
            assert accept[1:] == bytes(len(accept) - 1), "nothing to try secrets on"
            raise Refused(accept[0])
        served = server.stop()
    one_line(wrong, "the secret is another one", "--secret-file")
    one_line(none, "wants a secret", "--secret-file")
    assert refused.value.args == (WRONG_SECRET,)
    assert (served["refused_secret"], served["sessions"]) == (2, 0)


def test_a_proof_is_good_for_its_own_challenge_alone(secret_file):
    with echo("--secret-file", secret_file) as server:
        said = hello()
        with connect(server.port) as first, connect(server.port) as second:
            first.sendall(said)
            second.sendall(said)
            challenge = peer.receive_exactly(first, peer.CHALLENGE.size)
            peer.receive_exactly(second, peer.CHALLENGE.size)
            second.sendall(peer.proof(SECRET, b"client", said, challenge))
            assert peer.receive_exactly(second, 1) == bytes([WRONG_SECRET])


def test_without_random_bytes_there_is_no_handshake(tmp_path, monkeypatch):
    """As under a seccomp filter: a nonce of zeros could be replayed."""
    broken = tmp_path / "broken.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-o", broken, "-"],
        input="long getrandom(void) { return -1; }",
        text=True,
        check=True,
    )
    with echo() as server:
        monkeypatch.setenv("LD_PRELOAD", str(broken))
        client = pingpong(tmp_path, server.port)
        monkeypatch.delenv("LD_PRELOAD")
        served = server.stop()
    one_line(client, "cannot make a handshake: the kernel gives no random bytes")
    assert served["sessions"] == 0


def test_a_responder_must_know_the_secret_too(tmp_path, secret_file):
    def pretend(stream):
        said = peer.receive_exactly(stream, peer.HELLO.size)
        challenge = peer.CHALLENGE.pack(b"LPse", 1, 0, 1, 2, bytes(16), 0)
        stream.sendall(challenge)
        peer.receive_exactly(stream, peer.PROOF_BYTES)
        accept = peer.ACCEPT.pack(0, bytes(16), 0, 0, 0)
        stream.sendall(
            accept + peer.proof(b"guess", b"server", said, challenge, accept)
        )

    with raw_peer(pretend) as port:
        run = pingpong(tmp_path, port, "--secret-file", secret_file)
    one_line(run, "does not know the secret")
    with echo() as server:
        run = pingpong(tmp_path, server.port, "--secret-file", secret_file)
    one_line(run, "has no secret")


@pytest.mark.parametrize("status", [VERSION, WORKLOAD, MESSAGE, DURATION, TERMS, 255])
def test_a_refusal_that_comes_too_late_is_of_no_responder(tmp_path, status):
    def refuse(stream):
        peer.receive_exactly(stream, peer.HELLO.size)
        stream.sendall(peer.CHALLENGE.pack(b"LPse", 1, 0, 0, 2, bytes(16), 0))
        peer.receive_exactly(stream, peer.PROOF_BYTES)
        stream.sendall(bytes([status]) + bytes(68))

    with raw_peer(refuse) as port:
        run = pingpong(tmp_path, port)
    one_line(run, "is no responder of latprof")


@pytest.mark.parametrize(
    ("secret", "mode", "said"),
    [
        (SECRET, 0o644, "others may read it"),
        (SECRET, 0o620, "others may read it"),
        (b"short", 0o600, "16 to 1024 bytes"),
        (bytes(1025), 0o600, "16 to 1024 bytes"),
    ],
)
@pytest.mark.parametrize("command", [("echo",), ("pingpong", "--port", 1)])
def test_a_secret_that_is_none_is_one_line(tmp_path, secret, mode, said, command):
    file = write_secret(tmp_path / "secret", secret, mode)
    process = load(*command, "--secret-file", file)
    stdout, stderr = process.communicate(timeout=peer.DEADLINE_S)
    assert (process.returncode, stdout) == (2, "")
    assert said in stderr
    assert stderr.count("\n") == 1


def test_another_version_is_said_at_both_ends(tmp_path):
    with echo() as server:
        with pytest.raises(Refused) as refused, connect(server.port) as c:
            # more than ours has, and all of it at once
            greet(c, hello(version=2) + bytes(500))
        assert server.stop()["refused_version"] == 1
    assert refused.value.args == (VERSION, 0)

    def newer(stream):
        peer.receive_exactly(stream, peer.PREFIX_BYTES)
        stream.sendall(struct.pack(">4sHB", b"LPse", 7, VERSION))

    with raw_peer(newer) as port:
        run = pingpong(tmp_path, port)
    one_line(run, "it speaks version 7 of the protocol, not 1", "install the same")


@pytest.mark.parametrize(
    ("words", "asked", "why", "bound"),
    [
        ((), {"workload": 200}, WORKLOAD, 0),
        ((), {"workload": 0}, WORKLOAD, 0),
        ((), {"transport": 2}, TERMS, 0),
        ((), {"largest": 17}, TERMS, 0),
        ((), {"reply": 17}, TERMS, 0),
        ((), {"think_ns": 10**9 + 1}, TERMS, 0),
        ((), {"own": [10**9 + 1]}, TERMS, 0),
        ((), {"largest": 2**32 - 1}, MESSAGE, 64 << 20),
        (("--max-message", "1k"), {"largest": 1001}, MESSAGE, 1000),
        (("--max-message", "1k"), {"largest": 18, "reply": 1001}, MESSAGE, 1000),
        ((), {"transport": 1, "largest": 65508}, MESSAGE, 65507),
        (("--max-duration", 2), {"duration_ns": 2 * 10**9 + 1}, DURATION, 2 * 10**9),
        (("--max-memory", 10**7), {"largest": 4 * 10**6}, MEMORY, 0),
        (("--max-host-memory", 10**7), {"largest": 4 * 10**6}, HOST_MEMORY, 0),
    ],
)
def test_terms_that_it_does_not_bear_are_refused(words, asked, why, bound):
    with echo(*words) as server:
        with pytest.raises(Refused) as refused, connect(server.port) as c:
            greet(c, hello(**asked))
        assert refused.value.args == (why, bound)
        assert server.stop()["sessions"] == 0


@pytest.mark.parametrize(
    ("limits", "words", "said"),
    [
        (("--max-message", 1000), ("--sizes", 1001), "at most 1000 bytes, not 1001"),
        (("--max-duration", 2), ("--duration", 3), "at most 2 seconds, not 3"),
    ],
)
def test_the_client_says_what_the_responder_bears(tmp_path, limits, words, said):
    with echo(*limits) as server:
        one_line(pingpong(tmp_path, server.port, *words), said)


def test_sessions_are_bounded_and_a_place_is_free_again(tmp_path):
    with echo("--max-sessions", 1) as server:
        with session(server.port, hello()):
            busy = pingpong(tmp_path, server.port)
        wait_for(lambda: status(server.process, "Threads") == 1)
        free = pingpong(tmp_path, server.port)
        served = server.stop()
    one_line(busy, "as many sessions as it may")
    assert free.status == 0, free.stderr
    assert (served["refused_busy"], served["sessions"]) == (1, 2)


def test_what_a_datagram_session_may_queue_is_memory_too():
    """The kernel grants the double of 4 MiB; the thread's stack comes on top."""
    said = hello(transport=1, largest=64)
    with echo("--max-memory", "16mib") as server:
        with datagram_session(server.port, said) as (_, data):
            granted = receive_buffer(data)
            assert granted <= 8 << 20
            with pytest.raises(Refused) as refused, connect(server.port) as c:
                greet(c, said)
            with session(server.port, hello()):
                pass  # over TCP there is room
        served = server.stop()
    assert refused.value.args == (MEMORY, 0)
    assert (served["refused_memory"], served["sessions"]) == (1, 2)


def test_what_a_clear_session_may_allocate_is_memory_too():
    """A stack of 256 KiB, and 3 messages of 64 KiB: two fit into 1 MiB."""
    words = ("--wire", "clear", "--max-memory", "1mib")
    with echo(*words) as server, ExitStack() as stack:
        served = [stack.enter_context(connect(server.port)) for _ in range(2)]
        refused = stack.enter_context(connect(server.port))
        assert is_over(refused)
        for c in served:
            c.sendall(clear_message())
            assert peer.receive_exactly(c, 64) == clear_message()
        told = server.stop()
    assert (told["refused_memory"], told["sessions"]) == (1, 2 + 1)  # one of datagrams


def clear_message() -> bytes:
    return peer.CLEAR.pack(64, 1, 1).ljust(64, b"x")


def test_clear_responders_do_not_answer_each_other():
    with (
        echo("--wire", "clear") as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as responder,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        responder.bind((OTHER_ADDRESS, server.port))
        client.settimeout(peer.DEADLINE_S)
        for c in (responder, client):
            c.connect((LOOPBACK, server.port))
            c.send(clear_message())
        assert client.recv(100) == clear_message()
        served = server.stop()
        assert not select.select([responder], [], [], 0)[0]
    assert (served["messages"], served["rejected"]) == (1, 1)


def receive_buffer(data: socket.socket) -> int:
    """Of the other end's socket, as the kernel says."""
    own, other = data.getsockname()[1], data.getpeername()[1]
    words = ["ss", "--udp", "--numeric", "--memory", "--no-header"]
    where = f"sport = :{other} and dport = :{own}"
    found = subprocess.run([*words, where], capture_output=True, text=True, check=True)
    (size,) = re.findall(r"skmem:\(r\d+,rb(\d+)", found.stdout)
    return int(size)


def test_a_message_larger_than_was_said_ends_the_session():
    with echo() as server:
        with session(server.port, hello(largest=100)) as c:
            c.sendall(peer.HEADER.pack(1, 1, 101, 1, 1))
            assert is_over(c)
        with datagram_session(server.port, hello(largest=100, transport=1)) as (_, c):
            c.send(peer.request(1, 101))
            c.send(peer.request(2, 100))
            assert peer.Header(*peer.HEADER.unpack_from(c.recv(200))).sequence == 2
        served = server.stop()
    assert (served["rejected"], served["messages"]) == (2, 1)


def test_a_datagram_of_no_session_gets_no_answer():
    any_tokens = [magic + os.urandom(16) for magic in (b"LPop", b"LPok") * 50]
    noise = [os.urandom(size) for size in (0, 1, 18, 19, 20, 21, 1400, 65507)]
    requests = [peer.request(sequence, 64) for sequence in range(50)]
    sent = any_tokens + noise + requests
    with (
        echo() as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        stranger.connect((LOOPBACK, server.port))
        for datagram in sent:
            stranger.send(datagram)
        # a session behind them: all were looked at
        with datagram_session(server.port, hello(transport=1)):
            wait_for(lambda: status(server.process, "Threads") == 2)
        served = server.stop()
        # over the loopback an answer would be here
        assert not select.select([stranger], [], [], 0)[0]
    assert served["stray_datagrams"] == len(sent)
    assert (served["messages"], served["sessions"]) == (0, 1)


def test_a_token_is_good_for_its_own_host_and_only_once():
    with (
        echo() as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thief,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as owner,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second,
    ):
        open_files = files_of(server.process)
        control = connect(server.port)
        token = greet(control, hello(transport=1)).token
        thief.bind((OTHER_ADDRESS, 0))
        for c in (thief, owner, second):
            c.connect((LOOPBACK, server.port))
            c.settimeout(peer.DEADLINE_S)
        thief.send(b"LPop" + token)
        owner.send(b"LPop" + token)
        answer = owner.recv(100)
        assert answer == b"LPok" + token
        assert len(answer) <= len(b"LPop" + token)
        second.send(b"LPop" + token)  # another socket of the same host
        owner.send(b"LPop" + token)  # as if the answer had been lost
        assert owner.recv(100) == answer
        control.sendall(BEGIN)
        owner.send(peer.request(1, 64))
        assert len(owner.recv(100)) == 64
        control.close()
        wait_until_alone(server.process, open_files)
        thief.send(b"LPop" + token)
        served = server.stop()
        assert not select.select([thief, second], [], [], 0)[0]
    assert (served["sessions"], served["stray_datagrams"]) == (1, 3)


def test_only_its_own_client_reaches_a_datagram_session():
    with (
        echo() as server,
        datagram_session(server.port, hello(transport=1)) as (_, c),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        stranger.connect((LOOPBACK, server.port))
        stranger.send(peer.request(1, 64))
        c.send(peer.request(2, 64))
        assert len(c.recv(100)) == 64
        served = server.stop()
        assert not select.select([stranger], [], [], 0)[0]
    assert (served["messages"], served["stray_datagrams"]) == (1, 1)


def test_a_datagram_session_ends_with_its_connection():
    with echo() as server:
        open_files = files_of(server.process)
        with datagram_session(server.port, hello(transport=1)) as (control, c):
            wait_for(lambda: status(server.process, "Threads") == 2)
            control.close()
            wait_until_alone(server.process, open_files)
            c.send(peer.request(1, 64))
            served = server.stop()
            assert not select.select([c], [], [], 0)[0]
    assert (served["messages"], served["stray_datagrams"]) == (0, 1)


@pytest.mark.parametrize("transport", [0, 1])
def test_a_handshake_may_end_or_go_wrong_at_every_byte(transport):
    said = hello(transport=transport)
    with echo() as server:
        open_files = files_of(server.process)
        for at in range(0, len(said), 3):
            with connect(server.port) as c:
                c.sendall(said[:at])
        for at in range(4):
            with connect(server.port) as c:
                c.sendall(said[:at] + b"\xff" + said[at + 1 :])
                assert is_over(c)  # without a byte of answer
        for at in range(0, peer.PROOF_BYTES, 3):
            with connect(server.port) as c:
                c.sendall(said)
                peer.receive_exactly(c, peer.CHALLENGE.size)
                c.sendall(bytes(at))
        with session(server.port, hello()) as c:  # it goes on serving
            c.sendall(peer.request(1, 64))
            assert len(peer.receive_message(c)) == 64
        wait_for(lambda: files_of(server.process) == open_files)
        served = server.stop()
    assert served["sessions"] == 1
    assert served["strangers"] == 4
    assert served["connections"] == 1 + 4 + len(range(0, 112, 3)) + 11
    assert served["unfinished"] == served["connections"] - 1 - 4


def test_an_open_that_never_begins_holds_no_thread():
    with echo() as server, ExitStack() as stack:
        for _ in range(10):
            c = stack.enter_context(connect(server.port))
            greet(c, hello(transport=1))
            c.sendall(b"x")  # nothing is due before the datagram
            assert is_over(c)
        assert status(server.process, "Threads") == 1
        assert server.stop()["sessions"] == 0


def test_silent_connections_make_room_for_those_that_speak(tmp_path):
    with echo() as server, ExitStack() as stack:
        silent = [stack.enter_context(connect(server.port)) for _ in range(300)]
        run = pingpong(tmp_path, server.port, "--rounds", 20)
        wait_for(lambda: status(server.process, "Threads") == 1)  # its own thread ends
        open_ones = [c for c in silent if not is_over(c, 0)]
        assert len(open_ones) == ARRIVALS - 1  # the client made one more go
        assert open_ones == silent[-len(open_ones) :]  # the newest stay
        served = server.stop()
    assert run.status == 0, run.stderr
    assert served["crowded_out"] == 300 + 1 - ARRIVALS


def test_strangers_do_not_crowd_out_who_has_proven_the_secret(secret_file):
    with echo("--secret-file", secret_file) as server, ExitStack() as stack:
        proven = stack.enter_context(connect(server.port))
        token = greet(proven, hello(transport=1), SECRET).token
        silent = [
            stack.enter_context(connect(server.port)) for _ in range(2 * ARRIVALS)
        ]
        assert is_over(silent[ARRIVALS])  # of those behind, 63 stay beside the first
        with socket.socket(type=socket.SOCK_DGRAM) as data:
            data.settimeout(peer.DEADLINE_S)
            data.connect((LOOPBACK, server.port))
            data.send(b"LPop" + token)
            assert data.recv(100) == b"LPok" + token
            proven.sendall(BEGIN)
            data.send(peer.request(1, 64))
            assert len(data.recv(100)) == 64
        served = server.stop()
    assert (served["sessions"], served["crowded_out"]) == (1, ARRIVALS + 1)


def test_clients_are_served_beside_floods(tmp_path):
    stop = threading.Event()

    def flood(port: int) -> None:
        while not stop.is_set():
            with connect(port) as c, socket.socket(type=socket.SOCK_DGRAM) as u:
                c.sendall(os.urandom(200))
                u.sendto(os.urandom(20), (LOOPBACK, port))

    with echo() as server:
        floods = [threading.Thread(target=flood, args=(server.port,)) for _ in range(2)]
        for thread in floods:
            thread.start()
        try:
            runs = [
                pingpong(tmp_path, server.port, "--protocol", protocol, "--rounds", 200)
                for protocol in ("tcp", "udp")
            ]
        finally:
            stop.set()
            for thread in floods:
                thread.join()
        served = server.stop()
    for run in runs:
        assert run.status == 0, run.stderr
        assert run.summary["received"] == 200
    assert served["messages"] == 400
    assert served["strangers"] > 10
    assert served["stray_datagrams"] > 10


def test_many_clients_at_once_are_counted_each(tmp_path):
    count, rounds = 16, 300
    with echo() as server:
        clients = [
            load(
                *("pingpong", "--port", server.port, "--rounds", rounds),
                *("--protocol", ("tcp", "udp")[i % 2], "--sizes", 64 + i),
            )
            for i in range(count)
        ]
        for client in clients:
            _, stderr = client.communicate(timeout=peer.DEADLINE_S)
            assert client.returncode == 0, stderr
        served = server.stop()
    assert served["sessions"] == count
    assert served["messages"] == count * rounds
    assert served["bytes"] == rounds * sum(64 + i for i in range(count))


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize(
    "listens", ["127.0.0.1,::1", "0.0.0.0,::1", "0.0.0.0,::", "::,0.0.0.0", "::"]
)
def test_one_echo_serves_both_families_on_one_port(tmp_path, protocol, listens):
    with echo("--address", listens) as server:
        for address in ("127.0.0.1", OTHER_ADDRESS, "::1"):
            if address == OTHER_ADDRESS and listens.startswith("127"):
                continue
            words = ("--protocol", protocol, "--address", address, "--rounds", 5)
            run = pingpong(tmp_path, server.port, *words)
            assert run.status == 0, run.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workloads", "pingpong,none"), "--workloads must be some of"),
        (("--workloads", ""), "--workloads"),
        (("--workloads", "pingpong,"), "--workloads"),
        (("--address", "127.0.0.1,"), "--address must be 1 to 8 addresses"),
        (("--address", ",".join(["::1"] * 9)), "--address must be 1 to 8 addresses"),
        (("--max-sessions", 0), "from 1 to 4096, got 0"),
        (("--max-sessions", 4097), "from 1 to 4096, got 4097"),
        (("--max-message", 17), "from 18 to 64mib, got 17"),
        (("--max-rate", 999), "--max-rate"),
        (("--max-duration", "0.5"), "--max-duration"),
        (("--idle", 0), "--idle"),
        (("--max-memory", "1k"), "--max-memory"),
        (("--secret-file", "s", "--wire", "clear"), "--secret-file does not go with"),
        (("--workloads", "bulk", "--wire", "clear"), "--workloads must name pingpong"),
        (
            ("--max-message", 65534, "--wire", "clear"),
            "--max-message must be at least 65535 with --wire clear, got 65534",
        ),
    ],
)
def test_a_limit_that_is_none_is_one_line_and_status_2(words, said):
    process = load("echo", *words)
    stdout, stderr = process.communicate(timeout=peer.DEADLINE_S)
    assert (process.returncode, stdout) == (2, "")
    assert said in stderr
    assert stderr.count("\n") == 1


@pytest.mark.timed
@pytest.mark.parametrize("bytes_a_second", [0, 20])
def test_a_handshake_has_a_time_limit_however_slow_it_is(bytes_a_second):
    with echo() as server, connect(server.port) as c:
        begun = time.monotonic()
        for byte in hello() if bytes_a_second else b"":
            if is_over(c, 1 / bytes_a_second):
                break
            c.send(bytes([byte]))
        else:
            assert is_over(c)
        took = time.monotonic() - begun
    # the limit, the time between two looks, and what a busy machine adds
    assert ARRIVAL_SECONDS <= took <= ARRIVAL_SECONDS + WATCH_SECONDS + 2


@pytest.mark.timed
@pytest.mark.parametrize("transport", [0, 1])
def test_a_session_in_which_nothing_moves_is_ended(transport):
    with echo("--idle", 2) as server, ExitStack() as stack:
        said = hello(transport=transport)
        if transport:
            control, data = stack.enter_context(datagram_session(server.port, said))
        else:
            control = data = stack.enter_context(session(server.port, said))
        for sequence in range(6):  # longer than the limit, but not idle
            data.send(peer.request(sequence, 64))
            assert len(data.recv(100)) == 64
            assert not is_over(control, 0.5)
        begun = time.monotonic()
        assert is_over(control)
        took = time.monotonic() - begun
        served = server.stop()
    # the last message is half a second old; a look comes every second
    assert 2 - 0.5 - WATCH_SECONDS <= took <= 2 + 2 * WATCH_SECONDS + 1
    assert (served["ended_idle"], served["messages"]) == (1, 6)


@pytest.mark.timed
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_session_has_a_longest_duration_and_what_was_measured_stays(
    tmp_path, protocol
):
    words = ("--protocol", protocol, "--rounds", 10**9, "--interval", "1ms")
    with echo("--max-duration", 2) as server:
        run = pingpong(tmp_path, server.port, *words)
        served = server.stop()
    one_line(run, "lost the responder", "it was longer than its --max-duration")
    assert served["ended_overlong"] == 1
    # one message a ms, until a look after the limit; a UDP client looks, too. Of what
    # was sent last the replies were still to come.
    assert 1900 <= len(run.records) <= 4500
    assert run.summary["received"] + run.summary["lost"] == len(run.records)


def test_a_session_within_the_longest_duration_may_also_begin_and_end():
    within = hello(duration_ns=10**9)
    with echo("--max-duration", 1) as server, session(server.port, within) as c:
        with session(server.port, hello()) as endless:
            assert is_over(endless)  # which began later
        c.sendall(peer.request(1, 64))
        assert len(peer.receive_message(c)) == 64
        served = server.stop()
    assert (served["ended_overlong"], served["messages"]) == (1, 1)


@pytest.mark.timed
@pytest.mark.parametrize("clients", [1, 3])
def test_all_sessions_together_keep_the_rate(clients):
    rate, size, count = 1_000_000, 10_000, 150
    with echo("--max-rate", rate) as server:
        begun = time.monotonic()
        running = [
            load(
                *("pingpong", "--port", server.port, "--sizes", size),
                *("--rounds", count // clients),
            )
            for _ in range(clients)
        ]
        for client in running:
            _, stderr = client.communicate(timeout=peer.DEADLINE_S)
            assert client.returncode == 0, stderr
        took = time.monotonic() - begun
        served = server.stop()
    # 10 ms of the rate are let through at once, and the last message is paid
    # for after it has left; starting the processes takes a while, too
    least = count * size / rate - 0.010 - clients * size / rate
    assert least <= took <= least + 1
    assert served["rate_waits"] > 0
