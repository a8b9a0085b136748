"""`latprof watch`: where messages of what runs already spend their time, live."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from latprof_analysis import units
from latprof_analysis.calling_user import calling_user
from latprof_analysis.say import say

from latprof_agent.cli.filter_options import add_filter_options
from latprof_agent.cli.grouping_options import add_grouping_options
from latprof_agent.cli.overhead_options import add_overhead_options
from latprof_agent.cli.root import require_root
from latprof_agent.cli.story_options import add_story_option, make_room_for_stories
from latprof_agent.filters.groupings import next_grouping
from latprof_agent.interrupts import Interrupt
from latprof_agent.values import DEFAULT_OVERHEAD

if TYPE_CHECKING:
    from latprof_agent.live.loop import Input, WindowSink
    from latprof_agent.live.recording import Recording, Sampling
    from latprof_agent.live.shown import Watched, Window
    from latprof_agent.monitor.producer import Producer
    from latprof_agent.probes.filter import Filter
    from latprof_agent.probes.grouping import Grouping

    class Monitor(Producer, Sampling, Protocol):
        """What is needed of `monitor.Monitor`."""

        notice: Callable[[str], None]

    Make = Callable[[Filter, Grouping, float, int | None, Path | None], Monitor]


_LOOK_SECONDS = 10.0  # what is shorter is a person's look

TEXT = """\
Show live where messages of the applications on this host wait, what the network's
own RTT is, and what is lost where. Sends nothing, and changes nothing.
"""
EPILOG = """\
examples:
  latprof watch                       # ? shows the keys, q or Ctrl-C ends
  latprof watch --once                # one interval as plain lines
  latprof watch --port 6379 --not comm=redis-benchmark
  latprof watch --by comm,remote --interval 5s
  latprof watch --json --duration 10s
  latprof watch --record live --duration 10s
  latprof watch --story 20ms          # e, arrows, enter: why one was slow

A pipe, or a terminal that cannot move its cursor (TERM=dumb), gets one block of
lines for each interval. NO_COLOR is heeded. Exit status: 0 done (also after
Ctrl-C), 1 failed, 2 wrong usage.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.description = TEXT
    parser.epilog = EPILOG
    add_grouping_options(parser)
    parser.add_argument(
        "--interval",
        type=units.within(units.duration_seconds, "100ms", "1h"),
        default=2.0,
        metavar="SECONDS",
        help="of each table, block or document (default: 2)",
    )
    add_overhead_options(
        parser, None, f"; none with --once or below {_LOOK_SECONDS:g} s"
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--duration",
        type=units.within(units.duration_seconds, "100ms", "10000h"),
        metavar="SECONDS",
        help="end after this time (default: until q or Ctrl-C)",
    )
    length.add_argument(
        "--once", action="store_true", help="one interval as plain lines, then end"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON document a line for each interval, with the keys of "
        "summary.json",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="DIR",
        help="write a run folder for analyze, compare and report, too: histograms of "
        "all traffic by minute, messages and exchanges of a sample",
    )
    parser.add_argument(
        "--no-recording",
        action="store_true",
        help="with --record: leave out what `latprof rebuild` makes the folder from",
    )
    add_story_option(parser)
    add_filter_options(parser)


def run(options: argparse.Namespace) -> int:
    """Watch until it is enough."""
    require_root("watch")
    if options.story is not None:
        make_room_for_stories()
    return watch(options, _monitor)


def _monitor(
    watched: Filter,
    by: Grouping,
    most: float,
    story_ns: int | None,
    runtime: Path | None,
) -> Monitor:
    from latprof_agent.containers.runtime import list_containers
    from latprof_agent.monitor import monitor

    return monitor.Monitor(
        watched,
        by,
        max_overhead=most,
        slow_ns=story_ns or 0,
        stories=story_ns is not None,
        ask_runtime=partial(list_containers, runtime),
    )


def watch(options: argparse.Namespace, make: Make) -> int:
    """Do it with what `make` makes, which measures."""
    interrupt = Interrupt()
    with interrupt.caught():  # in an import it would be that import's failure
        from latprof_agent.live.ending import ending_sentence

        last = _follow(options, make, interrupt)
    if last:
        say(ending_sentence(last), sys.stderr if options.json else None)
    return 0


def _follow(
    options: argparse.Namespace, make: Make, interrupt: Interrupt
) -> Window | None:
    """Watch until it is enough; returns the last interval."""
    from latprof_agent.cli.filter_options import filter_of
    from latprof_agent.live.loop import Loop
    from latprof_agent.live.shown import Watched
    from latprof_agent.probes.grouping import Grouping

    with ExitStack() as stack:
        wanted = replace(filter_of(options), older=True)
        watched = Watched(options.by or Grouping(), str(wanted))
        taker, asking = _output(options, watched, stack)
        producer = make(
            wanted, watched.grouping, _most(options), options.story, options.runtime
        )
        stack.callback(producer.close)
        producer.notice = asking.show
        recording = _recording(options, producer)
        loop = Loop(
            producer,
            watched,
            # first what keeps: the output's reader may be gone
            [*filter(None, [recording]), taker],
            asking,
            interval_seconds=options.interval,
            duration_seconds=options.duration or math.inf,
            most_windows=1 if options.once else math.inf,
            read_filter=_read_filter,
            read_grouping=next_grouping,
        )
        with _kept(recording, producer):
            producer.start()
            try:
                loop.run(interrupt)
            finally:
                producer.stop()
    return loop.last


def _most(options: argparse.Namespace) -> float:
    """What it may cost: a person's look is short, and is to see all that there is."""
    if options.max_overhead is not None:
        most: float = options.max_overhead
        return most
    is_short = options.duration is not None and options.duration < _LOOK_SECONDS
    return math.inf if options.once or is_short else DEFAULT_OVERHEAD


def _recording(options: argparse.Namespace, producer: Monitor) -> Recording | None:
    """Make the folder before anything is loaded."""
    if not options.record:
        return None
    from latprof_agent.live.live_folder import LiveFolder
    from latprof_agent.live.recording import Recording

    return Recording(
        LiveFolder(options.record, calling_user()),
        producer,
        tuple(sys.argv[1:]),
        recording=not options.no_recording,
    )


@contextmanager
def _kept(recording: Recording | None, producer: Producer) -> Iterator[None]:
    """Leave a run folder that is whole, or none, however the block ends."""
    failure: BaseException | None = None
    try:
        yield
    except BrokenPipeError:
        raise  # whoever reads our output has seen enough
    except BaseException as error:
        failure = error
        raise
    finally:
        if recording and recording.begun:
            recording.finish(producer.totals(), failure)
        elif recording:
            recording.discard()


def _read_filter(text: str) -> Filter:
    from latprof_agent.cli.filter_options import parse_filter

    return replace(parse_filter(text), older=True)


def _output(
    options: argparse.Namespace, watched: Watched, stack: ExitStack
) -> tuple[WindowSink, Input]:
    """Choose what becomes of windows: a live view only where there is a terminal."""
    from latprof_agent.live.loop import NoInput

    if options.json:
        from latprof_agent.live.document import Documents

        return Documents(), NoInput()
    dumb = os.environ.get("TERM", "dumb").lower() in ("dumb", "unknown")
    if options.once or dumb or not sys.stdout.isatty():
        from latprof_agent.live.plain import Blocks

        return Blocks(legend=options.once), NoInput()
    from latprof_agent.live.screen import Screen
    from latprof_agent.live.view import LiveView

    view = LiveView(Screen(), watched)
    stack.enter_context(view.open())
    return view, view
