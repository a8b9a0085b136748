"""`latprof watch` on a made monitor: made_watch.py OPTIONS.

The environment says how many groups there are, and into which file a byte goes for
each state that was asked for.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from latprof_agent.cli import watch
from latprof_agent.monitor.totals import Totals
from latprof_analysis.cli.program import Subcommand, run_program
from made_monitor import MadeMonitor

MADE, COUNTED = "LATPROF_TEST_MADE", "LATPROF_TEST_COUNTED"
FAILS = "fails"  # instead of a number of groups: a bug, after a while
SUBCOMMANDS = {"watch": Subcommand("watch what is made", "made_watch")}
add_options = watch.add_options


class CountedMonitor(MadeMonitor):
    """Tells a test outside how many states there were."""

    def totals(self) -> Totals:
        if counted := os.environ.get(COUNTED):
            with Path(counted).open("ab") as file:
                file.write(b".")
        return super().totals()


class FailingMonitor(MadeMonitor):
    """Its tables cannot be read any more: a bug, or the kernel's refusal."""

    def totals(self) -> Totals:
        if self.steps >= 1:
            raise ZeroDivisionError("made to fail")
        return super().totals()


def run(options: argparse.Namespace) -> int:
    """Do what `latprof watch` does, without root."""
    made = os.environ.get(MADE, "0")
    monitor, groups = CountedMonitor, 0
    if made == FAILS:
        monitor = FailingMonitor
    else:
        groups = int(made)
    return watch.watch(
        options, lambda *asked: monitor(*asked[:3], groups, story_ns=asked[3])
    )


if __name__ == "__main__":
    sys.exit(run_program(SUBCOMMANDS, "made", ["watch", *sys.argv[1:]]))
