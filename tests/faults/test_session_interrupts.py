"""Ctrl-C while a client and its responder have not agreed yet: no failure."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from runpy import run_path

import pytest
from failures import assert_failed
from latprof_process import Latprof

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for probes")

PEER = run_path(str(Path(__file__).parent.parent / "native" / "load_peer.py"))
# The first answer of whoever is asked comes after a Ctrl-C, and a test's patience.
FAR = ("--rate=0", "--delay=30s", "--quiet")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


def assert_interrupted(latprof: Latprof, out: Path) -> None:
    """As before the first message of any run: what was seen is shown, or that none was.

    Of what two programs say before their messages the probes may have seen some.
    """
    status = latprof.finish()
    assert latprof.left() == []
    if status:
        assert_failed(latprof, 1, "interrupted: nothing was recorded")
        return
    assert latprof.err == ""
    for name in ("run.json", "summary.json"):
        assert json.loads((out / name).read_text())["state"] == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("client", "words"),
    [
        ("pingpong", ("--protocol=tcp",)),
        ("pingpong", ("--protocol=udp", "--interval=1ms")),
        ("pingpong", ("ops", "--backend=floor")),
        ("pingpong", ("mesh", "--hosts=3")),
        ("bulk", ("bulk", "--duration=5")),
    ],
    ids=["tcp", "udp", "ops", "mesh", "bulk"],
)
def test_an_interrupt_while_a_far_responder_is_asked(out, client, words, number):
    latprof = Latprof("run", *words, *FAR, f"--out={out}")
    latprof.wait_for_child(f"latprof-load {client}")
    latprof.signal(number)
    assert_interrupted(latprof, out)


@contextmanager
def accepts_and_is_silent() -> Iterator[tuple[int, Callable[[], object]]]:
    with socket.create_server((PEER["LOOPBACK"], 0)) as listener:

        def reached() -> None:
            stream, _ = listener.accept()
            kept.append(stream)
            PEER["receive_exactly"](stream, PEER["HELLO"].size)

        kept: list[socket.socket] = []
        yield listener.getsockname()[1], reached
        for stream in kept:
            stream.close()


@contextmanager
def swallows_datagrams() -> Iterator[tuple[int, Callable[[], object]]]:
    def agree(stream: socket.socket) -> None:
        PEER["welcome"](stream)
        stream.recv(1)  # until the client goes

    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as data,
        PEER["raw_peer"](agree) as port,
    ):
        data.settimeout(PEER["DEADLINE_S"])
        data.bind((PEER["LOOPBACK"], port))
        yield port, lambda: data.recv(100)


@pytest.mark.parametrize(
    ("silent", "protocol"),
    [(accepts_and_is_silent, "tcp"), (swallows_datagrams, "udp")],
)
def test_an_interrupt_while_a_responder_says_nothing(out, silent, protocol):
    with silent() as (port, reached):
        words = (f"--to=127.0.0.1:{port}", f"--protocol={protocol}", "--quiet")
        latprof = Latprof("run", *words, "--duration=30", f"--out={out}")
        reached()
        latprof.signal(signal.SIGINT)
        assert_interrupted(latprof, out)
