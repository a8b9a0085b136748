"""A JSON document from a file, and what it must look like as far as anybody reads it.

The shape of a value is a `Kind`, `Maybe` with another, a list with that of each of its
entries, or a dict with those of members: of one whose name ends with ``?``, which may
be missing, or, named `ANY`, of all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from latprof_analysis.read.paths import BYTE_ORDER_MARK, numbered_lines, opened
from latprof_analysis.read.result import ReadError, Skipped, shown

# Counts of bytes, packets or nanoseconds are below: they fit 64 bits.
MOST = 1 << 63
# Of a file that holds every round trip: 370,000 of irtt's. In memory they take six
# times as much, and whatever it holds 25 times.
MOST_BYTES = 256 << 20
_OBJECT_BEGINS = re.compile(r"^[ \t]*\{", re.M)
# As C's printf writes what is no number, where JSON has NaN.
_NOT_A_NUMBER = re.compile(r"([:,\[]\s*)-?(?:nan|inf)\b")


def read_json(path: Path, most_bytes: int | None = None) -> dict[str, Any]:
    """Return the object that a file holds; ReadError where it holds none, or more.

    More is `MOST_BYTES`, if nothing is given.
    """
    text = _text(path, most_bytes)
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ReadError(path, _breaks_off(error)) from error
    except (RecursionError, ValueError) as error:  # hostile: [[[[..., 9999...
        raise ReadError(path, f"its JSON cannot be parsed: {error}") from error
    if not isinstance(document, dict):
        raise ReadError(path, "its JSON is no object")
    return document


class Objects(NamedTuple):
    """The objects that stand in a file one after another, and what else does.

    `rest` is the first line of text before, between or behind them, or says that the
    last one breaks off.
    """

    found: list[dict[str, Any]]
    rest: str = ""


def read_objects(path: Path) -> Objects:
    """Read all objects of a file, each from the beginning of a line on.

    Tools write warnings before their JSON and errors behind it, and nan where they
    divide by 0; ReadError where there is no whole object.
    """
    text = _text(path, None)
    place, rest = 0, ""
    found: list[dict[str, Any]] = []
    decoder = json.JSONDecoder()
    while begin := _OBJECT_BEGINS.search(text, place):
        rest = rest or text[place : begin.start()].strip()
        try:
            document, place = decoder.raw_decode(text, begin.end() - 1)
        except json.JSONDecodeError as error:
            if _NOT_A_NUMBER.search(text, place):
                text = text[:place] + _NOT_A_NUMBER.sub(r"\1NaN", text[place:])
                continue
            if not found:
                raise ReadError(path, _breaks_off(error)) from error
            rest, place = f"{rest} (it breaks off)".strip(), len(text)
        except (RecursionError, ValueError) as error:
            raise ReadError(path, f"its JSON cannot be parsed: {error}") from error
        else:
            found.append(document)
    if not found:
        raise ReadError(path, "its JSON is no object")
    return Objects(found, (rest or text[place:].strip()).partition("\n")[0])


def first_keys(path: Path, start: bytes) -> Set[str]:
    """Return the keys of the first object, which may be a line or the whole file."""
    line = start.lstrip().partition(b"\n")[0]
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        document = read_objects(path).found[0]
    if not isinstance(document, dict):
        raise ReadError(path, "its JSON is no object")
    return document.keys()


def json_lines(path: Path, skipped: Skipped) -> Iterator[tuple[int, dict[str, Any]]]:
    """Give the objects of a file that has one in each line, and the lines' numbers."""
    for line, raw in numbered_lines(path):
        try:
            document = json.loads(raw)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict):
            yield line, document
        elif raw.strip():
            skipped.add(line, "no JSON object")


