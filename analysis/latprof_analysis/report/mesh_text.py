"""A mesh of hosts: TMSN's table, what was offered and came back, where time went.

Nothing is computed but shares of what stands in the document; without pandas, as the
overview.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from latprof_analysis.report.parts import Part, Table, Text
from latprof_analysis.stages import MODEL, STAGES
from latprof_analysis.study.mesh import ELSEWHERE, ELSEWHERE_NS, keeps_up
from latprof_analysis.study.published_mesh import published_of
from latprof_analysis.text import (
    NOT_ENOUGH,
    duration,
    given_duration,
    given_rate,
    percent,
    plural,
)

_Figures = Mapping[str, Any]

SEED_COLUMNS = (
    *("total", "msg", "msg_echo", "hb", "hb_echo"),
    *("avg_msg", "avg_hb", "std_msg", "std_hb"),
)
_SEED_NOTE = (
    "As TMSN prints it: what {host} received in a test; round trips in us, those of "
    "messages of all hosts from when they were due, those of heartbeats over the "
    "heartbeats received; deviations among tests."
)
_STAR_NOTE = (
    "As TMSN prints it, of this host's half: nobody else sends, so that msg and hb, "
    "which it receives of the others, are 0; round trips in us from when its messages "
    "were due, those of heartbeats over their echoes; deviations among tests."
)
# A link of which more than this is asked for is where things wait.
_FULL = 1.0
_BUSY = 0.9
_PLACES = {stage.name: stage.place for stage in MODEL} | {
    ELSEWHERE: "the network, or the other hosts' half",
}


def meshes_of(document: _Figures) -> list[tuple[str, _Figures]]:
    """Return the sections of all runs, each with the run's name where it needs one."""
    only = document.get("mesh")
    return [("", only)] if only else list((document.get("meshes") or {}).items())


def mesh_sentence(plan: _Figures) -> str:
    """Say what a mesh ran, of run.json."""
    every = "exponential gaps of" if plan.get("poisson") else "every"
    reply = plan.get("reply_bytes")
    begin = f"mesh of {plan['hosts']} hosts, {plan['protocol']}, "
    if plan.get("to"):
        begin += "this host's half, "
    return (
        f"{begin}a message to each other {every} "
        f"{given_duration(plan['interval_ns'])}, "
        + (f"echoes of {reply} bytes" if reply else "echoed in full")
    )


def meshes_parts(document: _Figures) -> Iterator[Part]:
    """Lay out a mesh; of several runs for each TMSN's table, and what it says."""
    meshes = meshes_of(document)
    if len(meshes) == 1:
        yield from mesh_parts(meshes[0][1], meshes[0][0])
        return
    for run, mesh in meshes:
        if mesh["cells"]:
            yield _seed_table(mesh, mesh["cells"], run)
        for text in mesh_answers(mesh):
            yield Text(f"run {run}: {text}")
    if meshes:
        yield Text("load, stages and knees of each run: --all", quiet=True)


def mesh_parts(mesh: _Figures, run: str) -> Iterator[Part]:
    """Lay out a mesh: the tables, then what they say of queues."""
    cells = mesh.get("cells") or []
    if cells:
        yield _seed_table(mesh, cells, run)
        if published := published_text(mesh):
            yield Text(published)
        yield _load_table(mesh, cells)
        if any(cell["stages"] for cell in cells):
            yield _own_half_table(cells) if mesh.get("star") else _stage_table(cells)
    if knees := mesh.get("knees") or []:
        yield _knee_table(knees)
    for text in mesh_answers(mesh):
        yield Text(text)


def _seed_table(mesh: _Figures, cells: Sequence[_Figures], run: str) -> Table:
    rows = [
        [str(cell["table"]["load"]), *(_plain(cell["table"][c]) for c in SEED_COLUMNS)]
        for cell in cells
    ]
    title = f"run {run}, " if run else ""
    title += f"mesh of {len(mesh['hosts'])} hosts, {mesh['protocol']}: "
    title += plural(cells[0]["tests"], "test")
    note = _SEED_NOTE.format(host=mesh["hosts"][0])
    note = _STAR_NOTE if mesh.get("star") else note
    return Table(title, ["load", *SEED_COLUMNS], rows, note)


