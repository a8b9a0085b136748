"""`latprof echo --lend` and `run --to`: the responder's half comes at the run's end.

What a client is lent is held against what the responder itself kept of that client.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zstandard
from elsewhere import (
    DEADLINE_SECONDS,
    LATPROF,
    PORT,
    at,
    echo,
    started_echo,
    turned,
    write_secret,
)
from latprof_agent.executables import find_executable
from latprof_agent.lab.processes import ProcessId
from latprof_analysis.records.recording import CLOCKS, Recording
from recording import wait_until

ROUNDS, WARMUP, SIZES = 100, 5, "64,1000"
SENT = 2 * 2 * (2 * ROUNDS + 2 * WARMUP)  # both ways, of both protocols
LENT, OWN = "responder.arrows.zst", "recording.arrows.zst"
CLIENTS, RESPONDER = ("h0", "h1"), "h2"


def measure(folder: Path, *words: object, within: tuple[str, ...] = ()) -> Any:
    """Do a run; its status, run.json, warnings and complaints."""
    command = [*within, *LATPROF, "run", *map(str, words), "--quiet", "--json"]
    done = subprocess.run(
        [*command, "--out", folder],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads((folder / "run.json").read_text())
    return said["responder_recording"], json.loads(done.stdout)["warnings"]


def ping_pong(to: str, *words: object) -> tuple[object, ...]:
    plan = ("--rounds", ROUNDS, "--warmup", WARMUP, "--sizes", SIZES)
    return ("--to", to, *plan, *words)


def rebuilt(recording: Path, folder: Path) -> pd.DataFrame:
    """The messages that a recording gives, by the program itself."""
    folder.mkdir()
    (folder / OWN).write_bytes(recording.read_bytes())
    words = [*LATPROF, "rebuild", folder, "--out", folder / "again"]
    subprocess.run(words, check=True, capture_output=True, timeout=DEADLINE_SECONDS)
    return pd.read_csv(folder / "again" / "messages.csv", low_memory=False)


def by_time(messages: pd.DataFrame) -> pd.DataFrame:
    """In one order, whoever wrote them."""
    order = ["protocol", "source_port", "destination_port", "xmit_ns", "arrive_ns"]
    return messages.sort_values(order).reset_index(drop=True)


def unpacked(recording: Path) -> bytes:
    reader = zstandard.ZstdDecompressor().decompressobj()
    return reader.decompress(recording.read_bytes())


def test_each_client_is_lent_what_the_responder_recorded_of_it_alone(
    make_lab, tmp_path
):
    lab = make_lab(hosts=3)
    there, record = at(lab, RESPONDER), tmp_path / "there"
    address = lab.address_of(RESPONDER)
    secret = write_secret(tmp_path / "secret", b"1" * 32)
    words = ("--bind", address, "--secret-file", secret, "--record", record, "--lend")

    def run_of(client: str) -> Any:
        to = ping_pong(f"{address}:{PORT}", "--secret-file", secret)
        return measure(tmp_path / client, *to, within=at(lab, client))

    with (
        turned(lab, RESPONDER),
        echo(*words, "--port", PORT + 1, within=there) as (_, served),
        ThreadPoolExecutor() as pool,
    ):
        found = list(pool.map(run_of, CLIENTS))
    assert served["lent"] == len(CLIENTS)
    whole = rebuilt(record / OWN, tmp_path / "whole")
    for client, (recordings, warnings) in zip(CLIENTS, found, strict=True):
        (said,) = recordings
        lent = tmp_path / client / LENT
        assert (said["file"], said["why"]) == (LENT, None)
        assert said["bytes"] == lent.stat().st_size
        assert not [text for text in warnings if "is not here" in text]
        own = lab.address_of(client)
        joined = pd.read_csv(tmp_path / client / "joined" / "messages.csv")
        columns = ["send_ns", "read_ns", "transit_low_ns", "transit_high_ns"]
        # beside what the responder's connection of control says
        whole_ones = joined[joined[columns].notna().all(axis=1)]
        assert len(whole_ones) >= SENT, joined["clocks"].value_counts()
        # the responder's replies leave from another port than the client asks
        kinds = whole_ones.groupby(["protocol", "kind"]).size()
        for kind in ("request", "reply"):
            assert kinds["tcp", kind] == kinds["udp", kind] == 2 * ROUNDS
        assert set(whole_ones["clocks"]) <= {"good", "approximate"}
        here = rebuilt(lent, tmp_path / f"{client}-lent")
        assert len(here) >= SENT
        ports = set(here["source_port"]) | set(here["destination_port"])
        mine = (whole["source_address"] == own) | (whole["destination_address"] == own)
        mine &= whole["source_port"].isin(ports) & whole["destination_port"].isin(ports)
        pd.testing.assert_frame_equal(by_time(here), by_time(whole[mine]))
        readings = np.concatenate([s.beside[CLOCKS] for s in Recording(lent).steps()])
        assert (np.diff(readings["monotonic_ns"].astype("i8")) > 0).all()
        # and nothing of the others, in any ring
        data = unpacked(lent)
        for other in set(CLIENTS) - {client}:
            assert ip_address(lab.address_of(other)).packed not in data
        assert ip_address(own).packed in data


def test_a_client_gets_nothing_of_its_runs_before(tmp_path):
    with echo("--port", 0, "--record", tmp_path / "there", "--lend") as (port, _):
        to = ping_pong(f"127.0.0.1:{port}", "--protocol", "tcp")
        for name in ("one", "two"):
            measure(tmp_path / name, *to)
    tables = [
        rebuilt(tmp_path / n / LENT, tmp_path / f"{n}-re") for n in ("one", "two")
    ]
    sockets = [set(table["source_port"]) - {port} for table in tables]
    assert all(sockets)
    assert not sockets[0] & sockets[1]


@pytest.mark.thorough
def test_a_mesh_has_a_half_of_each_host_that_lends(make_lab, tmp_path):
    lab = make_lab(hosts=4)
    lends = {"h1": True, "h2": False, "h3": True}
    with ExitStack() as stack:
        for host, lend in lends.items():
            words = ["--bind", lab.address_of(host), "--port", PORT]
            if lend:
                words += ["--record", tmp_path / host, "--lend"]
            stack.enter_context(echo(*words, within=at(lab, host)))
        to = ",".join(map(lab.address_of, lends))
        plan = ("--sizes=1024", "--messages=20", "--tests=1", "--interval=5ms")
        words = ("mesh", "--to", to, *plan)
        said, _ = measure(tmp_path / "run", *words, within=at(lab, "h0"))
    hosts = [f"{lab.address_of(host)}:{PORT}" for host in lends]
    assert [one["host"] for one in said] == hosts
    files = ["responder-1.arrows.zst", None, "responder-3.arrows.zst"]
    assert [one["file"] for one in said] == files
    assert "lends no recording" in said[1]["why"]
    for number, host in ((1, "h1"), (3, "h3")):
        name = f"responder-{number}.arrows.zst"
        here = rebuilt(tmp_path / "run" / name, tmp_path / f"re-{number}")
        ends = set(here["source_address"]) | set(here["destination_address"])
        assert ends == {lab.address_of("h0"), lab.address_of(host)}


@pytest.mark.parametrize("bounds", ["here", "there"])
def test_a_half_that_is_larger_than_may_be_is_a_warning(tmp_path, bounds):
    words = {
        "here": ((), ("--responder-bytes", "64KiB")),
        "there": (("--lend-bytes", "64KiB"), ()),
    }
    of_echo, of_run = words[bounds]
    record = ("--record", tmp_path / "there", "--lend")
    with echo("--port", 0, *record, *of_echo) as (port, _):
        to = ping_pong(f"127.0.0.1:{port}", "--rounds", 2000, *of_run)
        (said,), warnings = measure(tmp_path / "run", *to)
    assert (said["file"], said["bytes"]) == (None, None)
    (warning,) = [text for text in warnings if "is not here" in text]
    assert "--lend-bytes; raise --responder-bytes or that" in warning
    assert not list((tmp_path / "run").glob("responder*"))
    messages = pd.read_csv(tmp_path / "run" / "messages.csv")
    assert len(messages) >= 2 * 2 * 2 * 2000


def test_what_is_not_recorded_here_is_not_asked_for(tmp_path):
    with echo("--port", 0, "--record", tmp_path / "there", "--lend") as (port, served):
        to = ping_pong(f"127.0.0.1:{port}", "--no-recording")
        said, _ = measure(tmp_path / "run", *to)
    assert (said, served["lent"]) == ([], 0)


def asking(address: str, within: tuple[str, ...]) -> socket.socket:
    """A connection on which a recording was asked for."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, its:
        command = [*within, str(find_executable("latprof-load")), "fetch"]
        command += ["--address", address, "--port", str(PORT), "--most-bytes", "1gib"]
        command += ["--hand-over", str(its.fileno())]
        subprocess.run(
            command, pass_fds=[its.fileno()], check=True, timeout=DEADLINE_SECONDS
        )
        _, (connection,), _, _ = socket.recv_fds(ours, 16, 1)
    return socket.socket(fileno=connection)


