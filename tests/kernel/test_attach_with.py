"""`latprof run attach --with ssh:HOST`: both hosts record, and nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from elsewhere import at
from examples import Example, examples
from latprof_agent import netns
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.processes import ProcessId
from latprof_analysis.records.recording import Recording
from latprof_process import Latprof, run
from recording import wait_until
from ssh_server import SshServer, ssh_server
from test_run_to_lent import rebuilt

PORT, ASK, REPLY = 6379, 100, 50
FILE = "with-1.arrows.zst"
DOCUMENTED = "root@192.0.2.7"  # RFC 5737


@pytest.fixture
def lab(make_lab) -> Lab:
    return make_lab()


@pytest.fixture
def there(lab, tmp_path) -> Iterator[SshServer]:
    with ssh_server(lab, "b", tmp_path / "ssh") as server:
        yield server


@contextmanager
def talking(lab: Lab) -> Iterator[None]:
    """A client at one end asks a server at the other again and again."""
    over = threading.Event()
    server = netns.run_in(
        lab.netns_of("b"), lambda: socket.create_server((lab.b_address, PORT))
    )

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            while connection.recv(ASK, socket.MSG_WAITALL):
                connection.sendall(bytes(REPLY))

    def ask() -> None:
        with client:
            while not over.wait(0.005):
                client.sendall(bytes(ASK))
                client.recv(REPLY, socket.MSG_WAITALL)

    serving = threading.Thread(target=serve)
    serving.start()
    client = netns.run_in(
        lab.netns_of("a"), lambda: socket.create_connection((lab.b_address, PORT))
    )
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()
        serving.join()
        server.close()


def words_of(there: SshServer, out: Path, *more: str) -> tuple[str, ...]:
    words = ("run", "attach", "--port", str(PORT), "--with", f"ssh:{there.place}")
    return (*words, "--quiet", "--out", str(out), *more)


def test_both_hosts_record_the_same_connection(lab, there, tmp_path):
    out = tmp_path / "run"
    with talking(lab):
        words = words_of(there, out, "--duration", "1s", "--json")
        done = run(*words, before=at(lab, "a"), env=there.environment)
    assert done.process.returncode == 0, done.err
    said = json.loads((out / "run.json").read_text())
    (half,) = said["with_recording"]
    assert (half["host"], half["file"], half["why"]) == (there.place, FILE, None)
    assert half["bytes"] == (out / FILE).stat().st_size
    assert said["workload"]["attached"]["with"] == [there.place]
    # the same bytes, by the recordings of two programs
    here = pd.read_csv(out / "messages.csv")
    other = rebuilt(out / FILE, tmp_path / "there")
    keys = ["source_address", "source_port", "sequence", "size_bytes"]
    both = here.merge(other, on=keys)
    assert len(both) == len(here) > 100  # it began before, and ended after
    assert there.left == []


@pytest.mark.parametrize(
    "example",
    [example for example in examples() if example.needs_ssh],
    ids=lambda example: example.line,
)
def test_an_example_records_there(example: Example, lab, there, tmp_path):
    words = [word.replace(DOCUMENTED, there.place) for word in example.words]
    done = run(*words, before=at(lab, "a"), env=there.environment, cwd=tmp_path)
    assert done.process.returncode == 0, done.err
    assert (tmp_path / "runs" / "latest" / FILE).exists()


def begun(there: SshServer, latprof: Latprof) -> list[ProcessId]:
    """Wait until it records there; what runs for it: ssh, and what that leads to."""
    ssh = latprof.wait_for_child("BatchMode=yes")

    def recording_there() -> list[ProcessId]:
        return [
            found
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if b"--lend-until-eof" in path.read_bytes()
            and str(there.folder).encode() in _environment(path.parent)
            and (found := ProcessId.of(int(path.parent.name)))
        ]

    wait_until(lambda: there.left, "a folder there")
    found = wait_until(recording_there, "latprof there")
    here = ProcessId.of(ssh)
    assert here
    return [here, *found]


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""  # it has just ended


def all_gone(processes: list[ProcessId]) -> bool:
    return not [one for one in processes if ProcessId.of(one.pid) == one]


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_its_end_is_the_end_there_and_leaves_nothing(lab, there, tmp_path, number):
    out = tmp_path / "run"
    words = words_of(there, out, "--duration", "1h")
    latprof = Latprof(*words, before=at(lab, "a"), env=there.environment)
    processes = begun(there, latprof)
    wait_until((out / "run.json").exists, "it records here")
    latprof.signal(number)
    status = latprof.finish()
    wait_until(lambda: all_gone(processes), "all of it is gone")
    wait_until(lambda: not there.left, "and its files")
    if number == signal.SIGKILL:
        assert status == -number
        return
    assert status == 0, latprof.err
    (half,) = json.loads((out / "run.json").read_text())["with_recording"]
    assert half["why"] is None


def test_a_second_interrupt_ends_at_once_and_leaves_nothing(lab, there, tmp_path):
    words = words_of(there, tmp_path / "run", "--duration", "1h")
    latprof = Latprof(*words, before=at(lab, "a"), env=there.environment)
    processes = begun(there, latprof)
    latprof.signal(signal.SIGINT)
    latprof.signal(signal.SIGINT)
    latprof.finish()
    wait_until(lambda: all_gone(processes), "all of it is gone")
    wait_until(lambda: not there.left, "and its files")


def test_a_host_that_goes_meanwhile_costs_its_own_half_only(lab, there, tmp_path):
    out = tmp_path / "run"
    words = words_of(there, out, "--duration", "1h")
    latprof = Latprof(*words, before=at(lab, "a"), env=there.environment)
    ssh, *processes = begun(there, latprof)
    wait_until((out / "run.json").exists, "it records here")
    os.kill(ssh.pid, signal.SIGKILL)
    wait_until(lambda: all_gone(processes), "all of it is gone there")
    wait_until(lambda: not there.left, "and its files")
    latprof.signal(signal.SIGINT)
    assert latprof.finish() == 0, latprof.err
    (half,) = json.loads((out / "run.json").read_text())["with_recording"]
    assert half["file"] is None
    assert "the connection broke off" in half["why"]
    (said,) = [
        text
        for text in json.loads((out / "summary.json").read_text())["warnings"]
        if "is not here" in text
    ]
    assert said.startswith(f"what {there.place} recorded of these messages is not here")


def refused(there: SshServer, out: Path, lab: Lab, with_: str = "") -> Any:
    words = list(words_of(there, out, "--duration", "1s"))
    if with_:
        words[words.index("--with") + 1] = with_
    return run(*words, before=at(lab, "a"), env=there.environment)


@pytest.mark.parametrize(
    ("latprof_there", "said"),
    [
        (None, "latprof: not found"),
        ("echo 'latprof: attaching needs root' >&2; exit 1", "attaching needs root"),
        ("exit 3", "ssh ended without a word"),
        ("echo Welcome; exec cat", "let login shells there print nothing"),
    ],
)
def test_a_host_that_cannot_is_one_line_and_leaves_no_folder(
    lab, there, tmp_path, latprof_there, said
):
    program = there.folder / "there" / "latprof"
    program.unlink()
    if latprof_there:
        program.write_text(f"#!/bin/sh\n{latprof_there}\n")
        program.chmod(0o755)
    done = refused(there, tmp_path / "run", lab)
    assert done.process.returncode == 1
    assert f"cannot record on {there.place}: " in done.err
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("root@{address}:1", "Connection refused"),
        ("nobody@{address}:2207", "Permission denied"),
        ("no.such.host.invalid", "Could not resolve hostname"),
    ],
)
def test_a_host_that_is_not_reached_is_one_line(lab, there, tmp_path, place, said):
    where = "ssh:" + place.format(address=lab.b_address)
    done = refused(there, tmp_path / "run", lab, where)
    assert done.process.returncode == 1
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_names_of_the_filter_are_words_for_no_shell(lab, there, tmp_path):
    hostile = f"$(touch {tmp_path}/one)`touch {tmp_path}/two`';#"[:15]
    words = ("run", "attach", "--comm", hostile, "--with", f"ssh:{there.place}")
    more = ("--duration", "1s", "--quiet", "--json", "--out", str(tmp_path / "run"))
    done = run(*words, *more, before=at(lab, "a"), env=there.environment)
    assert done.process.returncode == 0, done.err
    other = tmp_path / "run" / FILE
    assert hostile in Recording(other).header["watched"].replace("\\", "")
    assert {path.name for path in tmp_path.iterdir()} == {"run", "ssh"}
