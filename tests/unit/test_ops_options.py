"""The options of `latprof run ops`: what is refused, and what they ask."""

from __future__ import annotations

import pytest
from latprof_agent import cli
from latprof_agent.cli import ops_options
from latprof_analysis.cli.program import parsed
from refusals import refused

OPS = ("run", "ops")
UUID = "5f3b9f0e-6d0b-4a53-8d6d-4f1d2a3b4c5d"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--ops", "PUT"], "must be some of GET, SET, EXISTS, EVICT, each once, got"),
        (["--ops", "GET,GET"], "each once, got 'GET,GET'"),
        (["--ops", ""], "each once, got ''"),
        (["--payload-sizes", "0"], "must be from 1 to 10000000, got '0'"),
        (["--payload-sizes", "10000001"], "must be from 1 to 10000000, got"),
        (["--payload-sizes", "1,1"], "must be different values"),
        (["--rounds", "0"], "--rounds must be from 1 to 1000000000, got"),
        (["--backend", "disk"], "must be some of redis, proxystore, floor"),
        (["--redis", "host:0"], "--redis must be HOST, HOST:PORT or [IPV6]:PORT, got"),
        (["--endpoint", "5"], "--endpoint must be a UUID, got '5'"),
        (["--redis", "h:1", "--backend", "floor"], "floor is for the lab"),
        (["--endpoint", UUID, "--backend", "redis"], "redis is for the lab"),
        (["--redis", "h:1", "--endpoint", UUID, "--backend", "redis"], "is given a se"),
        (["--to", "h", "--backend", "redis"], "redis is for the lab; name redis with"),
        (["--to", "h", "--redis", "h", "--backend", "redis"], "floor is given a serv"),
        (["--to", "h", "--rate", "1mbit"], "--rate: is of this host's lab, not with"),
        (["--redis", "h:1", "--rate", "1mbit"], "--rate: needs the lab, not --redis"),
        (
            ["--backend", "floor", "--redis-parser", "python"],
            "--redis-parser: is of the backend redis, not of floor",
        ),
        (
            ["--endpoint", UUID, "--redis-parser", "python"],
            "--redis-parser: is of the backend redis, not of proxystore",
        ),
        (["--sizes", "64"], "--sizes 64; it is of `latprof run`"),
        (["--interval", "1ms"], "--interval 1ms; it is of `latprof run`"),
        (["--protocol", "udp"], "--protocol udp; it is of `latprof run`"),
        (["--", "true"], "true; a COMMAND goes with `latprof run -- COMMAND`"),
        (["--port", "80"], "--port 80; it is of `latprof run attach`"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(capsys, words, text):
    line = refused(capsys, *OPS, *words)
    assert line.startswith("latprof: ")
    assert text in line


def test_options_of_operations_are_refused_of_a_ping_pong(capsys):
    line = refused(capsys, "run", "--payload-sizes", "3")
    assert "--payload-sizes 3; it is of `latprof run ops`" in line


def plan_of(*words, **responder):
    options = parsed(cli.SUBCOMMANDS, "", [*OPS, *words])
    return ops_options.plan_of(options, 1, 1, **responder)


def test_what_is_not_asked_for_is_as_the_experiment_had_it():
    plan = plan_of()

    assert plan.backends == ("redis", "floor")
    assert plan.ops == ("GET", "SET", "EXISTS", "EVICT")
    assert plan.sizes == (1000, 10_000, 100_000, 1_000_000, 10_000_000)
    assert plan.in_lab
    # GET and SET of each size; EXISTS and EVICT have none
    assert len(plan.cells) == 5 + 5 + 1 + 1


def test_servers_that_are_given_are_the_backends():
    plan = plan_of("--redis", "h")
    assert (plan.backends, plan.redis) == (("redis",), ("h", 6379))
    assert plan_of("--redis", "h", "--redis-parser", "python").parser == "python"
    plan = plan_of("--redis", "[::1]:7", "--endpoint", UUID.upper())
    assert plan.backends == ("redis", "proxystore")
    assert (plan.redis, plan.endpoint) == (("::1", 7), UUID)
    assert not plan.in_lab


def test_a_responder_elsewhere_is_the_floors_and_a_redis_may_stand_beside_it():
    plan = plan_of("--to", "h", to="h", port=7107, secret_file=None)
    assert (plan.backends, plan.in_lab) == (("floor",), False)
    both = plan_of("--to", "h", "--redis", "h", to="h", port=7107, secret_file=None)
    assert both.backends == ("redis", "floor")
