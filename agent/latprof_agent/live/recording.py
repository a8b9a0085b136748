"""A run folder of what is watched: windows as histograms, the sample as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from latprof_agent.live.document import document
from latprof_agent.live.live_folder import Description, LiveFolder
from latprof_agent.live.sample_recording import SampleRecording
from latprof_agent.live.shown import Watched, Window
from latprof_agent.monitor.totals import Totals
from latprof_agent.sinks.sink import Sink

if TYPE_CHECKING:
    from latprof_agent.monitor.monitor import TakesSample


class Sampling(Protocol):
    """Who joins the sample, and hands it to whoever wants it; see `Monitor`."""

    sinks: list[Sink]
    takes_sample: TakesSample | None


class Recording:
    """A `WindowSink` that fills a run folder until `finish`."""

    def __init__(
        self,
        folder: LiveFolder,
        source: Sampling,
        arguments: tuple[str, ...],
        *,
        recording: bool = True,
    ) -> None:
        """With `recording` the folder has, too, what it was made from."""
        self._folder = folder
        self._arguments = arguments
        self.begun = False
        self._last: Window | None = None
        if recording:
            kept = source.takes_sample = SampleRecording(folder.open_recording)
            folder.keep(kept)
        source.sinks.append(folder)

    def begin(self, watched: Watched) -> None:
        """Write what is watched; of several filters the first."""
        if not self.begun:
            which = watched.filter or "all traffic"
            by = watched.grouping.by
            self._folder.start(Description(which, by, self._arguments))
        self.begun = True

    def take(self, window: Window) -> None:
        """Take an interval; raises what keeps the folder from taking more."""
        self._folder.add_window(window.interval, window.now)
        self._last = window
        if self._folder.failure:
            raise self._folder.failure

    def discard(self) -> None:
        """Leave nothing: it has never begun."""
        self._folder.remove()

    def finish(self, totals: Totals, failure: BaseException | None) -> None:
        """Write what is left, and the documents; `totals` are of the whole time."""
        more: dict[str, Any] = {}
        if self._last:
            self._folder.add_window(totals.since(self._last.now), totals)
            more = figures(totals)
        self._folder.finish(totals, more, failure)


def figures(totals: Totals) -> dict[str, Any]:
    """Return what a summary has of all groups, and of the slowest."""
    whole = document(Window(Watched(), totals, totals))
    return {key: whole[key] for key in ("groups", "exemplars")}