def _plain(value: float | None) -> str:
    """Write a number of TMSN's table: no more digits than needed."""
    return NOT_ENOUGH if value is None else f"{value:.1f}".removesuffix(".0")


def _load_table(mesh: _Figures, cells: Sequence[_Figures]) -> Table:
    """Lay out load, backlog and round trips, from when due and from when sent."""
    tail = _tail(cells).removesuffix("_ns")
    rows: list[tuple[str, Callable[[_Figures], str]]] = [
        *((f"{of}/s", partial(_load_text, of)) for of in _LOADS),
        ("backlog at end", lambda cell: str(cell["backlog"]["at_end"])),
        ("backlog at most", lambda cell: str(cell["backlog"]["most"])),
        ("of each link", lambda cell: percent(cell["utilisation"])),
        ("lost", lambda cell: str(cell["lost"])),
        *(
            (f"{p} from {word}", partial(_time_text, of, f"{p}_ns"))
            for p in ("p50", tail)
            for of, word in _SINCE.items()
        ),
    ]
    link = (
        "not known: there is no lab"
        if mesh.get("star")
        else "what fell due on each host's, headers, echoes and heartbeats with it"
    )
    note = (
        "Backlog: messages without an echo when the last was due, and at most. Link:"
        f" {link}. "
        "Round trips from when a message was due, and from when it was really sent."
    )
    return _by_size("load and response", cells, rows, note)


def _by_size(
    title: str,
    cells: Sequence[_Figures],
    rows: Sequence[tuple[str, Callable[[_Figures], str]]],
    note: str,
) -> Table:
    """Lay out a column for each size, of which there are a few."""
    drawn = cells
    if len(cells) > _MOST_SIZES:
        step = (len(cells) - 1) / (_MOST_SIZES - 1)
        drawn = [cells[round(i * step)] for i in range(_MOST_SIZES)]
    made = [[name, *(write(cell) for cell in drawn)] for name, write in rows]
    left = len(cells) - len(drawn)
    more = f"and {plural(left, 'more size')}: --json; " if left else ""
    return Table(title, ["size", *map(size_text, drawn)], made, more + note)


_MOST_SIZES = 6
_SINCE = {"intended": "due", "real": "sent"}


def _load_text(of: str, cell: _Figures) -> str:
    return _rate(cell["load"][f"{of}_messages_per_second"])


def _time_text(of: str, name: str, cell: _Figures) -> str:
    return duration(cell[of][name])


_LOADS = ("offered", "achieved")


def _tail(cells: Sequence[_Figures]) -> str:
    """Name the farthest percentile that all cells have."""
    for name in ("p99_ns", "p95_ns", "p90_ns"):
        if all(cell["intended"][name] is not None for cell in cells):
            return name
    return "max_ns"


def _rate(per_second: float) -> str:
    return f"{per_second:.4g}" if per_second < 1e4 else f"{per_second:.0f}"


def size_text(cell: _Figures) -> str:
    """Write a cell's size as it was given: in KiB where it is of whole ones.

    Examples
    --------
    >>> size_text({"size_bytes": 204800}), size_text({"size_bytes": 1500})
    ('200 KiB', '1500 B')
    """
    size = cell["size_bytes"]
    return f"{size} B" if size % 1024 else f"{size // 1024} KiB"


