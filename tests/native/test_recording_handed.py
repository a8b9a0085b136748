"""Who asks for a recording, and whom it is asked of, are handed to their processes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import load_peer as peer
import pytest
from load_peer import LOOPBACK, Refused, greet, hello, load, session, tcp_peer
from test_echo import SECRET, is_over, write_secret

RECORDING = 3  # the workload
TERMS = struct.Struct("=QQ")
ASKED = (5_000_000_000, 1 << 20)  # since so long ago; bytes
REFUSED_WORKLOAD, REFUSED_TERMS = 2, 7


def asking(**changed) -> bytes:
    return hello(**{"workload": RECORDING, "own": ASKED, "largest": 18} | changed)


@contextmanager
def lending(*words: object) -> Iterator[tuple[peer.Echo, socket.socket]]:
    """An echo, and the socket on which its process is handed who asks."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        ours.settimeout(peer.DEADLINE_S)
        with its:
            words = ("--hand-over", its.fileno(), *words)
            with peer.echo(*words, pass_fds=[its.fileno()]) as echo:
                yield echo, ours


def handed(ours: socket.socket) -> tuple[tuple[int, int], socket.socket]:
    words, (connection,), _, _ = socket.recv_fds(ours, TERMS.size, 1)
    return TERMS.unpack(words), socket.socket(fileno=connection)


def test_who_asks_is_handed_over_with_what_it_asked_for():
    with lending() as (echo, ours), session(echo.port, asking()) as client:
        terms, connection = handed(ours)
        assert terms == ASKED
        with connection:
            assert connection.getpeername() == client.getsockname()
            connection.sendall(b"records")
            connection.shutdown(socket.SHUT_WR)
        assert peer.receive_exactly(client, 100) == b"records"
        client.close()
        done = echo.stop()
    assert done["sessions"] == 1
    assert done["workloads"] == ["pingpong", "bulk", "recording"]


def test_only_who_knows_the_secret_is(tmp_path):
    secret = ("--secret-file", write_secret(tmp_path / "secret", SECRET))
    with lending(*secret) as (echo, ours):
        with socket.create_connection((LOOPBACK, echo.port)) as stranger:
            stranger.sendall(asking())
            peer.receive_exactly(stranger, peer.CHALLENGE.size)
            stranger.sendall(bytes(peer.PROOF_BYTES))
            accept = peer.receive_exactly(stranger, peer.ACCEPT.size)
            assert accept[0] == 6  # the secret is another one
        with session(echo.port, asking(), SECRET) as client:
            _, connection = handed(ours)
            with connection:
                assert connection.getpeername() == client.getsockname()
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(1)  # nobody else was


@pytest.mark.parametrize("named", [(), ("--workloads", "pingpong,recording")])
def test_where_nothing_is_lent_it_is_no_workload(named):
    with (
        peer.echo(*named) as echo,
        pytest.raises(Refused) as refused,
        session(echo.port, asking()),
    ):
        pass
    assert refused.value.args[0] == REFUSED_WORKLOAD


def test_it_is_asked_for_over_tcp_alone():
    with (
        lending() as (echo, _),
        socket.create_connection((LOOPBACK, echo.port)) as stream,
        pytest.raises(Refused) as refused,
    ):
        greet(stream, asking(transport=1))
    assert refused.value.args[0] == REFUSED_TERMS


def test_a_client_that_says_more_than_it_asked_for_is_ended():
    with lending() as (echo, ours), session(echo.port, asking()) as client:
        _, connection = handed(ours)
        client.sendall(b"more")
        assert is_over(client)
        connection.close()
        assert echo.stop()["rejected"] == 1


def test_where_nobody_takes_who_asks_the_session_ends():
    with lending() as (echo, ours):
        ours.close()
        with session(echo.port, asking()) as client:
            assert is_over(client)


def test_its_end_ends_the_session_of_an_idle_client():
    with lending("--idle", 1) as (echo, ours), session(echo.port, asking()) as client:
        _, connection = handed(ours)
        assert is_over(client)
        connection.close()
        assert echo.stop()["ended_idle"] == 1


def fetch(port: int, *words: object) -> tuple[socket.socket | None, int, str]:
    """The connection that a client is handed, if it is, its status and complaint."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with its:
            words = ("--port", port, "--hand-over", its.fileno(), *words)
            client = load("fetch", *words, pass_fds=[its.fileno()])
        ours.settimeout(peer.DEADLINE_S)
        _, found, _, _ = socket.recv_fds(ours, TERMS.size, 1)
        _, complaint = client.communicate(timeout=peer.DEADLINE_S)
    connection = socket.socket(fileno=found[0]) if found else None
    return connection, client.returncode, complaint


def test_a_client_agrees_and_hands_its_connection_over():
    asked = []

    def serve(stream: socket.socket) -> None:
        stream.sendall(b"records")
        asked.append(stream.recv(1))  # until the client goes

    with tcp_peer(serve) as port:
        connection, status, complaint = fetch(port, "--since", "5s")
        assert (status, complaint) == (0, "")
        assert connection
        with connection:
            assert peer.receive_exactly(connection, 7) == b"records"
    assert asked == [b""]


def test_what_a_client_asks_for_is_in_its_hello():
    with lending() as (echo, ours):
        words = ("--since", "7us", "--most-bytes", "9mib")
        connection, status, _ = fetch(echo.port, *words)
        assert connection
        terms, its = handed(ours)
        its.close()
        connection.close()
    assert (status, terms) == (0, (7000, 9 << 20))


@pytest.mark.parametrize(
    ("lent", "secret", "said"),
    [
        (False, b"", "it lends no recording; start it with --record DIR --lend"),
        (True, SECRET, "has no secret, so it may be anyone"),
    ],
)
def test_why_a_client_gets_none_is_one_line(tmp_path: Path, lent, secret, said):
    words = []
    if secret:
        words = ["--secret-file", write_secret(tmp_path / "secret", secret)]
    with lending() as (echo, _), peer.echo() as other:
        port = echo.port if lent else other.port
        connection, status, complaint = fetch(port, *words)
    assert (connection, status) == (None, 1)
    assert said in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--hand-over is needed"),
        (("--hand-over", 1, "--wire", "clear"), "--wire clear does not go with fetch"),
        (("--hand-over", 1), "--port is needed"),
    ],
)
def test_what_a_client_needs_is_one_line(words, said):
    client = load("fetch", *words)
    _, complaint = client.communicate(timeout=peer.DEADLINE_S)
    assert client.returncode == 2
    assert said in complaint
    assert complaint.count("\n") == 1


def test_a_client_that_has_no_socket_to_hand_over_to_says_so():
    with tcp_peer(lambda stream: stream.recv(1)) as port:
        client = load("fetch", "--port", port, "--hand-over", 1)
        _, complaint = client.communicate(timeout=peer.DEADLINE_S)
    assert client.returncode == 1
    assert "cannot hand the connection over" in complaint
