"""mtr's results, hop by hop: ``--json``, ``--csv``, ``--report`` and ``--raw``.

Only ``--raw`` has single round trips; the others have of each hop how many probes
were sent, which share of them was lost, and the least, mean and greatest time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from latprof_analysis.read.json_document import number, part, read_json
from latprof_analysis.read.paths import numbered_lines
from latprof_analysis.read.result import (
    Losses,
    Part,
    Samples,
    Seen,
    Skipped,
    Statistic,
    add_losses,
    samples_of_parts,
    samples_of_statistics,
    shown,
)

LATENCY = "round trip time to a hop, as mtr measures it"
NOTE = (
    "routers answer probes when they have the time: loss and delay at a hop are the"
    " path's only if all hops behind it have them, too"
)
_MS, _US = 1e6, 1e3
_JSON_NAMES = ("count", "host", "Loss%", "Snt", "Avg", "Best", "Wrst")
_CSV_NAMES = ("Hop", "Ip", "Loss%", "Snt", "Avg", "Best", "Wrst")
_CSV = b"Mtr_Version,"
_REPORT = re.compile(
    r"^\s*(\d{1,3})\.(?:\|--|\?)?\s*(\S{1,255})\s+([\d.]+)%\s+(\d+)"
    r"\s+[\d.]+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+[\d.]+\s*$"
)
_REPORT_HEADER = re.compile(
    rb"^HOST: .*Loss%\s+Snt\s+Last\s+Avg\s+Best\s+Wrst\s+StDev\s*$", re.M
)
_RAW = re.compile(rb"([xhpd]) (\d{1,3}) (\S{1,255})(?: (\d{1,9}))?(?: \S+)*\s*\Z")
_RAW_MATCH = re.compile(rb"\A(?:[xhpd] \d{1,3} \S{1,255}[^\n]{0,20}\n){3}")


def matches(seen: Seen) -> bool:
    """Whether a file looks as one of mtr's."""
    return (
        seen.keys == {"report"}
        or seen.start.startswith(_CSV)
        or bool(_REPORT_HEADER.search(seen.start) or _RAW_MATCH.match(seen.start))
    )


def read_mtr(path: Path) -> Samples:
    """Read a result of mtr: ``kind`` is "hop N ADDRESS"."""
    with_first = next(numbered_lines(path))[1]
    if _RAW.match(with_first):
        return _read_raw(path)
    if with_first.lstrip()[:1] == b"{":
        rows = _json_rows(path)
    elif with_first.startswith(_CSV):
        rows = _csv_rows(path)
    else:
        rows = _report_rows(path)
    skipped = Skipped(path)
    statistics: list[Statistic] = []
    losses: dict[str, Losses] = {}
    for place, cells in rows:
        hop = _figures(cells)
        if hop is None:
            skipped.add(place, f"no hop of mtr's: {shown(cells)}")
            continue
        kind, (lost_percent, sent, mean, least, most) = hop
        lost = round(sent * lost_percent / 100)
        add_losses(losses, kind, round(sent), lost)
        if count := round(sent) - lost:
            for name, ms in (("mean", mean), ("min", least), ("max", most)):
                statistics.append(Statistic(kind, name, _MS * ms, count))
    skipped.check(len(losses), "it has no hop")
    meta = {"latency": LATENCY, "notes": [NOTE]}
    return samples_of_statistics(skipped, "mtr", meta, statistics, losses=losses)


def _figures(cells: Sequence[Any]) -> tuple[str, list[float]] | None:
    """Return a hop's name and its numbers; None where one is none."""
    hop, host, *rest = cells
    numbers = [number(_as_number(cell)) for cell in (hop, *rest)]
    if any(each is None for each in numbers):
        return None
    found = [float(each) for each in numbers if each is not None]
    if not 0 <= found[1] <= 100:
        return None
    return f"hop {int(found[0])} {host}", found[1:]


def _as_number(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    return float(cell) if re.fullmatch(r"\d{1,15}(\.\d{0,9})?", cell) else None


def _json_rows(path: Path) -> Iterator[tuple[int, list[Any]]]:
    report = part(path, read_json(path), "report", dict)
    for place, hub in enumerate(part(path, report, "hubs", list), 1):
        inner = hub if isinstance(hub, dict) else {}
        yield place, [inner.get(name) for name in _JSON_NAMES]


def _csv_rows(path: Path) -> Iterator[tuple[int, list[Any]]]:
    names: list[str] = []
    for line, raw in numbered_lines(path):
        cells = raw.decode("utf-8", "replace").rstrip("\r\n").split(",")
        if raw.startswith(_CSV):
            names = cells
        elif len(cells) > 1:
            of = dict(zip(names, cells, strict=False))
            yield line, [of.get(name) for name in _CSV_NAMES]


def _report_rows(path: Path) -> Iterator[tuple[int, list[Any]]]:
    for line, raw in numbered_lines(path):
        if match := _REPORT.match(raw.decode("utf-8", "replace")):
            yield line, list(match.groups())


def _read_raw(path: Path) -> Samples:
    """Read probes (x), who answered (h) and after how many us (p)."""
    skipped = Skipped(path)
    sent: dict[int, dict[bytes, float]] = {}
    host: dict[int, str] = {}
    for line, raw in numbered_lines(path):
        match = _RAW.match(raw)
        if not match or (match[1] == b"p" and not match[3].isdigit()):
            skipped.add(line, "no line of mtr --raw")
            continue
        hop = int(match[2])
        if match[1] == b"x":
            sent.setdefault(hop, {})[match[3]] = np.nan
        elif match[1] == b"h":
            host[hop] = match[3].decode("utf-8", "replace")
        elif match[1] == b"p" and len(match[3]) <= 12:
            sent.setdefault(hop, {})[match[4] or b""] = _US * int(match[3])
    skipped.check(len(sent), "it has no probe")
    parts = []
    losses: dict[str, Losses] = {}
    for hop, times in sorted(sent.items()):
        kind = f"hop {hop + 1} {host.get(hop, '???')}"
        parts.append(Part(kind, np.array(list(times.values()))))
        add_losses(losses, kind, len(times), int(np.isnan(parts[-1].latency_ns).sum()))
    meta = {"latency": LATENCY, "notes": [NOTE]}
    return samples_of_parts(skipped, "mtr", meta, parts, losses=losses)