def _stage_table(cells: Sequence[_Figures]) -> Table:
    """Lay out which share of a round trip each stage has."""
    shares = [_shares(cell) for cell in cells]
    by_size = {id(cell): of_cell for cell, of_cell in zip(cells, shares, strict=True)}

    def text(part: str, cell: _Figures) -> str:
        return percent(by_size[id(cell)].get(part))

    rows: list[tuple[str, Callable[[_Figures], str]]] = [
        *((part, partial(text, part)) for part in (*STAGES, *_BEHIND)),
        ("mean round trip", lambda cell: duration(cell["intended"]["mean_ns"])),
    ]
    note = "Stages are those of the message; its echo's are in messages.csv."
    return _by_size("where a round trip's time goes", cells, rows, note)


def _own_half_table(cells: Sequence[_Figures]) -> Table:
    """Lay out which share of a round trip each stage has that this host sees."""

    def text(kind: str, stage: str, cell: _Figures) -> str:
        spent = (cell["stages"].get(kind) or {}).get(f"{stage}_ns")
        return _share(spent, cell)

    rows: list[tuple[str, Callable[[_Figures], str]]] = [
        *((stage, partial(text, "request", stage)) for stage in STAGES[:3]),
        (ELSEWHERE, lambda cell: _share(cell["stages"].get(ELSEWHERE_NS), cell)),
        *((f"echo's {stage}", partial(text, "reply", stage)) for stage in STAGES[4:]),
        ("mean round trip", lambda cell: duration(cell["intended"]["mean_ns"])),
    ]
    note = f"As this host sees it; {ELSEWHERE}: {_PLACES[ELSEWHERE]}, not told apart."
    return _by_size("where a round trip's time goes", cells, rows, note)


def _share(spent_ns: float | None, cell: _Figures) -> str:
    mean_ns = cell["intended"]["mean_ns"]
    return percent(spent_ns / mean_ns if spent_ns is not None and mean_ns else None)


_BEHIND = ("responder", "echo's way")


def _shares(cell: _Figures) -> dict[str, float]:
    """Return the parts of a mean round trip, from when its message was due."""
    request, reply = (cell["stages"].get(kind) or {} for kind in _KINDS)
    mean = cell["intended"]["mean_ns"]
    found = {stage: request.get(f"{stage}_ns") for stage in STAGES}
    found["echo's way"] = reply.get("end_to_end_ns")
    if not mean or None in found.values():
        return {}
    shares = {part: spent / mean for part, spent in found.items()}
    return shares | {"responder": max(0.0, 1 - sum(shares.values()))}


_KINDS = ("request", "reply")


def _knee_table(knees: Sequence[_Figures]) -> Table:
    rows = [
        [
            size_text(knee),
            duration(knee["interval_ns"], 4),
            duration(knee["beyond_ns"], 4),
            percent(knee["utilisation"]),
            duration(knee["expected_ns"], 4),
            (knee["grows"] or {}).get("stage", NOT_ENOUGH),
            str(len(knee["trials"])),
        ]
        for knee in knees
    ]
    columns = ["size", "kept up", "not", "of link", "full at", "grows", "trials"]
    note = (
        "The shortest interval that was kept up with, the longest that was not, and "
        "where by arithmetic each host's link is full."
    )
    return Table("knee", columns, rows, note)


def mesh_answers(mesh: _Figures) -> list[str]:
    """Say where more is offered than a queue carries, and where knees are."""
    found = [_overload(cell, mesh) for cell in mesh.get("cells") or []]
    found += [_knee(knee, mesh) for knee in mesh.get("knees") or []]
    return [text for text in found if text]


def published_text(mesh: _Figures) -> str:
    """Set what TMSN published beside rows of as many hosts at the same interval."""
    if mesh.get("star"):
        return ""
    hosts, rows = len(mesh["hosts"]), []
    for cell in mesh.get("cells") or []:
        row = published_of(hosts, cell["interval_ns"], cell["size_bytes"])
        ours_us, received = cell["table"]["avg_msg"], cell["table"]["msg"]
        if row and ours_us is not None:
            rows.append(
                f"{size_text(cell)} {duration(row.round_trip_us * 1000)}, here "
                f"{duration(ours_us * 1000)} (received {_plain(row.received)}, here "
                f"{_plain(received)})"
            )
    begin = f"TMSN published, of {hosts} hosts at this interval, round trips of "
    return begin + "; ".join(rows) if rows else ""


