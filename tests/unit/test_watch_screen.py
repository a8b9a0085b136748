"""`latprof watch` as a program: on a terminal of any size and kind, and on a pipe.

What it measures is made (made_watch), so that what the screen must show is known.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from latprof_agent.cli import watch
from latprof_agent.errors import LatprofError
from live_terminal import ALTERNATE, LiveTerminal
from made_watch import COUNTED, FAILS, MADE
from recording import wait_until

PROGRAM = Path(__file__).parent / "made_watch.py"
STYLE = re.compile(rb"\x1b\[[0-9;]*m")
COLOUR = re.compile(rb"\x1b\[[0-9;]*3[0-79][0-9;]*m")


QUICK = ("--interval", "200ms")


@pytest.fixture(autouse=True)
def _shared(monkeypatch):
    """The program finds what tests of several folders share, as we do."""
    monkeypatch.setenv("PYTHONPATH", str(PROGRAM.parents[1]))


def words(*options):
    return [sys.executable, str(PROGRAM), *options]


def piped(*options, **environment):
    kept = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    return subprocess.run(
        words(*options),
        capture_output=True,
        text=True,
        env=kept | environment,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50), (40, 10)])
def test_a_screen_fills_the_terminal_and_no_more(columns, lines):
    with LiveTerminal(words(*QUICK), columns, lines) as terminal:
        screen = terminal.wait_for("tcp server 6379")
        assert len(screen) == lines
        assert max(map(len, screen)) <= columns
        assert screen[0].startswith("latprof watch  ")
        assert screen[3].startswith(" udp client 53")  # it hurts most: two dropped
        assert any(line.startswith("own: probes 2%, agent 1%") for line in screen)
        terminal.type("q")
        assert terminal.finish() == 0
        assert terminal.after.startswith("watched ")
        assert terminal.after.count("\n") == 1
        assert terminal.is_restored


def test_80_columns_show_the_figures_that_were_made():
    with LiveTerminal(words(*QUICK)) as terminal:
        terminal.wait_for("6379")
        line = next(line for line in terminal.screen if "6379" in line)
        # 990 of 40 us and 10 of 4 ms in the server, 20 floors of 90 us
        assert re.search(r"server 40us +40us/40us +89us f +0 +0 800k$", line)
        dns = next(line for line in terminal.screen if "client 53" in line)
        assert re.search(r"- n=3 +- +0 +2 socket 2\.4k$", dns)  # three tell no p50
        terminal.signal(signal.SIGINT)
        assert terminal.finish() == 0


def test_keys_lead_through_all_pages():
    with LiveTerminal(words(*QUICK)) as terminal:
        terminal.wait_for("6379")
        terminal.type("\x1b[B\x1b[B")
        terminal.wait_for(">tcp server 6379")
        terminal.type("\r")
        screen = terminal.wait_for("server time over time")
        assert any(
            re.match(r">server +40us +40us +40us +40us +- +1000", s) for s in screen
        )
        assert any(s.startswith(" receive_queue* ") for s in screen)
        terminal.type("j")
        terminal.wait_for("kernel's minimum over time")
        terminal.type("e")
        screen = terminal.wait_for("slow ones of tcp server 6379, newest first")
        assert any("redis?[2J?server (pid 77)" in line for line in screen)
        assert any("receive_queue 3.00 ms, transit 50.0 us" in line for line in screen)
        terminal.type("?")
        terminal.wait_for("this help")
        terminal.type("\x1b")
        terminal.wait_for("over time")
        terminal.type("\x1b")
        terminal.wait_for("p50/p99")
        terminal.type("s")
        terminal.wait_for("sorted by exchange")
        terminal.type("w")
        terminal.wait_for("all of ")
        terminal.type("gq")
        assert terminal.finish() == 0
        assert terminal.is_restored


def test_enter_tells_why_a_slow_one_was_slow():
    with LiveTerminal(words("--story", *QUICK), 100) as terminal:
        terminal.wait_for("6379")
        terminal.type("e")
        # the newest is not told of yet
        terminal.wait(lambda: len(tellable(terminal.screen)) > 2, "several")
        assert not terminal.screen[3].rstrip().endswith("enter tells why")
        terminal.type("p\r")
        terminal.wait_for("no story: it is told in 2 s")
        terminal.type("\x1b")
        terminal.wait_for("newest first")
        terminal.type("\x1b[B\r")
        screen = terminal.wait_for("which slept for another thread (futex)")
        text = " ".join(" ".join(screen).split())
        assert "tcp exchange 64, [::1]:5 to redis?[2J (pid 77): 4.00 ms of" in text
        assert "3.90 ms asleep for another thread (futex)" in text
        terminal.type("\x1b[D")
        terminal.wait_for("newest first")
        terminal.type("\x1bq")
        assert terminal.finish() == 0
        assert terminal.is_restored


def tellable(screen):
    return [line for line in screen if line.rstrip().endswith("enter tells why")]


def test_of_stories_lines_and_documents_tell_too():
    told = piped("--story", "20ms", *QUICK, "--duration", "1s", COLUMNS="160").stdout
    assert told.count("redis?[2J (pid 77), which slept for another thread (fut") >= 2
    documents = [
        json.loads(line)
        for line in piped(
            "--json", "--story", *QUICK, "--duration", "1s"
        ).stdout.splitlines()
    ]
    stories = [story for document in documents for story in document["stories"]]
    exemplars = sum(len(document["exemplars"]) for document in documents)
    assert exemplars - 1 <= len(stories) <= exemplars
    assert {story["message"]["kind"] for story in stories} == {"exchange"}
    (line, *_) = piped("--json", *QUICK, "--duration", "1s").stdout.splitlines()
    assert "stories" not in json.loads(line)


@pytest.mark.parametrize("wrong", ["1us", "p99", "2"])
def test_a_limit_that_is_none_is_one_line(wrong):
    done = piped("--story", wrong)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "--story must be " in line
    assert "or p99.9" in line


def test_a_filter_is_typed_and_a_wrong_one_leaves_all_as_it_was():
    with LiveTerminal(words(*QUICK)) as terminal:
        terminal.wait_for("6379")
        terminal.type("/prt=80")
        terminal.wait_for("filter: prt=80_")
        terminal.type("\r")
        terminal.wait(lambda: "did you mean port" in " ".join(terminal.screen), "hint")
        terminal.type("/port=80 not comm=curl\r")
        terminal.wait_for("by service  filter port=80 not comm=curl")
        terminal.type("q")
        assert terminal.finish() == 0


def test_a_pause_stops_the_picture_but_not_the_measuring(tmp_path):
    counted = tmp_path / "states"
    with LiveTerminal(words(*QUICK), **{COUNTED: str(counted)}) as terminal:
        terminal.wait_for("6379")
        terminal.type("p")
        terminal.wait_for("PAUSED")
        title, frames = terminal.screen[0], terminal.written.count(b"\x1b[H")
        begun = counted.stat().st_size
        terminal.wait(lambda: counted.stat().st_size > begun + 5, "states")
        assert terminal.screen[0] == title
        assert terminal.written.count(b"\x1b[H") == frames
        terminal.type("pw")
        terminal.wait_for("all of ")
        terminal.type("q")
        assert terminal.finish() == 0
        assert f"watched {counted.stat().st_size - 1} s: " in terminal.after


def test_another_size_is_drawn_at_once():
    with LiveTerminal(words("--interval", "1h", "--duration", "60s")) as terminal:
        terminal.wait_for("the first interval is being measured")
        for columns, lines in ((120, 40), (20, 5), (1, 1), (300, 90)):
            terminal.resize(columns, lines)
            terminal.wait(lambda n=lines: len(terminal.screen) == n, "lines")
            assert max(map(len, terminal.screen)) <= columns
        terminal.type("q")
        assert terminal.finish() == 0


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_with_a_summary_and_the_terminal_as_it_was(ending):
    with LiveTerminal(words(*QUICK)) as terminal:
        terminal.wait_for("6379")
        assert not terminal.is_restored
        terminal.signal(ending)
        assert terminal.finish() == 0
        assert terminal.after.startswith("watched ")
        assert terminal.is_restored


def test_a_failure_gives_the_terminal_back_before_it_is_told():
    with LiveTerminal(words(*QUICK), **{MADE: FAILS}) as terminal:
        assert terminal.finish() == 1
        assert ALTERNATE in terminal.written
        assert terminal.is_restored
        assert "ZeroDivisionError: made to fail" in terminal.after


def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_back():
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with LiveTerminal(shell, PS1="shell> ", HISTFILE="/dev/null") as terminal:
        terminal.wait(lambda: b"shell> " in terminal.written, "prompt")
        terminal.type(" ".join(words(*QUICK)) + "\n")
        terminal.wait_for("6379")
        during = termios.tcgetattr(terminal.theirs)
        terminal.type("\x1a")
        terminal.wait(lambda: "Stopped" in terminal.after, "stopped")
        assert terminal.written.rfind(b"\x1b[?25h") > terminal.written.rfind(
            b"\x1b[?25l"
        )
        terminal.type("fg\n")
        at = len(terminal.written)
        terminal.wait(lambda: ALTERNATE in terminal.written[at:], "alternate screen")
        terminal.wait(lambda: b"6379" in terminal.frame, "frame")
        again = termios.tcgetattr(terminal.theirs)
        assert again[3] == during[3] and not again[3] & termios.ICANON
        terminal.type("q")
        terminal.wait(lambda: "watched " in terminal.after, "summary")
        terminal.type("exit $?\n")
        assert terminal.finish() == 0


def test_a_terminal_that_takes_nothing_stops_nobody(tmp_path):
    counted = tmp_path / "states"
    made = {COUNTED: str(counted), MADE: "60"}
    with LiveTerminal(words("--interval", "100ms"), 200, 60, **made) as terminal:
        terminal.wait_for("10001")
        begun, frames = counted.stat().st_size, terminal.written.count(b"\x1b[H")
        # nobody reads: the terminal has room for less than ten of these frames
        wait_until(lambda: counted.stat().st_size > begun + 30, "states")
        terminal.type("q")
        assert terminal.finish() == 0
        assert terminal.written.count(b"\x1b[H") - frames < 15
        assert terminal.is_restored


def test_no_color_has_styles_but_no_colours():
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        with LiveTerminal(words(*QUICK), **environment) as terminal:
            terminal.wait_for("2 socket")
            assert bool(COLOUR.search(terminal.frame)) == coloured
            terminal.type("q")
            terminal.finish()


def test_a_terminal_without_utf8_gets_ascii():
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with LiveTerminal(words(*QUICK), 200, 30, **plain) as terminal:
        terminal.wait_for("6379")
        assert terminal.frame.isascii()
        terminal.type("q")
        assert terminal.finish() == 0


def test_a_dumb_terminal_gets_plain_blocks():
    options = (*QUICK, "--duration", "400ms")
    with LiveTerminal(words(*options), TERM="dumb") as terminal:
        assert terminal.finish() == 0
        text = terminal.written.decode()
        assert "\x1b" not in text
        assert 1 <= text.count(" tcp server 6379 ") <= 2
        assert max(map(len, text.splitlines()[:-1])) <= 80


def test_a_pipe_gets_a_block_for_each_interval_of_all_groups():
    done = piped(*QUICK, "--duration", "600ms", **{MADE: "100"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    blocks = done.stdout.count(" by service\n")
    assert 1 <= blocks <= 3  # a busy machine has fewer and longer intervals
    assert len(re.findall(r"^ tcp server ", done.stdout, re.M)) == blocks * 101
    said = f"watched {blocks} s: 102 groups, "  # each is a second of what is made
    assert done.stdout.splitlines()[-1].startswith(said)
    narrow = piped("--once", *QUICK, COLUMNS="60")
    assert max(map(len, narrow.stdout.splitlines()[:-1])) <= 60


def test_once_prints_one_block_even_on_a_terminal():
    with LiveTerminal(words("--once", *QUICK)) as terminal:
        assert terminal.finish() == 0
        assert ALTERNATE not in terminal.written
        text = STYLE.sub(b"", terminal.written).decode()
        assert text.count("tcp server 6379") == 1


def test_json_is_one_document_a_line():
    done = piped(*QUICK, "--duration", "400ms", "--json")
    assert done.returncode == 0
    assert done.stderr.startswith("watched ")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 2
    for document in found:
        names = [group["name"] for group in document["groups"]]
        assert names == ["udp client 53", "tcp server 6379"]
        assert document["seconds"] == 1.0
        stages = document["groups"][1]["stages"]
        assert stages["range_receive_queue"]["n"] == 1000
    assert done.stdout.isascii()


def test_a_reader_that_leaves_ends_it_without_a_word():
    command = words(*QUICK, "--json")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=30) == 1
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ([], 0.02),
        (["--once"], math.inf),
        (["--duration", "9s"], math.inf),
        (["--duration", "10s"], 0.02),
        (["--once", "--max-overhead", "5%"], 0.05),
    ],
)
def test_a_short_look_has_no_budget_unless_it_is_asked_for(given, most):
    parser = argparse.ArgumentParser()
    watch.add_options(parser)
    asked = []

    def make(_watched, _by, allowed, *_):
        asked.append(allowed)
        raise LatprofError("not made")

    with pytest.raises(LatprofError):
        watch.watch(parser.parse_args(["--json", *given]), make)
    assert asked == [most]
