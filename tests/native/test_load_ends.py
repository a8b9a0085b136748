"""How a run of latprof-load ends: stopped, failed, or never begun."""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path

import load_peer as peer
import pytest
from load_peer import echo, finish, load, told_progress

TRAIN = ("--port", "5", "--train", "9", "--interval", "1ms")
BEAT = (
    *("--port", "5", "--interval", "1ms"),
    *("--heartbeat-interval", "1ms", "--heartbeat-bytes"),
)


@pytest.mark.parametrize("pacing", [(), ("--interval", 1_000_000)])
def test_ctrl_c_keeps_the_records(tmp_path, pacing):
    output = tmp_path / "records"
    with echo() as server:
        words = ("--port", server.port, "--duration", 600, *pacing)
        with told_progress(output, *words) as (client, progress):
            done_ms, total_ms = map(int, progress.readline().split())
            kept = len(peer.read_records(output))
            client.send_signal(signal.SIGINT)
            run = finish(client, output)
    assert total_ms == 600_000
    assert 0 < done_ms < 600_000
    assert run.status == 0, run.stderr
    assert run.summary["stopped"]
    assert len(run.records) == run.summary["received"] >= kept
    assert run.summary["sent"] == run.summary["received"] + run.summary["unanswered"]


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("pacing", [(), ("--interval", 1_000_000)])
def test_a_responder_that_dies_ends_the_run_in_one_line(tmp_path, protocol, pacing):
    output = tmp_path / "records"
    with echo() as server:
        words = (
            "--protocol",
            protocol,
            "--port",
            server.port,
            "--duration",
            600,
            *pacing,
        )
        with told_progress(output, "--duration", 600, *words) as (client, progress):
            progress.readline()
            server.process.kill()
            run = finish(client, output)
    assert run.status == 1
    assert run.stderr.startswith("latprof-load: lost the responder 127.0.0.1 port")
    assert run.stderr.count("\n") == 1
    assert len(run.records) == run.summary["received"] + run.summary["lost"] > 0


