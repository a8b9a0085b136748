"""The options of `latprof run bulk`: what is refused, and what they ask."""

from __future__ import annotations

from pathlib import Path

import pytest
from latprof_agent import cli
from latprof_agent.cli import bulk_options
from latprof_analysis.cli.program import parsed
from refusals import refused

BULK = ("run", "bulk")
OF_UDP = {
    "--datagram": "1000",
    "--receive-buffer": "1m",
    "--send-way": "send",
    "--receive-way": "recv",
}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--channels", "0"], "--channels must be from 1 to 64, got '0'"),
        (["--channels", "65"], "--channels must be from 1 to 64, got '65'"),
        (["--channels", "2,2"], "must be different values"),
        (["--datagram", "23"], "--datagram must be from 24 to 65507, got '23'"),
        (["--datagram", "1473"], "--datagram must be at most 1472 bytes, what a pack"),
        (["--datagram", "1453", "--ipv6"], "--datagram must be at most 1452 bytes"),
        (["--volume", "0"], "--volume must be from 1 to 1000000g, got '0'"),
        (["--volume", "1g", "--duration", "1s"], "--volume: not with --duration"),
        (["--offer", "fast"], "--offer must be max or a rate like 64kbit"),
        (["--offer", "10"], "--offer must be max or from 1kbit to 1000gbit"),
        (["--direction", "left"], "--direction"),
        (["--receive-buffer", "1023"], "--receive-buffer must be from 1024 to 256M"),
        (["--receive-buffer", "257MiB"], "--receive-buffer must be from 1024 to 256M"),
        (["--send-way", "pigeon"], "--send-way"),
        (["--find-rate", "51%"], "--find-rate must be from 0% to 50%, got '51%'"),
        (["--find-rate", "5"], "--find-rate must be a share like 1% or 0.01"),
        (["--find-rate", "1%", "--protocol", "tcp"], "--find-rate: is of udp, not of"),
        (["--find-rate", "1%", "--volume", "1m"], "--volume: not with --find-rate"),
        (["--find-rate", "1%", "--offer", "1mbit"], "--offer: not with --find-rate"),
        (["--find-rate", "1%", "--direction", "both"], "--direction both: not with"),
        (["--trial", "2s"], "--trial: needs --find-rate"),
        (  # none may be lost, which is a rate, too
            ["--find-rate", "0%", "--trial", "5s", "--duration", "4s"],
            "--duration must be at least --trial (5s)",
        ),
        (["--no-probes"], "--no-probes; it is of `latprof run`"),
        *(
            (["--protocol", "tcp", option, value], f"{option}: is for udp, not for --p")
            for option, value in OF_UDP.items()
        ),
        (["--find-rate", "1%", "--trial", "1ms"], "--trial must be from 100ms to 1h"),
        (
            ["--find-rate", "1%", "--trial", "5s", "--duration", "4s"],
            "--duration must be at least --trial (5s), since it confirms the rate, got",
        ),
        (["--sizes", "64"], "--sizes 64; it is of `latprof run`"),
        (["--rounds", "3"], "--rounds 3; it is of `latprof run`"),
        (["--to", "h", "--rate", "1mbit"], "--rate: is of this host's lab, not with -"),
        (["--to", "h", "--server-cpu", "0"], "--server-cpu: is of this host's lab, no"),
        (["--to", "h,i"], "--to: must be one host, got 2; use `latprof run mesh`"),
        (["--secret-file", "s"], "--secret-file: needs --to"),
        (["--", "true"], "true; a COMMAND goes with `latprof run -- COMMAND`"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(capsys, words, text):
    line = refused(capsys, *BULK, *words)
    assert line.startswith("latprof: ")
    assert text in line


def test_options_of_bulk_are_refused_of_a_ping_pong(capsys):
    line = refused(capsys, "run", "--channels", "3")
    assert "--channels 3; it is of `latprof run bulk`" in line


def plan_of(*words, protocols=("tcp", "udp"), **responder):
    return bulk_options.plan_of(
        parsed(cli.SUBCOMMANDS, "", [*BULK, *words]), protocols, **responder
    )


def test_by_default_each_part_sends_datagrams_of_1400_bytes_for_three_seconds():
    plan = plan_of()
    words = plan.client_words("udp", 4)
    assert sorted(plan.parts) == [
        (protocol, channels) for protocol in ("tcp", "udp") for channels in (1, 2, 4, 8)
    ]
    for option, value in (("--duration", "3.0"), ("--size", "1400")):
        assert words[words.index(option) + 1] == value
    assert "--rate" not in words
    assert "--size" not in plan.client_words("tcp", 4)


def test_options_of_udp_hold_for_its_parts_beside_those_of_tcp():
    plan = plan_of(*(word for pair in OF_UDP.items() for word in pair))
    told = plan.client_words("udp", 1)
    assert (told[told.index("--size") + 1], plan.send_way) == ("1000", "send")
    assert "--send-way" not in plan.client_words("tcp", 1)


def test_the_order_of_parts_is_the_seeds():
    assert plan_of("--seed", "7").parts == plan_of("--seed", "7").parts
    assert len({tuple(plan_of("--seed", str(n)).parts) for n in range(9)}) > 1


@pytest.mark.parametrize(
    "words",
    [
        ["--qdisc", "tbf"],
        ["--rate", "1gbit"],
        ["--loss", "1%"],
        ["--delay", "1ms"],
        ["--probes"],
        ["--emulator", "always"],
    ],
)
def test_where_packets_are_counted_each_is_a_datagram(words):
    assert (plan_of().send_way, plan_of().receive_way) == ("auto", "auto")
    plan = plan_of(*words)
    assert (plan.send_way, plan.receive_way) == ("sendmmsg", "recvmmsg")
    assert plan_of(*words, "--send-way", "gso").send_way == "gso"


def test_an_older_name_says_the_new_one(capsys):
    assert plan_of("--record").send_way == plan_of("--probes").send_way
    assert capsys.readouterr().err == "latprof: --record is `--probes` from now on\n"


@pytest.mark.parametrize(
    ("words", "trial_seconds", "confirm_seconds"),
    [
        ((), 2.0, 6.0),
        (("--trial", "500ms"), 0.5, 1.5),
        (("--duration", "60s"), 2.0, 60.0),
    ],
)
def test_a_search_is_of_datagrams_in_trials_of_seconds_and_a_longer_one(
    words, trial_seconds, confirm_seconds
):
    plan = plan_of("--find-rate", "0.1%", *words)
    assert plan.protocols == ("udp",)
    assert plan.find_rate == 0.001
    assert plan.trial_seconds == trial_seconds
    assert plan.duration_seconds == confirm_seconds


def test_between_hosts_each_packet_is_a_datagram_and_the_secret_is_told():
    file = Path("secret")
    # its packets are those of the device that leads there
    words = ("--to", "h", "--datagram", "8000", "--congestion", "reno")
    plan = plan_of(*words, to="h", port=7107, secret_file=file)
    assert (plan.send_way, plan.receive_way) == ("sendmmsg", "recvmmsg")
    assert not plan.in_lab
    for protocol in ("tcp", "udp"):
        told = plan.client_words(protocol, 1)
        assert told[told.index("--secret-file") + 1] == "secret"
        assert ("--congestion" in told) == (protocol == "tcp")