def _text(path: Path, most_bytes: int | None) -> str:
    most_bytes = most_bytes or MOST_BYTES
    with opened(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ReadError(path, f"it has more than {most_bytes >> 20} MiB of JSON")
    data = data.removeprefix(BYTE_ORDER_MARK)
    if not data.strip():
        raise ReadError(path, "it is empty")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ReadError(path, f"byte {error.start} is no UTF-8") from error


def _breaks_off(error: json.JSONDecodeError) -> str:
    where = f"line {error.lineno} column {error.colno}"
    return f"its JSON breaks off in {where}: {error.msg}"


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


class WrongShapeError(ValueError):
    """A value is not what it must be; the text says where, what, and what it is."""


class Kind(NamedTuple):
    """A shape of values with none inside."""

    what: str
    holds: Callable[[Any], bool]
    schema: Mapping[str, Any] = MappingProxyType({})  # as JSON Schema has it


class Maybe(NamedTuple):
    """Null, or what has this shape."""

    shape: Shape


Shape = Kind | Maybe | list["Shape"] | dict[str, "Shape"]

ANY = "*"
COUNT = Kind(
    "a whole number from 0",
    lambda v: type(v) is int and 0 <= v < MOST,
    {"type": "integer", "minimum": 0},
)
POSITIVE = Kind(
    "a whole number from 1",
    lambda v: type(v) is int and 0 < v < MOST,
    {"type": "integer", "minimum": 1},
)
NUMBER = Kind(
    "a number from 0",
    lambda v: type(v) in (int, float) and 0 <= v < MOST,
    {"type": "number", "minimum": 0},
)
REAL = Kind(
    "a number",
    lambda v: type(v) in (int, float) and -MOST < v < MOST,
    {"type": "number"},
)
DIFFERENCE = Kind(
    "a whole number",
    lambda v: type(v) is int and abs(v) < MOST,
    {"type": "integer"},
)
TEXT = Kind("a text", lambda v: isinstance(v, str), {"type": "string"})
FLAG = Kind("true or false", lambda v: isinstance(v, bool), {"type": "boolean"})
ANYTHING = Kind("anything", lambda v: True)
_LIST = Kind("a list", lambda v: isinstance(v, list))
_OBJECT = Kind("an object", lambda v: isinstance(v, dict))
_PLAIN = Kind(
    "a plain value", lambda v: not isinstance(v, float | int) or -MOST <= v < MOST
)
_DEEPEST = 20


def check_shape(value: Any, shape: Shape, where: str) -> None:
    """Raise WrongShapeError where a value, which stands there, has not a shape."""
    if isinstance(shape, Kind):
        if not shape.holds(value):
            raise WrongShapeError(f"{where} must be {shape.what}, got {shown(value)}")
    elif isinstance(shape, Maybe):
        if value is not None:
            check_shape(value, shape.shape, where)
    elif isinstance(shape, list):
        check_shape(value, _LIST, where)
        for place, inner in _members(where, value):
            check_shape(inner, shape[0], place)
    else:
        _check_object(value, shape, where)


def _check_object(value: Any, shapes: dict[str, Shape], where: str) -> None:
    check_shape(value, _OBJECT, where)
    for key, shape in shapes.items():
        name = key.removesuffix("?")
        if key == ANY:
            for place, inner in _members(where, value):
                check_shape(inner, shape, place)
        elif name in value:
            check_shape(value[name], shape, _inside(where, name))
        elif name == key:
            raise WrongShapeError(f"{_inside(where, name)} is missing")


def check_plain(value: Any, where: str) -> None:
    """Refuse numbers that are none, or too large, and what is nested too deep."""
    level = [(where, value)]
    for _ in range(_DEEPEST):
        for place, inner in level:
            check_shape(inner, _PLAIN, place)
        level = [found for place, inner in level for found in _members(place, inner)]
        if not level:
            return
    raise WrongShapeError(f"{level[0][0]} is nested more than {_DEEPEST} deep")


def _members(where: str, value: Any) -> list[tuple[str, Any]]:
    """Return what stands inside a value, and where."""
    if isinstance(value, dict):
        return [(_inside(where, name), inner) for name, inner in value.items()]
    if isinstance(value, list):
        return [(f"{where}[{i}]", inner) for i, inner in enumerate(value)]
    return []


def _inside(where: str, name: str) -> str:
    """Name the place of a member."""
    return f"{where}.{shown(name)[1:-1]}" if where else shown(name)[1:-1]


def json_schema(shape: Shape) -> dict[str, Any]:
    """Return a shape in the words of JSON Schema (2020-12).

    Members that a shape does not name may be there: a later version adds some.

    Examples
    --------
    >>> json_schema({"n": COUNT, "p50_ns?": Maybe(TEXT)})["required"]
    ['n']
    """
    if isinstance(shape, Kind):
        return dict(shape.schema)
    if isinstance(shape, Maybe):
        return {"anyOf": [{"type": "null"}, json_schema(shape.shape)]}
    if isinstance(shape, list):
        return {"type": "array", "items": json_schema(shape[0])}
    named = {key: inner for key, inner in shape.items() if key != ANY}
    found: dict[str, Any] = {"type": "object"}
    if named:
        of = {key.removesuffix("?"): json_schema(one) for key, one in named.items()}
        found["properties"] = of
    if required := [key for key in named if not key.endswith("?")]:
        found["required"] = required
    if ANY in shape:
        found["additionalProperties"] = json_schema(shape[ANY])
    return found
