"""`latprof echo`: what it listens on, what it says, and how it ends."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import load_peer as peer
import pytest
from bulk_peer import bulk
from load_peer import Refused, datagram_session, greet, hello, session

ECHO = [sys.executable, "-m", "latprof_agent", "echo"]
SECRET = b"0123456789abcdef0123456789abcdef"


class Command(NamedTuple):
    process: subprocess.Popen[str]
    port: int
    ready: str

    def stop(self) -> tuple[str, str]:
        """End it as Ctrl-C does; what it printed since, on stdout and stderr."""
        self.process.send_signal(signal.SIGINT)
        said = self.process.communicate(timeout=peer.DEADLINE_S)
        assert self.process.returncode == 0
        return said


@contextmanager
def command(*words: object, json_only: bool = False) -> Iterator[Command]:
    process = subprocess.Popen(
        [*ECHO, "--port", "0", *map(str, words), *(["--json"] if json_only else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ready = process.stderr if json_only else process.stdout
    assert ready
    try:
        line = ready.readline()
        found = re.search(r"port (\d+)", line)
        assert found, line or process.stderr.read()
        yield Command(process, int(found[1]), line)
    finally:
        process.kill()
        process.communicate()


def test_it_says_what_it_answers_and_what_it_did(tmp_path):
    with command() as echo:
        assert echo.ready.endswith("without a secret: pingpong, bulk; Ctrl-C ends it\n")
        run = peer.pingpong(tmp_path, echo.port, "--rounds", 20)
        with socket.create_connection((peer.LOOPBACK, echo.port)) as stranger:
            stranger.sendall(b"GET / H")
            assert stranger.recv(1) == b""
        with pytest.raises(Refused), session(echo.port, hello(workload=200)):
            pass
        said, complaints = echo.stop()
    assert run.status == 0, run.stderr
    lines = said.splitlines()
    assert lines[0].startswith("answered 20 messages of 1280 bytes in 1 session, ")
    assert lines[1:] == [
        "sessions refused, a workload that is not answered here: 1",
        "connections that were not of latprof: 1",
    ]
    assert complaints == ""


@pytest.mark.parametrize("transport", [0, 1])
def test_who_knows_the_secret_is_answered_and_counted(tmp_path, transport):
    file = write_secret(tmp_path)
    with command("--secret-file", file, json_only=True) as echo:
        said = hello(transport=transport)
        if transport:
            with datagram_session(echo.port, said, SECRET) as (_, data):
                data.send(peer.request(1, 64))
                assert len(data.recv(100)) == 64
        else:
            with session(echo.port, said, SECRET) as data:
                data.sendall(peer.request(1, 64))
                assert len(peer.receive_message(data)) == 64
        document: dict[str, Any] = json.loads(echo.stop()[0])
    assert (document["messages"], document["sessions"]) == (1, 1)
    assert document["secret"] is True
    assert document["folder"] is None


def sockets_of(port: int) -> set[tuple[str, str]]:
    """Protocol and address of what listens on a port, as ss has it."""
    words = ["ss", "-Hltun", f"sport = :{port}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows = (line.split() for line in done.stdout.splitlines())
    return {(row[0], row[4].rpartition(":")[0]) for row in rows}


@pytest.mark.parametrize(
    ("words", "addresses"),
    [
        ((), {"127.0.0.1", "[::1]"}),
        (("--bind", "127.0.0.2"), {"127.0.0.2"}),
        (("--bind", "127.0.0.3,::1"), {"127.0.0.3", "[::1]"}),
    ],
)
def test_it_listens_where_it_was_told_and_else_for_this_host_alone(words, addresses):
    with command(*words) as echo:
        found = sockets_of(echo.port)
        echo.stop()
    assert found == {(p, address) for p in ("tcp", "udp") for address in addresses}


def test_an_open_door_is_warned_of():
    with command("--bind", "0.0.0.0") as echo:
        assert echo.process.stderr
        assert select.select([echo.process.stderr], [], [], peer.DEADLINE_S)[0]
        _, complaints = echo.stop()
    assert complaints.startswith("latprof: warning: whoever reaches this port")
    assert complaints.count("\n") == 1


def test_limits_are_those_of_the_responder():
    words = ("--max-message=1k", "--max-duration=2s", "--max-rate=80kbit")
    with (
        command(*words) as echo,
        socket.create_connection((peer.LOOPBACK, echo.port)) as client,
    ):
        grant = greet(client, hello(largest=1000))
        assert grant[1:] == (1000, 2 * 10**9, 10_000)
        with pytest.raises(Refused), session(echo.port, hello(largest=1001)):
            pass
        said, _ = echo.stop()
    assert "sessions refused, messages larger than --max-message: 1" in said


HOST_SESSIONS, BULK_CHANNELS = 16, 8


@pytest.mark.parametrize("secret", [b"", SECRET])
def test_strangers_have_bounds_of_each_host_and_who_knows_the_secret_has_not(
    tmp_path, secret
):
    words = ("--secret-file", write_secret(tmp_path)) if secret else ()
    with command(*words, json_only=True) as echo, ExitStack() as stack:
        for _ in range(HOST_SESSIONS):
            stack.enter_context(session(echo.port, hello(), secret))
        with suppress(Refused), session(echo.port, hello(), secret):
            pass
        document: dict[str, Any] = json.loads(echo.stop()[0])
    assert document["refused_host_sessions"] == (0 if secret else 1)
    assert document["sessions"] == HOST_SESSIONS + (1 if secret else 0)


def test_a_strangers_bulk_transfer_is_borne_as_it_is_by_default(tmp_path):
    with command() as echo:
        status, _, said = bulk(
            echo.port, "--channels", BULK_CHANNELS, "--bytes", "1mib"
        )
        largest = pingpong_of(tmp_path, echo.port, "32mib")
        too_large = pingpong_of(tmp_path, echo.port, "64mib", "--reply", "64mib")
        done, _ = echo.stop()
    assert status == 0, said
    assert largest.status == 0, largest.stderr
    assert too_large.status == 1
    assert "of this host have as much memory as they may" in too_large.stderr
    assert "sessions refused, as much as --max-host-memory: 1\n" in done


def pingpong_of(tmp_path, port, size, *words):
    return peer.pingpong(tmp_path, port, "--sizes", size, "--rounds", 1, *words)


def write_secret(folder):
    file = folder / "secret"
    file.write_bytes(SECRET + b"\n")
    file.chmod(0o600)
    return file


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--port", "65536"), 2, "--port must be from 0 to 65535"),
        (("--workloads", "none"), 2, "--workloads must be some of"),
        (("--max-message", "17"), 2, "--max-message must be from 18 to 64MiB"),
        (("--max-rate", "1bit"), 2, "--max-rate must be"),
        (("--idle", "10ms"), 2, "--idle must be"),
        (("--max-cpu", "2"), 2, "--max-cpu must be a share"),
        (("--max-host-cpu", "0%"), 2, "--max-host-cpu must be from 1% to"),
        (("--max-host-sessions", "0"), 2, "--max-host-sessions must be from 1 to"),
        (("--max-host-memory", "1k"), 2, "--max-host-memory must be from 1MiB to"),
        (("--bind", "192.0.2.1"), 1, "cannot listen on 192.0.2.1 port 7107"),
        (("--secret-file", "/none"), 2, "cannot read the secret in /none"),
    ],
)
def test_what_cannot_be_is_one_line(words, status, said):
    done = subprocess.run(
        [*ECHO, *words],
        capture_output=True,
        text=True,
        timeout=peer.DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_responder_that_was_killed_is_told():
    with command() as echo:
        words = ["ps", "--ppid", str(echo.process.pid), "-o", "pid="]
        found = subprocess.run(words, capture_output=True, text=True, check=True)
        os.kill(int(found.stdout), signal.SIGKILL)
        _, complaints = echo.process.communicate(timeout=peer.DEADLINE_S)
    assert echo.process.returncode == 1
    assert "the responder failed: it ended with" in complaints
    assert complaints.count("\n") == 1
