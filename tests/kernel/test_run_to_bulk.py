"""`latprof run bulk --to`: what is told of a transfer to another host.

Held against what the kernel of each end counts, `tc -s`, a program that drops chosen
packets, and the arithmetic of a shaper. The other host is a namespace of its own: the
run knows of it what the responder says, and nothing else.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from bulk_oracles import RATE_BPS, SIZE, shaped_lab, udp_counters
from dropper import attach_dropper, run_tc
from elsewhere import at, echo, started_echo, write_secret
from latprof_agent import netns
from latprof_process import Latprof, kill, run
from recording import wait_until
from shaper import datagram_packets, tc_count

BULK = ("run", "bulk", "--json", "--quiet")
SOCKET, BETWEEN = "receive buffer", "between the hosts"
SMALL, LARGE = "8192", "64000000"
CHANNELS, VOLUME = (1, 4), 20_000_000
DROPPED = [*range(1000, 1010), 2000]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "run"


def transfer(lab, out, *words, responder=()):
    """Do a run from a to `latprof echo` at b; its summary and the responder's."""
    # four channels of a large buffer are more than a stranger has by default
    words_there = ("--bind", lab.b_address, "--max-host-memory", "1GiB", *responder)
    with echo(*words_there, within=at(lab, "b")) as (port, done):
        host = f"[{lab.b_address}]" if lab.spec.ipv6 else lab.b_address
        to = f"--to={host}:{port}"
        latprof = run(*BULK, to, *words, f"--out={out}", before=at(lab, "a"))
    assert latprof.process.returncode == 0, latprof.err
    return json.loads(latprof.out), done


def parts_of(summary):
    return summary["bulk"]["parts"]


def died(parts):
    """Packets by place, of all parts."""
    found = {}
    for part in parts:
        for place in part["balance"]["places"]:
            name = place["place"]
            found[name] = found.get(name, 0) + place["packets"]
    return {name: packets for name, packets in found.items() if packets}


def check_sums(parts):
    """All that did not come died somewhere; what is not known is told so."""
    for part in parts:
        balance = part["balance"]
        at_places = sum(place["packets"] for place in balance["places"])
        lost = balance["sent"] - balance["received"]
        assert lost == at_places - balance["session_packets"]
        assert balance["places"][-1]["place"] == BETWEEN
        assert balance["unexplained"] is None


def grown(lab, end, before):
    return {
        name: count - before[end][name]
        for name, count in udp_counters(lab, end).items()
    }