def _overload(cell: _Figures, mesh: _Figures) -> str:
    used = cell["utilisation"] or 0.0
    if keeps_up(cell) and used <= _FULL:
        return ""
    begin = f"{size_text(cell)} every {given_duration(cell['interval_ns'])} "
    begin += (
        f"offers {used:.2f} of each host's link ({given_rate(mesh['rate_bps'])})"
        if used > _FULL
        else "is not kept up with"
    )
    grown = cell["grows"]
    if not grown:
        return f"{begin}: {cell['backlog']['most']} messages waited"
    return f"{begin}: {_grown(grown)}"


def _grown(grows: _Figures) -> str:
    stage = grows["stage"]
    return (
        f"{stage} of the {grows['kind']} grows from {duration(grows['from_ns'])} to "
        f"{duration(grows['to_ns'])} ({_PLACES[stage]})"
    )


def _knee(knee: _Figures, mesh: _Figures) -> str:
    kept, left = knee["interval_ns"], knee["beyond_ns"]
    size = size_text(knee)
    if not kept:
        return f"{size}: no interval was kept up with, up to {duration(left)}"
    begin = f"{size}: kept up with down to every {duration(kept)}"
    if knee["utilisation"] is not None:
        begin += f", {percent(knee['utilisation'])} of each host's link"
    if not left:
        return f"{begin}, the shortest that was tried"
    grows, busy = knee["grows"], knee["busy"]
    texts = [f"beyond it {_grown(grows)}" if grows else "what grows was not seen"]
    links = [
        (share, f"{host} {side}")
        for host, sides in busy.items()
        if host in mesh["hosts"]
        for side, share in sides.items()
    ]
    if links and max(links)[0] >= _BUSY:
        share, where = max(links)
        texts.append(f"link {where} is {percent(share)} full")
    processors = busy["processors"]["busy"]
    if processors >= _BUSY or not links:
        texts.append(f"this machine's processors are {percent(processors)} busy")
    return f"{begin}; {'; '.join(texts)}"


def mesh_depth(document: _Figures) -> Iterator[Part]:
    """Lay out the mesh of each run with its pairs and hosts."""
    for run, mesh in meshes_of(document):
        yield from mesh_parts(mesh, run)
        yield from pair_tables(mesh)


def pair_tables(mesh: _Figures) -> Iterator[Part]:
    """Lay out each size's hosts and pairs."""
    for cell in mesh.get("cells") or []:
        yield _host_table(cell)
        yield _pair_table(cell)


def _host_table(cell: _Figures) -> Table:
    rows = [
        [
            host,
            *(_rate(load[f"{of}_messages_per_second"]) for of in _LOADS),
            *(_rate(load[f"{of}_bytes_per_second"]) for of in _LOADS),
            *(percent(cell["busy"].get(host, {}).get(side)) for side in ("up", "down")),
        ]
        for host, load in cell["hosts"].items()
    ]
    columns = ["host", "offered/s", "achieved/s", "offered B/s", "achieved B/s"]
    columns += ["link up", "link down"]
    note = "Bytes of messages and echoes; of its link what the interfaces counted."
    return Table(f"{size_text(cell)}: hosts", columns, rows, note)


def _pair_table(cell: _Figures) -> Table:
    rows = [
        [
            f"{pair['source']} -> {pair['destination']}",
            f"{pair['lost']} of {pair['sent']}",
            *(duration(pair[f"{name}_ns"]) for name in ("p50", "mean", "max")),
        ]
        for pair in cell["pairs"]
    ]
    title = f"{size_text(cell)}: round trips by pair, from when they were due"
    return Table(title, ["pair", "lost", "p50", "mean", "max"], rows)
