"""What the fuzzer makes of a file: of JSON and tables it changes single values.

A fuzzer that changes bytes finds what a parser of bytes does wrong; what is wrong
behind the parser it would seldom reach.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

VALUES = (
    None,
    True,
    0,
    1,
    -1,
    2,
    10**9,
    2**31,
    2**32,
    2**63 - 1,
    2**63,
    10**30,
    0.5,
    -0.5,
    1e-300,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "0",
    "-1",
    "1e9",
    "nan",
    "a",
    "tcp",
    "udp",
    "warmup",
    "request",
    "10.0.0.1",
    "fe80::1",
    "=1+1",
    "'=1",
    "[red]a[/]",
    "[/]",
    "a,b",
    '"',
    "'",
    "a\nb",
    "a\rb\tc",
    "\x1b[2J",
    "\x9b2J",
    "\u202eA\u200b",
    "\ud800",
    "x" * 5000,
    [],
    {},
    [None],
    [[]],
    [0],
    {"a": 1},
    {"": None},
)
Mutate = Callable[[bytes, int], bytes]


def mutated(data: bytes, max_size: int, seed: int, mutate: Mutate) -> bytes:
    """Change an input: its values where it has some, else its bytes by `mutate`."""
    chance = random.Random(seed)
    if chance.random() < 0.7:
        for change in (_json_changed, _table_changed):
            found = change(data, chance)
            if found is not None and len(found) <= max_size:
                return found
    return mutate(data, max_size)


def _json_changed(data: bytes, chance: random.Random) -> bytes | None:
    if data[:1] not in (b"{", b"["):
        return None
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        _change(document, chance)
    return json.dumps(document).encode()


def _change(document: Any, chance: random.Random) -> None:
    """Change one value of a document, or take it away, or put in another's."""
    places = list(_places(document))
    if not places:
        return
    inside, key = chance.choice(places)
    what = chance.random()
    if what < 0.15:
        del inside[key]
    elif what < 0.3:
        other, name = chance.choice(places)
        inside[key] = json.loads(json.dumps(other[name] if name in _keys(other) else 0))
    elif what < 0.4 and isinstance(inside, dict):
        inside[str(chance.choice(VALUES))] = inside.pop(key)
    else:
        inside[key] = chance.choice(VALUES)


def _keys(inside: Any) -> list[Any]:
    return list(inside) if isinstance(inside, dict) else list(range(len(inside)))


def _places(document: Any) -> Any:
    for key in _keys(document) if isinstance(document, dict | list) else ():
        yield document, key
        yield from _places(document[key])


def _table_changed(data: bytes, chance: random.Random) -> bytes | None:
    lines = data.split(b"\n")
    if len(lines) < 3 or b"," not in lines[0] or b"\0" in data:
        return None
    for _ in range(chance.choice((1, 1, 2, 4, 30))):
        at = chance.randrange(0 if chance.random() < 0.1 else 1, len(lines))
        what = chance.random()
        if what < 0.1:
            lines.insert(at, chance.choice(lines))
        elif what < 0.2 and len(lines) > 2:
            del lines[at]
        else:
            lines[at] = _cell_changed(lines[at], chance)
        if len(lines) < 2:
            break
    if chance.random() < 0.2:
        lines = _column_changed(lines, chance)
    return b"\n".join(lines)


def _cell_changed(line: bytes, chance: random.Random) -> bytes:
    cells = line.split(b",")
    at = chance.randrange(len(cells))
    cells[at] = chance.choice((_cell(chance), chance.choice(cells)))
    return b",".join(cells)


def _column_changed(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Give a column one value, or values that grow from row to row."""
    at = chance.randrange(lines[0].count(b",") + 1)
    value, grows = _cell(chance), chance.random() < 0.5
    made = lines[:1]
    for i, line in enumerate(lines[1:]):
        cells = line.split(b",")
        if at < len(cells):
            cells[at] = b"%d" % (i * 10**6) if grows else value
        made.append(b",".join(cells))
    return made


def _cell(chance: random.Random) -> bytes:
    value = chance.choice(VALUES)
    text = "" if value is None else str(value)
    if chance.random() < 0.5 and any(c in text for c in ',"\r\n'):
        text = '"' + text.replace('"', '""') + '"'
    return text.encode("utf-8", "surrogatepass")