def helpers_of(pid: int) -> list[ProcessId]:
    """Programs that lend for a `latprof echo`."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = [ProcessId.of(int(child)) for child in children]
    return [
        one
        for one in found
        if one and b"lending.py" in Path(f"/proc/{one.pid}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_a_responder_ends_what_it_lends(make_lab, tmp_path, number):
    lab = make_lab()
    address, record = lab.b_address, tmp_path / "there"
    words = ("--bind", address, "--port", PORT, "--record", record, "--lend")
    # so slow that it is still lent when the end comes
    slow = ("--max-rate", "8kbit")
    with (
        started_echo(*words, *slow, within=at(lab, "b")) as (process, _),
        asking(address, at(lab, "a")) as client,
    ):
        client.settimeout(DEADLINE_SECONDS)
        (helper,) = wait_until(lambda: helpers_of(process.pid), "it lends")
        assert client.recv(1)
        process.send_signal(number)
        process.communicate(timeout=DEADLINE_SECONDS)
        wait_until(lambda: ProcessId.of(helper.pid) != helper, "it is gone")
        while client.recv(1 << 16):
            pass  # until the end
    assert process.returncode == (-number if number == signal.SIGKILL else 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("echo", "--lend"), "--lend: needs --record; see latprof echo --help"),
        (("echo", "--record", "there", "--lend-bytes", "1m"), "--lend-bytes: needs"),
        (("run", "--responder-bytes", "1m"), "--responder-bytes: needs --to"),
    ],
)
def test_what_does_not_go_together_is_one_line(tmp_path, words, said):
    done = subprocess.run(
        [*LATPROF, *words],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "there").exists()
