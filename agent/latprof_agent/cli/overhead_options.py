"""What measuring may cost: `--max-overhead`, of which the configuration has a twin."""

from __future__ import annotations

import argparse

from latprof_agent.values import overhead


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
