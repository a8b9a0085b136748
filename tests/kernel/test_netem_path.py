"""A path through a third namespace, as netem's: messages count once on it."""

import socket

import pytest
from latprof_agent import netns
from latprof_agent.lab import qdisc
from recording import recording, tcp_pair, udp_pair

MESSAGE_BYTES = 30_000  # fits into a send buffer: one call
DATAGRAM_BYTES = 20_000


@pytest.fixture
def make_path(make_lab, monkeypatch):
    """A lab whose path neither delays nor loses, so that no netem is needed."""
    monkeypatch.setattr(qdisc, "kernel_has", lambda _kind: True)
    monkeypatch.setattr(qdisc, "shape_path", lambda *_: None)
    return lambda **options: make_lab(emulator="never", delay_ns=1000, **options)


def read_bytes(sock: socket.socket, count: int) -> None:
    while count:
        count -= len(sock.recv(count))


LINKS = [{}, {"ipv6": True, "mtu": 9000}, {"mtu": 1000, "offloads": False}]


@pytest.mark.parametrize("options", LINKS)
def test_each_message_is_one_row_with_the_packets_it_took(make_path, tmp_path, options):
    lab = make_path(**options)
    assert lab.link_kind == "netem"
    assert not lab.counters()["netem"]["ab"]["interface"]["tx_dropped"]
    with recording(lab, tmp_path) as recorded:
        client, server = tcp_pair(lab)
        sender, reader = udp_pair(lab)
        with client, server, sender, reader:
            before = lab.counters()["a"]["interface"]["tx_packets"]
            sender.send(bytes(DATAGRAM_BYTES))
            assert len(reader.recv(65536)) == DATAGRAM_BYTES
            took = lab.counters()["a"]["interface"]["tx_packets"] - before
            client.sendall(bytes(MESSAGE_BYTES))
            read_bytes(server, MESSAGE_BYTES)
    rows = recorded.messages().set_index("protocol")
    assert list(rows["size_bytes"].sort_values()) == [DATAGRAM_BYTES, MESSAGE_BYTES]
    assert rows["end_to_end_ns"].notna().all()
    # fragments of IP carry multiples of 8 bytes; the interface also counts what
    # the kernel itself may send meanwhile
    fragment = (lab.spec.mtu - (48 if lab.spec.ipv6 else 20)) // 8 * 8
    assert rows.loc["udp", "packets"] == -(-(DATAGRAM_BYTES + 8) // fragment)
    assert rows.loc["udp", "packets"] <= took
    segment = lab.spec.mtu - (72 if lab.spec.ipv6 else 52)
    assert rows.loc["tcp", "packets"] == -(-MESSAGE_BYTES // segment)


def test_the_rate_is_held_at_the_end_where_a_qdisc_is_asked_for(make_path):
    lab = make_path(rate_bps=10**8, qdisc="tbf")
    counters = lab.counters()
    assert [q["kind"] for q in counters["a"]["qdiscs"]] == ["tbf"]
    assert "tbf" not in [q["kind"] for q in counters["netem"]["ab"]["qdiscs"]]


def test_nothing_of_it_is_left(make_path):
    lab = make_path()
    own = f"latprof-{lab.id}-*"
    assert len(list(netns.NETNS_DIRECTORY.glob(own))) == 3
    lab.close()
    assert not list(netns.NETNS_DIRECTORY.glob(own))
