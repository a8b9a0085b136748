"""Small drawings out of characters: sparks, cells of heat maps, cut names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size

from latprof_agent.live.figures import Shape, cell_edges_ns

# Below 1.02 us, then eight times longer with each character, 268 ms or more last.
_SPARK_NS = 2.0 ** np.array([-np.inf, 10, 13, 16, 19, 22, 25, 28])
SPARK_WIDTH = len(_SPARK_NS)


@dataclass(frozen=True)
class Glyphs:
    """Characters that the output's encoding has."""

    spark: str  # from none to most
    shade: str
    more: str  # where a text was cut

    def cut(self, text: str, width: int) -> str:
        """Make a text exactly so wide, and show where it was longer."""
        if cell_len(text) <= width:
            return set_cell_size(text, width)
        return set_cell_size(text, max(0, width - 1)) + self.more

    def sparked(self, shape: Shape) -> str:
        """Draw how many were between each two of _SPARK_NS."""
        counts = np.add.reduceat(shape, np.searchsorted(cell_edges_ns(), _SPARK_NS))
        return "".join(self.spark[i] for i in _levels(counts, len(self.spark)))

    def shaded(self, counts: NDArray[np.int64], most: int) -> list[str]:
        """Draw counts as cells, of which `most` is the darkest."""
        levels = _levels(np.append(counts, most), len(self.shade))
        return [self.shade[i] for i in levels[:-1]]


UNICODE = Glyphs(" ▁▂▃▄▅▆▇█", " ░▒▓█", "…")
ASCII = Glyphs(" .:-=+*#@", " .:*#", "~")


def glyphs_for(encoding: str) -> Glyphs:
    """Return what an encoding can write."""
    try:
        (UNICODE.spark + UNICODE.shade + UNICODE.more).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def _levels(counts: NDArray[np.float64] | NDArray[np.int64], levels: int) -> list[int]:
    """Return heights, logarithmic: 0 for none, 1 for the fewest, the last for most."""
    most = counts.max(initial=0)
    if most <= 0:
        return [0] * len(counts)
    share = np.log1p(counts) / np.log1p(most)
    return [int(level) for level in np.ceil(share * (levels - 1))]
