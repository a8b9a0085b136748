"""`latprof run mesh --to`: one host's half, its peers in other namespaces.

What it counts is what the responders count and what the network stacks of all hosts do;
times are those of a link whose delay and rate are known.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from elsewhere import (
    PORT,
    at,
    child_of,
    echo,
    started_echo,
    turned,
    write_secret,
)
from latprof_agent import netns
from latprof_agent.lab.lab import Lab
from latprof_analysis.report.mesh_text import SEED_COLUMNS
from latprof_process import Latprof, run
from network_counters import kernel_counter
from seed_tmsn import get_stats

SENDER, *OTHERS = "h0", "h1", "h2", "h3"
PAIRS = len(OTHERS)
MESSAGES, WARMUP, TESTS = 30, 5, 2
SIZES = (1024, 40_000)
QUICK = (
    *("--sizes", ",".join(map(str, SIZES)), "--interval", "10ms"),
    *("--messages", str(MESSAGES), "--warmup", str(WARMUP), "--tests", str(TESTS)),
    *("--heartbeat-interval", "50ms"),
)
LONG = (
    *("--sizes=1024,2048", "--messages=100", "--interval=50ms", "--tests=20"),
    *("--warmup=0",),
)


@pytest.fixture
def secret(tmp_path):
    return write_secret(tmp_path / "secret", b"1" * 32)


@contextmanager
def echoes(
    lab: Lab, secrets: Mapping[str, Path], port: int = PORT
) -> Iterator[dict[str, dict[str, Any]]]:
    """A responder on each of these hosts; after the block, what it did."""
    served = {}
    with ExitStack() as stack:
        for host, secret in secrets.items():
            bind = ("--bind", lab.address_of(host), "--secret-file", secret)
            begun = echo(*bind, "--port", port, within=at(lab, host))
            _, served[host] = stack.enter_context(begun)
        yield served


def place(lab: Lab, host: str) -> str:
    return f"{lab.address_of(host)}:{PORT}"


def words_of(lab: Lab, secret: Path, out: Path, *more: str) -> tuple[str, ...]:
    to = ",".join(lab.address_of(host) for host in OTHERS)
    words = ("run", "mesh", "--to", to, "--secret-file", str(secret))
    return (*words, "--quiet", "--out", str(out), *more)


@dataclass
class Measured:
    """A run that is over."""

    lab: Lab
    folder: Path
    status: int
    out: str
    err: str

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())

    @property
    def cells(self) -> list[dict[str, Any]]:
        return self.summary["mesh"]["cells"]

    @property
    def runs(self) -> list[dict[str, Any]]:
        return self.summary["workload"]["runs"]

    def table(self, name: str) -> pd.DataFrame:
        return pd.read_csv(self.folder / f"{name}.csv", low_memory=False)

    @property
    def attempts(self) -> int:
        """How often a test was begun: again, where the client came too late for it.

        It has opened a session with each host by then, and sent nothing in it.
        """
        return sum(1 + run["begun_again"] for run in self.runs)

    def sent(self, *kinds: str) -> int:
        """Messages and heartbeats of all tests, by the client's own count."""
        clients = [one for run in self.runs for one in run["clients"].values()]
        told = [part for one in clients for part in (one, one["heartbeats"])]
        return sum(part[kind] for part in told for kind in kinds)


def measure(lab: Lab, secret: Path, folder: Path, *more: str) -> Measured:
    words = words_of(lab, secret, folder, *more)
    done = run(*words, before=at(lab, SENDER))
    return Measured(lab, folder, done.process.returncode, done.out, done.err)


def counted(lab: Lab, host: str, name: str) -> int:
    """Datagrams that a host's network stack has counted."""
    read = partial(kernel_counter, "snmp", "Udp", name)
    return netns.run_in(lab.netns_of(host), read)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_what_is_sent_is_what_all_responders_and_the_kernel_count(
    make_lab, tmp_path, secret, protocol
):
    lab = make_lab(hosts=4)
    with echoes(lab, dict.fromkeys(OTHERS, secret)) as served:
        done = measure(lab, secret, tmp_path / "run", *QUICK, "--protocol", protocol)
    assert done.status == 0, done.err
    tests = TESTS * len(SIZES)
    assert len(done.runs) == tests
    requests = done.sent("sent", "warmup")
    assert sum(one["messages"] for one in served.values()) == requests
    opened = done.attempts
    assert {one["sessions"] for one in served.values()} == {opened}
    assert all(one["secret"] for one in served.values())
    if protocol == "udp":  # and a datagram each way that opens a session
        for host, one in served.items():
            of_host = one["messages"] + opened
            assert counted(lab, host, "InDatagrams") == of_host
            assert counted(lab, host, "OutDatagrams") == of_host
        of_sender = requests + opened * PAIRS
        assert counted(lab, SENDER, "OutDatagrams") == of_sender
        assert counted(lab, SENDER, "InDatagrams") == of_sender
    trips = done.table("round_trips")
    messages = trips[trips["heartbeat"] == 0]
    assert set(messages["source"]) == {"here"}
    counts = messages.groupby("destination").size()
    places = {place(lab, host) for host in OTHERS}
    assert counts.to_dict() == dict.fromkeys(places, MESSAGES * tests)
    kinds = done.table("messages")["kind"].value_counts()
    assert kinds["request"] == kinds["reply"] == MESSAGES * PAIRS * tests
    beats = len(trips) - len(messages)
    assert kinds["heartbeat"] == 2 * beats > 0


