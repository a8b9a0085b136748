"""The offline commands, which need neither root nor the agent."""

from __future__ import annotations

from collections.abc import Sequence

from latprof_analysis.cli.program import Subcommand, run_program
from latprof_analysis.version import VERSION

OFFLINE = {
    "analyze": Subcommand(
        "say what run folders and other tools' files hold: stages, fit, tails, loss",
        "latprof_analysis.cli.analyze",
        extra="analysis",
        address_space_mib=1024,
    ),
    "compare": Subcommand(
        "say what changed from a baseline, and how surely",
        "latprof_analysis.cli.compare",
        extra="analysis",
        address_space_mib=1024,
    ),
    "report": Subcommand(
        "make a page of what was found, or a PDF, Markdown or picture",
        "latprof_analysis.cli.report",
        extra="analysis",
        address_space_mib=2048,
    ),
    "story": Subcommand(
        "tell why messages of `latprof run --story` were slow",
        "latprof_analysis.cli.story",
    ),
    "trace": Subcommand(
        "write stories as a trace that Perfetto draws",
        "latprof_analysis.cli.trace",
    ),
    "schema": Subcommand(
        "print what a command's --json has, as JSON Schema",
        "latprof_analysis.cli.schema",
    ),
    "completion": Subcommand(
        "print what lets a shell complete latprof's options",
        "latprof_analysis.cli.completion",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one offline command; returns the exit status."""
    return run_program(OFFLINE, VERSION, arguments)
