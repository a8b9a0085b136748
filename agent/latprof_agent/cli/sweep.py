"""`latprof run --sweep`: many runs in one folder, in random order, and one table."""

from __future__ import annotations

import argparse
import itertools
import math
import random
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from latprof_analysis.read.paths import SWEEP_FILE
from latprof_analysis.say import say_json, say_parts
from latprof_analysis.text import did_you_mean

from latprof_agent.cli.given_words import (
    given_options,
    own_words,
    parsed_again,
    shown_form,
    without,
)
from latprof_agent.cli.root import require_root
from latprof_agent.cli.run_forms import ATTACH
from latprof_agent.cli.sweep_options import Swept
from latprof_agent.errors import InterruptedRun, LatprofError

if TYPE_CHECKING:
    from latprof_analysis.study.sweep import SweptRun

    from latprof_agent.interrupts import Interrupt
    from latprof_agent.session import RunOptions
    from latprof_agent.sinks.run_files import RunFolder
    from latprof_agent.workload.workload import Progress

MOST_RUNS = 10_000
# Of all runs together: what they have alike, or what names the one folder.
_NOT_SWEPT = ("sweep", "repeat", "preset", "scale", "out", "name")
_OF_THE_SWEEP = tuple(f"--{name}" for name in _NOT_SWEPT)
# Numbers that are names: nothing grows with them.
_NAMES = ("seed", "client-cpu", "server-cpu")
_SEEDS = 2**63
_MOST_LABEL = 100
_FILE_WIDTH = 180  # of a table with all ranges

Check = Callable[[argparse.Namespace], "RunOptions"]
Combination = Mapping[str, str]


@dataclass(frozen=True)
class _Planned:
    """A run that is to come; its folder is below the sweep's."""

    combination: Combination
    repeat: int
    options: RunOptions


def is_sweep(options: argparse.Namespace) -> bool:
    """Whether these are options of several runs."""
    return bool(options.sweep) or options.repeat > 1


def run_sweep(options: argparse.Namespace, check: Check) -> int:
    """Do all runs, whatever becomes of one, and show the table of them.

    All are checked first, by `check` and against this host; nothing is made where one
    of them cannot be.
    """
    from latprof_agent.interrupts import Interrupt

    interrupt = Interrupt()
    with interrupt.caught():
        combinations = list(_combinations(options))
        planned = _planned(options, combinations, check)
        numbers = _numbers(options, combinations)
        require_root("run")
        sweep = _Sweep(options, combinations, planned, numbers)
        try:
            document = sweep.run(interrupt)
        finally:
            sweep.folder.close()
    if options.json:
        say_json(document)
    else:
        from latprof_analysis.report.sweep_parts import sweep_parts

        parts = sweep_parts(document, everything=options.all)
        say_parts(parts, _FILE_WIDTH)
    return 1 if any(run["failure"] for run in document["runs"]) else 0


def _combinations(options: argparse.Namespace) -> Iterator[Combination]:
    """Yield the values of each combination, in the order in which they are given."""
    names = [one.name for one in options.sweep]
    given = set(given_options(own_words(options)))
    for one in options.sweep:
        if refused := _refusal(options.parser, one, names, given):
            options.parser.error(f"--sweep: {refused}")
    if "seed" in names and options.repeat > 1:
        options.parser.error(
            "--sweep: --seed is swept, so not with --repeat, whose Nth run has the Nth "
            "seed; give more seeds"
        )
    runs = options.repeat * math.prod(len(one.values) for one in options.sweep)
    if runs > MOST_RUNS:
        options.parser.error(
            f"--sweep: {runs} runs are more than {MOST_RUNS}; give fewer values, or a "
            "smaller --repeat"
        )
    for values in itertools.product(*(one.values for one in options.sweep)):
        yield dict(zip(names, values, strict=True))


def _refusal(
    parser: argparse.ArgumentParser, one: Swept, names: list[str], given: set[str]
) -> str:
    """Say why an option cannot be swept; nothing where it can."""
    option = f"--{one.name}"
    action = parser._option_string_actions.get(option)
    if not action:
        known = [k for k in parser._option_string_actions if k.startswith("--")]
        return f"there is no option {option}{did_you_mean(option, known)}"
    if one.name in _NOT_SWEPT or isinstance(action.default, list):
        return f"{option} cannot be swept"
    if action.nargs == 0:
        return f"{option} takes no value"
    if option in given:
        return f"{option} is given, too; give it once"
    if names.count(one.name) > 1:
        return f"{option} is swept twice; give all its values at once"
    return ""


def _planned(
    options: argparse.Namespace, combinations: Sequence[Combination], check: Check
) -> list[_Planned]:
    """Check all runs, and return them in the order in which they are to be."""
    order = random.Random(options.seed)
    found = []
    for repeat in range(1, options.repeat + 1):
        block = [
            _Planned(one, repeat, check(_of_one(options, one, repeat)))
            for one in combinations
        ]
        order.shuffle(block)
        found += block
    return found


