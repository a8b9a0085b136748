"""How long a message takes on idle links, against packets that are sent one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_analysis.study.setup import known_transit_ns

RATE_BPS = 100_000_000
DELAY_NS = 2_000_000
KNOWN = {"kind": "emulator", "rate_bps": RATE_BPS, "delay_ns": DELAY_NS}
KNOWN |= {"mtu_bytes": 1500, "link_header_bytes": 0, "rate_is_token_bucket": False}


def lab(**known: object) -> dict:
    return {"known": KNOWN | known, "addresses": {"h0": "10.0.0.1"}}


def packets_of(protocol: str, size: int) -> list[int]:
    """Bytes of each packet of a message, its headers with it."""
    left, header = (size, 52) if protocol == "tcp" else (size + 8, 20)
    found = []
    while left:
        carried = min(left, 1500 - header)
        found.append(header + carried)
        left -= carried
    return found


def crossed_ns(packets: list[int], links: int) -> float:
    """When the last has come out of the last link, each packet after the other.

    A link sends a packet when it has all of it, and has sent the one before.
    """
    free_ns = [0.0] * links
    came_ns = 0.0
    for packet in packets:
        came_ns = 0.0
        for link in range(links):
            begin_ns = max(came_ns, free_ns[link])
            came_ns = free_ns[link] = begin_ns + packet * 8e9 / RATE_BPS
    return came_ns


@given(st.sampled_from(["tcp", "udp"]), st.integers(18, 65_507), st.integers(1, 4))
def test_it_is_that_of_packets_each_of_which_every_link_forwards_whole(
    protocol, size, links
):
    many = {"links": links} if links > 1 else {}
    truth_ns = DELAY_NS + crossed_ns(packets_of(protocol, size), links)
    assert known_transit_ns(protocol, size, lab(**many)) == pytest.approx(truth_ns)


@pytest.mark.parametrize("links", [1, 2])
def test_what_token_buckets_let_pass_takes_the_delay_alone(links):
    known = lab(rate_is_token_bucket=True, links=links)
    assert known_transit_ns("udp", 1000, known) == DELAY_NS


def test_of_what_a_shaper_alone_makes_nothing_is_known():
    assert known_transit_ns("udp", 1000, lab(kind="veth", links=2)) is None
