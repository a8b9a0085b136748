"""What a run shows first: the answer, where the time went, the link, and what to do.

Reads a run's summary document; all that it leaves out is on the screen of ``--all``.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console

from latprof_analysis.report.tables import (
    exchange_sentences,
    setup_sentence,
    show_exchange_tables,
    show_line,
    show_link,
    shown,
    slowest_cause,
)
from latprof_analysis.report.terminal import Column, Group, fits, table_lines
from latprof_analysis.stages import STAGES
from latprof_analysis.stats.quantiles import samples_needed
from latprof_analysis.study.ways import Pair, pairs_of, seen_of, time_by_stage
from latprof_analysis.text import (
    NOT_ENOUGH,
    NS_PER_SECOND,
    counts,
    duration,
    given_duration,
    given_rate,
    percent,
    plural,
    rate,
    rate_span,
    short_duration,
    short_percent,
    with_interval,
)

MOST_PAIRS, MOST_STALLS = 3, 2
# Lines for a row of each size and for remarks; where there are many remarks, there
# are fewer sizes.
_ROOM, _FEWEST_SIZES = 10, 3
# A stage of fewer messages than this share of a way's is left to --all, and a pair
# of ends with fewer than this share of the largest one's.
_RARE = 0.01
_FEW = "-: too few for that percentile (p90 needs 100, p95 200, p99 1000)"
_AT_SOCKET = "datagrams_dropped_at_socket"
_TAILS = ("p99", "p95", "p90", "max")


def _share(share: float | None) -> str:
    return percent(share).replace("100.0%", "100%")


def _joined(ns: float | None) -> str:
    return duration(ns).replace(" ", "")


class _Layout(NamedTuple):
    """Which figures of a way are shown, and how they are written."""

    columns: tuple[str, ...]
    time: Callable[[float | None], str] = duration
    share: Callable[[float | None], str] = _share
    share_head: str = "share"


# The first that fits the terminal is taken.
_LAYOUTS = (
    _Layout(("p50", "p95", "p99", "max", "share")),
    _Layout(("p50", "p95", "p99", "share")),
    _Layout(("p50", "p99", "share")),
    _Layout(("p50", "p99", "share"), _joined),
    _Layout(("p50", "p99", "share"), short_duration, short_percent, "%"),
    _Layout(("p50", "share"), short_duration, short_percent, "%"),
)
_SIZE_COLUMNS = (("p50", "p90", "p95", "p99", "max", "n"), ("p50", "p90", "p99", "max"))


def show_first(summary: dict[str, Any], console: Console) -> None:
    """Print at most a screen."""
    show_line(console, setup_sentence(summary))
    every = pairs_of(summary["kinds"])
    most = max((pair.messages for pair in every), default=0)
    pairs = [pair for pair in every if pair.messages >= _RARE * most]
    for sentence in answers(summary, pairs):
        show_line(console, sentence, "bold")
    if not summary["round_trips"]:
        show_exchange_tables(summary, console, most=1)
    remarks = list(_remarks(summary))
    taken = sum(math.ceil(len(text) / console.width) for text, _ in remarks)
    tables = [
        *_stage_table(pairs, console.width, [p for p in every if p not in pairs]),
        *_trip_table(summary["round_trips"], console.width, _ROOM - taken),
    ]
    _show_lines(tables, console)
    if any(NOT_ENOUGH in line.split() for line in tables):
        show_line(console, _FEW, "dim")
    _show_link(summary, console)
    console.print()
    for text, style in remarks:
        show_line(console, text, style)
    show_line(console, _certainty(summary), "dim")
    if not summary["folder"]:
        return
    # to be copied: the terminal breaks them where it must
    for name, text in (
        ("folder", summary["folder"]),
        ("next", f"latprof report {shlex.quote(summary['folder'])}"),
    ):
        console.print(shown(f"{name}: {text}"), soft_wrap=True)


def _stall(stall: Mapping[str, Any]) -> str:
    """Say who did not read, and how many messages waited for it."""
    return (
        f"stall: {stall['reader_comm']} (pid {stall['reader_pid']}) read nothing for "
        f"{duration(stall['until_ns'] - stall['from_ns'])}, "
        f"{stall['after_ns'] / NS_PER_SECOND:.3g} s after the first message: "
        f"{plural(stall['messages'], 'message')} waited together"
    )


def _remarks(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Say what was lost, what was slow, and what must be known to trust the rest."""
    if lost := losses(summary):
        yield f"lost: {lost}", "yellow"
    if summary["slowest"]:
        yield slowest_cause(summary["slowest"], summary["lab"]), ""
    for stall in summary.get("stalls", ())[:MOST_STALLS]:
        yield _stall(stall), ""
    for note in summary.get("notes", ()):
        yield f"note: {note}", "dim"
    for warning in summary["warnings"]:
        yield f"warning: {warning}", "bold yellow"


