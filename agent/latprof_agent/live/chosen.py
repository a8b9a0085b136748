"""What the user has chosen to see, and what each key makes of it. No terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from latprof_agent.live.names import ALL
from latprof_agent.live.rows import SORTS, Row
from latprof_agent.monitor.totals import Exemplar, Group, Quantity

_T = TypeVar("_T")


class Page(StrEnum):
    """What is shown."""

    TABLE = "table"
    GROUP = "group"
    EXEMPLARS = "exemplars"
    STORY = "story"
    HELP = "help"


class Order(StrEnum):
    """What a key asks of who measures; others change the view alone."""

    QUIT = "quit"
    FILTER = "filter"
    GROUPING = "grouping"
    ZERO = "zero"


class Prompt(StrEnum):
    """What is being typed, and its sign."""

    FILTER = "filter: "
    GROUPING = "group by: "


@dataclass(frozen=True)
class Chosen:
    """The state of the view."""

    page: Page = Page.TABLE
    back: Page = Page.TABLE  # where esc leads to
    sort: str = "hurt"
    backwards: bool = False
    whole: bool = False  # figures since the zero, not of the last interval
    paused: bool = False
    group: Group | None = None
    quantity: Quantity | None = None
    exemplar: Exemplar | None = None  # None: the newest
    offset: int = 0  # of a story and help: lines scrolled
    prompt: Prompt | None = None
    typed: str = ""
    message: str = ""
    order: Order | None = field(default=None, compare=False)
    text: str = field(default="", compare=False)  # of the order


HELP = (
    ("arrows pgup pgdn", "choose a group, in it a quantity; home and end, too"),
    ("enter", "open the group: all its figures, heat map over time"),
    ("e", "slow ones of all, or of the opened group, with their stages"),
    ("enter", "of a slow one, with --story: why it was slow"),
    ("esc", "back"),
    ("s  r", "sort by the next column; reverse"),
    ("/", "filter: port=80 not comm=curl; empty: none"),
    ("g  G", "group by the next kind; by those you type: service,comm"),
    ("w", "figures of the last interval, or since the zero"),
    ("z", "zero: begin sums and heat map anew"),
    ("p space", "pause the view; measuring goes on"),
    ("?", "this help"),
    ("q ctrl-c", "quit"),
)


def press(
    chosen: Chosen, key: str, rows: Sequence[Row], slow: Sequence[Exemplar] = ()
) -> Chosen:
    """Return the state after a key; `rows` is the table as it is shown.

    `slow` are the slow ones in their order.
    """
    before = replace(chosen, message="", order=None, text="")
    if before.prompt:
        return _typed(before, before.prompt, key)
    if key in _MOVES:
        return _moved(before, _MOVES[key], rows, slow)
    if key in _OPENS and before.page == Page.EXEMPLARS:
        return _said(before, slow)
    act = _KEYS.get(key)
    return act(before, rows) if act else before


def _typed(chosen: Chosen, prompt: Prompt, key: str) -> Chosen:
    if key == "escape":
        return replace(chosen, prompt=None, typed="")
    if key == "backspace":
        return replace(chosen, typed=chosen.typed[:-1])
    if key == "enter":
        order = {Prompt.FILTER: Order.FILTER, Prompt.GROUPING: Order.GROUPING}[prompt]
        text = chosen.typed.strip()
        return replace(chosen, prompt=None, typed="", order=order, text=text)
    if len(key) == 1 and key.isprintable():
        return replace(chosen, typed=chosen.typed + key)
    return chosen


_FAR = 1 << 30
_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -10, "page down": 10}
_MOVES |= {"home": -_FAR, "end": _FAR}


def _moved(
    chosen: Chosen, by: int, rows: Sequence[Row], slow: Sequence[Exemplar]
) -> Chosen:
    """Move whatever the page has to choose from."""
    if chosen.page == Page.EXEMPLARS:
        return replace(chosen, exemplar=_step(slow, chosen.exemplar, by))
    if chosen.page in (Page.STORY, Page.HELP):
        return replace(chosen, offset=max(0, chosen.offset + by))
    if chosen.page == Page.GROUP:
        there = quantities_of(row_of(chosen, rows))
        return replace(chosen, quantity=_step(there, chosen.quantity, by))
    return replace(chosen, group=_step([r.group for r in rows], chosen.group, by))


def _step(there: Sequence[_T], now: _T | None, by: int) -> _T | None:
    if not there:
        return None
    at = there.index(now) if now in there else 0
    return there[min(max(at + by, 0), len(there) - 1)]


def row_of(chosen: Chosen, rows: Sequence[Row]) -> Row | None:
    """Return the chosen row, if it is there."""
    return next((row for row in rows if row.group == chosen.group), None)


def quantities_of(row: Row | None) -> list[Quantity]:
    """Return what a row has, in the order of the page."""
    return [q for q in ALL if row and q in row.figures]


def _opened(chosen: Chosen, rows: Sequence[Row]) -> Chosen:
    group = chosen.group or (rows[0].group if rows else None)
    if chosen.page != Page.TABLE or group is None:
        return chosen
    found = replace(chosen, page=Page.GROUP, group=group)
    row = row_of(found, rows)
    first = next(iter(quantities_of(row)), None)
    return replace(found, quantity=first)


def _said(chosen: Chosen, slow: Sequence[Exemplar]) -> Chosen:
    exemplar = chosen.exemplar if chosen.exemplar in slow else next(iter(slow), None)
    page = Page.STORY if exemplar else chosen.page
    return replace(chosen, page=page, exemplar=exemplar, offset=0)


def _back(chosen: Chosen, _rows: Sequence[Row]) -> Chosen:
    if chosen.page == Page.STORY:
        return replace(chosen, page=Page.EXEMPLARS, offset=0)
    return replace(chosen, page=chosen.back, back=Page.TABLE, offset=0)


def _to(page: Page) -> Callable[[Chosen, Sequence[Row]], Chosen]:
    def turn(chosen: Chosen, rows: Sequence[Row]) -> Chosen:
        if chosen.page == page:
            return _back(chosen, rows)
        back = Page.GROUP if chosen.page == Page.GROUP else Page.TABLE
        return replace(chosen, page=page, back=back, offset=0)

    return turn


def _sorted_next(chosen: Chosen, _rows: Sequence[Row]) -> Chosen:
    names = list(SORTS)
    sort = names[(names.index(chosen.sort) + 1) % len(names)]
    return replace(chosen, sort=sort, message=f"sorted by {sort}")


def _ordering(order: Order) -> Callable[[Chosen, Sequence[Row]], Chosen]:
    return lambda chosen, _rows: replace(chosen, order=order)


def _asking(prompt: Prompt) -> Callable[[Chosen, Sequence[Row]], Chosen]:
    return lambda chosen, _rows: replace(chosen, prompt=prompt, typed="")


_OPENS = ("enter", "right")
_KEYS: dict[str, Callable[[Chosen, Sequence[Row]], Chosen]] = {
    "q": _ordering(Order.QUIT),
    "?": _to(Page.HELP),
    "e": _to(Page.EXEMPLARS),
    "enter": _opened,
    "right": _opened,
    "escape": _back,
    "left": _back,
    "backspace": _back,
    "s": _sorted_next,
    "r": lambda chosen, _rows: replace(chosen, backwards=not chosen.backwards),
    "w": lambda chosen, _rows: replace(chosen, whole=not chosen.whole),
    "p": lambda chosen, _rows: replace(chosen, paused=not chosen.paused),
    " ": lambda chosen, _rows: replace(chosen, paused=not chosen.paused),
    "z": _ordering(Order.ZERO),
    "g": _ordering(Order.GROUPING),
    "/": _asking(Prompt.FILTER),
    "G": _asking(Prompt.GROUPING),
}
