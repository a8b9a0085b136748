"""What a report is made of, whatever it is written as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # the agent, which shows parts on a terminal, is to stay small
    import pandas as pd

Spec = dict[str, Any]


@dataclass(frozen=True)
class Text:
    """A paragraph; `quiet` ones are notes, others may be an answer or a warning."""

    text: str
    quiet: bool = False
    tone: Literal["", "answer", "warning"] = ""


@dataclass(frozen=True)
class Items:
    """A list of short texts."""

    items: Sequence[str]


@dataclass(frozen=True)
class Missing:
    """The reason in place of a figure or number that is not known."""

    title: str
    reason: str


@dataclass(frozen=True)
class Cell:
    """A figure with what qualifies it: its interval, n, or why there is none."""

    text: str
    under: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of texts; the first column names the row."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    note: str = ""
    numeric: bool = True
    # titles above those of the columns, outermost first, each of so many columns; the
    # first column has none
    heads: Sequence[Sequence[tuple[str, int]]] = ()
    narrow: Sequence[Table] = ()  # the same with less, where there is less room
    whole: str = ""  # name of the row that the others are parts of


@dataclass(frozen=True)
class Chart:
    """One picture of a figure: a specification for each scale it can have.

    Specifications hold no data; `scales` has the first one to show first.
    """

    scales: Mapping[str, Spec]
    title: str = ""


@dataclass(frozen=True)
class Figure:
    """Pictures over one tidy table."""

    name: str  # of its files and its place in the page: letters, digits and dashes
    title: str  # what it shows, as a sentence
    caption: str  # how to read it, n, and which intervals are drawn
    alt: str  # what it says to someone who cannot see it
    data: pd.DataFrame  # what is drawn, as it is exported
    charts: Sequence[Chart]
    zooms: bool = False  # along its x axis
    main: bool = False  # belongs into the one-page picture


@dataclass(frozen=True)
class Fold:
    """Parts that are folded at first."""

    title: str
    parts: Sequence[Part]


Part = Text | Items | Missing | Table | Figure | Fold


@dataclass(frozen=True)
class Section:
    """A titled run of parts; a `folded` one is not open at first."""

    name: str
    title: str
    parts: Sequence[Part]
    folded: bool = False


@dataclass(frozen=True)
class KeyFigure:
    """A number of the answer: what it is, its value, how sure it is."""

    label: str
    value: str
    under: str


@dataclass(frozen=True)
class Report:
    """The answer with its picture, then what it rests on."""

    title: str
    subtitle: str
    answer: Sequence[str]
    key_figures: Sequence[KeyFigure]
    sections: Sequence[Section]
    warnings: Sequence[str] = ()
    picture: Figure | None = None

    def figures(self) -> list[Figure]:
        """Return every figure in the order of the page."""
        parts = [part for section in self.sections for part in section.parts]
        return list(_figures(self._first() + parts))

    def main_figures(self) -> list[Figure]:
        """Return what a single picture shows: the main ones that are not folded."""
        shown = [section for section in self.sections if not section.folded]
        parts = self._first() + [part for section in shown for part in section.parts]
        return [part for part in parts if isinstance(part, Figure) and part.main]

    def _first(self) -> list[Part]:
        return [self.picture] if self.picture else []


def _figures(parts: Sequence[Part]) -> Iterator[Figure]:
    for part in parts:
        if isinstance(part, Figure):
            yield part
        elif isinstance(part, Fold):
            yield from _figures(part.parts)