@pytest.mark.parametrize("first", ["true", "kill -STOP $!"], ids=["runs", "stopped"])
def test_a_dead_parent_takes_the_echo_along(first):
    starts = f'"{peer.LOAD}" echo --die-with-parent &'
    command = f"{starts} read line; {first}; kill -9 $$"
    shell = subprocess.Popen(
        ["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert shell.stdout
    assert shell.stdout.readline().startswith("ready ")
    shell.communicate("\n", timeout=peer.DEADLINE_S)  # until its stdout is closed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "command"),
        (("pongping",), "pongping"),
        (("echo", "--sizes", "64"), "--sizes"),
        (("pingpong",), "--port"),
        (("pingpong", "--port", "70000"), "70000"),
        (("pingpong", "--port", "5", "--sizes", "17"), "17"),
        (("pingpong", "--port", "5", "--sizes", "64,,65"), "64,,65"),
        (("pingpong", "--port", "5", "--protocol", "udp", "--sizes", "65508"), "65508"),
        (("pingpong", "--port", "5", "--wire", "clear", "--sizes", "65536"), "65536"),
        (("pingpong", "--port", "5", "--wire", "clear", "--reply", "64"), "--reply"),
        (("pingpong", "--port", "5", "--interval", "0"), "--interval"),
        (("pingpong", "--port", "5", "--interval", "-1"), "-1"),
        (("pingpong", "--port", "5", "--duration", "nan"), "nan"),
        (("pingpong", "--port", "5", "--rounds", "1", "--duration", "1"), "--duration"),
        (("pingpong", "--port", "5", "--poisson"), "--interval"),
        (("pingpong", "--port", "5", "--protocol", "sctp"), "sctp"),
        (("pingpong", "--port"), "--port needs a value: N"),
        (("pingpong", "--port=65536"), "whole number from 0 to 65535, got 65536"),
        (("pingpong", "--port", "0x10"), "0x10"),
        (("pingpong", "--port", ""), "--port must be"),
        (("pingpong", "--por", "5"), "--por is not an option of latprof-load pingpong"),
        (("pingpong", "--spin=yes"), "--spin takes no value, got yes"),
        (("pingpong", "5"), "5 is not an option"),
        (("pingpong", "--seed", "18446744073709551616"), "18446744073709551616"),
        (("pingpong", "--duration", "1e99999"), "1e99999"),
        (("pingpong", "--duration", "2h"), "a time from 1ms to 3600000s, got 2h"),
        (("pingpong", "--interval", "0.4"), "a time from 1ns to 3600s, got 0.4"),
        (("pingpong", "--sizes", "64,65mib"), "each a size from 18 to 64mib, got"),
        (("pingpong", "--sizes", "64ms"), "64ms"),
        (("pingpong", "--sizes", "k"), "got k"),
        (("pingpong", "--peer", "10.0.0.1"), "[ADDRESS]:PORT with a port from 1 to"),
        (("pingpong", "--peer", "10.0.0.1:"), "got 10.0.0.1:"),
        (("pingpong", "--peer", "10.0.0.1:0"), "got 10.0.0.1:0"),
        (("pingpong", "--peer", "10.0.0.1:65536"), "got 10.0.0.1:65536"),
        (("pingpong", "--peer", "10.0.0.1:5,6"), "got 10.0.0.1:5,6"),
        (("pingpong", "--peer", ":5"), "got :5"),
        (("pingpong", "--peer", "::1:5"), "got ::1:5"),
        (("pingpong", "--peer", "[::1]"), "got [::1]"),
        (("pingpong", "--peer", "[::1"), "got [::1"),
        (("pingpong", "--peer", "[]:5"), "got []:5"),
        (("pingpong", "--peer", "a:5", "--peer", "b:5"), "several --peer need"),
        (("pingpong", "--peer", "a:5", "--port", "5"), "--peer does not go with"),
        (("pingpong", "--peer", "a:5", "--address", "b"), "--peer does not go with"),
        (("pingpong", "--port", "5", "--max-acks", "2"), "--max-acks needs --inter"),
        (("pingpong", "--port", "5", "--interval", "1", "--max-acks", "0"), "from 1"),
        (("pingpong", "--port", "5", "--max-acks", "9"), "--max-acks needs --inter"),
        (("pingpong", "--port", "5", "--heartbeat-interval", "9"), "needs --interval"),
        (("pingpong", "--port", "5", "--heartbeat-bytes", "99"), "needs --heartbeat-"),
        (("pingpong", "--port", "5", "--train", "1"), "from 2 to 10000, got 1"),
        (("pingpong", "--port", "5", "--train-gap", "1us"), "needs --train"),
        (("pingpong", *TRAIN, "--max-acks", "2"), "does not go with --train"),
        (("pingpong", *TRAIN, "--heartbeat-interval", "1s"), "does not go with --tra"),
        (("pingpong", *BEAT, "70000", "--protocol", "udp"), "at most 65507 here, got"),
        (("echo", "--port", "1\n\x1b[31m"), "from 0 to 65535, got 1??[31m"),
        (("pingpong", "--busy", "2s"), "--busy must be a time from 0 to 1s, got 2s"),
        (("pingpong", "--busy", "1ms", "--wire", "clear"), "--busy does not go with"),
        (("pingpong", "--reply", "17"), "--reply must be a size from 18 to 64mib, got"),
        (("echo", "--reply", "64"), "--reply is not an option of latprof-load echo"),
        (("echo", "--protocol", "udp"), "--protocol is not an option"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(words, said):
    process = load(*words)
    stdout, stderr = process.communicate(timeout=peer.DEADLINE_S)
    assert (process.returncode, stdout) == (2, "")
    assert stderr.startswith("latprof-load: ")
    assert said in stderr
    assert stderr.count("\n") == 1


def test_values_with_units_and_the_later_of_two_options_count(tmp_path):
    with echo() as server:
        words = [
            *("--sizes=99", "--sizes", "64,1.5k,2kib", "--rounds=3", "--rounds=2"),
            *("--seed=18446744073709551615", "--interval=0.1ms", "--timeout", "1s"),
        ]
        run = peer.pingpong(tmp_path, server.port, *words)
    assert run.status == 0, run.stderr
    assert run.summary["sizes"] == [64, 1500, 2048]
    assert run.summary["seed"] == 2**64 - 1
    assert run.summary["interval_ns"] == 100_000
    assert run.summary["timeout_ns"] == 10**9
    assert run.summary["rounds"] == 2


def test_a_duration_is_in_seconds_where_no_unit_is_given(tmp_path):
    with echo() as server:
        for text in ("0.0333333333", "33.3333333ms", "33333333ns"):
            run = peer.pingpong(tmp_path, server.port, "--duration", text)
            assert run.summary["duration_ns"] == 33_333_333


@pytest.mark.parametrize("command", ["echo", "pingpong"])
def test_help_names_the_options_of_the_command(command):
    process = load(command, "--nagle", "--help", "--no-such-option")
    stdout, _ = process.communicate(timeout=peer.DEADLINE_S)
    assert process.returncode == 0
    options = stdout.partition(f"latprof-load {command}:\n")[2].partition("\n\n")[0]
    assert "--port N " in options
    assert ("--until-eof" in options) == (command == "echo")
    assert ("--sizes BYTES,..." in options) == (command == "pingpong")


@pytest.mark.parametrize(
    "words",
    [
        ("pingpong", "--port", "1"),
        ("pingpong", "--port", "1", "--protocol", "udp"),
        ("pingpong", "--port", "1", "--address", "no.such.host.invalid"),
        ("pingpong", "--port", "1", "--output", "/proc/none"),
        ("pingpong", "--port", "1", "--congestion", "none", "--cpu", "0"),
        ("echo", "--netns", "latprof-no-such-namespace"),
        ("echo", "--address", "192.0.2.1"),
        ("echo", "--cpu", "8000"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_status_1(words):
    process = load(*words)
    _, stderr = process.communicate(timeout=peer.DEADLINE_S)
    assert process.returncode == 1
    assert stderr.startswith("latprof-load: ")
    assert stderr.count("\n") == 1


def test_two_echoes_cannot_share_a_port():
    with echo() as first:
        second = load("echo", "--port", first.port)
        _, stderr = second.communicate(timeout=peer.DEADLINE_S)
    assert second.returncode == 1
    assert "in use" in stderr


def test_a_full_disk_ends_the_run_in_one_line(tmp_path: Path):
    with echo() as server:
        client = load("pingpong", "--port", server.port, "--output", "/dev/full")
        _, stderr = client.communicate(timeout=peer.DEADLINE_S)
    assert client.returncode == 1
    assert "No space left" in stderr
    assert stderr.count("\n") == 1


def test_closed_standard_streams_leave_the_records_as_they_are(tmp_path):
    output = tmp_path / "records"
    with echo() as server:
        words = ("--port", server.port, "--rounds", 10, "--output", output)
        closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", peer.LOAD, "pingpong"]
        subprocess.run([*closed, *map(str, words)], check=True, timeout=60)
    names, rest = output.read_bytes().split(b"\n", 1)
    assert len(rest) % (8 * len(names.split())) == 0  # nothing but whole records
    assert len(peer.read_records(output)) >= 10


def test_a_file_that_may_not_grow_is_one_line(tmp_path):
    output = tmp_path / "records"
    with echo() as server:
        words = ("--port", server.port, "--rounds", 100_000, "--output", output)
        limited = ["prlimit", "--fsize=10000", peer.LOAD, "pingpong"]
        run = subprocess.run(
            [*limited, *map(str, words)],
            capture_output=True,
            check=False,
            text=True,
            timeout=60,
        )
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1 and "File too large" in run.stderr


@pytest.mark.parametrize("size", ["32kib", "16m"])
def test_a_peer_that_reads_nothing_of_a_long_message_is_given_up(tmp_path, size):
    over = threading.Event()

    def read_nothing(_stream):
        over.wait(peer.DEADLINE_S)

    with peer.tcp_peer(read_nothing) as port:
        words = ("--sizes", size, "--timeout", "300ms")
        try:
            run = peer.pingpong(tmp_path, port, *words)
        finally:
            over.set()
    assert run.status == 1
    assert "lost the responder" in run.stderr
    assert run.stderr.count("\n") == 1
