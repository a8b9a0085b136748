"""CSV as people and spreadsheets write it: what it is like, and its numbers.

UTF-16, comments, cells cut by blanks, thousands in groups, a decimal comma, units in
cells. What is none of this is read in blocks by `read.table`.
"""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.read.lines import LONGEST_HEADER_BYTES, check_line_ends
from latprof_analysis.read.loss_cells import LossCells
from latprof_analysis.read.paths import numbered_lines, opened_as_is, start_of
from latprof_analysis.read.result import (
    NS_PER_UNIT,
    YEARS_NS,
    ReadError,
    Skipped,
    shown,
)
from latprof_analysis.read.row_choice import MOST_NAMES, RowChoice
from latprof_analysis.read.rows import Text
from latprof_analysis.text import printable

# What cuts cells, by the word that an option has for it.
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "blank": " "}
NUMBERS = ("decimal-comma", "thousands")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_LOOKED_AT_LINES = 1000
_LONGEST_LINE = 64 << 10
_COMMENT = "#"
_NUMBER = re.compile(r"[+-]?(?:\d{1,300}\.?\d{0,300}|\.\d{1,300})(?:[eE][+-]?\d{1,4})?")
_WITH_UNIT = re.compile(r"(.*?\d\.?)\s*(ns|us|µs|μs|usec|ms|msec|s|sec)")
_UNITS = {"μs": 1e3, "usec": 1e3, "msec": 1e6, "sec": 1e9, **NS_PER_UNIT}
# 2,125.6 or 1,234,567: the comma makes groups; 0,890 or 12,5: it is the decimal one's
_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3}(?:,\d{3})+|(?:,\d{3})+\.\d*)")
_COMMA = re.compile(r"[+-]?\d{1,300}(?:\.\d{3})*,\d{1,300}")


class Cells(NamedTuple):
    """The cells of rows: latencies in ns, and what stands where there is none.

    Attributes
    ----------
    latency_ns : ndarray, shape (n,)
        NaN where there is none.
    words : (ndarray of int32, list of str)
        Which word stands there instead, -1 where a latency does; "" is an empty cell.
    sizes : array
        In bytes, or NA.
    texts : dict of str to (ndarray of int32, list of str)
        Other columns, as `rows.Columns` has them.
    notes : sequence of str
        That must be known of them.
    """

    latency_ns: NDArray[np.float64]
    words: Text
    sizes: Any
    texts: dict[str, Text]
    notes: Sequence[str] = ()


@dataclass
class CsvForm:
    """What a CSV is like.

    Attributes
    ----------
    delimiter : str
        A blank stands for any number of them.
    header : int
        Line of the names, which may be a comment's.
    names : list of str
    encoding : str
    numbers : str or None
        One of `NUMBERS`.
    units, comments : bool
        Whether cells have units, and lines are comments.
    labels : list of str
        Columns, but that of latencies, of texts of which there are few.
    """

    delimiter: str
    header: int
    names: list[str]
    encoding: str = "utf-8"
    numbers: str | None = None
    units: bool = False
    comments: bool = False
    labels: list[str] = field(default_factory=list)

    @property
    def is_plain(self) -> bool:
        """Whether a machine could have written it."""
        odd = self.numbers or self.units or self.comments or self.delimiter == " "
        return not odd and self.encoding == "utf-8" and self.header == 1

    @property
    def notes(self) -> list[str]:
        """Say what was recognised."""
        said = {
            "UTF-16": self.encoding != "utf-8",
            "cells cut by blanks": self.delimiter == " ",
            "lines with # are comments": self.comments,
            "a decimal comma": self.numbers == "decimal-comma",
            "thousands in groups": self.numbers == "thousands",
            "units in cells": self.units,
        }
        found = [text for text, so in said.items() if so]
        return [f"recognised: {', '.join(found)}"] if found else []

    def check(self, path: Path, wanted: Sequence[str]) -> None:
        """Refuse a file that lacks a column."""
        if missing := [name for name in wanted if name not in self.names]:
            has = ", ".join(printable(name, 40) for name in self.names[:8])
            raise ReadError(path, f"column {missing[0]} missing; it has {has}")


