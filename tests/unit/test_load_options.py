"""`latprof run --load` and `--leaf`: what is refused, and what they ask for."""

from __future__ import annotations

import pytest
from latprof_agent import cli
from latprof_agent.errors import UsageError
from latprof_agent.lab.link import LinkSpec
from latprof_agent.workload.load_plan import Load
from latprof_analysis.cli.program import parsed
from refusals import refused


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--load", "tcp"], "--load must be like tcp:4, tcp:4:down or udp:1:both:50"),
        (["--load", "sctp:1"], "got 'sctp:1'"),
        (["--load", "tcp:0"], "1 to 64 flows each"),
        (["--load", "tcp:65"], "1 to 64 flows each"),
        (
            ["--load", "tcp:64,udp:64:1mbit,tcp:1"],
            "must be at most 128 flows together, got 129",
        ),
        (["--load", "tcp:4:sideways"], "got 'tcp:4:sideways'"),
        (["--load", "tcp:4:up:1mbit"], "a rate for udp only"),
        (["--load", "udp:1:up:fast"], "must be a rate like 64kbit"),
        (["--load", "udp:1:up:1mbit:up"], "got 'udp:1:up:1mbit:up'"),
        (["--load", "tcp:1,"], "got 'tcp:1,'"),
        (["--load", "tcp:1", "--train", "4"], "--load: not with --train"),
        (["--load", "udp:1", "--rate", "0"], "a link without a rate tells none for"),
        (["ops", "--load", "tcp:1"], "--load tcp:1; it is of `latprof run`"),
        (["--load", "tcp:1", "--", "true"], "it is of `latprof run`"),
        (["--leaf", "pfifo"], "--leaf needs a shaper above it: --qdisc tbf or htb"),
        (["--leaf", "red"], "--leaf"),
        (["--leaf", "pfifo", "--qdisc", "fq"], "--leaf needs a shaper above it"),
        (["--leaf", "pfifo", "--no-lab", "--", "true"], "--leaf: needs the lab"),
        (
            ["--protocol", "udp", "--load", "udp:1", "--congestion", "reno"],
            "--congestion: is for tcp",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(capsys, words, text):
    line = refused(capsys, "run", *words)
    assert line.startswith("latprof: ")
    assert text in line


@pytest.mark.parametrize(
    ("text", "loads"),
    [
        ("tcp:4", [("tcp", 4, "up", 0)]),
        ("udp:1:50mbit", [("udp", 1, "up", 50_000_000)]),
        (
            "tcp:4:both, udp:2:down:1mbit",
            [("tcp", 4, "both", 0), ("udp", 2, "down", 1_000_000)],
        ),
    ],
)
def test_each_part_is_a_protocol_flows_a_direction_and_a_rate(text, loads):
    assert list(parsed(cli.SUBCOMMANDS, "", ["run", "--load", text]).load) == loads


def test_udp_has_the_rate_of_the_link_unless_given_another():
    link = LinkSpec(rate_bps=10**7)
    assert Load("udp", 1).at_rate_of(link).rate_bps == 10**7
    assert Load("udp", 1, "up", 5).at_rate_of(link).rate_bps == 5
    assert Load("tcp", 1).at_rate_of(link).rate_bps == 0
    with pytest.raises(UsageError, match="udp:1:down: a link without a rate"):
        Load("udp", 1, "down").at_rate_of(LinkSpec())
