"""Sockets that are not watched leave no rows."""

from __future__ import annotations

import pytest
from latprof_agent.probes.filter import Filter
from recording import recording, tcp_pair, udp_pair


def exchange(client, server, size):
    """Ten messages there and back."""
    for _ in range(10):
        client.send(bytes(size))
        assert len(server.recv(size)) == size
        server.send(bytes(size))
        assert len(client.recv(size)) == size


@pytest.fixture(params=[tcp_pair, udp_pair], ids=["tcp", "udp"])
def connect(request):
    """What connects a pair of sockets in a lab."""
    return request.param


def test_another_namespace_leaves_no_rows(make_lab, tmp_path, connect):
    lab, other = make_lab(), make_lab()
    watched, unwatched = connect(lab), connect(other)
    with recording(lab, tmp_path) as recorded:
        exchange(*unwatched, 100)
        exchange(*watched, 200)
        exchange(*unwatched, 100)
    for sock in (*watched, *unwatched):
        sock.close()
    assert recorded.lost() == {}
    assert recorded.messages()["size_bytes"].tolist() == [200] * 20
    assert recorded.recorder.joiner.unmatched == {}


def test_other_ports_leave_no_rows(make_lab, tmp_path, connect):
    lab = make_lab()
    watched, unwatched = connect(lab), connect(lab)
    port = watched[1].getsockname()[1]
    only = Filter(netns=(lab.a_inode, lab.b_inode), ports=(port,))
    with recording(only, tmp_path) as recorded:
        exchange(*unwatched, 100)
        exchange(*watched, 200)
        exchange(*unwatched, 100)
    for sock in (*watched, *unwatched):
        sock.close()
    rows = recorded.messages()
    assert recorded.lost() == {}
    assert rows["size_bytes"].tolist() == [200] * 20
    assert ((rows["source_port"] == port) | (rows["destination_port"] == port)).all()
    assert recorded.recorder.joiner.unmatched == {}


def test_another_protocol_leaves_no_rows(make_lab, tmp_path):
    lab = make_lab()
    stream, datagram = tcp_pair(lab), udp_pair(lab)
    with recording(lab, tmp_path, ("udp",)) as recorded:
        exchange(*stream, 100)
        exchange(*datagram, 200)
    for sock in (*stream, *datagram):
        sock.close()
    assert recorded.lost() == {}
    assert recorded.messages()["size_bytes"].tolist() == [200] * 20


def test_another_filter_holds_from_then_on_for_sockets_that_are_known(
    make_lab, tmp_path, connect
):
    lab = make_lab()
    first, second = connect(lab), connect(lab)
    ports = [pair[1].getsockname()[1] for pair in (first, second)]
    namespaces = (lab.a_inode, lab.b_inode)
    filters = [Filter(netns=namespaces, ports=(port,)) for port in ports]
    with recording(filters[0], tmp_path) as recorded:
        exchange(*first, 100)
        exchange(*second, 200)
        recorded.recorder.capture.watch(filters[1])
        exchange(*first, 300)
        exchange(*second, 400)
    for sock in (*first, *second):
        sock.close()
    assert recorded.lost() == {}
    rows = recorded.messages().sort_values("send_ns")
    assert rows["size_bytes"].tolist() == [100] * 20 + [400] * 20
    assert rows["end_to_end_ns"].notna().all()
