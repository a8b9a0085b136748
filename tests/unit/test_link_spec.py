"""What a link may be, and what is known of it before anything is built."""

import pytest
from latprof_agent.errors import LabError, UsageError
from latprof_agent.lab.link import LinkSpec


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"mtu": 60}, "--mtu must be from 68 to 65535 bytes, got 60"),
        ({"mtu": 1000, "ipv6": True}, "--mtu must be at least 1280 bytes for IPv6"),
        ({"rate_bps": -1}, "--rate must be"),
        ({"qdisc": "tbf"}, "--qdisc tbf needs --rate"),
        ({"qdisc": "red"}, "--qdisc must be one of tbf, htb, pfifo, fq, fq_codel"),
        ({"qdisc": "fq", "rate_bps": 10**6}, "--qdisc fq excludes --rate"),
        ({"leaf": "pfifo"}, "--leaf needs a shaper above it: --qdisc tbf or htb"),
        ({"leaf": "pfifo", "qdisc": "pfifo"}, "--leaf needs a shaper above it"),
        (
            {"leaf": "red", "qdisc": "tbf", "rate_bps": 10**6},
            "--leaf must be one of pfifo, codel, fq_codel",
        ),
        ({"loss_burst": 2.0, "emulator": "never"}, "--emulator never excludes"),
        ({"burst_bytes": 1}, "--burst needs --rate"),
        ({"burst_bytes": 1, "rate_bps": 10**6}, "--burst must be from 1514"),
        ({"delay_ns": -1}, "--delay must be"),
        ({"loss": 1.0}, "--loss must be from 0 to below 1, got 1.0"),
        ({"loss": float("nan")}, "--loss must be from 0 to below 1, got nan"),
        ({"loss": 0.9, "loss_burst": 2}, "--loss-burst must be at least 9 packets"),
        ({"queue_bytes": 10}, "--queue must be"),
        ({"congestion": "../x"}, "--congestion must be"),
        ({"emulator": "maybe"}, "--emulator must be one of auto, always, never"),
    ],
)
def test_a_link_that_cannot_be_is_wrong_usage(wrong, said):
    with pytest.raises(UsageError) as caught:
        LinkSpec(**wrong)
    assert str(caught.value).startswith(said)


def test_known_counts_link_headers_on_veth_and_none_in_the_emulator():
    spec = LinkSpec(rate_bps=100_000_000, delay_ns=1_000_000)
    veth, emulated = spec.known("veth"), spec.known("emulator")
    assert veth["tcp_goodput_bps"] == 100_000_000 * 1448 // 1514
    assert veth["udp_goodput_bps"] == 100_000_000 * 1480 // 1514
    assert emulated["tcp_goodput_bps"] == 100_000_000 * 1448 // 1500
    assert emulated["delay_ns"] == 1_000_000
    assert veth["rate_is_token_bucket"] and not emulated["rate_is_token_bucket"]


def test_between_more_than_two_hosts_two_links_are_known_and_one_delay():
    spec = LinkSpec(rate_bps=100_000_000, delay_ns=1_000_000)
    two, many = spec.known("emulator"), spec.known("emulator", hosts=3)
    assert many == {**two, "hosts": 3, "links": 2}


@pytest.mark.parametrize(
    ("spec", "without_netem", "with_netem"),
    [
        (LinkSpec(), "veth", "veth"),
        (LinkSpec(rate_bps=10**6), "veth", "veth"),
        (LinkSpec(delay_ns=1000), "emulator", "netem"),
        (LinkSpec(loss=0.1), "emulator", "netem"),
        (LinkSpec(delay_ns=1000, rate_bps=10**6), "emulator", "emulator"),
        (LinkSpec(delay_ns=1000, rate_bps=10**6, qdisc="htb"), "emulator", "netem"),
        (LinkSpec(delay_ns=1000, qdisc="fq"), "emulator", "netem"),
        (LinkSpec(loss=0.1, loss_burst=3), "emulator", "emulator"),
        (LinkSpec(emulator_options=("--drop-a=1",)), "emulator", "emulator"),
        (LinkSpec(delay_ns=1000, emulator="always"), "emulator", "emulator"),
    ],
)
def test_the_emulator_stands_in_for_what_the_kernel_lacks(
    spec, without_netem, with_netem
):
    assert spec.kind(kernel_has_netem=False) == without_netem
    assert spec.kind(kernel_has_netem=True) == with_netem


def test_without_netem_and_emulator_there_is_no_delay():
    spec = LinkSpec(delay_ns=1000, emulator="never")
    assert spec.kind(kernel_has_netem=True) == "netem"
    with pytest.raises(LabError, match="this kernel has no netem"):
        spec.kind(kernel_has_netem=False)
