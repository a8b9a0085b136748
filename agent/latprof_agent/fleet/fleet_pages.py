"""What a fleet answers, to Prometheus and to people."""

from __future__ import annotations

import asyncio
import html
import threading
from dataclasses import dataclass
from http import HTTPStatus

from latprof_agent.fleet.fleet import Fleet
from latprof_agent.fleet.fleet_document import document, lines_of
from latprof_agent.fleet.fleet_families import fleet_families
from latprof_agent.fleet.fleet_totals import FleetTotals
from latprof_agent.service.metrics.exposition import chosen
from latprof_agent.service.web.hosts import Hosts
from latprof_agent.service.web.passwords import Passwords
from latprof_agent.service.web.request import Answer, Refusal, Request

_HTML = "text/html; charset=utf-8"
_PAGE = """\
<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>latprof fleet</title>
<style>body {{ font: 1rem system-ui; margin: 2rem; color-scheme: light dark }}</style>
<h1>latprof fleet</h1>
<p><a href="metrics">metrics</a> <a href="healthz">health</a></p>
<pre>{lines}</pre>
"""


@dataclass
class FleetPages:
    """Answers requests; `over` is the interval that was over last."""

    fleet: Fleet
    lock: threading.Lock  # of the fleet
    hosts: Hosts
    passwords: Passwords
    over: FleetTotals
    interval_seconds: float

    async def respond(self, request: Request) -> Answer:
        """Answer a request, or raise Refusal."""
        if request.path in ("/healthz", "/-/ready"):
            return Answer(b"ok\n")
        make = {"/": self._page, "/metrics": self._metrics}.get(request.path)
        self.hosts.check(request)
        if not make:
            raise Refusal(HTTPStatus.NOT_FOUND)
        await self.passwords.check(request)
        # others are answered while the fleet joins
        return await asyncio.to_thread(make, request)

    def _metrics(self, request: Request) -> Answer:
        form = chosen(request.headers.get("accept", ""))
        with self.lock:
            text = form.write(fleet_families(self.fleet))
        headers = {"Cache-Control": "no-store", "Vary": "Accept"}
        return Answer(text, form.content_type, headers=headers)

    def _page(self, _request: Request) -> Answer:
        with self.lock:
            found = document(self.fleet, self.over, self.interval_seconds)
        lines = html.escape("\n".join(lines_of(found)))
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        headers = {"Content-Security-Policy": policy}
        return Answer(_PAGE.format(lines=lines).encode(), _HTML, headers=headers)