def _show_lines(lines: Sequence[str], console: Console) -> None:
    """Print lines of a table as they are, the last row of each and heads apart."""
    for line in lines:
        bold = line.startswith(("end_to_end", "all sizes"))
        text = shown(line, "bold" if bold else "")
        console.print(text, no_wrap=True, overflow="crop", soft_wrap=False)


def answers(summary: Mapping[str, Any], pairs: Sequence[Pair]) -> list[str]:
    """Say of each protocol where most time went, how long it took, what was lost.

    Of other programs' exchanges their own sentences say more.
    """
    trips = summary["round_trips"]
    exchanges = {} if trips else summary.get("exchanges") or {}
    pairs = [pair for pair in pairs if pair.name not in exchanges]
    found = [_answer(pair, trips.get(pair.name)) for pair in pairs[:MOST_PAIRS]]
    if exchanges:
        found = exchange_sentences(dict(summary), MOST_PAIRS) + found
    alone = set(trips) - {pair.name for pair in pairs}
    return [*found, *(f"{name}: {_response(trips[name])}" for name in sorted(alone))]


def _answer(pair: Pair, trips: dict[str, Any] | None) -> str:
    stages = time_by_stage(pair)
    told = []
    if stages:
        most = max(stages, key=lambda name: stages[name])
        told.append(f"{percent(stages[most])} of the time in {most}")
    told.append(_response(trips) if trips else _ways(pair))
    return f"{pair.name}: {'; '.join(told)}"


def _response(trips: dict[str, Any]) -> str:
    lost, sent = trips["lost"], trips["sent"]
    told = f"{lost} of {sent} lost ({percent(trips['loss_ratio'])})"
    return f"response {_median_and_tail(trips['rtt'])}; {told if lost else 'none lost'}"


def _ways(pair: Pair) -> str:
    told = []
    for way, figures in pair.ways.items():
        whole = figures["stages"].get("end_to_end")
        seen = f"seen {seen_of(figures).where or 'in part'} only"
        told.append(f"{way} {_median_and_tail(whole) if whole else seen}")
    return "; ".join(told)


def _median_and_tail(figures: Mapping[str, Any]) -> str:
    """Write the median, and the farthest percentile with enough values."""
    tail = next((t for t in _TAILS if figures.get(f"{t}_ns") is not None), None)
    names = [name for name in ("p50", tail) if name]
    texts = [f"{name} {duration(figures.get(f'{name}_ns'))}" for name in names]
    return ", ".join(texts) if figures["n"] else "not seen"


def _stage_table(pairs: Sequence[Pair], width: int, rare: Sequence[Pair]) -> list[str]:
    """Write the stages of as many pairs as fit, or of one that does not."""
    pairs = [
        pair
        for pair in pairs
        if any(s.stages for s in map(seen_of, pair.ways.values()))
    ]
    lines: list[str] = []
    for n in range(min(MOST_PAIRS, len(pairs)), 0, -1):
        for layout in _LAYOUTS:
            lines = _stage_lines(pairs[:n], layout)
            if fits(lines, width):
                return ["", *lines, *_others([*pairs[n:], *rare])]
    return ["", *lines, *_others([*pairs[1:], *rare])] if lines else []


def _others(pairs: Sequence[Pair]) -> list[str]:
    ways = sum(len(pair.ways) for pair in pairs)
    return [f"and {plural(ways, 'more way')}: --all"] if ways else []


def _stage_lines(pairs: Sequence[Pair], layout: _Layout) -> list[str]:
    stages = _stages_of(pairs)
    names = [" of it wakeup" if stage == "wakeup" else stage for stage in stages]
    ours = all(pair.is_ours for pair in pairs)
    groups = [
        Group(
            pair.name,
            [
                Group(
                    _way_title(pair, way, ours=ours),
                    _way_columns(seen_of(figures).stages, stages, layout),
                )
                for way, figures in pair.ways.items()
            ],
        )
        for pair in pairs
    ]
    lines = table_lines("stage", names, groups, depth=2)
    return lines[1:] if ours else lines


