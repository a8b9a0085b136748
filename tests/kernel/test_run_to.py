"""`latprof run --to` and `latprof echo`: two programs that meet on a port alone."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from elsewhere import (
    DEADLINE_SECONDS,
    LATPROF,
    PORT,
    at,
    echo,
    turned,
    write_secret,
)
from examples import Example, examples
from latprof_process import Latprof

ROUNDS, WARMUP, SIZES = 200, 5, "64,1000"
COUNT = 2 * ROUNDS

MEETING = [example for example in examples() if example.meets_another]
DOCUMENTED, OTHER = "192.0.2.7", "192.0.2.8"  # RFC 5737
HAS_IT = f'ip link set lo up && ip addr add {DOCUMENTED}/32 dev lo && exec "$@"'
IN_OWN = ("unshare", "--net", "sh", "-c", HAS_IT, "sh")


def run(folder: Path, to: str, *words: object, within: tuple[str, ...] = ()):
    """Do a run of both protocols; its status, summary and complaints."""
    plan = ("--rounds", ROUNDS, "--warmup", WARMUP, "--sizes", SIZES, "--out", folder)
    command = [*within, *LATPROF, "run", "--quiet", "--json", "--to", to]
    done = subprocess.run(
        [*command, *map(str, (*plan, *words))],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_both_programs_count_the_same_and_both_halves_are_seen_on_one_host(tmp_path):
    with echo("--port", 0) as (port, served):
        status, summary, said = run(tmp_path / "run", f"127.0.0.1:{port}")
    assert status == 0, said
    assert served["messages"] == 2 * (COUNT + 2 * WARMUP)
    assert served["sessions"] == 2
    for protocol in ("tcp", "udp"):
        assert summary["round_trips"][protocol]["sent"] == COUNT
        assert summary["round_trips"][protocol]["lost"] == 0
        for way in ("request", "reply"):
            kind = summary["kinds"][f"{protocol} {way}"]
            assert (kind["messages"], kind["complete"]) == (COUNT, COUNT)
    plan = json.loads((tmp_path / "run" / "run.json").read_text())["workload"]["plan"]
    assert (plan["to"], plan["port"], plan["secret"]) == ("127.0.0.1", port, False)
    # when a reply was made is told by the responder's clock, which may be another
    messages = pd.read_csv(tmp_path / "run" / "messages.csv")
    assert messages[messages["kind"] == "reply"]["application_ns"].isna().all()
    assert messages[messages["kind"] == "request"]["application_ns"].notna().all()


def test_of_a_responder_elsewhere_this_hosts_half_is_told(tmp_path, make_lab):
    lab = make_lab()
    here, there = at(lab, "a"), at(lab, "b")
    words = ("--port", PORT + 1, "--bind", lab.b_address)
    with turned(lab), echo(*words, within=there) as (_, served):
        status, summary, said = run(
            tmp_path / "run", f"{lab.b_address}:{PORT}", within=here
        )
    assert status == 0, said
    assert served["messages"] == 2 * (COUNT + 2 * WARMUP)
    for protocol in ("tcp", "udp"):
        assert summary["round_trips"][protocol]["lost"] == 0
        for way in ("request", "reply"):
            kind = summary["kinds"][f"{protocol} {way}"]
            assert (kind["messages"], kind["complete"]) == (COUNT, 0)
        why = summary["time_warp"]["unknown"]
        assert "".join(why[f"{protocol} request"]) == "ACD"
        assert "reader is elsewhere" in why[f"{protocol} request"]["D"]
        assert "".join(why[f"{protocol} reply"]) == "ABC"
        assert "sender is elsewhere" in why[f"{protocol} reply"]["C"]
    (unseen,) = [text for text in summary["warnings"] if "this end only" in text]
    assert f"the other end is on the host {lab.b_address}" in unseen
    messages = pd.read_csv(tmp_path / "run" / "messages.csv")
    requests = messages[messages["kind"] == "request"]
    assert requests["application_ns"].notna().all()
    assert requests["receive_queue_ns"].isna().all()
    replies = messages[messages["kind"] == "reply"]
    assert replies["receive_queue_ns"].notna().all()
    assert replies["transit_ns"].isna().all()


def test_the_responders_half_is_recorded_there(tmp_path):
    folder = tmp_path / "there"
    with echo("--port", 0, "--record", folder) as (port, served):
        status, _, said = run(tmp_path / "here", f"127.0.0.1:{port}", "--no-probes")
    assert status == 0, said
    assert served["folder"] == str(folder)
    messages = pd.read_csv(folder / "messages.csv")
    datagrams = messages[messages["protocol"] == "udp"]
    # a request and a reply each, and the two that open the session
    assert len(datagrams) == 2 * (COUNT + 2 * WARMUP) + 2
    assert json.loads((folder / "run.json").read_text())["state"] == "done"


def test_a_wrong_secret_is_one_line_and_what_was_recorded_stays(tmp_path):
    for name, secret in (("one", b"1" * 32), ("other", b"2" * 32)):
        write_secret(tmp_path / name, secret)
    with echo("--port", 0, "--secret-file", tmp_path / "one") as (port, served):
        to = f"localhost:{port}"
        wrong = run(tmp_path / "a", to, "--secret-file", tmp_path / "other")
        right = run(tmp_path / "b", to, "--secret-file", tmp_path / "one")
    assert wrong[0] == 1
    assert "the secret is another one" in wrong[2]
    assert wrong[2].count("\n") == 1
    assert right[0] == 0, right[2]
    assert (served["refused_secret"], served["sessions"]) == (1, 2)
    description = (tmp_path / "b" / "run.json").read_text()
    assert '"secret": true' in description
    assert "secret_file" not in description


def test_what_a_responder_refuses_a_host_is_one_line(tmp_path):
    with echo("--port", 0, "--max-host-memory", "1MiB") as (port, served):
        words = ("--protocol", "tcp", "--sizes", "1m")
        status, _, said = run(tmp_path / "run", f"127.0.0.1:{port}", *words)
    assert status == 1
    assert "its sessions of this host have as much memory as they may" in said
    assert "--max-host-memory" in said
    assert said.count("\n") == 1
    assert served["refused_host_memory"] == 1


@pytest.mark.parametrize("workload", ["pingpong", "bulk", "mesh"])
def test_answers_that_are_held_back_are_warned_of(tmp_path, workload):
    of_it = {
        "pingpong": ("--rounds", 5, "--sizes", 64),
        "bulk": ("--volume", "1m", "--channels", 1),
        "mesh": ("--messages", 20, "--tests", 1),
    }
    words = [workload, "--protocol", "tcp", *of_it[workload]]
    words += ["--no-probes"] * (workload != "bulk")
    with echo("--port", 0, "--max-rate", "80mbit") as (port, _):
        command = (*LATPROF, "run", *words, "--quiet", "--json")
        done = subprocess.run(
            [
                *map(str, command),
                "--to",
                f"127.0.0.1:{port}",
                "--out",
                tmp_path / "run",
            ],
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    (warning,) = [w for w in json.loads(done.stdout)["warnings"] if "--max-rate" in w]
    assert warning.startswith("the responder answers at most 80 Mbit/s, all sessions")


@pytest.mark.parametrize(
    ("secret", "mode", "said"),
    [
        (None, 0, "cannot read the secret in"),
        (b"short", 0o600, "must have 16 to 1024 bytes"),
        (b"1" * 32, 0o640, "holds no secret: others may read it"),
    ],
)
@pytest.mark.parametrize("workload", ["pingpong", "bulk", "ops"])
def test_a_secret_that_cannot_be_used_is_wrong_usage_and_makes_nothing(
    tmp_path, workload, secret, mode, said
):
    file, out = tmp_path / "secret", tmp_path / "run"
    if secret:
        write_secret(file, secret, mode)
    words = ("run", workload, "--to", "127.0.0.1:1", "--out", str(out))
    done = subprocess.run(
        [*LATPROF, *words, "--secret-file", str(file)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert str(file) in done.stderr
    assert done.stderr.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("to", "status", "said"),
    [
        ("127.0.0.1:1", 1, "port 1: Connection refused"),
        ("no.such.host.invalid", 1, "cannot find the host no.such.host.invalid"),
        ("a..b", 1, "cannot find the host a..b: no host can have it"),
        ("a b", 2, "--to must be HOST, HOST:PORT or [IPV6]:PORT, got 'a b'"),
        ("a,b", 2, "--to: must be one host, got 2"),
        ("a,", 2, "--to must be HOST, HOST:PORT or [IPV6]:PORT, got ''"),
        ("host:0", 2, "--to must be HOST, HOST:PORT"),
        ("host:65536", 2, "--to must be HOST, HOST:PORT"),
    ],
)
def test_a_responder_that_cannot_be_is_one_line(tmp_path, to, status, said):
    found = run(tmp_path / "run", to, "--protocol", "tcp")
    assert found[0] == status
    assert said in found[2]
    assert found[2].count("\n") == 1
    assert found[1] == {}  # nothing was measured: no table, and no folder of it
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("workload", ["pingpong", "bulk", "ops", "mesh"])
def test_a_failed_connection_leaves_latest_as_it_was(tmp_path, workload):
    words = ("run", workload, "--to", "127.0.0.1:1")
    for before in (None, "earlier"):
        if before:
            (tmp_path / "runs" / before).mkdir()
            (tmp_path / "runs" / "latest").symlink_to(before)
        latprof = Latprof(*words, cwd=tmp_path)
        assert latprof.finish() == 1
        assert latprof.err.count("\n") == 1
        assert latprof.out == ""
        there = {path.name for path in (tmp_path / "runs").iterdir()}
        assert there == ({before, "latest"} if before else set())
    assert (tmp_path / "runs" / "latest").readlink() == Path("earlier")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rate", "1mbit"), "--rate: is of this host's lab, not with --to"),
        (("--server-cpu", "0"), "--server-cpu: is of this host's lab"),
        (("--priority", "1"), "--priority: is of this host's lab"),
        (("--load", "tcp:1"), "--load: is of this host's lab"),
        (("--no-lab",), "--no-lab; it is of `latprof run -- COMMAND`"),
        (("--wire", "clear"), "--wire clear: is not spoken by `latprof echo`, so"),
        (("--", "true"), "it is of `latprof run`"),
    ],
)
def test_what_does_not_go_with_a_responder_elsewhere_is_one_line(tmp_path, words, said):
    found = run(tmp_path / "run", "localhost", *words)
    assert found[0] == 2
    assert said in found[2]
    assert found[2].count("\n") == 1


SHORT = {"bulk": ["--volume=1m"], "mesh": ["--messages=20", "--tests=1"]}


def _for_this_host(words: list[str]) -> list[str]:
    """The example, with hosts that are here, and short."""
    for documented, here in ((DOCUMENTED, "127.0.0.1"), (OTHER, "[::1]")):
        words = [word.replace(documented, here) for word in words]
    (more,) = [SHORT[w] for w in words if w in SHORT] or [["--rounds=20"]]
    return [*words, *more]


@pytest.mark.parametrize("example", MEETING, ids=lambda example: example.line)
def test_an_example_meets_another_latprof(example: Example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_secret(Path("secret"), b"0123456789abcdef")
    sends = "--to" in example.words
    words = ["--secret-file", "secret"] if sends else example.words[1:]
    with echo(*words, within=IN_OWN) as (port, served):
        assert port == PORT
        if sends:
            there = ("nsenter", f"--net=/proc/{served['pid']}/ns/net")
            words = _for_this_host(example.words)
            done = subprocess.run(
                [*there, *LATPROF, *words, "--quiet"],
                capture_output=True,
                text=True,
                timeout=DEADLINE_SECONDS,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert re.search(r"with the hosts?\s127\.0\.0\.1", done.stdout)
    assert (served["sessions"] > 1) == sends
    assert served["secret"] == ("--secret-file" in words)