@pytest.mark.thorough
def test_what_only_a_lab_knows_is_not_told_and_the_rest_is(make_lab, tmp_path, secret):
    lab = make_lab(hosts=4)
    with echoes(lab, dict.fromkeys(OTHERS, secret)):
        done = measure(lab, secret, tmp_path / "run", *QUICK)
    assert done.status == 0, done.err
    told = get_stats(done.folder / "tmsn.log", 1 + PAIRS)
    for at_size, cell in enumerate(done.cells):
        assert (cell["wire_bps"], cell["utilisation"]) == (None, None)
        assert (list(cell["hosts"]), list(cell["busy"])) == (["here"], ["processors"])
        assert cell["lost"] == 0
        assert [pair["sent"] for pair in cell["pairs"]] == [MESSAGES * TESTS] * PAIRS
        table = cell["table"]
        assert table["msg"] == table["hb"] == 0  # nobody sends to this host
        assert table["msg_echo"] == PAIRS * MESSAGES
        for name in SEED_COLUMNS:
            assert table[name] == pytest.approx(told[name].iloc[at_size]), name
    offered = PAIRS * 1000 / 10
    load = done.cells[0]["load"]
    assert load["offered_messages_per_second"] == pytest.approx(offered)
    plan = json.loads((done.folder / "run.json").read_text())["workload"]["mesh"]
    assert plan["to"] == [place(lab, host) for host in OTHERS]
    assert plan["secret"] is True
    assert str(secret) not in json.dumps(plan)
    assert "this host's half, a message to each other" in done.out
    assert f"with the hosts {', '.join(plan['to'])}" in " ".join(done.out.split())
    assert "Link: not known: there is no lab" in done.out
    analyzed = run("analyze", "--json", str(done.folder))
    assert json.loads(analyzed.out)["mesh"] == done.summary["mesh"], analyzed.err
    reported = run("report", str(done.folder))
    assert reported.process.returncode == 0, reported.err
    assert "mesh-pairs-1-kib" in (done.folder / "report.html").read_text()


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_of_the_others_half_nothing_is_told_and_its_time_is_elsewhere(
    make_lab, tmp_path, secret, protocol
):
    lab = make_lab(hosts=4)
    words = ("--sizes=1400", "--messages=40", "--tests=1", "--interval=20ms")
    with turned(lab, *OTHERS), echoes(lab, dict.fromkeys(OTHERS, secret), PORT + 1):
        done = measure(lab, secret, tmp_path / "run", *words, "--protocol", protocol)
    assert done.status == 0, done.err
    (cell,) = done.cells
    request, reply = cell["stages"]["request"], cell["stages"]["reply"]
    assert (request["n"], reply["n"]) == (40 * PAIRS, 40 * PAIRS)
    assert request["transit_ns"] is request["end_to_end_ns"] is None
    assert reply["application_ns"] is reply["transit_ns"] is None
    seen = [request[f"{name}_ns"] for name in ("application", "send_queue", "qdisc")]
    seen += [reply[f"{name}_ns"] for name in ("receive_stack", "receive_queue")]
    whole = sum(seen) + cell["stages"]["elsewhere_ns"]
    assert whole == pytest.approx(cell["intended"]["mean_ns"], rel=0.01)
    messages = done.table("messages")
    kinds = messages["kind"].value_counts()
    assert kinds["request"] == kinds["reply"] == 40 * PAIRS
    ours = messages[messages["kind"] == "request"]
    assert ours["receive_queue_ns"].isna().all()
    (unseen,) = [text for text in done.summary["warnings"] if "this end only" in text]
    assert f"on the hosts {', '.join(place(lab, host) for host in OTHERS)}" in unseen