def _way_title(pair: Pair, way: str, *, ours: bool) -> str:
    title = f"{pair.name} {way}" if ours else way
    return f"{title} {seen_of(pair.ways[way]).where}".rstrip()


def _stages_of(pairs: Sequence[Pair]) -> list[str]:
    """Name the stages that are not rare, in the order of the path."""
    found = {
        name
        for pair in pairs
        for seen in map(seen_of, pair.ways.values())
        for name, stage in seen.stages.items()
        if stage["n"] and stage["n"] >= _enough(seen.messages)
    }
    order = [*STAGES, "wakeup", "end_to_end"]
    return sorted(found, key=lambda n: (order.index(n.rsplit("+", 1)[-1]), n))


def _enough(messages: int) -> float:
    return max(_RARE * messages, min(samples_needed(0.5), messages))


def _way_columns(
    figures: Mapping[str, Any], stages: Sequence[str], layout: _Layout
) -> list[Column]:
    columns = {}
    for name in (*layout.columns, "max"):
        if name == "share":
            key, write, head = "share_of_end_to_end", layout.share, layout.share_head
        else:
            key, write, head = f"{name}_ns", layout.time, name
        cells = [write(figures[s].get(key)) if s in figures else "" for s in stages]
        columns[name] = Column(head, cells)
    there = [name for name in layout.columns if not columns[name].is_empty]
    if not set(there) & set(_TAILS):
        there.insert(1, "max")
    return [columns[name] for name in there]


def _trip_table(
    trips: Mapping[str, dict[str, Any]], width: int, most: int
) -> list[str]:
    """Write response times by size, the protocols across."""
    if not any(figures["rtt"]["n"] for figures in trips.values()):
        return []
    sizes = sorted({size for f in trips.values() for size in f["sizes"]}, key=_bytes)
    told = _spread(sizes, max(most, _FEWEST_SIZES))
    for columns in _SIZE_COLUMNS:
        groups = [
            Group(protocol, _size_columns(figures, told, columns))
            for protocol, figures in trips.items()
        ]
        lines = table_lines(
            "response", [*(f"{s} B" for s in told), "all sizes"], groups
        )
        if fits(lines, width):
            break
    more = len(sizes) - len(told)
    return ["", *lines, *([f"and {plural(more, 'more size')}: --all"] if more else [])]


def _spread(sizes: list[str], most: int) -> list[str]:
    """Choose so many, from the first to the last; a line for the rest is one, too."""
    if len(sizes) <= most + 1:
        return sizes
    step = (len(sizes) - 1) / (most - 1)
    return [sizes[round(i * step)] for i in range(most)]


def _bytes(label: str) -> int:
    return int(label.partition("-")[0])


def _size_columns(
    figures: Mapping[str, Any], sizes: Sequence[str], columns: Sequence[str]
) -> list[Column]:
    rows = [*(figures["sizes"].get(size, {}) for size in sizes), figures["rtt"]]
    found = []
    for name in columns:
        if name == "n":
            cells = [str(row.get("n", 0)) for row in rows]
        else:
            cells = [duration(row.get(f"{name}_ns")) for row in rows]
        # a percentile that only all sizes together have is in the answer above
        if 2 * cells.count(NOT_ENOUGH) < len(cells):
            found.append(Column(name, cells))
    return found


def _show_link(summary: dict[str, Any], console: Console) -> None:
    fits_of = {p: t["fit"] for p, t in summary["round_trips"].items() if t["fit"]}
    if not fits_of:
        show_link(summary, console)
        return
    told = {p: f for p, f in fits_of.items() if f["bandwidth_bits_per_second"]}
    if told:
        _show_lines(
            ["", *_link_table(told, summary["known"] or {}, console.width)], console
        )


class _LinkRow(NamedTuple):
    """What is measured of the link, how it is written, and what is known of it."""

    figure: str
    measured: Callable[[dict[str, Any]], str]
    known: str


