"""Pages of the stories that are kept: a list, and each in lines of text. Read only."""

from __future__ import annotations

import html
import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from latprof_analysis.read.json_document import WrongShapeError
from latprof_analysis.read.stories import check_stories
from latprof_analysis.report.story_lines import headline, story_lines
from latprof_analysis.text import duration, printable

from latprof_agent.service.web.passwords import holds_token, unauthorized
from latprof_agent.service.web.request import Refusal, Request
from latprof_agent.story.story_folder import TOKEN, Kept, StoryFolder

MOST_LISTED = 100
_PAGE = """\
<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>latprof story {id}</title>
<style>body {{ font: 1rem system-ui; margin: 2rem; color-scheme: light dark }}
pre {{ white-space: pre-wrap }}</style>
<p><a href="..">latprof agent</a> <a href="{id}.json">as JSON</a></p>
<h1>{when}</h1>
<pre>{lines}</pre>
"""


class StoryPages:
    """What is shown of a folder; from another thread than the one that adds."""

    def __init__(self, folder: StoryFolder) -> None:
        self._folder = folder
        self._headlines = lru_cache(maxsize=4 * MOST_LISTED)(self._headline)
        self._way = f"with the token in {folder.path / TOKEN} as password"

    def unlocked_by(self, request: Request) -> bool:
        """Whether its sender has the folder's token."""
        return holds_token(request, self._folder.token)

    def refusal(self) -> Refusal:
        """Say what one needs to read them."""
        return unauthorized(
            f"stories are shown {self._way}; or name [users] in the configuration"
        )

    def hidden(self) -> str:
        """Say how to come to the list."""
        link = '<a href="stories/">Stories of what was slow</a>'
        return f"<p>{link} are shown {html.escape(self._way)}, for any name.</p>\n"

    def listed(self) -> str:
        """Write the newest as rows of a table, each with its link."""
        kept = self._folder.kept()
        shown = "".join(map(self._row, kept[: -MOST_LISTED - 1 : -1]))
        stories = "story" if len(kept) == 1 else "stories"
        head = f"{len(kept)} {stories} of what was slow"
        more = f", the newest {MOST_LISTED}" if len(kept) > MOST_LISTED else ""
        return f"<h2>{html.escape(head + more)}</h2>\n<table>{shown}</table>\n"

    def _row(self, kept: Kept) -> str:
        link = f'<a href="stories/{kept.id}">{_when(kept)}</a>'
        took = html.escape(duration(1000 * kept.took_us))
        return f"<tr><td>{link}<td>{took}<td>{html.escape(self._headlines(kept.id))}"

    def _headline(self, name: str) -> str:
        story = self._story(name)
        return printable(headline(story)) if story else ""

    def page(self, name: str) -> str | None:
        """Write one; None: there is none of this name."""
        story = self._story(name)
        kept = next((k for k in self._folder.kept() if k.id == name), None)
        if not story or not kept:
            return None
        lines = "\n".join(map(printable, story_lines(story)))
        return _PAGE.format(id=kept.id, when=_when(kept), lines=html.escape(lines))

    def document(self, name: str) -> bytes | None:
        """Give its file; None: there is none of this name."""
        return self._folder.read(name)

    def _story(self, name: str) -> dict[str, Any] | None:
        """Read one; None where somebody else has made something of it."""
        try:
            document = json.loads(self._folder.read(name) or b"{}")
            check_stories(document)
        except (ValueError, RecursionError, WrongShapeError):
            return None
        stories: list[dict[str, Any]] = document["stories"]
        return stories[0] if len(stories) == 1 else None


def _when(kept: Kept) -> str:
    then = datetime.fromtimestamp(kept.unix_us / 1e6, UTC)
    return f"{then:%Y-%m-%d %H:%M:%S} UTC"