def form_of_csv(
    path: Path, latency_column: str, delimiter: str | None, numbers: str | None
) -> CsvForm:
    """Find out what a CSV is like, of its first 1000 lines.

    Raises
    ------
    ReadError
        Where a comma in numbers may mean both.
    """
    if delimiter is not None and delimiter not in DELIMITERS:
        raise ValueError(f"delimiter must be {_either(DELIMITERS)}, got {delimiter!r}")
    if numbers is not None and numbers not in NUMBERS:
        raise ValueError(f"numbers must be {_either(NUMBERS)}, got {numbers!r}")
    encoding = _encoding(path)
    lines = list(islice(_lines(path, encoding), _LOOKED_AT_LINES))
    if not any(text.strip() for _, text in lines):
        raise ReadError(path, "it is empty")
    check_line_ends(path, lines[0][1].encode())
    form = _header(lines, latency_column, DELIMITERS[delimiter] if delimiter else None)
    form.encoding = encoding
    form.comments = any(text.startswith(_COMMENT) for _, text in lines)
    if latency_column not in form.names:
        return form  # whoever reads it names those that are there
    at = form.names.index(latency_column)
    rows = [_cells(text, form) or [] for line, text in lines if line > form.header]
    cells = [row[at].strip() for row in rows if len(row) > at]
    bare = [_bare(cell) for cell in cells]
    # some of another column may end up here, behind a cell of several lines
    form.units = 2 * sum(bool(unit) for _, unit in bare) > sum(map(bool, cells))
    form.numbers = numbers or _numbers(path, [number for number, _ in bare])
    columns = zip(*(row for row in rows if len(row) == len(form.names)), strict=True)
    named = dict(zip(form.names, columns, strict=False))
    form.labels = [
        name
        for name, texts in named.items()
        if name != latency_column and _are_labels([text.strip() for text in texts])
    ]
    return form


def _are_labels(cells: Sequence[str]) -> bool:
    """Whether cells are texts, of which there are few."""
    there = [*filter(None, cells)]
    few = 0 < 2 * len(set(there)) <= len(there) and len(set(there)) <= MOST_NAMES
    return few and not any(_NUMBER.fullmatch(_bare(cell)[0]) for cell in set(there))


def read_odd_csv(
    path: Path,
    form: CsvForm,
    latency_column: str,
    scale: float,
    size_column: str | None,
    losses: LossCells,
    choice: RowChoice,
    skipped: Skipped,
) -> Cells:
    """Read latencies and sizes; `scale` is the unit of cells that have none."""
    wanted = [name for name in (latency_column, size_column) if name is not None]
    form.check(path, [*wanted, *choice.wanted])
    times, sizes, codes = array("d"), array("d"), array("i")
    words: dict[str, int] = {}
    units: Counter[str] = Counter()
    at, *size_at = (form.names.index(name) for name in wanted)
    others = {name: form.names.index(name) for name in choice.columns(form.labels)}
    texts: dict[str, tuple[array[int], dict[str, int]]]
    texts = {name: (array("i"), {}) for name in others}
    for line, cells in _rows(path, form, skipped):
        row = {name: cells[place].strip() for name, place in others.items()}
        if not choice.has(row):
            continue
        cell = cells[at].strip()
        word = losses.is_word(cell)
        try:
            ns = np.nan
            if not word:
                ns = _ns(cell, form, scale, latency_column, units)
            size = _value(cells[size_at[0]], form)[0] if size_at else np.nan
        except ValueError as error:
            skipped.add(line, str(error))
            continue
        times.append(ns)
        codes.append(words.setdefault(cell, len(words)) if word else -1)
        sizes.append(size)
        for name, text in row.items():
            of, labels = texts[name]
            of.append(labels.setdefault(text, len(labels)) if text else -1)
    skipped.check(len(times), "" if choice.wanted else "it has no rows")
    of_rows = pd.array(np.array(sizes)).astype("Int64") if size_column else pd.NA
    return Cells(
        np.array(times),
        (np.array(codes, np.int32), list(words)),
        of_rows,
        {n: (np.array(of, np.int32), list(each)) for n, (of, each) in texts.items()},
        _mixed(units),
    )


def _rows(
    path: Path, form: CsvForm, skipped: Skipped
) -> Iterator[tuple[int, list[str]]]:
    for line, text in _lines(path, form.encoding):
        # of a single column it is an empty cell
        if line <= form.header or not (text.strip() or len(form.names) == 1):
            continue
        cells = _cells(text, form) if text.strip() else [""]
        if cells is not None and len(cells) != len(form.names):
            skipped.add(line, f"{len(cells)} fields where {len(form.names)} belong")
        elif cells is not None:
            yield line, cells


