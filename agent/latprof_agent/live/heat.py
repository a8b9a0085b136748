"""A heat map over time as lines of text: durations upwards, intervals to the right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from latprof_analysis.text import given_duration, short_duration
from numpy.typing import NDArray
from rich.text import Text

from latprof_agent.live.figures import cell_edges_ns
from latprof_agent.live.glyphs import Glyphs

# From few to many; a terminal of fewer colours, or none, has the shades alone.
_COLOURS = ("#31688e", "#21918c", "#35b779", "#90d743", "#fde725")
LABEL_WIDTH = 8


def heat_lines(
    heat: NDArray[np.int64], seconds: Sequence[float], room: int, glyphs: Glyphs
) -> list[Text]:
    """Return the map and the axis of time below it, `room` lines at most.

    Parameters
    ----------
    heat : ndarray of shape (CELLS, intervals)
        Counts, newest last.
    seconds : sequence of float
        Of all intervals, newest last.
    """
    if room < 3 or not heat.any():
        return [Text(" nothing of it yet", "dim")][:room]
    rows, edges = folded(heat, room - 1)
    most = int(rows.max())
    lines = []
    for counts, edge in zip(rows[::-1], edges[::-1], strict=True):
        line = Text(f"{short_duration(edge):>{LABEL_WIDTH - 1}} ", "dim")
        for shade in glyphs.shaded(counts, most):
            line.append(shade, _style(shade, glyphs))
        lines.append(line)
    return [*lines, _axis(heat.shape[1], seconds)]


def folded(
    heat: NDArray[np.int64], room: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return rows from the first to the last that hold anything, and their edges.

    Half octaves; where these are more than `room`, which is 2 or more, octaves, and
    so on.
    """
    edges = cell_edges_ns()
    used = np.flatnonzero(heat.any(axis=1))
    # the first cell ends at an octave, so pairs after it are octaves
    step = 1
    while (used[-1] + step - 1) // step - (used[0] + step - 1) // step >= room:
        step *= 2
    starts = np.array([0, *range(1, len(edges), step)])
    sums, lows = np.add.reduceat(heat, starts, axis=0), edges[starts]
    there = np.flatnonzero(sums.any(axis=1))
    rows = slice(there[0], there[-1] + 1)
    return sums[rows], lows[rows]


def _style(shade: str, glyphs: Glyphs) -> str:
    level = glyphs.shade.index(shade)
    return _COLOURS[level] if level else ""


def _axis(columns: int, seconds: Sequence[float]) -> Text:
    """Write how long ago the first column began."""
    ago = given_duration(1e9 * sum(list(seconds)[-columns:]), 2)
    begin = f"{ago} ago"
    return Text(
        f"{'':{LABEL_WIDTH}}{begin}{'now':>{max(4, columns - len(begin))}}", "dim"
    )