@pytest.mark.timed
def test_a_queue_of_this_host_stands_in_its_own_half(make_lab, tmp_path, secret):
    lab = make_lab(hosts=4, rate_bps=100_000_000, qdisc="tbf", burst_bytes=3000)
    size = 50_000
    words = ("--sizes", str(size), "--messages=40", "--tests=1", "--interval=50ms")
    with turned(lab, *OTHERS), echoes(lab, dict.fromkeys(OTHERS, secret), PORT + 1):
        done = measure(lab, secret, tmp_path / "run", *words)
    assert done.status == 0, done.err
    (cell,) = done.cells
    request = cell["stages"]["request"]
    # of three that leave together the last waits for the two before it
    own_ns = 8 * size / 100e6 * 1e9
    waited = request["send_queue_ns"] + request["qdisc_ns"]
    assert 0.9 * own_ns < waited < 3.3 * own_ns
    # it may be stored once on the link of whom it is for; echoes are of 150 bytes
    assert 0 < cell["stages"]["elsewhere_ns"] < 1.3 * own_ns


@pytest.mark.timed
def test_the_knee_is_where_this_hosts_link_is_full(make_lab, tmp_path, secret):
    lab = make_lab(hosts=4, rate_bps=100_000_000, qdisc="tbf")
    size, segments = 51_200, 36
    wire = size + segments * 66  # its echoes come the other way
    expected_ns = 8 * PAIRS * wire / 100e6 * 1e9
    words = ("--sizes", str(size), "--messages=5", "--tests=1", "--find-knee")
    with echoes(lab, dict.fromkeys(OTHERS, secret)):
        done = measure(lab, secret, tmp_path / "run", *words)
    assert done.status == 0, done.err
    (knee,) = done.summary["mesh"]["knees"]
    assert knee["interval_ns"] == pytest.approx(expected_ns, rel=0.05)
    assert knee["interval_ns"] <= 1.02 * knee["beyond_ns"]
    assert (knee["expected_ns"], knee["utilisation"]) == (None, None)
    assert knee["grows"]["stage"] in ("qdisc", "send_queue", "application")
    assert "kept up with down to every" in done.out


def test_each_host_can_measure_its_half_at_once(make_lab, tmp_path, secret):
    lab = make_lab(hosts=4)
    hosts = (SENDER, *OTHERS)
    with echoes(lab, dict.fromkeys(hosts, secret)) as served, ExitStack() as stack:
        processes = {}
        for host in hosts:
            to = ",".join(lab.address_of(other) for other in hosts if other != host)
            words = ("run", "mesh", "--to", to, "--secret-file", str(secret))
            out = ("--quiet", "--out", str(tmp_path / host))
            latprof = Latprof(*words, *QUICK, *out, before=at(lab, host))
            stack.callback(latprof.process.kill)
            processes[host] = latprof
        for host, latprof in processes.items():
            assert latprof.finish() == 0, (host, latprof.err)
    tests = TESTS * len(SIZES)
    requests = 0
    for host in hosts:
        done = Measured(lab, tmp_path / host, 0, "", "")
        kinds = done.table("messages")["kind"].value_counts()
        # what others send to the responder here has its port, too
        assert kinds["request"] == kinds["reply"] == MESSAGES * PAIRS * tests, host
        requests += done.sent("sent", "warmup")
    assert sum(one["messages"] for one in served.values()) == requests


def assert_one_line(done: Measured, *texts: str) -> None:
    assert done.status == 1
    (line,) = done.err.splitlines()
    for text in ("latprof: ", *texts):
        assert text in line


def test_a_responder_that_is_not_there_is_named_in_a_line(make_lab, tmp_path, secret):
    lab = make_lab(hosts=4)
    with echoes(lab, dict.fromkeys(OTHERS[:2], secret)):
        done = measure(lab, secret, tmp_path / "run", *QUICK)
    missing = f"cannot connect to {lab.address_of('h3')} port {PORT}"
    assert_one_line(done, missing, "Connection refused")
    # sessions were opened with the others, and nothing was measured
    assert not done.folder.exists()


def test_a_responder_with_another_secret_is_named_in_a_line(make_lab, tmp_path, secret):
    lab = make_lab(hosts=4)
    other = write_secret(tmp_path / "other", b"2" * 32)
    secrets = {"h1": secret, "h2": other, "h3": secret}
    with echoes(lab, secrets) as served:
        done = measure(lab, secret, tmp_path / "run", *QUICK)
    named = f"the responder {lab.address_of('h2')} port {PORT} refused"
    assert_one_line(done, named, "the secret is another one")
    assert served["h2"]["refused_secret"] == 1


