"""The command line: the agent's own commands, and those of the offline analysis."""

from __future__ import annotations

from collections.abc import Sequence

from latprof_analysis.cli import OFFLINE
from latprof_analysis.cli.program import Subcommand, run_program
from latprof_analysis.version import VERSION

# What a word behind `latprof run` adds to it; the first form has none.
RUN_FORMS = {
    "mesh": "every host sends messages to every other",
    "ops": "GET, SET, EXISTS and EVICT on redis and other stores",
    "bulk": "throughput and loss over several channels",
    "attach": "watch what runs already: processes, control groups, ports",
}
SUBCOMMANDS = {
    "run": Subcommand(
        "send messages (or run a command) and show where they spent their time",
        "latprof_agent.cli.run",
        forms=RUN_FORMS,
    ),
    "watch": Subcommand(
        "show live where messages of what runs already spend their time",
        "latprof_agent.cli.watch",
    ),
    "agent": Subcommand(
        "measure live traffic all the time and serve it to Prometheus",
        "latprof_agent.cli.agent",
    ),
    "echo": Subcommand(
        "answer what `latprof run --to` sends from another host",
        "latprof_agent.cli.echo",
    ),
    "fleet": Subcommand(
        "join what the agents of many hosts sample, live, and serve it to Prometheus",
        "latprof_agent.cli.fleet",
        extra="analysis",
    ),
    "join": Subcommand(
        "put what several hosts recorded together, on one clock",
        "latprof_agent.cli.join",
        extra="analysis",
    ),
    "rebuild": Subcommand(
        "make a run's tables and figures again from its recording",
        "latprof_agent.cli.rebuild",
        extra="analysis",
    ),
    **{
        name: OFFLINE[name]
        for name in ("analyze", "compare", "report", "story", "trace")
    },
    "probes": Subcommand(
        "list what this kernel lets latprof measure", "latprof_agent.cli.probes"
    ),
    "lab": Subcommand(
        "remove namespaces and processes of labs that were killed",
        "latprof_agent.cli.lab_clean",
    ),
    **{name: OFFLINE[name] for name in ("schema", "completion")},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    return run_program(SUBCOMMANDS, VERSION, arguments)