def _of_one(
    options: argparse.Namespace, combination: Combination, repeat: int
) -> argparse.Namespace:
    """Return the options of one run, by the line that would do it alone."""
    words = without(own_words(options), _OF_THE_SWEEP)
    chosen = [f"--{name}={value}" for name, value in combination.items()]
    one = parsed_again(options, [*chosen, *words])
    if repeat == 1 or options.no_lab or options.form == ATTACH:
        return one
    seed = (one.seed + repeat - 1) % _SEEDS
    words = without([*chosen, *words], ("--seed",))
    return parsed_again(options, [f"--seed={seed}", *words])


def _numbers(
    options: argparse.Namespace, combinations: Sequence[Combination]
) -> dict[str, dict[str, float]]:
    """Return swept options whose values are all quantities, and these."""
    found: dict[str, dict[str, float]] = {}
    for name, values in options.sweep:
        if name in _NAMES:
            continue
        action = options.parser._option_string_actions[f"--{name}"]
        read = [options.parser._get_value(action, text) for text in values]
        # one size is a list of one
        alone = [
            one[0] if isinstance(one, tuple) and len(one) == 1 else one for one in read
        ]
        if all(isinstance(one, int | float) for one in alone):
            found[name] = dict(zip(values, map(float, alone), strict=True))
    return found


def _label(combination: Combination) -> str:
    """Name a combination so that it can be a folder, and no pattern."""
    text = ",".join(f"{name}={value}" for name, value in combination.items())
    return re.sub(r"[^\w.+=@%,-]", "_", text, flags=re.ASCII)[:_MOST_LABEL]


def _folders(combinations: Sequence[Combination]) -> list[str]:
    """Return the folder of each combination, below the sweep's."""
    labels = [_label(one) for one in combinations]
    return [
        label if labels.count(label) == 1 else f"{label}-{place}"
        for place, label in enumerate(labels, 1)
    ]


class _Sweep:
    def __init__(
        self,
        options: argparse.Namespace,
        combinations: Sequence[Combination],
        planned: Sequence[_Planned],
        numbers: Mapping[str, Mapping[str, float]],
    ) -> None:
        from latprof_agent import session
        from latprof_agent.sinks.run_files import RunFolder

        for one in planned:
            if one.repeat == 1:
                session.check(replace(one.options, out=options.out))
        self._options = options
        self._combinations = combinations
        self._planned = planned
        self._numbers = numbers
        self._runs: list[SweptRun] = []
        name = options.name or time.strftime("%Y%m%d-%H%M%S-sweep")
        self.folder: RunFolder = RunFolder(options.out, name, tables={})
        self._folders = _folders(combinations)

    def run(self, interrupt: Interrupt) -> dict[str, Any]:
        """Do all of them that there is time for; return the document."""
        from latprof_agent.cli.progress_bar import runs_progress

        enabled = not self._options.quiet
        with runs_progress(len(self._planned), enabled=enabled) as progress_of:
            for place, one in enumerate(self._planned):
                if interrupt.seen:
                    break
                label = " ".join(f"{k}={v}" for k, v in one.combination.items())
                progress = progress_of(place, label, len(one.options.protocols))
                self._runs.append(self._run(one, progress, interrupt))
                self.folder.write_json(SWEEP_FILE, self.document())
        if not any(run.folder for run in self._runs):
            interrupt.check()
        return self.document()

    def _run(self, one: _Planned, progress: Progress, interrupt: Interrupt) -> SweptRun:
        from latprof_analysis.study.sweep import SweptRun
        from latprof_analysis.study.sweep_figures import figures_of

        from latprof_agent import session

        place = self._combinations.index(one.combination)
        name = f"{self._folders[place]}/{one.repeat}".removeprefix("/")
        out = self.folder.path / name
        try:
            outcome = session.run(
                replace(one.options, out=out, name=name), progress, interrupt
            )
        except InterruptedRun:
            return SweptRun(one.combination, one.repeat, "", "interrupted")
        except LatprofError as error:
            return SweptRun(one.combination, one.repeat, "", "failed", str(error))
        summary = outcome.summary
        return SweptRun(
            one.combination,
            one.repeat,
            str(outcome.folder),
            summary["state"] if not outcome.failure else "failed",
            str(outcome.failure or ""),
            summary["warnings"],
            sum(summary["lost_records"].values()),
            figures_of(summary),
        )

    def document(self) -> dict[str, Any]:
        """Return what sweep.json holds, of the runs that were."""
        from latprof_analysis.study.sweep import find_knees, rows_of

        options = self._options
        rows = rows_of(self._combinations, self._runs)
        knees = [
            knee
            for option, numbers in self._numbers.items()
            for knee in find_knees(rows, option, numbers)
        ]
        return {
            "format": 1,
            "folder": str(self.folder.path),
            "line": self._line(),
            "seed": options.seed,
            "repeat": options.repeat,
            "planned": len(self._planned),
            "swept": [
                {"name": one.name, "values": list(one.values)} for one in options.sweep
            ],
            "folders": self._folders,
            "rows": rows,
            "knees": knees,
            "runs": [run.as_dict() for run in self._runs],
        }

    def _line(self) -> str:
        """Return the line that does it again, in a folder of its own."""
        words = without(own_words(self._options), ("--out",))
        form = shown_form(self._options)
        return shlex.join(["latprof", self._options.command, *form, *words])