@pytest.mark.thorough
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_responder_that_dies_is_named_and_all_before_is_kept(
    make_lab, tmp_path, secret, protocol
):
    lab, out = make_lab(hosts=4), tmp_path / "run"
    words = words_of(lab, secret, out, *LONG, "--protocol", protocol)
    bind = ("--bind", lab.address_of("h2"), "--secret-file", secret)
    with (
        echoes(lab, {"h1": secret, "h3": secret}) as served,
        started_echo(*bind, within=at(lab, "h2")) as (dying, _),
    ):
        latprof = Latprof(*words, before=at(lab, SENDER))
        latprof.wait_for_rows(out / "round_trips.csv", 20)
        dying.kill()
        status = latprof.finish()
    done = Measured(lab, out, status, latprof.out, latprof.err)
    assert_one_line(done, f"{lab.address_of('h2')} port {PORT}")
    trips = done.table("round_trips")
    messages = trips[trips["heartbeat"] == 0]
    assert sum(cell["sent"] for cell in done.cells) == len(messages) > 20
    answered = messages[messages["lost"] == 0].groupby("destination").size()
    for host, one in served.items():
        beats = trips[(trips["destination"] == place(lab, host)) & (trips["lost"] == 0)]
        # what was on its way when the run ended has no row
        assert answered[place(lab, host)] <= len(beats) <= one["messages"]
    assert latprof.left() == []


@pytest.mark.thorough
def test_a_responder_that_hangs_is_given_up_and_named(make_lab, tmp_path, secret):
    lab, out = make_lab(hosts=4), tmp_path / "run"
    words = words_of(lab, secret, out, *LONG, "--timeout=2s")
    bind = ("--bind", lab.address_of("h2"), "--secret-file", secret)
    with (
        echoes(lab, {"h1": secret, "h3": secret}),
        started_echo(*bind, within=at(lab, "h2")) as (hanging, _),
    ):
        latprof = Latprof(*words, before=at(lab, SENDER))
        latprof.wait_for_rows(out / "round_trips.csv", 20)
        os.kill(child_of(hanging), signal.SIGSTOP)
        status = latprof.finish()
    done = Measured(lab, out, status, latprof.out, latprof.err)
    assert_one_line(done, f"{lab.address_of('h2')} port {PORT}", "timed out")
    assert sum(cell["sent"] for cell in done.cells) > 20


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--hosts=4",), "--hosts: is of this host's lab, not with --to"),
        (("--rate=1mbit",), "--rate: is of this host's lab, not with --to"),
        (("--sizes=17",), "18 to 10000000 bytes, got 17"),
        (("--messages=1000000",), "--messages must be at most 666666 with 4 hosts"),
        (("--duration=5",), "--duration=5; it is of `latprof run`"),
        (("--to=10.9.9.1,10.9.9.1",), "are the same responder"),
        (("--to=" + ",".join(["10.9.9.1"] * 32),), "--to must be at most 31 hosts"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_made(words, text, tmp_path):
    to = "--to=10.9.9.1,10.9.9.2,10.9.9.3"
    latprof = run("run", "mesh", to, *words, cwd=tmp_path)
    assert latprof.process.returncode == 2
    (line,) = latprof.err.splitlines()
    assert line.startswith("latprof: ") and text in line
    assert list(tmp_path.iterdir()) == []


def test_a_ping_pong_with_several_hosts_says_what_does_it(tmp_path):
    latprof = run("run", "--to=10.9.9.1,10.9.9.2", cwd=tmp_path)
    assert latprof.process.returncode == 2
    assert "--sweep to=HOST,HOST" in latprof.err


def test_a_sweep_measures_one_host_after_the_other(make_lab, tmp_path, secret):
    lab = make_lab(hosts=4)
    to = ",".join(lab.address_of(host) for host in OTHERS)
    words = ("run", "--sweep", f"to={to}", "--secret-file", str(secret), "--quiet")
    words = (*words, "--rounds=20", "--sizes=64", "--protocol=tcp", "--warmup=1")
    with echoes(lab, dict.fromkeys(OTHERS, secret)) as served:
        done = run(*words, "--out", str(tmp_path / "all"), before=at(lab, SENDER))
    assert done.process.returncode == 0, done.err
    assert {one["messages"] for one in served.values()} == {21}
    for host in OTHERS:
        assert f"{lab.address_of(host)}" in done.out
