"""How far a run is, on stderr, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
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


@contextmanager
def runs_progress(
    planned: int, *, enabled: bool
) -> Iterator[Callable[[int, str, int], Progress]]:
    """Give what makes the progress of each of several runs, in one bar.

    It takes how many runs are over, the name of the one that begins, and how many
    parts it has, one for each protocol.
    """
    if not enabled or not sys.stderr.isatty():
        yield lambda _place, _name, _parts: _silent
        return
    with _bar(has_end=True) as bar:
        task = bar.add_task("", total=planned, figures="")

        def of_run(place: int, name: str, parts: int) -> Progress:
            seen: dict[str, float] = {}

            def show(what: str, _messages: int, done: float, whole: float) -> None:
                if whole > 0:
                    seen[what] = min(1.0, done / whole) / max(1, parts)
                bar.update(
                    task,
                    description=f"run {place + 1} of {planned}",
                    completed=place + min(1.0, sum(seen.values())),
                    figures=f"{name} {what}".strip(),
                )

            show("", 0, 0, 0)
            return show

        yield of_run
