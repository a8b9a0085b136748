"""`latprof run --sweep` and --preset: what is refused, and what the words become."""

from __future__ import annotations

import argparse
import shlex

import pytest
from latprof_agent import cli
from latprof_agent.cli import presets, sweep
from latprof_agent.cli.given_words import given_options, without
from latprof_agent.cli.run import _checked
from latprof_agent.cli.sweep_options import swept
from latprof_agent.errors import UsageError
from latprof_analysis.cli.program import parsed
from latprof_analysis.study.sweep import SweptRun
from refusals import refused


def options_of(line: str) -> argparse.Namespace:
    return parsed(cli.SUBCOMMANDS, "", ["run", *shlex.split(line)])


def planned(line: str):
    """The runs of a sweep in their order."""
    options = options_of(line)
    return sweep._planned(options, list(sweep._combinations(options)), _checked)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--sweep interval=1ms,2x", "--interval must be a time like"),
        ("--sweep intervl=1ms,2ms", "there is no option --intervl; did you mean --int"),
        ("--sweep interval", "--sweep must be an option and its values"),
        ("--sweep interval=", "--sweep must be an option and its values"),
        ("--sweep interval=1ms,,2ms", "--sweep must be an option and its values"),
        ("--sweep interval=1ms,1ms", "--sweep must have each value once"),
        ("--sweep nagle=1,0", "--nagle takes no value"),
        ("--sweep out=a,b", "--out cannot be swept"),
        ("--sweep port=80,81", "there is no option --port"),
        ("--sweep interval=1ms --interval 2ms", "--interval is given, too"),
        ("--sweep mtu=900 --sweep mtu=1500", "--mtu is swept twice"),
        ("--sweep duration=1s,2s --rounds 5", "not allowed with argument"),
        (
            "--sweep mtu=" + ",".join(map(str, range(68, 1168))) + " --repeat 10",
            "11000",
        ),
        ("--sweep seed=1,2 --repeat 2", "--seed is swept, so not with --repeat"),
        ("--repeat 0", "--repeat must be from 1 to 1000, got '0'"),
        ("--repeat 1001", "--repeat must be from 1 to 1000"),
        ("--scale 1", "--scale: needs --preset"),
        ("--preset clear --scale 0", "--scale must be from 0.0001 to 100"),
        ("--preset nosuch", "--preset must be one of clear"),
    ],
)
def test_a_wrong_sweep_or_preset_is_one_line(line, told, capsys):
    with pytest.raises(SystemExit) as stopped:
        options = presets.with_preset(options_of(line))
        combinations = list(sweep._combinations(options))
        sweep._planned(options, combinations, _checked)
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err


def test_a_combination_that_cannot_be_is_refused_before_any_runs():
    with pytest.raises(UsageError, match=", got 1"):
        planned("--sweep sizes=64,1")


def test_each_block_has_every_combination_once_in_random_order():
    line = "--sweep interval=1ms,2ms,3ms --sweep mtu=900,1500 --repeat 4"
    runs = planned(line)
    blocks = [runs[n : n + 6] for n in range(0, 24, 6)]
    orders = [[tuple(one.combination.values()) for one in block] for block in blocks]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert len(set(orders[0])) == 6
    assert len({tuple(order) for order in orders}) > 1
    assert [one.repeat for one in runs] == [n for n in (1, 2, 3, 4) for _ in range(6)]
    again = planned(line)
    assert [one.combination for one in again] == [one.combination for one in runs]
    other = planned(f"{line} --seed 2")
    assert [one.combination for one in other] != [one.combination for one in runs]


def test_runs_have_the_values_of_their_combination_and_a_seed_for_each_repeat():
    for one in planned("--sweep interval=1ms,2ms --repeat 2 --seed 7 --sizes 64"):
        plan = one.options.plan
        assert (
            plan.interval_ns
            == {"1ms": 10**6, "2ms": 2 * 10**6}[one.combination["interval"]]
        )
        assert (plan.seed, plan.sizes) == (6 + one.repeat, (64,))
        assert one.options.link.seed == 6 + one.repeat


def test_seeds_that_are_swept_are_a_run_each():
    runs = planned("--sweep seed=1,2 --sweep mtu=900,1500")
    assert sorted(one.options.plan.seed for one in runs) == [1, 1, 2, 2]


def test_the_line_of_a_run_does_that_run_alone():
    for one in planned(
        "--sweep 'sizes=64,1k;4k' --repeat 2 --name x --poisson --interval=1ms --out y"
    ):
        line = shlex.join(one.options.arguments[1:])
        assert "sweep" not in line
        assert "--out" not in line
        alone = _checked(options_of(line))
        assert alone.plan == one.options.plan
        assert alone.link == one.options.link


