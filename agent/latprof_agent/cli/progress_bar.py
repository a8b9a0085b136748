"""A progress bar on stderr, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from latprof_agent.session import Progress


def _silent(_what: str, _messages: int, _done: float, _planned: float) -> None:
    """Show nothing."""


@contextmanager
def progress_bar(*, enabled: bool) -> Iterator[Progress]:
    """Give a function that shows how far a run is, its rate and the time left.

    A `planned` of 0 is unknown: then it shows that something goes on.
    """
    if not enabled or not sys.stderr.isatty():
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}% {task.fields[figures]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks = {}

        def show(what: str, messages: int, done: float, planned: float) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=None, figures="")
            elapsed = bar.tasks[tasks[what]].elapsed
            rate = messages / elapsed if elapsed else 0.0
            bar.update(
                tasks[what],
                completed=min(done, planned) if planned else done,
                total=planned or None,
                figures=f"{messages} messages, {rate:.0f}/s" if messages else "",
            )

        yield show
