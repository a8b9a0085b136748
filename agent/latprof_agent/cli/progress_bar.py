"""How far a run is, on stderr, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from latprof_agent.workload.workload import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


def _silent(_what: str, _messages: int, _done: float, _planned: float) -> None:
    """Show nothing."""


@contextmanager
def progress_bar(*, enabled: bool) -> Iterator[Progress]:
    """Give a function that shows how far a run is, its rate and the time left.

    A `planned` of 0 is unknown, as of a COMMAND: then it shows the time gone, and
    neither bar nor percentage.
    """
    if not enabled or not sys.stderr.isatty():
        yield _silent
        return
    with ExitStack() as stack:
        bar: Bar | None = None
        tasks: dict[str, Any] = {}

        def show(what: str, messages: int, done: float, planned: float) -> None:
            nonlocal bar
            bar = bar or stack.enter_context(_bar(has_end=planned > 0))
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=planned or None, figures="")
            elapsed = bar.tasks[tasks[what]].elapsed
            rate = messages / elapsed if elapsed else 0.0
            bar.update(
                tasks[what],
                completed=min(done, planned),
                total=planned or None,
                figures=f"{messages} messages, {rate:.0f}/s" if messages else "",
            )

        yield show


def _bar(*, has_end: bool) -> Bar:
    from latprof_analysis.report.terminal import Terminal
    from rich import progress

    what = progress.TextColumn("{task.description:<8}", markup=False)
    figures = progress.TextColumn("{task.fields[figures]}")
    columns: list[progress.ProgressColumn] = [
        what,
        progress.TimeElapsedColumn(),
        figures,
    ]
    if has_end:
        share = progress.TextColumn("{task.percentage:>3.0f}%")
        left = progress.TimeRemainingColumn(compact=True)
        shape = progress.BarColumn(bar_width=24)
        columns = [what, shape, share, figures, left, progress.TextColumn("left")]
    return progress.Progress(*columns, console=Terminal(stderr=True), transient=True)
