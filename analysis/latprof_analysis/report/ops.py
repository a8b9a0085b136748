"""Operations on stores: the published table, and where each cell's time went.

Of the section `ops` of a run's summary.json, or of what `analyze` makes of its folder.
Without pandas, as the overview.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from latprof_analysis.report.parts import Cell, Part, Section, Table, Text
from latprof_analysis.study.operations import cell_name
from latprof_analysis.text import NOT_ENOUGH, counted, duration, percent, plural

# As the columns are called, from wide to narrow.
_TITLES = {
    "network": ("network", "net"),
    "server": ("server", "srv"),
    "client": ("client", "cli"),
    "receive_queue": ("queue", "rcvq"),
}
_NAMES = {"receive_queue": "receive queue"}
_NO_PAYLOAD = "N/A"
_FLOOR = "FLOOR"
NOTE = (
    "avg as psbench has it: of 3 repetitions or more without the first and the last; "
    "shares are of all repetitions"
)
_WORDS = (
    "Network is both ways on the link and through both hosts' stacks, server from the "
    "request read to the reply sent, queue what had come and nobody had read yet at "
    "either end, client what the caller's own library took before and after."
)

Cells = Sequence[Mapping[str, Any]]


def ops_sentences(document: Mapping[str, Any]) -> list[str]:
    """Say of each backend how many operations were done, and where most time went."""
    return [
        _sentence(backend, cells, document)
        for backend, cells in _by_backend(document).items()
    ]


def _by_backend(document: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for cell in (document.get("ops") or {}).get("cells", ()):
        found.setdefault(cell["backend"], []).append(cell)
    return found


def _sentence(backend: str, cells: Cells, document: Mapping[str, Any]) -> str:
    n = sum(cell["n"] for cell in cells)
    wrong = sum(cell["wrong"] for cell in cells)
    texts = [f"{counted(n, 'operation')}, {wrong or 'none'} wrong"]
    shares = _shares_of_all(cells)
    if shares:
        first, second, *_ = sorted(shares, key=lambda name: -shares[name])
        texts.append(
            f"{percent(shares[first])} of their time in {_NAMES.get(first, first)}, "
            f"{percent(shares[second])} in {_NAMES.get(second, second)}"
        )
    if above := _above_floor(backend, cells, document):
        texts.append(above)
    firsts = document["ops"]["first"]
    one = next((first for first in firsts if first["backend"] == backend), None)
    if one:
        texts.append(f"the first, which connects, {duration(one['time_ns'])}")
    return f"{backend}: {'; '.join(texts)}"


def _above_floor(backend: str, cells: Cells, document: Mapping[str, Any]) -> str:
    """Say how many times as long as the network allows the medians are."""
    floor = _by_backend(document).get(_FLOOR, ())
    if backend == _FLOOR or not floor:
        return ""
    pairs = ((cell, _found(floor, _key(cell))) for cell in cells)
    found = [
        cell["p50_ns"] / least["p50_ns"]
        for cell, least in pairs
        if least and least["p50_ns"] and cell["p50_ns"]
    ]
    if not found:
        return ""
    low, high = (f"{ratio:.3g}" for ratio in (min(found), max(found)))
    return f"p50 {low if low == high else f'{low} to {high}'} times the floor's"


def _shares_of_all(cells: Cells) -> dict[str, float]:
    """Return the shares of the time of all operations together."""
    known = [cell for cell in cells if cell["shares"]["client"] is not None]
    weights = [cell["with_parts"] * cell["mean_ns"] for cell in known]
    return {
        share: sum(
            weight * cell["shares"][share]
            for weight, cell in zip(weights, known, strict=True)
        )
        / sum(weights)
        for share in _TITLES
        if known
    }


def ops_parts(document: Mapping[str, Any]) -> Iterator[Part]:
    """Lay out the table, and what must be known to trust it."""
    backends = _by_backend(document)
    if backends:
        wide, narrow = (_terminal_table(backends, i) for i in range(2))
        yield Table(
            wide.title,
            wide.columns,
            wide.rows,
            NOTE,
            heads=wide.heads,
            narrow=[narrow, _stacked(backends), _averages(backends)],
        )
    yield from ops_remarks(document)


def ops_remarks(document: Mapping[str, Any]) -> Iterator[Part]:
    """Say what the servers themselves counted, and of what no parts are known."""
    for backend, cells in _by_backend(document).items():
        n, known = (sum(cell[name] for cell in cells) for name in ("n", "with_parts"))
        if known < n:
            which = known or "none"
            yield Text(
                f"note: {backend}: shares of {which} of {n} are known", quiet=True
            )
    for text in (document.get("ops") or {}).get("remarks", ()):
        yield Text(f"note: {text}", quiet=True)


def _keys(backends: Mapping[str, Cells]) -> list[tuple[str, int | None]]:
    """Return the rows of the table in their order."""
    every = (cell for cells in backends.values() for cell in cells)
    return list(dict.fromkeys(map(_key, every)))


def _key(cell: Mapping[str, Any]) -> tuple[str, int | None]:
    return cell["op"], cell["payload_size_bytes"]


def _labels(keys: Sequence[tuple[str, int | None]]) -> list[list[str]]:
    return [[op, _NO_PAYLOAD if size is None else str(size)] for op, size in keys]


def _found(cells: Cells, key: tuple[str, int | None]) -> Mapping[str, Any] | None:
    return next((cell for cell in cells if _key(cell) == key), None)


def ops_key_figures(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return by name the cell of each backend that moved most: a GET before a SET."""
    found = {}
    for cells in _by_backend(document).values():
        most = max(cells, key=lambda cell: cell["payload_size_bytes"] or 0)
        found[cell_name(most)] = most
    return found


