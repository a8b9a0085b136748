"""Intervals as plain lines: for a pipe, a file, a terminal that cannot do more."""

from __future__ import annotations

import os
import sys
from textwrap import wrap

from latprof_analysis.report.terminal import Terminal
from rich.text import Text

from latprof_agent.live.figures import figures_of
from latprof_agent.live.glyphs import glyphs_for
from latprof_agent.live.pages import LEGEND, block
from latprof_agent.live.rows import ordered, rows_of
from latprof_agent.live.shown import Watched, Window

PIPE_COLUMNS = 160


class Blocks:
    """A `WindowSink` that prints a block for each interval, of all groups."""

    def __init__(self, *, legend: bool = False) -> None:
        """`legend`: behind the first one stands what its words mean."""
        self._legend = legend
        width_known = sys.stdout.isatty() or "COLUMNS" in os.environ
        self._terminal = Terminal(width=None if width_known else PIPE_COLUMNS)
        self._glyphs = glyphs_for(sys.stdout.encoding)

    def begin(self, watched: Watched) -> None:
        """Nothing to forget."""

    def take(self, window: Window) -> None:
        """Print it."""
        interval = window.interval
        rows = ordered(rows_of(interval, figures_of(interval)), "hurt")
        width = self._terminal.width
        lines = block(window, rows, width, self._glyphs)
        if self._legend and rows:
            legend = (
                wrap(f" {line}", width, subsequent_indent="   ") for line in LEGEND
            )
            lines += [*(Text(line, "dim") for part in legend for line in part), Text()]
            self._legend = False
        for line in lines:
            line.rstrip()
            self._terminal.print(line, no_wrap=True, overflow="ignore", crop=False)
        sys.stdout.flush()