def _ns(
    cell: str, form: CsvForm, scale: float, name: str, units: Counter[str]
) -> float:
    """Return the latency of a cell, and count its unit."""
    value, unit = _value(cell, form)
    ns = value * (_UNITS[unit] if unit else scale)
    if ns > YEARS_NS:
        raise ValueError(f"{name} is more than a hundred years")
    units[unit] += 1
    return ns


def _mixed(units: Counter[str]) -> list[str]:
    """Say which units cells have, where not all have the same."""
    if len(units) < 2:
        return []
    found = [f"{n:,} in {unit}" for unit, n in units.most_common() if unit]
    found += [f"{units['']:,} without, taken as --unit says"] if units[""] else []
    return [f"mixed units in cells, each taken as it says: {', '.join(found)}"]


def _either(words: Any) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"


def _encoding(path: Path) -> str:
    with opened_as_is(path) as file:
        return "utf-16" if start_of(file)[:2] in _UTF16 else "utf-8"


def _lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Give the lines, counted from 1; of one without end its beginning."""
    if encoding == "utf-8":
        for line, raw in numbered_lines(path):
            text = raw.decode("utf-8", "replace").rstrip("\r\n")
            yield line, text.removeprefix("\ufeff") if line == 1 else text
        return
    line = 0
    with opened_as_is(path) as file:
        text_file = io.TextIOWrapper(file, encoding=encoding, errors="replace")
        while text := text_file.readline(_LONGEST_LINE):
            line += 1
            yield line, text.rstrip("\r\n")


def _header(
    lines: list[tuple[int, str]], latency_column: str, delimiter: str | None
) -> CsvForm:
    """Return the form of the first line that is no comment, or of a comment."""
    first = next(
        ((n, t) for n, t in lines if t.strip() and not t.startswith(_COMMENT)), lines[0]
    )
    above = [one for one in lines if one[0] < first[0] and one[1].startswith(_COMMENT)]
    forms = []
    for line, text in (first, *reversed(above)):
        bare = text.removeprefix(_COMMENT).strip()[:LONGEST_HEADER_BYTES]
        cut = delimiter or _most_frequent(bare)
        form = CsvForm(cut, line, [])
        form.names = [name.strip() for name in _cells(bare, form) or []]
        forms.append(form)
        if latency_column in form.names:
            return form
    return forms[0]


def _most_frequent(header: str) -> str:
    """Return what cuts a header: blanks only where nothing else does."""
    cut = max(",;\t|", key=header.count)
    return " " if cut not in header and re.search(r"\S\s+\S", header) else cut


def _cells(text: str, form: CsvForm) -> list[str] | None:
    """Cut a line; None of a comment, or of quotes that are wrong."""
    if text.startswith(_COMMENT):
        return None
    if form.delimiter == " ":
        return text.split()
    try:
        return next(csv.reader([text], delimiter=form.delimiter), [])
    except csv.Error:
        return []


def _bare(cell: str) -> tuple[str, str]:
    """Return a number as it stands, and the unit behind it."""
    found = _WITH_UNIT.fullmatch(cell)
    return (found[1], found[2]) if found else (cell, "")


def _numbers(path: Path, cells: list[str]) -> str | None:
    """Say what a comma in numbers means; None where there is none."""
    if not any(_COMMA.fullmatch(cell) or _GROUPS.fullmatch(cell) for cell in cells):
        return None
    if any(_GROUPED.fullmatch(cell) for cell in cells):
        return "thousands"
    if any(_COMMA.fullmatch(c) and not _GROUPS.fullmatch(c) for c in cells):
        return "decimal-comma"
    cell = next(cell for cell in cells if _GROUPS.fullmatch(cell))
    why = f"{shown(cell)} may have a decimal comma, or thousands in groups"
    raise ReadError(path, f"{why}; say --numbers decimal-comma or --numbers thousands")


def _value(cell: str, form: CsvForm) -> tuple[float, str]:
    """Return a number from 0 and its unit; NaN of an empty cell."""
    number, unit = _bare(cell.strip())
    if not number:
        return np.nan, ""
    if form.numbers == "decimal-comma":
        if not (_COMMA.fullmatch(number) or _NUMBER.fullmatch(number)):
            raise ValueError(_no_number(cell))
        if "," in number:
            number = number.replace(".", "").replace(",", ".")
    elif form.numbers == "thousands" and _GROUPS.fullmatch(number):
        number = number.replace(",", "")
    if not _NUMBER.fullmatch(number) or not 0 <= float(number) < np.inf:
        raise ValueError(_no_number(cell))
    return float(number), unit


def _no_number(cell: str) -> str:
    return f"it must be a number from 0, got {shown(cell)}"
