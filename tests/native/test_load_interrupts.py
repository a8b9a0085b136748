"""Ctrl-C before there is a session: no failure, and a result that says so."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import bulk_peer as wire
import load_peer as peer
import pytest
from load_peer import LOOPBACK, load, raw_peer, receive_exactly, welcome
from recording import wait_until

SYN_SENT = "02"


@contextmanager
def silent_from(
    serve: Callable[[socket.socket], None],
) -> Iterator[tuple[int, Callable[[], bool]]]:
    """A responder that serves so far and no further: its port, and when that was."""
    reached = threading.Event()

    def run(stream: socket.socket) -> None:
        serve(stream)
        reached.set()
        assert stream.recv(1) == b"", "until the client goes"

    with raw_peer(run) as port:
        yield port, lambda: reached.wait(peer.DEADLINE_S)


def after_hello(stream: socket.socket) -> None:
    receive_exactly(stream, peer.HELLO.size)


def after_challenge(stream: socket.socket) -> None:
    after_hello(stream)
    stream.sendall(peer.CHALLENGE.pack(b"LPse", 1, 0, 0, 6, bytes(16), 0))
    receive_exactly(stream, peer.PROOF_BYTES)


def after_plan(stream: socket.socket) -> None:
    welcome(stream)
    wire.expect_frame(stream, wire.PLAN)


@contextmanager
def silent_at_connect() -> Iterator[tuple[int, Callable[[], bool]]]:
    """A port whose queue of connections is full: a SYN gets no answer."""
    with socket.socket() as listener, socket.socket() as first:
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        first.connect((LOOPBACK, port))
        yield port, lambda: bool(wait_until(lambda: asks(port), "a SYN"))


def asks(port: int) -> bool:
    """Whether somebody has asked for a connection there and got no answer."""
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [row.split() for row in rows]
    return any(f[2].endswith(f":{port:04X}") and f[3] == SYN_SENT for f in fields)


@contextmanager
def silent_to_datagrams() -> Iterator[tuple[int, Callable[[], bool]]]:
    """A responder whose UDP socket swallows what comes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as data:
        data.settimeout(peer.DEADLINE_S)
        with silent_from(welcome) as (port, _):
            data.bind((LOOPBACK, port))
            yield port, lambda: data.recv(100).startswith(b"LPop")


SILENT = {
    "connect": silent_at_connect,
    "hello": lambda: silent_from(after_hello),
    "challenge": lambda: silent_from(after_challenge),
    "datagrams": silent_to_datagrams,
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", SILENT)
def test_an_interrupt_before_a_session_is_an_empty_result(tmp_path, stage, number):
    protocol = "udp" if stage == "datagrams" else "tcp"
    with SILENT[stage]() as (port, reached):
        words = ("--port", port, "--protocol", protocol, "--rounds", 10)
        client = load("pingpong", *words, "--output", tmp_path / "records")
        assert reached()
        client.send_signal(number)
        run = peer.finish(client, tmp_path / "records")
    assert (run.status, run.stderr) == (0, "")
    assert run.summary["stopped"]
    assert [run.summary[name] for name in ("sent", "received", "lost")] == [0, 0, 0]
    assert len(run.records) == 0


@pytest.mark.parametrize("stage", [*SILENT, "plan"])
def test_a_bulk_client_that_has_not_begun_tells_nothing(stage):
    silent = SILENT.get(stage, lambda: silent_from(after_plan))
    protocol = "udp" if stage == "datagrams" else "tcp"
    with silent() as (port, reached):
        client = load("bulk", "--port", port, "--protocol", protocol)
        assert reached()
        client.send_signal(signal.SIGINT)
        stdout, stderr = client.communicate(timeout=peer.DEADLINE_S)
    assert (client.returncode, stdout, stderr) == (0, "", "")


def test_of_several_responders_one_that_is_silent_does_not_hide_the_others(tmp_path):
    with peer.echo() as server, silent_from(after_hello) as (port, reached):
        ends = [f"{LOOPBACK}:{one}" for one in (server.port, port)]
        words = (word for end in ends for word in ("--peer", end))
        client = load("pingpong", *words, "--interval", "1ms", "--rounds", 10)
        assert reached()
        client.send_signal(signal.SIGINT)
        stdout, stderr = client.communicate(timeout=peer.DEADLINE_S)
    assert (client.returncode, stderr) == (0, "")
    first, second = json.loads(stdout)["peers"]
    assert first["local_port"] > 0
    assert second["local_port"] == 0
