"""What is answered at which path."""

from __future__ import annotations

import asyncio
import gzip
import html
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from http import HTTPStatus
from urllib.parse import parse_qs

from latprof_agent.monitor.totals import Totals
from latprof_agent.service.metrics.exposition import Format, chosen
from latprof_agent.service.metrics.families import EdgeSets, Family, families
from latprof_agent.service.published_sample import Place, PublishedSample
from latprof_agent.service.states import States
from latprof_agent.service.web.hosts import Hosts
from latprof_agent.service.web.passwords import Passwords
from latprof_agent.service.web.request import Answer, Refusal, Request
from latprof_agent.service.web.story_pages import StoryPages

_JSON = ".json"
_STATE_SECONDS = 5.0  # that a state may take
_GZIP_LEVEL = 1  # a 15th of the size; more takes longer than it is worth
_HTML = "text/html; charset=utf-8"
_PAGE = """\
<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>latprof agent</title>{base}
<style>body {{ font: 1rem system-ui; margin: 2rem; color-scheme: light dark }}
th, td {{ text-align: left; padding-right: 2rem; vertical-align: top }}
th {{ font-weight: normal }}</style>
<h1>latprof agent</h1>
<p><a href="metrics">metrics</a> <a href="healthz">health</a>
<a href="-/ready">ready</a></p>
<table>{rows}</table>
{stories}"""
_STORIES = "/stories/"
NEXT, LOST = "Latprof-Next", "Latprof-Lost-Records"  # headers of samples
RECORDING = "application/vnd.apache.arrow.stream+zstd"
_BELOW = '<base href="..">'  # links of the page lead from the one above


@dataclass(frozen=True)
class Settings:
    """What of the configuration answers depend on."""

    hosts: Hosts
    passwords: Passwords
    edges: EdgeSets
    described: dict[str, str]  # for the page


@dataclass
class _Written:
    """What is shown of a state, made once for all that ask for it."""

    t_ns: int  # of the state
    plain: bytes

    @cached_property
    def packed(self) -> bytes:
        """The same, compressed."""
        return gzip.compress(self.plain, _GZIP_LEVEL)


class Pages:
    """Answers requests; `settings` may change while it does."""

    def __init__(
        self,
        states: States,
        settings: Settings,
        own: Callable[[], Iterable[Family]],  # of the process that measures
        stories: StoryPages | None = None,
        sample: PublishedSample | None = None,
    ) -> None:
        self.settings = settings
        self._states = states
        self._own = own
        self._stories = stories
        self._written: dict[Hashable, _Written] = {}  # by format
        self._paths = {
            "/": self._page,
            "/metrics": self._metrics,
            "/healthz": self._health,
            "/-/ready": self._ready,
        }
        if sample:
            self._paths["/samples"] = partial(self._samples, sample)

    async def respond(self, request: Request) -> Answer:
        """Answer a request, or raise Refusal.

        Health is for all that can ask, by any name: probes of a load balancer have
        names and passwords of their own, and there is nothing to learn.
        """
        make = self._paths.get(request.path)
        if make in (self._health, self._ready):
            return await make(request)
        self.settings.hosts.check(request)
        if self._stories and request.path.startswith(_STORIES):
            make = partial(self._story, self._stories)
        if not make:
            raise Refusal(HTTPStatus.NOT_FOUND)
        await self.settings.passwords.check(request)
        return await make(request)

    async def _health(self, _request: Request) -> Answer:
        if not self._states.alive():
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer(b"ok\n")

    async def _ready(self, _request: Request) -> Answer:
        if not (self._states.ready and self._states.alive()):
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer(b"ready\n")

    async def _newest(self) -> Totals:
        if not self._states.ready:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, Retry_After="1")
        try:
            async with asyncio.timeout(_STATE_SECONDS):
                return await asyncio.wrap_future(self._states.ask())
        except TimeoutError as error:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE) from error

    def _once(
        self, form: Hashable, totals: Totals, write: Callable[[Totals], bytes]
    ) -> _Written:
        """Write a state unless that is done: a state is kept for a second."""
        written = self._written.get(form)
        if not written or written.t_ns != totals.t_ns:
            written = self._written[form] = _Written(totals.t_ns, write(totals))
        return written

    async def _metrics(self, request: Request) -> Answer:
        totals = await self._newest()
        form = chosen(request.headers.get("accept", ""))
        written = self._once(form, totals, partial(self._exposition, form))
        headers = {"Cache-Control": "no-store", "Vary": "Accept, Accept-Encoding"}
        if form.dense or not request.accepts_gzip():
            return Answer(written.plain, form.content_type, headers=headers)
        headers["Content-Encoding"] = "gzip"
        return Answer(written.packed, form.content_type, headers=headers)

    def _exposition(self, form: Format, totals: Totals) -> bytes:
        return form.write([*families(totals, self.settings.edges), *self._own()])

    async def _samples(self, sample: PublishedSample, request: Request) -> Answer:
        """Give what is new of the sample, as a recording, and where it ends."""
        since = parse_qs(request.query).get("since", [""])[-1]
        place = Place.read(since)
        if since and not place:
            raise Refusal(
                HTTPStatus.BAD_REQUEST, f"since must be what {NEXT} said last"
            )
        given = sample.since(place)
        if not given:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, Retry_After="1")
        headers = {
            "Cache-Control": "no-store",
            NEXT: str(given.next),
            LOST: str(given.lost_records),
        }
        return Answer(given.recording, RECORDING, headers=headers)

    async def _page(self, request: Request) -> Answer:
        """Show the state; and stories, to who may read them."""
        # first, as the passwords may be others after the wait
        below, listed = request.path == _STORIES, self._may_read_stories(request)
        totals = await self._newest()
        written = self._once(
            (_HTML, below, listed), totals, partial(self._shown, below, listed)
        )
        return _page(written.plain)

    def _shown(self, below: bool, listed: bool, totals: Totals) -> bytes:
        own = totals.own
        covered = own.covered_seconds / own.seconds if own.seconds else 0.0
        shown = {
            **self.settings.described,
            "measured": f"{100 * covered:.0f}% of {own.seconds:.0f} s",
            "groups": str(len(totals.groups)),
            "lost records": str(sum(own.lost_records.values())),
        }
        rows = "".join(
            f"<tr><th>{html.escape(name)}<td>{html.escape(text)}"
            for name, text in shown.items()
        )
        base = _BELOW if below else ""
        stories = ""
        if self._stories:
            stories = self._stories.listed() if listed else self._stories.hidden()
        return _PAGE.format(base=base, rows=rows, stories=stories).encode()

    def _may_read_stories(self, request: Request) -> bool:
        """Whether its sender may; where there are passwords, it has given one."""
        if self.settings.passwords or not self._stories:
            return True
        return self._stories.unlocked_by(request)

    async def _story(self, stories: StoryPages, request: Request) -> Answer:
        if not self._may_read_stories(request):
            raise stories.refusal()
        name = request.path.removeprefix(_STORIES)
        if not name:
            return await self._page(request)
        if name.endswith(_JSON):
            document = stories.document(name.removesuffix(_JSON))
            if document is not None:
                return Answer(document, "application/json")
        elif page := stories.page(name):
            return _page(page.encode())
        raise Refusal(HTTPStatus.NOT_FOUND)


def _page(text: bytes) -> Answer:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    headers = {"Content-Security-Policy": policy}
    return Answer(text, _HTML, headers=headers)
