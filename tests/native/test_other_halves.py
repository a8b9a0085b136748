"""What a responder sends as its recording: had whole and readable, or not, in one line.

The responder's end is written from the documented wire alone; whatever it does, the run
folder has either a whole recording or nothing of it.
"""

from __future__ import annotations

import io
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import load_peer as peer
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_agent.capture.recording_writer import RecordingWriter, recording_header
from latprof_agent.errors import LendError
from latprof_agent.lend import frames
from latprof_agent.lend.frames import Ending, Inlet, Outlet, TooLarge
from latprof_agent.probes.layout import layout_of
from latprof_agent.sinks.run_files import TABLE_MODE, RunFolder
from latprof_agent.workload.other_halves import fetch_halves
from latprof_agent.workload.responder_half import ResponderEnd
from load_peer import LOOPBACK, tcp_peer

LAYOUT = layout_of()
MOST = 1 << 20
WAIT, DATA, END = 0, 1, 2
WHOLE, TOO_LARGE, TOO_LATE, FAILED = range(4)


def frame(kind: int, body: bytes = b"") -> bytes:
    return struct.pack(">BI", kind, len(body)) + body


def end(how: int, size: int) -> bytes:
    return frame(END, struct.pack(">BQ", how, size))


def a_recording() -> bytes:
    file = io.BytesIO()
    header = recording_header(LAYOUT, [], range(32768, 61000))
    writer = RecordingWriter(file.write, LAYOUT.rings, header)
    sent = np.zeros(50, LAYOUT.rings["sent_messages"])
    writer.step(1, {"sent_messages": sent})
    writer.end({}, run={})
    return file.getvalue()


RECORDING = a_recording()
PACKED_NOTHING = zstandard.ZstdCompressor().compress(b"x" * 10_000)
LENT = frame(WAIT) + frame(DATA, RECORDING) + end(WHOLE, len(RECORDING))


@contextmanager
def folder_in(path: Path) -> Iterator[RunFolder]:
    folder = RunFolder(path / "run")
    try:
        yield folder
    finally:
        folder.close()


def names_in(folder: RunFolder) -> set[str]:
    return {path.name for path in folder.path.iterdir()}


def fetch(ends: list[ResponderEnd], folder: RunFolder, most: int = MOST) -> list[Any]:
    found = fetch_halves(ends, folder, most, TABLE_MODE, lambda _bytes: None)
    assert found["with_recording"] == []
    return found["responder_recording"]


def fetched(tmp_path: Path, port: int, most: int = MOST) -> tuple[dict, set[str]]:
    """What run.json says, and which files are there beside those of any run."""
    with folder_in(tmp_path) as folder:
        before = names_in(folder)
        ends = [ResponderEnd(LOOPBACK, port, None)]
        (said,) = fetch(ends, folder, most)
        return said, names_in(folder) - before


def sends(*parts: bytes) -> Callable[[socket.socket], None]:
    def serve(stream: socket.socket) -> None:
        try:
            for part in parts:
                stream.sendall(part)
            stream.recv(1)
        except ConnectionError:
            pass  # the client has gone, as it should

    return serve


def test_a_recording_is_kept_byte_for_byte(tmp_path):
    with tcp_peer(sends(LENT)) as port:
        said, files = fetched(tmp_path, port)
    assert said["why"] is None
    assert said["host"] == f"{LOOPBACK}:{port}"
    assert (said["file"], said["bytes"]) == ("responder.arrows.zst", len(RECORDING))
    assert files == {"responder.arrows.zst"}
    kept = tmp_path / "run" / "responder.arrows.zst"
    assert kept.read_bytes() == RECORDING
    like = (tmp_path / "run" / "messages.csv").stat()
    assert (kept.stat().st_mode, kept.stat().st_uid) == (like.st_mode, like.st_uid)


def test_several_have_names_by_number_and_one_that_fails_costs_its_own_only(tmp_path):
    with (
        tcp_peer(sends(LENT)) as first,
        tcp_peer(sends(b"garbage")) as second,
        tcp_peer(sends(LENT)) as third,
        folder_in(tmp_path) as folder,
    ):
        ends = [ResponderEnd(LOOPBACK, port, None) for port in (first, second, third)]
        found = fetch(ends, folder)
    files = ["responder-1.arrows.zst", None, "responder-3.arrows.zst"]
    assert [one["file"] for one in found] == files
    assert [one["why"] is None for one in found] == [True, False, True]


LARGE = frame(DATA, bytes(1 << 18))


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([b"\x00" * 3], "the connection broke off after 0 bytes"),
        ([frame(DATA, RECORDING)], "the connection broke off after"),
        ([frame(DATA, RECORDING)[:-9]], "the connection broke off after 0 bytes"),
        ([frame(7, b"what"), LENT], "what it sent is no recording"),
        ([struct.pack(">BI", DATA, 1 << 30)], "what it sent is no recording"),
        ([b"SSH-2.0-OpenSSH_9.2p1\r\n" * 20], "what it sent is no recording"),
        ([LARGE] * 40_000, "it sent more than the 1,048,576 bytes that were asked for"),
        ([frame(DATA, RECORDING), end(WHOLE, 7)], "what it sent is not whole"),
        ([end(99, 0)], "what it sent is not whole"),
        ([end(TOO_LARGE, 0)], "it has more than 1,048,576 bytes of this host"),
        ([end(TOO_LATE, 0)], "to read its recording took it too long"),
        ([end(FAILED, 0)], "it could not read its recording"),
        ([end(WHOLE, 0)], "cannot be read: it is no recording"),
        (
            [frame(DATA, RECORDING[:-200]), end(WHOLE, len(RECORDING) - 200)],
            "cannot be read: it breaks off",
        ),
        (
            [frame(DATA, PACKED_NOTHING), end(WHOLE, len(PACKED_NOTHING))],
            "cannot be read: it is no recording",
        ),
    ],
)
def test_what_is_no_recording_is_not_kept_and_said_in_one_line(tmp_path, parts, why):
    def serve(stream: socket.socket) -> None:
        try:
            for part in parts:
                stream.sendall(part)
        except ConnectionError:
            pass

    with tcp_peer(serve) as port:
        said, files = fetched(tmp_path, port)
    assert why in said["why"]
    assert "\n" not in said["why"]
    assert (said["file"], said["bytes"], files) == (None, None, set())


