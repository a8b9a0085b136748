"""A JSON document from a file, or one line that says what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from latprof_analysis.readers.result import ReadError
from latprof_analysis.readers.table import BYTE_ORDER_MARK, opened

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
