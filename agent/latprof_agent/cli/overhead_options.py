"""What measuring may cost: `--max-overhead`, of which the configuration has a twin."""

from __future__ import annotations

import argparse
import math

from latprof_analysis.cli import units

NO_LIMIT = "none"
DEFAULT_OVERHEAD = 0.02

_share = units.either(NO_LIMIT, units.within(units.share, "0.1%", "100%"))


def overhead(text: str) -> float:
    """Read a share of one CPU, or none: infinity."""
    read = _share(text)
    return math.inf if isinstance(read, str) else read


def add_overhead_options(
    parser: argparse.ArgumentParser, default: float | None, otherwise: str = ""
) -> None:
    """Add `--max-overhead`, whose value is a number of CPUs.

    `otherwise`: where the default is another one.
    """
    parser.add_argument(
        "--max-overhead",
        type=overhead,
        default=default,
        metavar="SHARE",
        help="of one CPU, probes and agent together; where all would cost more, it "
        "measures in short windows at random times, and an interval without one goes "
        f"on (default: 2%%{otherwise}; none: no limit)",
    )
