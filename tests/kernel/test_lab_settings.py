"""Labs: what is set inside, recorded, or refused in one line."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from latprof_agent import netns
from latprof_agent.errors import LabError, WorkloadError
from latprof_agent.lab import interface, qdisc
from latprof_agent.lab.lab import Lab, clean_dead_labs
from latprof_agent.lab.link import LinkSpec
from recording import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")

DEADLINE_S = 20
SO_SNDBUFFORCE = 32
ETHERNET_IPV4_UDP_BYTES = 14 + 20 + 8


@pytest.fixture
def registry(tmp_path):
    """Keep other runs' labs, and ours from them, apart."""
    yield tmp_path / "registry"
    clean_dead_labs(tmp_path / "registry")


@pytest.mark.parametrize("kind", ["pfifo", "netem"])
def test_a_qdisc_is_there_if_tc_can_add_it(kind):
    done = subprocess.run(
        ["unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", kind],
        check=False,
        capture_output=True,
    )
    assert qdisc.kernel_has(kind) == (done.returncode == 0)


def test_congestion_control_is_set_inside_and_recorded(registry):
    own = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    before = own.read_text()
    with Lab(LinkSpec(congestion="reno"), registry=registry) as lab:
        assert lab.settings["congestion_control"] == "reno"
        for name in (lab.a_netns, lab.b_netns):
            assert netns.run_in(name, own.read_text).strip() == "reno"
    assert own.read_text() == before
    with Lab(LinkSpec(), registry=registry) as lab:
        inside = netns.run_in(lab.a_netns, own.read_text).strip()
        assert lab.settings["congestion_control"] == inside


def test_an_absent_congestion_control_names_those_that_are_there(registry):
    with (
        pytest.raises(LabError, match=r"congestion control nope: .*reno"),
        Lab(LinkSpec(congestion="nope"), registry=registry),
    ):
        pass
    assert list(registry.glob("*.lab")) == []


def test_a_restricted_congestion_control_says_how_to_allow_it(registry):
    folder = Path("/proc/sys/net/ipv4")
    words = {
        which: (folder / f"tcp_{which}_congestion_control").read_text().split()
        for which in ("available", "allowed")
    }
    restricted = sorted(set(words["available"]) - set(words["allowed"]))
    if not restricted:
        pytest.skip("this kernel restricts none")
    name = restricted[0]
    remedy = f"allowed_congestion_control='{' '.join(words['allowed'])} {name}'"
    with (
        pytest.raises(LabError, match=f"{name}: the host restricts it.*{remedy}"),
        Lab(LinkSpec(congestion=name), registry=registry),
    ):
        pass


def test_the_emulator_stays_on_the_cpu_of_both_ends(registry):
    cpu = min(os.sched_getaffinity(0))
    with Lab(LinkSpec(delay_ns=10**6, emulator="always"), registry=registry) as lab:
        lab.place_emulator(cpu)
        assert lab.settings["emulator_cpu"] == cpu
        (process,) = lab.registration.content["processes"]
        assert os.sched_getaffinity(process["pid"]) == {cpu}


def tcp_packets(lab, total_bytes):
    """Packets that `a` hands to its device for one bulk transfer to `b`."""
    before = lab.counters()["a"]["interface"]["tx_packets"]
    listener = netns.run_in(
        lab.b_netns, lambda: socket.create_server((lab.b_address, 0))
    )
    sender = netns.run_in(lab.a_netns, socket.socket)
    with listener, sender:
        sender.connect(listener.getsockname())
        receiver, _ = listener.accept()
        with receiver:
            left = total_bytes
            while left:
                sender.sendall(bytes(min(left, 50_000)))
                got = min(left, 50_000)
                left -= got
                while got:
                    got -= len(receiver.recv(got))
    return lab.counters()["a"]["interface"]["tx_packets"] - before


def interfaces():
    """Of the namespace of this thread."""
    return {name for _, name in socket.if_nameindex()}


@pytest.mark.parametrize("step", ["bring_up", "set_offloads", "add_addresses"])
def test_an_emulator_that_dies_while_the_lab_is_built_is_blamed(
    registry, monkeypatch, step
):
    """And not the interface, which went away with it."""
    lab = Lab(LinkSpec(delay_ns=10**6, emulator="always"), registry=registry)
    real = getattr(interface, step)

    def too_late(*words):
        os.kill(lab._emulator.pid, signal.SIGKILL)
        wait_until(lambda: "tun0" not in interfaces(), "its end")
        return real(*words)

    monkeypatch.setattr(interface, step, too_late)
    with pytest.raises(LabError, match=r"emulator failed: .*signal 9 \(SIGKILL\)"), lab:
        pass
    assert list(registry.glob("*.lab")) == []


