"""Bytes on the wire, against packets counted one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_analysis.fit.wire import Packets


@given(st.integers(1, 100_000), st.integers(576, 9000), st.sampled_from([4, 6]))
def test_tcp_segments_are_at_most_the_mtu_and_each_has_headers(size, mtu, version):
    header = {4: 20, 6: 40}[version] + 20 + 12
    packets, left = [], size
    while left:
        carried = min(left, mtu - header)
        packets.append(header + carried)
        left -= carried
    assert max(packets) <= mtu
    assert Packets.tcp(mtu, version).wire_bytes(size) == sum(packets)


@given(st.integers(1, 65_507), st.integers(72, 180).map(lambda n: 8 * n + 20))
def test_udp_fragments_carry_one_udp_header_and_an_ip_header_each(size, mtu):
    packets, left = [], size + 8
    while left:
        carried = min(left, mtu - 20)  # the MTUs here leave a multiple of 8
        packets.append(20 + carried)
        left -= carried
    assert max(packets) <= mtu
    assert Packets.udp(mtu).wire_bytes(size) == sum(packets)


def test_the_share_of_payload_is_that_of_full_packets():
    # Goodput at MTU 1500 with an Ethernet header counted: 1448 of 1514 bytes.
    ethernet = Packets(mss_bytes=1448, overhead_bytes=52 + 14)
    assert ethernet.payload_share == 1448 / 1514
    assert Packets().payload_share == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Packets(mss_bytes=0), "mss_bytes must be 1 or more, got 0"),
        (lambda: Packets(overhead_bytes=-1), "overhead_bytes must be 0 or more"),
        (lambda: Packets(message_bytes=-2), "message_bytes must be 0 or more, got -2"),
        (lambda: Packets.tcp(52), "mtu_bytes must be more than the headers' 52"),
        (lambda: Packets.udp(ip_version=5), "ip_version must be 4 or 6, got 5"),
    ],
)
def test_what_cannot_be_a_packet_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