def _terminal_table(backends: Mapping[str, Cells], form: int) -> Table:
    """Lay out averages and shares side by side, a group of columns for each backend."""
    keys = _keys(backends)
    rows = _labels(keys)
    columns, heads = ["op", "bytes"], [("", 1)]
    for backend, cells in backends.items():
        titles = ["avg ms", *(titles[form] for titles in _TITLES.values())]
        columns += titles
        heads.append((backend, len(titles)))
        for row, key in zip(rows, keys, strict=True):
            row.extend(_average_and_shares(_found(cells, key)))
    return Table("", columns, rows, NOTE, heads=[heads])


def _average_and_shares(cell: Mapping[str, Any] | None) -> list[str]:
    if not cell:
        return [""] * (1 + len(_TITLES))
    return [_average(cell), *(_share(cell["shares"][share]) for share in _TITLES)]


def _average(cell: Mapping[str, Any]) -> str:
    return f"{cell['avg_time_ms']:.3f}"


def _share(share: float | None) -> str:
    return NOT_ENOUGH if share is None else f"{100 * share:.0f}%"


def _stacked(backends: Mapping[str, Cells]) -> Table:
    """Lay out the published table, with the shares in a line under each average."""
    rows = []
    for label, key in zip(_labels(_keys(backends)), _keys(backends), strict=True):
        above, below = [*label], ["", ""]
        for cells in backends.values():
            average, *shares = _average_and_shares(_found(cells, key))
            above.append(average)
            below.append("/".join(share.removesuffix("%") for share in shares))
        rows += [above, below]
    heads = [("", 1), ("avg ms", len(backends))]
    note = f"under it network/server/client/receive queue in %; {NOTE}"
    return Table("", ["op", "bytes", *backends], rows, note, heads=[heads])


def _averages(backends: Mapping[str, Cells]) -> Table:
    """Lay out the published table alone."""
    keys = _keys(backends)
    rows = _labels(keys)
    for cells in backends.values():
        for row, key in zip(rows, keys, strict=True):
            cell = _found(cells, key)
            row.append(_average(cell) if cell else "")
    heads = [("", 1), ("avg ms", len(backends))]
    return Table("", ["op", "bytes", *backends], rows, NOTE, heads=[heads])


def ops_sections(document: Mapping[str, Any]) -> list[Section]:
    """Lay out the table for a page: under each average the shares of its time."""
    backends = _by_backend(document)
    if not backends:
        return []
    keys = _keys(backends)
    rows: list[list[str | Cell]] = [[*label] for label in _labels(keys)]
    for cells in backends.values():
        for row, key in zip(rows, keys, strict=True):
            cell = _found(cells, key)
            row.append(Cell(_average(cell), _under(cell)) if cell else "")
    repeat = max(cell["n"] for cells in backends.values() for cell in cells)
    note = f"{NOTE[0].upper()}{NOTE[1:]}. {_WORDS}"
    parts: list[Part] = [
        Table(
            f"Average time of an operation in ms, {plural(repeat, 'repetition')}",
            ["op", "payload bytes", *backends],
            rows,
            note,
        ),
        *ops_remarks(document),
    ]
    return [Section("ops", "Operations", parts)]


def _under(cell: Mapping[str, Any]) -> str:
    shares = cell["shares"]
    texts = [
        f"{titles[0]} {100 * shares[name]:.0f}"
        for name, titles in _TITLES.items()
        if shares[name] is not None
    ]
    return f"{' · '.join(texts)} %" if texts else ""