@pytest.mark.parametrize("before", [b"", frame(DATA, RECORDING)])
def test_who_hangs_is_given_up(tmp_path, monkeypatch, before):
    monkeypatch.setattr(frames, "SILENT_SECONDS", 0.5)
    with tcp_peer(sends(before)) as port:
        said, files = fetched(tmp_path, port)
    assert said["why"] == "nothing came for 0.5 s"
    assert files == set()


def test_who_says_for_ever_that_more_will_come_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "FETCH_SECONDS", 0.5)

    def serve(stream: socket.socket) -> None:
        pause = threading.Event()
        try:
            while not pause.wait(0.01):
                stream.sendall(frame(WAIT))
        except ConnectionError:
            pass

    with tcp_peer(serve) as port:
        said, files = fetched(tmp_path, port)
    assert (said["why"], files) == ("it took longer than 0.5 s", set())


def test_who_lends_nothing_says_so(tmp_path):
    with peer.echo() as echo:
        said, files = fetched(tmp_path, echo.port)
    assert "it lends no recording; start it with --record DIR --lend" in said["why"]
    assert files == set()


def test_who_is_not_there_is_one_line(tmp_path):
    said, files = fetched(tmp_path, 1)
    assert "cannot connect to 127.0.0.1 port 1: Connection refused" in said["why"]
    assert files == set()


def test_a_disk_without_room_is_one_line(tmp_path, monkeypatch):
    free = os.statvfs(tmp_path)
    size = free.f_frsize
    few = os.statvfs_result((*free[:4], 2 * len(RECORDING) // size - 1, *free[5:]))
    monkeypatch.setattr(os, "fstatvfs", lambda _file: few)
    large = frame(DATA, RECORDING + bytes(10_000))
    with tcp_peer(sends(large)) as port:
        said, files = fetched(tmp_path, port)
    assert "it takes more than half of what is free on the disk" in said["why"]
    assert files == set()


def test_what_unpacks_to_more_than_any_memory_is_refused(tmp_path):
    """Arrow's schema may say that it is 2 GB long, of zeros that pack to nothing."""
    claims = b"\xff\xff\xff\xff" + struct.pack("<i", (1 << 31) - 8)
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    zeros = bytes(1 << 24)
    bomb = packer.compress(claims)
    bomb += b"".join(packer.compress(zeros) for _ in range(128)) + packer.flush()
    with tcp_peer(sends(frame(DATA, bomb), end(WHOLE, len(bomb)))) as port:
        said, files = fetched(tmp_path, port)
    assert "what it sent cannot be read" in said["why"]
    assert files == set()


def test_what_looks_may_end_it(tmp_path):
    class Enough(Exception):
        pass

    def look(_bytes: int) -> None:
        raise Enough

    with tcp_peer(sends(b"")) as port, folder_in(tmp_path) as folder:
        ends = [ResponderEnd(LOOPBACK, port, None)]
        before = names_in(folder)
        with pytest.raises(Enough):
            fetch_halves(ends, folder, MOST, TABLE_MODE, look)
        assert names_in(folder) == before


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, its = socket.socketpair()
    with ours, its:
        yield ours, its


@given(data=st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_a_recording_or_one_reason(data):
    with pair() as (ours, its):
        its.sendall(data)
        its.close()
        taken = io.BytesIO()
        try:
            Inlet(ours.fileno()).take(taken.write, MOST)
        except LendError as error:
            assert "\n" not in str(error)
        else:
            assert data.endswith(end(WHOLE, len(taken.getvalue())))


@given(parts=st.lists(st.binary(max_size=3000), max_size=5))
@settings(max_examples=50, deadline=None)
def test_what_goes_out_comes_in(parts):
    whole = b"".join(parts)
    with pair() as (ours, its):
        outlet = Outlet(its.sendall, len(whole))
        for part in parts:
            outlet.write(part)
        outlet.end(Ending.WHOLE)
        taken = io.BytesIO()
        Inlet(ours.fileno()).take(taken.write, len(whole))
    assert taken.getvalue() == whole


def test_no_byte_more_goes_out_than_may():
    with pair() as (ours, its):
        outlet = Outlet(its.sendall, 10)
        outlet.write(bytes(9))
        with pytest.raises(TooLarge):
            outlet.write(bytes(2))
        outlet.end(Ending.TOO_LARGE)
        assert ours.recv(1000) == frame(DATA, bytes(9)) + end(TOO_LARGE, 9)


def test_a_rate_is_kept():
    """80 kbit/s: of 10,000 bytes the last leaves after a second, by any clock."""
    with pair() as (ours, its):
        began = time.monotonic()
        outlet = Outlet(its.sendall, 20_000, rate_bps=80_000)
        outlet.write(bytes(10_000))
        outlet.end(Ending.WHOLE)
        assert time.monotonic() - began >= 1.0
        taken = io.BytesIO()
        Inlet(ours.fileno()).take(taken.write, 20_000)
    assert len(taken.getvalue()) == 10_000