@pytest.mark.parametrize("kind", ["veth", "emulator"])
def test_offloads_are_off_and_recorded(registry, kind):
    always = "always" if kind == "emulator" else "auto"
    spec = LinkSpec(offloads=False, emulator=always)
    with Lab(spec, registry=registry) as lab:
        off = {"tso": False, "gso": False, "gro": False, "gso_max_segments": 1}
        assert lab.settings["a"]["offloads"] == off
        assert lab.settings["b"]["offloads"] == off
        assert tcp_packets(lab, 1_000_000) >= 1_000_000 // 1448


def test_offloads_are_the_kernels_unless_switched_off(registry):
    with Lab(LinkSpec(), registry=registry) as lab:
        assert lab.settings["a"]["offloads"]["tso"] is True
        assert tcp_packets(lab, 1_000_000) < 1_000_000 // 1448


def test_the_mtu_is_that_of_link_and_path(registry):
    def path_mtu(address):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((address, 9))
            return sock.getsockopt(socket.IPPROTO_IP, 14)  # IP_MTU

    for emulator in ("auto", "always"):
        spec = LinkSpec(mtu=4000, emulator=emulator)
        with Lab(spec, registry=registry) as lab:
            assert lab.known["mtu_bytes"] == 4000
            for name, other in (
                (lab.a_netns, lab.b_address),
                (lab.b_netns, lab.a_address),
            ):
                assert netns.run_in(name, lambda to=other: path_mtu(to)) == 4000


@pytest.mark.parametrize("kind", ["pfifo", "codel", "fq_codel"])
@pytest.mark.parametrize("shaper", ["tbf", "htb"])
def test_a_leaf_is_below_its_shaper_as_long_as_asked_for(registry, capfd, shaper, kind):
    """As tc says it, in packets; or this kernel has none, and one line says so."""
    packets = 50
    how = {"qdisc": shaper, "leaf": kind, "queue_bytes": packets * 1514}
    try:
        with Lab(LinkSpec(rate_bps=10**7, **how), registry=registry) as lab:
            words = ["ip", "netns", "exec", lab.b_netns, "tc", "-j", "qdisc"]
            done = subprocess.run(words, check=True, stdout=subprocess.PIPE)
            rows = json.loads(done.stdout)
            (leaf,) = [row for row in rows if row.get("parent") == "1:1"]
            assert (leaf["kind"], leaf["options"]["limit"]) == (kind, packets)
            told = lab.counters()["b"]["qdiscs"]
            assert [(q["kind"], q["parent"]) for q in told] == [
                (shaper, "root"),
                (kind, "1:1"),
            ]
    except LabError as error:
        assert not qdisc.kernel_has(kind)
        assert str(error).startswith(
            f"cannot set up qdisc {kind}: this kernel has no {kind}; choose another"
        )
    assert capfd.readouterr().err == ""  # nor a warning of pyroute2's


@pytest.mark.parametrize("kind", ["fq", "fq_codel"])
def test_an_absent_qdisc_is_one_clear_error_and_leaves_nothing(registry, kind):
    try:
        with Lab(LinkSpec(qdisc=kind), registry=registry) as lab:
            assert lab.counters()["a"]["qdiscs"][0]["kind"] == kind
    except LabError as error:
        assert f"cannot set up qdisc {kind}: this kernel has no {kind}" in str(error)
        assert "\n" not in str(error)
    assert list(registry.glob("*.lab")) == []


def test_delay_without_netem_and_emulator_is_one_clear_error(registry):
    spec = LinkSpec(delay_ns=1000, emulator="never")
    try:
        with Lab(spec, registry=registry) as lab:
            assert lab.link_kind == "netem"
    except LabError as error:
        assert "this kernel has no netem" in str(error)


def test_a_program_that_is_not_there_is_one_clear_error(registry):
    with (
        Lab(LinkSpec(), registry=registry) as lab,
        pytest.raises(WorkloadError, match="cannot run latprof-nothing: No such file"),
    ):
        lab.start("a", ["latprof-nothing"])


def test_an_emulator_that_cannot_start_is_one_clear_error(registry):
    spec = LinkSpec(emulator_options=("--no-such-option",))
    with (
        pytest.raises(LabError, match=r"link emulator: --no-such-option is not"),
        Lab(spec, registry=registry),
    ):
        pass
    assert list(registry.glob("*.lab")) == []