def done_runs(combinations):
    """Runs over a link whose p99 is long where the load is more than it carries."""
    runs = []
    for one in combinations:
        heavy = int(one["sizes"]) / {"4ms": 4, "2ms": 2, "1ms": 1}[one["interval"]] > 40
        tails = {"p99_ns": 9e6 if heavy else 1e6, "p50_ns": 5e5}
        figures = {"tcp": {"rtt": tails, "offered_per_second": 1.0}}
        runs.append(SweptRun(one, 1, "f", "done", figures=figures))
    return runs


def test_each_option_that_is_a_quantity_has_knees_beside_the_others(tmp_path):
    line = f"--sweep interval=4ms,2ms,1ms --sweep sizes=30,50,100 --out {tmp_path}/x"
    options = options_of(line)
    combinations = list(sweep._combinations(options))
    numbers = sweep._numbers(options, combinations)
    done = sweep._Sweep(options, combinations, [], numbers)
    done._runs += done_runs(combinations)
    document = done.document()
    done.folder.close()
    rows, knees = document["rows"], document["knees"]

    def at(option):
        places = [
            rows[one["row"]]["combination"] for one in knees if one["option"] == option
        ]
        return {(one["interval"], one["sizes"]) for one in places}

    # a plateau is of two values or more
    assert at("interval") == {("1ms", "50")}
    assert at("sizes") == {("2ms", "100")}
    assert [row["knee"] for row in rows].count(True) == 2


def test_a_seed_and_a_cpu_are_numbers_of_which_nothing_grows():
    line = "--sweep seed=1,2 --sweep client-cpu=0,1 --sweep mtu=900,1500"
    options = options_of(line)
    assert [*sweep._numbers(options, [])] == ["mtu"]


def test_words_of_a_command_are_left_alone():
    words = ["--out", "a", "--name=b", "--", "x", "--out", "c"]
    assert without(words, {"--out", "--name"}) == ["--", "x", "--out", "c"]
    for one in planned("--sweep mtu=900,1500 --repeat 2 -- redis --sweep 3 --seed 4"):
        assert one.options.plan.words == ("redis", "--sweep", "3", "--seed", "4")


def test_values_that_have_commas_have_semicolons_between():
    assert swept("sizes=18,64;1k").values == ("18,64", "1k")
    assert swept("--mtu=900").name == "mtu"


def test_folders_of_values_are_names_and_no_patterns():
    values = ["iperf3 -s", "a/b", "*", "é" * 300]
    labels = sweep._folders([{"server": value} for value in values])
    assert labels[:3] == ["server=iperf3_-s", "server=a_b", "server=_"]
    assert len(labels[3].encode()) <= 255
    alike = sweep._folders([{"server": "a b"}, {"server": "a/b"}])
    assert len(set(alike)) == 2


@pytest.mark.parametrize("name", presets.PRESETS)
def test_a_preset_is_options_that_a_run_takes(name, capsys):
    options = presets.with_preset(options_of(f"--preset {name}"))
    plan = _checked(options).plan
    assert plan.kind in {"pingpong", "mesh", "ops", "bulk"}
    (line,) = capsys.readouterr().err.splitlines()
    told = line.removeprefix(f"latprof: preset {name}: latprof run ")
    assert _checked(options_of(told)).plan == plan
    assert sweep.is_sweep(options) == bool(presets.PRESETS[name].swept)


def test_clear_sends_what_the_seed_sent():
    plan = _checked(presets.with_preset(options_of("--preset clear --scale 1"))).plan
    assert (plan.wire, plan.rounds, plan.interval_ns) == ("clear", 500, 0)
    assert (min(plan.sizes), max(plan.sizes)) == (18, 65535)


def test_clear_does_not_go_between_hosts(capsys):
    line = refused(capsys, "run", "--to", "h", "--wire", "clear")
    assert "--wire clear: is of this host's lab, not with --to" in line
    with pytest.raises(UsageError, match="--wire clear"):
        _checked(presets.with_preset(options_of("--preset clear --to h")))


@pytest.mark.parametrize("line", ["--workload mesh", "--preset tmsn"])
def test_a_mesh_over_udp_sends_what_a_datagram_holds(line):
    def sizes(protocol):
        words = f"{line} --protocol {protocol}"
        return _checked(presets.with_preset(options_of(words))).plan.sizes

    stress_test = [1024 * kib for kib in (1, 5, 10, 100, 200)]
    assert sizes("tcp") == tuple(stress_test)
    assert sizes("udp") == tuple(size for size in stress_test if size + 8 + 20 < 2**16)