@pytest.mark.parametrize("direction", ["up", "down", "both"])
@pytest.mark.parametrize("buffer", [SMALL, LARGE], ids=["small", "large"])
def test_both_kernels_count_the_same_and_what_a_socket_dropped_is_not_the_ways(
    make_lab, out, buffer, direction
):
    lab = make_lab()
    before = {end: udp_counters(lab, end) for end in "ab"}
    summary, served = transfer(
        lab,
        out,
        *("--protocol=udp", "--channels=1,4", f"--volume={VOLUME}"),
        *(f"--receive-buffer={buffer}", f"--direction={direction}"),
    )
    senders, receivers = {"up": "ab", "down": "ba", "both": ("ab", "ab")}[direction]
    counted = {end: grown(lab, end, before) for end in "ab"}

    def total(name, ends):
        return sum(counted[end][name] for end in ends)

    parts = parts_of(summary)
    check_sums(parts)
    sent, received = (
        sum(part["balance"][name] for part in parts) for name in ("sent", "received")
    )
    assert sent == len(parts) * len(senders) * -(-VOLUME // SIZE)
    # each session over udp begins with a datagram each way, or more where it is slow
    opened = served["sessions"]
    assert opened == sum(CHANNELS)
    for found, name, ends in (
        (sent, "OutDatagrams", senders),
        (received, "InDatagrams", receivers),
    ):
        assert 1 <= (total(name, ends) - found) / (opened * len(ends)) <= 2
    assert died(parts).get(SOCKET, 0) == total("RcvbufErrors", receivers)
    assert set(died(parts)) <= {SOCKET}
    if buffer == SMALL:
        assert died(parts)[SOCKET] > 0


def test_what_a_program_of_this_host_drops_is_told_at_it(make_lab, out, tmp_path):
    lab = make_lab()
    attach_dropper(lab, "a", "egress", tmp_path, DROPPED)
    words = ("--protocol=udp", "--channels=1", "--volume=10m", "--offer=100mbit")
    summary, _ = transfer(lab, out, *words, f"--receive-buffer={LARGE}")
    qdiscs = json.loads(run_tc(lab, "a", "-s", "-j", "qdisc", "show"))
    (hook,) = (one for one in qdiscs if one["kind"] == "clsact")
    (part,) = parts = parts_of(summary)
    check_sums(parts)
    assert part["balance"]["sent"] - part["balance"]["received"] == len(DROPPED)
    assert set(died(parts)) == {"tc program of veth0"}
    # before and after the run, too, it drops what the kernel sends unasked
    assert len(DROPPED) <= died(parts)["tc program of veth0"] <= hook["drops"]


@pytest.mark.parametrize("direction", ["up", "down"])
def test_what_dies_beyond_this_host_is_lost_between_the_hosts(
    make_lab, out, tmp_path, direction
):
    lab = make_lab()
    hook = "ingress" if direction == "up" else "egress"
    attach_dropper(lab, "b", hook, tmp_path, DROPPED)
    summary, _ = transfer(
        lab,
        out,
        *("--protocol=udp", "--channels=1", "--volume=10m", "--offer=100mbit"),
        *(f"--receive-buffer={LARGE}", f"--direction={direction}"),
    )
    check_sums(parts_of(summary))
    assert died(parts_of(summary)) == {BETWEEN: len(DROPPED)}
    shown = run("analyze", str(out))
    assert shown.process.returncode == 0, shown.err
    lines = " ".join(shown.out.split())
    assert f"lost between the hosts: {len(DROPPED)} datagrams (from veth0" in lines
    assert f"with the host {lab.b_address}" in lines
    again = run("analyze", "--json", str(out))
    assert json.loads(again.out)["bulk"] == summary["bulk"]


def test_what_a_link_loses_was_lost_between_the_hosts(make_lab, out):
    lab = make_lab(rate_bps=RATE_BPS, loss=0.01, emulator="always", seed=7)

    def lost():
        return lab.counters()["emulator"]["ab"]["dropped_loss"]

    before = lost()
    words = ("--protocol=udp", "--channels=1", "--volume=5m", "--offer=50mbit")
    summary, _ = transfer(lab, out, *words, f"--receive-buffer={LARGE}")
    parts = parts_of(summary)
    check_sums(parts)
    assert set(died(parts)) == {BETWEEN}
    # some of what it lost may be of the session's own connection
    assert 0 <= lost() - before - died(parts)[BETWEEN] <= 3


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_that_nothing_was_lost_between_the_hosts_is_said(make_lab, out, ipv6):
    lab = make_lab(ipv6=ipv6)
    words = ("--protocol=udp", "--channels=1", "--volume=1m", "--offer=20mbit")
    summary, _ = transfer(lab, out, *words, f"--receive-buffer={LARGE}")
    assert died(parts_of(summary)) == {}
    shown = run("analyze", str(out))
    assert "lost between the hosts: 0 datagrams" in " ".join(shown.out.split())


def test_a_link_local_address_is_reached_by_its_interface(make_lab, out):
    lab = make_lab(ipv6=True)
    words = ("ip", "-6", "-j", "address", "show", "dev", lab.interface)
    asked = lab.start("b", words, stdout=subprocess.PIPE, text=True)
    told = json.loads(asked.communicate()[0])
    (address,) = (one for one in told[0]["addr_info"] if one["scope"] == "link")
    with echo("--bind", "::", within=at(lab, "b")) as (port, served):
        to = f"--to=[{address['local']}%{lab.interface}]:{port}"
        words = ("--channels=1", "--volume=1m", f"--out={out}")
        latprof = run(*BULK, to, *words, before=at(lab, "a"))
    assert latprof.process.returncode == 0, latprof.err
    assert served["sessions"] == 2
    assert json.loads((out / "run.json").read_text())["workload"]["bulk"]["device"] == (
        lab.interface
    )


def test_what_a_full_qdisc_of_this_host_drops_is_tcs_to_the_packet(make_lab, out):
    # Its queue is shorter than the send buffer, so nothing holds the sender back.
    lab = make_lab(
        qdisc="tbf", rate_bps=RATE_BPS, burst_bytes=20_000, queue_bytes=30_000
    )
    before = tc_count(lab, "a")
    words = ("--protocol=udp", "--channels=1,4", "--volume=10m")
    summary, _ = transfer(lab, out, *words, f"--receive-buffer={LARGE}")
    counted = tc_count(lab, "a").drops - before.drops
    assert counted > 0
    check_sums(parts_of(summary))
    assert died(parts_of(summary)) == {"qdisc tbf of veth0": counted}


@pytest.mark.timed
def test_the_highest_rate_without_loss_is_that_of_the_shaper(make_lab, out):
    lab = shaped_lab(make_lab)
    summary, _ = transfer(lab, out, "--find-rate=0.1%", "--channels=1")
    (packet_bytes,) = datagram_packets(SIZE, 1500, False)
    (search,) = summary["bulk"]["searches"]
    assert search["rate_bps"] == pytest.approx(RATE_BPS * SIZE / packet_bytes, rel=0.02)


def tcp_resent(lab):
    def read():
        lines = Path("/proc/thread-self/net/snmp").read_text().splitlines()
        names, values = (line.split()[1:] for line in lines if line.startswith("Tcp:"))
        return int(values[names.index("RetransSegs")])

    return netns.run_in(lab.netns_of("a"), read)


def test_over_tcp_both_ends_tell_their_throughput_and_what_was_sent_again(
    make_lab, out, tmp_path
):
    lab = shaped_lab(make_lab)
    attach_dropper(lab, "b", "ingress", tmp_path, [100, 500, 501])
    before = tcp_resent(lab)
    words = ("--protocol=tcp", "--channels=2", "--volume=10m", "--congestion=reno")
    summary, served = transfer(lab, out, *words)
    (part,) = parts_of(summary)
    up = part["directions"]["up"]
    assert part["balance"] is None
    assert up["sent_bytes"] >= 10_000_000
    assert up["retransmits"] == tcp_resent(lab) - before > 0
    assert served["bytes"] == up["sent_bytes"]
    for end in ("client", "server"):
        assert up[end]["average_bps"] > 0
    assert up["server"]["average_bps"] <= RATE_BPS


def test_a_recorded_run_has_this_hosts_half_of_each_datagram(make_lab, out):
    lab = make_lab()
    words = ("--protocol=udp", "--channels=1", "--volume=2m", "--offer=20mbit")
    summary, _ = transfer(lab, out, *words, "--probes")
    (part,) = parts_of(summary)
    kinds = summary["kinds"].values()
    # and the one that opens the session, each way
    assert sum(one["messages"] for one in kinds) == part["balance"]["sent"] + 2
    assert sum(one["complete"] for one in kinds) == 0
    assert any("is on the host" in text for text in summary["warnings"])


def test_a_secret_is_proven_on_each_channel(make_lab, out, tmp_path):
    lab = make_lab()
    secret = write_secret(tmp_path / "secret", b"0123456789abcdef")
    words = ("--protocol=udp", "--channels=4", "--volume=1m", "--secret-file", secret)
    summary, served = transfer(
        lab, out, *map(str, words), responder=("--secret-file", secret)
    )
    assert (served["sessions"], served["secret"]) == (4, True)
    check_sums(parts_of(summary))
    told = (out / "run.json").read_text()
    assert '"secret": true' in told
    assert str(secret) not in json.dumps(json.loads(told)["workload"])


def refused(lab, out, *words):
    latprof = run(*BULK, *words, f"--out={out}", before=at(lab, "a"))
    (line,) = latprof.err.splitlines()
    assert line.startswith("latprof: ")
    return latprof.process.returncode, line


def test_what_does_not_answer_or_answers_something_else_is_one_line(make_lab, tmp_path):
    lab = make_lab()
    words = ("--channels=1", "--volume=1m")
    status, line = refused(lab, tmp_path / "a", f"--to={lab.b_address}:9", *words)
    assert (status, "Connection refused" in line) == (1, True)
    status, line = refused(lab, tmp_path / "b", "--to=192.0.2.1", *words)
    assert (status, "no way to 192.0.2.1" in line) == (1, True)
    there = ("--bind", lab.b_address, "--workloads", "pingpong")
    with echo(*there, within=at(lab, "b")) as (port, served):
        to = f"--to={lab.b_address}:{port}"
        status, line = refused(lab, tmp_path / "c", to, *words)
    assert (status, "does not serve this workload" in line) == (1, True)
    assert served["refused_workload"] == 1
    assert not any((tmp_path / name).exists() for name in "abc")


def test_a_wrong_secret_or_none_is_one_line(make_lab, tmp_path):
    lab = make_lab()
    one, other = (
        write_secret(tmp_path / name, name.encode() * 8) for name in ("one", "other")
    )
    there = ("--bind", lab.b_address, "--secret-file", one)
    with echo(*there, within=at(lab, "b")) as (port, served):
        to = (f"--to={lab.b_address}:{port}", "--channels=1", "--volume=1m")
        wrong = refused(lab, tmp_path / "a", *to, f"--secret-file={other}")
        none = refused(lab, tmp_path / "b", *to)
    for (status, line), said in ((wrong, "is another one"), (none, "wants a secret")):
        assert status == 1
        assert said in line
    # without one the client does not even try
    assert (served["refused_secret"], served["sessions"]) == (1, 0)


def test_a_datagram_that_no_packet_holds_is_wrong_usage(make_lab, out):
    lab = make_lab()
    status, line = refused(lab, out, f"--to={lab.b_address}", "--datagram=1473")
    assert (status, "must be at most 1472 bytes, what a packet of veth0" in line) == (
        2,
        True,
    )
    assert not out.exists()


def test_a_responder_that_dies_is_one_line_and_the_senders_count_is_kept(make_lab, out):
    lab = make_lab()
    there = ("--bind", lab.b_address)
    with started_echo(*there, within=at(lab, "b")) as (process, port):
        words = ("--protocol=udp", "--channels=2", "--duration=60s", f"--out={out}")
        to = f"--to={lab.b_address}:{port}"
        latprof = Latprof(*BULK, to, *words, before=at(lab, "a"))
        wait_until(
            lambda: udp_counters(lab, "b")["InDatagrams"] > 1000, "datagrams come"
        )
        (responder,) = (
            Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        )
        kill(int(responder), signal.SIGKILL)
        assert latprof.finish() == 1
    (line,) = latprof.err.splitlines()
    assert line.startswith("latprof: ")
    (part,) = parts_of(json.loads(latprof.out))
    up = part["directions"]["up"]
    assert up["sent"] > 1000
    assert (part["balance"], up["received"]) == (None, None)
    assert (out / "bulk.csv").exists()