def _link_table(
    found: Mapping[str, dict[str, Any]], known: Mapping[str, Any], width: int
) -> list[str]:
    """Write what was measured of the link, the protocols across where there is room."""
    delay = known.get("delay_ns")
    bandwidth = given_rate(known.get("rate_bps"))
    # what hosts do with each byte is in the fit, and not in what is known
    apart = known.get("rate_bps") and any(map(_own_rate, found.values()))
    of_fit = f"{bandwidth} less hosts" if apart else bandwidth
    rows = [
        _LinkRow("bandwidth", _bandwidth, of_fit),
        _LinkRow("link's own rate", _own_rate, bandwidth),
        _LinkRow(
            "fixed delay",
            _fixed,
            f"{given_duration(2 * delay)} + hosts" if delay else "",
        ),
    ]
    rows = [row for row in rows if any(map(row.measured, found.values()))]
    title = "measured [95%]"
    across = [
        Group(p, [Column(title, [row.measured(fit) for row in rows], left=True)])
        for p, fit in found.items()
    ]
    truth = Group("", [Column("known", [row.known for row in rows], left=True)])
    lines = table_lines("the link", [row.figure for row in rows], [*across, truth])
    if fits(lines, width):
        return lines
    down = [
        (f"{row.figure}, {protocol}", row.measured(fit), row.known)
        for row in rows
        for protocol, fit in found.items()
        if row.measured(fit)
    ]
    names, measured, truths = zip(*down, strict=True)
    columns = [Column(title, measured, left=True), Column("known", truths, left=True)]
    return table_lines("the link", names, columns, depth=0)


def _bandwidth(fit: dict[str, Any]) -> str:
    return with_interval(fit["bandwidth_bits_per_second"], rate)


def _own_rate(fit: dict[str, Any]) -> str:
    """Between which rates the link's own lies, where that is not the interval."""
    within = fit.get("link_rate_range") or {}
    return rate_span(within["low"], within["high"]) if within.get("reason") else ""


def _fixed(fit: dict[str, Any]) -> str:
    found = fit["fixed_delay_seconds"]
    return with_interval(found, duration, 1e9) if found else ""


def losses(summary: Mapping[str, Any]) -> str:
    """Say where packets or datagrams were lost; nothing where none were."""
    link = summary["link_counters"] or {}
    emulator, netem = link.get("emulator", {}), link.get("netem", {})
    queue, lost = (
        {way: figures[name] for way, figures in emulator.items()}
        for name in ("dropped_queue", "dropped_loss")
    )
    lost |= {way: _dropped(ends) for way, ends in netem.items()}
    places = {
        "in the link's queue": _ways_lost(queue),
        "on the link": _ways_lost(lost),
        "in a qdisc": _ways_lost({e: _dropped(link[e]) for e in "ab" if e in link}),
        "datagrams at a full socket": summary["counters"].get(_AT_SOCKET, 0),
        "datagrams unread at close": summary["unread_at_close"],
        "answered after the time-out": _late(summary["workload"]),
    }
    told = [f"{n} {place}" for place, n in places.items() if n]
    again = sum(figures["retransmits"] for figures in summary["kinds"].values())
    resent = plural(sum(f["resent"] for f in summary["kinds"].values()), "message")
    told += [f"{plural(again, 'segment')} of {resent} sent again"] if again else []
    return ", ".join(told)


def _late(workload: Mapping[str, Any]) -> int:
    """Count replies that the generator had given up; its log calls them lost."""
    return sum(run.get("late", 0) for run in workload["runs"])


def _dropped(counted: Mapping[str, Any]) -> int:
    return sum(qdisc["dropped_packets"] for qdisc in counted["qdiscs"])


def _ways_lost(by_way: Mapping[str, int]) -> str:
    """Count packets, and name the way or the end where they were lost: ab is a to b."""
    told = {" to ".join(way): n for way, n in by_way.items() if n}
    if not told:
        return ""
    ways = next(iter(told)) if len(told) == 1 else counts(told)
    return f"{plural(sum(told.values()), 'packet')} ({ways})"


def _certainty(summary: Mapping[str, Any]) -> str:
    """Say in a line how much was recorded, at which cost, and how exactly."""
    lost, cost = counts(summary["lost_records"]), summary["cost"]
    told = [f"{plural(summary['records'], 'record')}, {lost or 'none'} lost"]
    probes = cost["probes_cpu_share"]
    told.append(f"probes {percent(probes)} of a CPU" if probes is not None else "")
    told.append(f"agent {percent(cost['agent_cpu_share'])}")
    partial = sum(c["state"] != "exact" for c in summary["capabilities"])
    told.append(f"{plural(partial, 'stamp')} not exact" if partial else "")
    return "; ".join(filter(None, told)) + " (all: --all)"
