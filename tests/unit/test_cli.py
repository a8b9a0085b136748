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
from latprof_agent.cli import units
from latprof_analysis.text import duration, rate, with_interval


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (units.rate, "100mbit", 100_000_000),
        (units.rate, "1.5Gbit/s", 1_500_000_000),
        (units.rate, "0", 0),
        (units.time_ns, "1ms", 1_000_000),
        (units.time_ns, "2.5us", 2500),
        (units.time_ns, "0", 0),
        (units.size, "64k", 64_000),
        (units.size, "1MiB", 1 << 20),
        (units.sizes, "18,1k", (18, 1000)),
        (units.ring_bytes, "64KiB", 1 << 16),
        (units.ports, "1,65535", (1, 65535)),
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
        (units.interval_ns, "0"),
        (units.interval_ns, "61s"),
        (units.size, "9" * 19),
        (units.sizes, "64,,64"),
        (units.sizes, "64,64"),
        (units.ring_bytes, "5000"),
        (units.ring_bytes, "2KiB"),
        (units.ring_bytes, "2048MiB"),
        (units.ports, "1,2,3,4,5,6,7,8,9"),
        (units.number(1, 5), "6"),
        (units.number(1, 5), "x"),
        (units.number(0, 1, float), "nan"),
    ],
)
def test_values_out_of_range_are_refused_with_the_rule(read, text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"must .*, got"):
        read(text)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "required: COMMAND"),
        (["walk"], "invalid choice: 'walk'"),
        (["run", "--interval", "0"], "--interval: must be from 1ns to 60s, got 0"),
        (["run", "--rounds", "1", "--duration", "1"], "not allowed with"),
        (["run", "--dur", "1"], "--dur"),  # no abbreviations: they change meaning
        (["run", "--poisson"], "--poisson: needs --interval"),
        (["run", "--server", "x"], "--server: needs a COMMAND"),
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


def test_parquet_without_pyarrow_is_refused_before_the_run(capsys, monkeypatch):
    monkeypatch.setattr("latprof_agent.cli.run.find_spec", lambda name: None)
    assert cli.main(["run", "--parquet"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("latprof: --parquet: needs pyarrow; install latprof with")


def help_of(*words: str) -> str:
    command = [sys.executable, "-m", "latprof_agent", *words, "--help"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def test_help_names_every_option_and_what_it_is_if_not_given():
    text = help_of("run")
    assert max(map(len, text.splitlines())) <= 80
    options = re.split(r"\n  (?=--)", text)[1:]
    assert len(options) > 30
    needs_none = ("--rounds", "--server", "--no-lab", "--json", "--ports", "--no-prob")
    for option in options:
        assert "default:" in option or option.startswith(needs_none), option


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
        (99_960, "100.0 us"),
        (1_000_000, "1 ms"),
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