def test_scale_shortens_a_preset_but_not_to_nothing():
    def rounds(scale):
        line = f"--preset clear --scale {scale}"
        return _checked(presets.with_preset(options_of(line))).plan.rounds

    assert [rounds(scale) for scale in (1, 0.1, 0.0001)] == [500, 50, 1]


def test_what_is_given_wins_over_a_preset():
    line = "--preset timewarp --interval 5ms --duration 2s --sizes=64"
    plan = _checked(presets.with_preset(options_of(line))).plan
    assert (plan.interval_ns, plan.duration_seconds, plan.rounds) == (5_000_000, 2, 0)
    assert (plan.sizes, plan.poisson, plan.reply_bytes) == ((64,), True, 18)


UUID = "5f3b9f0e-6d0b-4a53-8d6d-4f1d2a3b4c5d"


@pytest.mark.parametrize(
    ("line", "left_out"),
    [
        ("--preset timewarp --to h", {"rate", "delay"}),
        ("--preset timewarp --sweep to=h,i", {"rate", "delay"}),
        ("--preset tmsn --to h,i", {"hosts", "rate", "delay"}),
        ("--preset proxystore --to h", {"backend", "rate", "delay"}),
        ("--preset proxystore --redis h", {"backend", "rate", "delay"}),
        (f"--preset proxystore --endpoint {UUID}", {"backend", "rate", "delay"}),
        ("--preset mcdtp --to h", set()),
        ("--preset mcdtp --duration 5s", {"volume"}),
        ("--preset mcdtp --find-rate 1%", {"volume"}),
        ("--preset mcdtp --sweep duration=1s,2s", {"volume"}),
        ("--preset timewarp --train 4", {"max-acks"}),
    ],
)
def test_what_does_not_go_with_what_is_given_is_left_out_of_a_preset(line, left_out):
    options = presets.with_preset(options_of(line))
    assert planned(shlex.join(options.arguments[1:]))  # none is refused
    told = {name.removeprefix("--") for name in given_options(options.arguments)}
    told |= {one.name for one in options.sweep}
    preset = presets.PRESETS[options_of(line).preset]
    assert {name for name, _ in preset.words(None)} - told == left_out


def test_an_experiment_between_hosts_is_that_of_the_lab_but_for_the_lab():
    plan = _checked(presets.with_preset(options_of("--preset tmsn --to h,i"))).plan
    assert [host for host, _ in plan.to] == ["h", "i"]
    assert (plan.hosts, plan.interval_ns, plan.tests) == (3, 10_000_000, 5)
    line = "--preset proxystore --redis h"
    plan = _checked(presets.with_preset(options_of(line))).plan
    assert (plan.backends, plan.rounds, plan.in_lab) == (("redis",), 5, False)


@pytest.mark.parametrize(
    ("words", "volume_bytes", "seconds", "find_rate"),
    [
        ("", 10**9, 0, None),
        ("--duration 5s", 0, 5, None),
        ("--find-rate 1% --trial 1s", 0, 3, 0.01),
    ],
)
def test_a_duration_or_a_search_wins_over_the_volume_of_a_preset(
    words, volume_bytes, seconds, find_rate
):
    plan = _checked(presets.with_preset(options_of(f"--preset mcdtp {words}"))).plan
    assert (plan.volume_bytes, plan.duration_seconds) == (volume_bytes, seconds)
    assert plan.find_rate == find_rate


@pytest.mark.parametrize(
    ("words", "windows", "busy_ns"),
    [
        ("", {2, 20}, {700_000}),
        ("--max-acks 5", {5}, {700_000}),
        ("--sweep max-acks=1,3", {1, 3}, {700_000}),
        ("--sweep busy=0,1ms", {2, 20}, {0, 1_000_000}),
    ],
)
def test_a_preset_sweeps_its_own_options_unless_they_are_given(words, windows, busy_ns):
    options = presets.with_preset(options_of(f"--preset timewarp {words}"))
    runs = sweep._planned(options, list(sweep._combinations(options)), _checked)
    plans = [one.options.plan for one in runs]
    assert len(plans) == len(windows) * len(busy_ns)
    assert {plan.max_acks for plan in plans} == windows
    assert {plan.busy_ns for plan in plans} == busy_ns
    # what is told does the same
    line = shlex.join(options.arguments[1:])
    assert [one.options.plan for one in planned(line)] == plans


def test_a_preset_can_be_swept():
    options = presets.with_preset(options_of("--preset clear --sweep sizes=64,128"))
    combinations = list(sweep._combinations(options))
    runs = sweep._planned(options, combinations, _checked)
    assert {one.options.plan.sizes for one in runs} == {(64,), (128,)}
    assert {one.options.plan.wire for one in runs} == {"clear"}
