"""The command line: values, refusals, exit codes; nothing here needs root."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_agent import cli
from latprof_analysis import units
from latprof_analysis.cli.program import parsed
from latprof_analysis.text import duration, fixed, rate, span, with_interval


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (units.rate, "100mbit", 100_000_000),
        (units.rate, "1.5Gbit/s", 1_500_000_000),
        (units.rate, "0", 0),
        (units.time_ns, "1ms", 1_000_000),
        (units.time_ns, "2.5us", 2500),
        (units.time_ns, "0", 0),
        (units.duration_seconds, "10s", 10),
        (units.duration_seconds, "10", 10),
        (units.duration_seconds, "500ms", 0.5),
        (units.duration_seconds, "2min", 120),
        (units.share, "1%", 0.01),
        (units.share, "0.01", 0.01),
        (units.share, "0.5 %", 0.005),
        (units.share, "150%", 1.5),
        (units.size, "64k", 64_000),
        (units.size, "1MiB", 1 << 20),
        (units.sizes, "18,1k", (18, 1000)),
        (units.ring_bytes, "64KiB", 1 << 16),
        (units.ports, "1,65535", (1, 65535)),
        (units.count, "9223372036854775807", 2**63 - 1),  # no float could hold it
        (units.percentiles, "p50,99.9,p50", (0.5, 0.999)),
        (units.either("any", units.count), "any", "any"),
        (units.either("any", units.count), "3", 3),
    ],
)
def test_values_are_read_with_their_units(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (units.rate, "fast"),
        (units.rate, "-1"),
        (units.rate, "1e3"),
        (units.time_ns, "5"),
        (units.time_ns, ""),
        (units.within(units.time_ns, "1ns", "60s"), "0"),
        (units.within(units.time_ns, "1ns", "60s"), "61s"),
        (units.share, "2x"),
        (units.share, "5"),  # 5% or 500%?
        (units.share, "1k"),
        (units.share, "-1%"),
        (units.duration_seconds, "1m"),  # of sizes, m is a million
        (units.size, "9" * 19),
        (units.sizes, "64,,64"),
        (units.sizes, "64,64"),
        (units.ring_bytes, "5000"),
        (units.ring_bytes, "2KiB"),
        (units.ring_bytes, "2048MiB"),
        (units.within(units.count, "1", "5"), "6"),
        (units.within(units.count, "1", "5"), "x"),
        (units.number, "nan"),
        (units.count, "1.5"),
        (units.either("any", units.count), "some"),
    ],
)
def test_values_out_of_range_are_refused_with_the_rule(read, text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"must .*, got"):
        read(text)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "required: COMMAND"),
        (["walk"], "COMMAND must be one of run, watch, agent, echo, "),
        (["analyse"], "got 'analyse'; did you mean analyze; see latprof --help"),
        (["--verison"], "arguments: --verison; did you mean --version; see latprof -"),
        (["run", "--interval", "0"], "--interval must be from 1ns to 60s, got '0'"),
        (["run", "--loss", "2x"], "--loss must be a share like 1% or 0.01, got '2x'"),
        (["run", "--loss", "100%"], "--loss must be from 0% to 99.9%, got '100%'"),
        (["run", "--rounds", "1", "--duration", "1"], "not allowed with"),
        # no abbreviations: they change meaning
        (["run", "--dur", "1"], "--dur 1; did you mean --duration; see latprof run -"),
        (["run", "--protcol=tcp"], "did you mean --protocol; see latprof run --help"),
        (["run", "--protcol", "tcp"], "--protcol tcp; did you mean --protocol"),
        (["run", "--protocol", "tpc"], "one of tcp, udp, both, got 'tpc'; did you me"),
        (
            ["run", "redis-benchmark", "-p", "1"],
            "-p 1; a COMMAND goes with `latprof run -",
        ),
        (["compare", "a", "--fail-if-slowr=1%"], "did you mean --fail-if-slower"),
        (["watch", "--interval", "0"], "--interval must be from 100ms to 1h, got '0'"),
        (["watch", "--once", "--duration", "3"], "--duration: not allowed with"),
        (["watch", "--max-overhead", "3"], "--max-overhead must be none or a share li"),
        (["run", "--poisson"], "--poisson: needs --interval"),
        (["run", "--server", "x"], "--server x; it is of `latprof run -- COMMAND`"),
        (["run", "--wire", "clear", "--reply", "20"], "--reply"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(capsys, words, text):
    try:
        status = cli.main(words)
    except SystemExit as ended:
        status = ended.code
    shown = capsys.readouterr()
    assert (status, shown.out) == (2, "")
    assert len(shown.err.splitlines()) == 1
    assert shown.err.startswith("latprof: ")
    assert text in shown.err


@pytest.mark.parametrize(
    ("words", "option", "value"),
    [
        (["run", "--loss", "1%"], "loss", 0.01),
        (["run", "--loss", "0.01"], "loss", 0.01),
        (["run", "--duration", "10s"], "duration", 10),
        (["run", "--duration", "10"], "duration", 10),
        (["run", "--delay", "5ms"], "delay", 5_000_000),
        (["run", "--rate", "100mbit"], "rate", 100_000_000),
        (["run", "--mtu", "9k"], "mtu", 9000),
        (["run", "--client-cpu", "any"], "client_cpu", "any"),
        (["compare", "a", "b", "--sizes", "18,64k"], "sizes", (18, 64_000)),
        (["compare", "a", "b", "--smallest", "0.02"], "smallest", 0.02),
        (["compare", "a", "b", "--fail-if-slower", "5%"], "fail_if_slower", 0.05),
        (["analyze", "a", "--reply", "1k"], "reply", 1000),
        (["report", "a", "--reply", "echo"], "reply", "echo"),
    ],
)
def test_every_subcommand_takes_the_same_units(words, option, value):
    assert getattr(parsed(cli.SUBCOMMANDS, "1", words), option) == value


def help_of(*words: str) -> str:
    command = [sys.executable, "-m", "latprof_agent", *words, "--help"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def test_help_names_every_option_and_what_it_is_if_not_given():
    text = help_of("run", "--help-all")
    assert max(map(len, text.splitlines())) <= 80
    options = re.split(r"\n  (?=--)", text)[1:]
    assert len(options) > 30
    needs_none = ("--rounds", "--json", "--no-probes", "--help-all")
    for option in options:
        assert "default:" in option or option.startswith(needs_none), option


@pytest.mark.parametrize("form", ["", *cli.RUN_FORMS])
def test_help_of_a_form_of_run_fits_on_a_page(form):
    assert len(help_of("run", *form.split()).splitlines()) <= 80
    assert "--no-recording" not in help_of("run", *form.split())
    assert "--no-recording" in help_of("run", *form.split(), "--help-all")


def test_a_form_has_its_options_and_no_others():
    assert parsed(cli.SUBCOMMANDS, "", ["run"]).form == "pingpong"
    forms = {
        form: parsed(cli.SUBCOMMANDS, "", ["run", form]) for form in ("mesh", "bulk")
    }
    assert (forms["mesh"].form, forms["bulk"].form) == ("mesh", "bulk")
    assert forms["bulk"].sizes is None  # of others, with its default
    command = parsed(cli.SUBCOMMANDS, "", ["run", "--no-lab", "--", "mesh", "--hosts"])
    assert (command.form, command.words) == ("command", ["mesh", "--hosts"])


@pytest.mark.parametrize(
    ("old", "form", "new"),
    [
        ("--workload mesh --hosts 4", "mesh", "--workload mesh is `latprof run mesh`"),
        ("--hosts 4 --workload=mesh", "mesh", "--workload mesh is `latprof run mesh`"),
        ("--workload pingpong", "pingpong", "--workload pingpong is `latprof run`"),
        ("--port 80", "attach", "run --port is `latprof run attach`"),
        ("--duration 1 --pid 7", "attach", "run --pid is `latprof run attach`"),
        ("--preset tmsn", "mesh", ""),
        ("--port 80 -- curl localhost", "command", ""),
    ],
)
def test_old_spellings_are_taken_with_a_line_that_says_the_new_one(
    capsys, old, form, new
):
    options = parsed(cli.SUBCOMMANDS, "", ["run", *old.split()])
    said = capsys.readouterr().err
    assert options.form == form
    assert said == (f"latprof: {new} from now on\n" if new else "")
    assert getattr(options, "hosts", None) == (4 if "4" in old else None)


def test_help_loads_none_of_the_large_libraries():
    code = (
        "import sys; from latprof_agent.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('numpy', 'scipy', 'pandas', 'rich') if m in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert shown.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"),
        (0, "0 ns"),
        (279, "279 ns"),
        (1600, "1.60 us"),
        (99_960, "100 us"),
        (999_700, "1.00 ms"),
        (1_000_000, "1.00 ms"),
        (6_000, "6.00 us"),
        (13_149_999, "13.1 ms"),
        (2_500_000_000, "2.50 s"),
    ],
)
def test_durations_have_three_digits_and_a_unit(ns, text):
    assert duration(ns) == text


@settings(deadline=None)
@given(st.integers(1, 10**12))
def test_a_duration_read_back_is_within_its_digits(ns):
    value, unit = duration(ns).split()
    scale = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert float(value) * scale == pytest.approx(ns, rel=0.005)


def test_an_interval_names_its_unit_once():
    estimate = {"value": 99.39e6, "low": 99.34e6, "high": 99.45e6, "n": 3}
    assert with_interval(estimate, rate) == "99.39 Mbit/s [99.34, 99.45]"


@settings(deadline=None)
@given(st.floats(1, 9e11), st.integers(3, 6))
def test_a_figure_has_so_many_digits_and_less_than_a_thousand_of_its_unit(n, digits):
    for write in (duration, rate):
        value, unit = write(n, digits).split()
        whole = unit in ("ns", "bit/s") and n == int(n)
        assert len(value.replace(".", "")) == digits or whole
        assert float(value) < 1000


@given(st.floats(1e3, 1e12), st.floats(1e-5, 1))
def test_an_interval_has_two_ends(low, share):
    first, last = span(low, low * (1 + share), duration, 3).split(" to ")
    assert first != last.split(maxsplit=1)[0] or " " in first


def test_what_reads_as_a_figure_of_another_kind_is_not_written():
    assert rate(999_960) == "1.000 Mbit/s"  # not 1000.0 kbit/s
    assert (fixed(-0.001, 3), fixed(-0.0, 3)) == ("0.00", "0.00")
    assert fixed(99.996, 4) == "100.0"
    assert span(1_012_000, 1_012_040, duration, 3) == "1.01200 to 1.01204 ms"


def test_an_interval_over_two_units_names_both():
    estimate = {"value": 99.39e6, "low": 99.34e6}
    wide = estimate | {"high": 1.2e9}
    assert with_interval(wide, rate) == "99.39 Mbit/s [99.34 Mbit/s, 1.200 Gbit/s]"
    assert with_interval(None, rate) == "-"


def test_help_is_quick():
    def user_seconds() -> float:
        code = (
            "import os, resource, subprocess, sys; "
            "subprocess.run([sys.executable, '-m', 'latprof_agent', '--help'], "
            "stdout=subprocess.DEVNULL, check=True); "
            "u = resource.getrusage(resource.RUSAGE_CHILDREN); "
            "print(u.ru_utime + u.ru_stime)"
        )
        text = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, text=True
        )
        return float(text.stdout)

    # CPU time, and the least of five, so that other work does not count
    assert min(user_seconds() for _ in range(5)) < 0.2
