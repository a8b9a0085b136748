"""A JSON document from a file, and what it must look like as far as anybody reads it.

A shape is called with a value and the place where it stands, and raises
`WrongShapeError` where the value is not as it says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from latprof_analysis.read.result import ReadError, shown
from latprof_analysis.read.table import BYTE_ORDER_MARK, opened

# No count of bytes, packets or nanoseconds is above: it fits 64 bits.
MOST = 1 << 63
# Of a file that holds every round trip: 370,000 of irtt's. In memory they take six
# times as much, and whatever it holds 25 times.
MOST_BYTES = 256 << 20


def read_json(path: Path, most_bytes: int | None = None) -> dict[str, Any]:
    """Return the object that a file holds; ReadError where it holds none, or more.

    More is `MOST_BYTES`, if nothing is given.
    """
    most_bytes = most_bytes or MOST_BYTES
    with opened(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ReadError(path, f"it has more than {most_bytes >> 20} MiB of JSON")
    data = data.removeprefix(BYTE_ORDER_MARK)
    if not data.strip():
        raise ReadError(path, "it is empty")
    try:
        document = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ReadError(path, f"byte {error.start} is no UTF-8") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise ReadError(path, f"its JSON breaks off in {where}: {error.msg}") from error
    except (RecursionError, ValueError) as error:  # hostile: [[[[..., 9999...
        raise ReadError(path, f"its JSON cannot be parsed: {error}") from error
    if not isinstance(document, dict):
        raise ReadError(path, "its JSON is no object")
    return document


def part(path: Path, document: Any, name: str, kind: type[Any]) -> Any:
    """Return a member of an object, which must be a dict or a list."""
    value = document.get(name) if isinstance(document, dict) else None
    if not isinstance(value, kind):
        what = "list" if kind is list else "object"
        raise ReadError(path, f"its JSON has no {what} {name!r}")
    return value


def number(value: Any) -> float | None:
    """Return a number from 0 as it stands in JSON, else None, as where it is huge."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < MOST else None


Shape = Callable[[Any, str], None]

# What 64 bits hold, and a number of nanoseconds or bytes is below.
_MOST = 1 << 63
_DEEPEST = 20


class WrongShapeError(ValueError):
    """A value is not what it must be; the text says where, what, and what it is."""


def _must_be(what: str, holds: Callable[[Any], bool]) -> Shape:
    def check(value: Any, where: str) -> None:
        if not holds(value):
            raise WrongShapeError(f"{where} must be {what}, got {shown(value)}")

    return check


COUNT = _must_be("a whole number from 0", lambda v: type(v) is int and 0 <= v < _MOST)
POSITIVE = _must_be("a whole number from 1", lambda v: type(v) is int and 0 < v < _MOST)
NUMBER = _must_be(
    "a number from 0", lambda v: type(v) in (int, float) and 0 <= v < _MOST
)
TEXT = _must_be("a text", lambda v: isinstance(v, str))
FLAG = _must_be("true or false", lambda v: isinstance(v, bool))
_PLAIN = _must_be("a plain value", lambda v: not isinstance(v, float | int) or _fits(v))


def _fits(value: float) -> bool:
    return -_MOST <= value < _MOST


def any_shape(_value: Any, _where: str) -> None:
    """Allow anything."""


def both(first: Shape, second: Shape) -> Shape:
    """Ask for two shapes at once."""

    def check(value: Any, where: str) -> None:
        first(value, where)
        second(value, where)

    return check


def _inside(where: str, name: str) -> str:
    """Name the place of a member."""
    return f"{where}.{shown(name)[1:-1]}" if where else shown(name)[1:-1]


def maybe(shape: Shape) -> Shape:
    """Allow null."""

    def check(value: Any, where: str) -> None:
        if value is not None:
            shape(value, where)

    return check


def each(shape: Shape) -> Shape:
    """Make a shape of lists whose entries have one."""

    def check(value: Any, where: str) -> None:
        _LIST(value, where)
        for i, inner in enumerate(value):
            shape(inner, f"{where}[{i}]")

    return check


def named(shape: Shape) -> Shape:
    """Make a shape of objects whose members, of any name, have one."""

    def check(value: Any, where: str) -> None:
        _OBJECT(value, where)
        for name, inner in value.items():
            shape(inner, _inside(where, name))

    return check


def record(needed: dict[str, Shape], more: dict[str, Shape] | None = None) -> Shape:
    """Make a shape of objects with these members; `more` are those that may lack."""
    shapes = needed | (more or {})

    def check(value: Any, where: str) -> None:
        _OBJECT(value, where)
        for name, shape in shapes.items():
            place = _inside(where, name)
            if name in value:
                shape(value[name], place)
            elif name in needed:
                raise WrongShapeError(f"{place} is missing")

    return check


_LIST = _must_be("a list", lambda v: isinstance(v, list))
_OBJECT = _must_be("an object", lambda v: isinstance(v, dict))


def check_plain(value: Any, where: str) -> None:
    """Refuse numbers that are none, or too large, and what is nested too deep."""
    level = [(where, value)]
    for _ in range(_DEEPEST):
        for place, inner in level:
            _PLAIN(inner, place)
        level = [found for place, inner in level for found in _members(place, inner)]
        if not level:
            return
    raise WrongShapeError(f"{level[0][0]} is nested more than {_DEEPEST} deep")


def _members(where: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(_inside(where, name), inner) for name, inner in value.items()]
    if isinstance(value, list):
        return [(f"{where}[{i}]", inner) for i, inner in enumerate(value)]
    return []
