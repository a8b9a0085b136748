"""What a document shows first: the answer, where the time went, the link, what to do.

Of a run's summary.json or of what `analyze` makes, which have the same keys. Parts
for any writer, at most a screen of them; all that they leave out is in `depth`.
Without pandas, since the agent shows this after each run.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from latprof_analysis.report.bulk_text import bulk_parts, bulk_sentences
from latprof_analysis.report.clock_words import clock_sentences
from latprof_analysis.report.link import link_parts_of
from latprof_analysis.report.link_counters import egresses, root_qdisc, way_name
from latprof_analysis.report.load_text import load_parts, load_sentences
from latprof_analysis.report.mesh_text import meshes_of, meshes_parts
from latprof_analysis.report.ops import ops_parts, ops_sentences
from latprof_analysis.report.parts import Fold, Items, Part, Table, Text
from latprof_analysis.report.sentences import (
    exchange_sentences,
    no_exchange_sentences,
    run_name,
    setup_sentence,
)
from latprof_analysis.report.sweep_parts import sweep_tables
from latprof_analysis.report.tables import (
    bucket_parts,
    exchange_parts,
    given_parts,
    histogram_parts,
    samples_of,
    transfer_parts,
)
from latprof_analysis.stages import STAGES
from latprof_analysis.stats.quantiles import samples_needed
from latprof_analysis.study.likely_cause import slowest_sentence
from latprof_analysis.study.ways import Pair, pairs_of, seen_of, time_by_stage
from latprof_analysis.text import (
    NOT_ENOUGH,
    NS_PER_SECOND,
    counted,
    counts,
    duration,
    duration_band,
    percent,
    plural,
    short_duration,
    short_percent,
)

MOST_PAIRS, MOST_STALLS, MOST_KINDS = 3, 2, 6
FEW = "-: too few for that percentile (p90 needs 100, p95 200, p99 1000)"
# Lines for a row of each size and for remarks; where there are many remarks, there
# are fewer sizes.
_ROOM, _FEWEST_SIZES, _COLUMNS = 10, 3, 80
_MOST_NOTES, _MOST_RUNS, _MOST_GIVEN = 2, 3, 12
# A stage of fewer messages than this share of a way's is left to --all, and a pair
# of ends with fewer than this share of the largest one's.
_RARE = 0.01
# Where the link emulator's counters say that a packet was lost.
_EMULATED = {"dropped_queue": "in the link's queue", "dropped_loss": "on the link"}
_TAILS = ("p99", "p95", "p90", "max")
_MORE = ": --all"
# Where anything to lay out stands, beside samples.
_HELD = (
    *("bulk", "ops", "histograms", "kinds", "round_trips", "exchanges"),
    "transfers",
)


def overview(document: Mapping[str, Any]) -> list[Part]:
    """Lay out at most a screen.

    Examples
    --------
    >>> empty = {"notes": [], "warnings": [], "samples": {"kinds": {}}}
    >>> [part.text for part in overview(empty) if isinstance(part, Text)]
    ['no latencies in it']
    """
    remarks = list(_remarks(document))
    taken = sum(math.ceil(len(part.text) / _COLUMNS) for part in remarks)
    tables = list(_tables(document, _ROOM - taken))
    link, ends = link_parts_of(document), [*remarks, *_ending(document)]
    opened = opening(document, overview)
    return [*opened, *tables, *_explained(tables), *link, *ends]


def opening(
    document: Mapping[str, Any],
    lay_out: Callable[[Mapping[str, Any]], Sequence[Part]],
) -> Iterator[Part]:
    """Lay out sweeps and set-ups one by one; name what was read; answer."""
    for sweep in document.get("sweeps") or ():
        yield from sweep_tables(sweep)
    setups = document.get("setups") or ()
    for i, one in enumerate(setups, 1):
        yield Fold(f"set-up {i} of {len(setups)}", lay_out(one))
    yield from map(Text, _heading(document))
    yield from map(Text, clock_sentences(document))
    yield from (Text(text, tone="answer") for text in answers(document))
    if not (setups or samples_of(document) or any(map(document.get, _HELD))):
        yield Text("no latencies in it")


def _heading(document: Mapping[str, Any]) -> Iterator[str]:
    """Name what was read, and say what was run over what."""
    runs = list((document.get("runs") or {}).items())
    for folder, run in runs[:_MOST_RUNS]:
        n = [(run["messages"], "message"), (run["round_trips"], "round trip")]
        n += [(run["exchanges"], "exchange")] if run["exchanges"] else []
        text = f"{run_name(folder, run)}: {', '.join(counted(*each) for each in n)}"
        where = ", ".join(filter(None, (run["host"], run["kernel"])))
        yield f"{text} ({where})" if where else text
    if len(runs) > _MOST_RUNS:
        yield f"and {plural(len(runs) - _MOST_RUNS, 'more run')}"
    if document.get("workload"):
        yield setup_sentence(document)
    if document.get("input"):
        yield f"{document['input']['format']}: {document['latency']}"


def answers(document: Mapping[str, Any]) -> list[str]:
    """Say of each protocol where most time went, how long it took, what was lost.

    Of other programs' exchanges their own sentences say more; of other tools' files
    how long it took is all they have. Of a mesh that is in its own tables, by size and
    without the trials of a search.

    Examples
    --------
    >>> answers({"round_trips": {"udp": {"sent": 8, "lost": 2}}})
    ['udp: 2 of 8 lost (25.0%)']
    """
    if document.get("ops"):
        return ops_sentences(document)
    if document.get("bulk"):
        return bulk_sentences(document)
    trips = document.get("round_trips") or {}
    exchanges = {} if trips else document.get("exchanges") or {}
    pairs = [pair for pair in _frequent(document)[0] if pair.name not in exchanges]
    shown, alone = (
        pairs[:MOST_PAIRS],
        sorted(set(trips) - {pair.name for pair in pairs}),
    )
    if meshes_of(document):
        found, alone = [_answer(pair, "") for pair in shown], []
    else:
        found = [_answer(pair, _took(pair, trips)) for pair in shown]
    if exchanges:
        found = exchange_sentences(document, MOST_PAIRS) + found
    if not trips:
        found += no_exchange_sentences(document)
    kinds = samples_of(document)
    found += _first(alone, lambda name: f"{name}: {_response(trips[name])}", "protocol")
    found += _first(list(kinds), lambda kind: _of_samples(kind, kinds[kind]), "kind")
    return [*(text for text in found if text), *load_sentences(document)]


def _first(names: Sequence[str], say: Callable[[str], str], noun: str) -> Iterator[str]:
    """Say something of each of the first, and how many there are more."""
    yield from map(say, names[:MOST_KINDS])
    if len(names) > MOST_KINDS:
        yield f"and {plural(len(names) - MOST_KINDS, f'more {noun}')}{_MORE}"


def _frequent(document: Mapping[str, Any]) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs of ways that are shown, and those of too few messages."""
    every = pairs_of(document.get("kinds") or {})
    most = max((pair.messages for pair in every), default=0)
    frequent = [pair for pair in every if pair.messages >= _RARE * most]
    return frequent, [pair for pair in every if pair not in frequent]


def _answer(pair: Pair, took: str) -> str:
    stages = time_by_stage(pair)
    texts = [took] if took else []
    if stages:
        most = max(stages, key=lambda name: stages[name])
        texts.insert(0, f"{percent(stages[most])} of the time in {most}")
    return f"{pair.name}: {'; '.join(texts)}" if texts else ""


def _took(pair: Pair, trips: Mapping[str, Any]) -> str:
    return _response(trips[pair.name]) if pair.name in trips else _ways(pair)


def _response(trips: Mapping[str, Any]) -> str:
    text, rtt = _lost(trips["lost"], trips["sent"]), trips.get("rtt")
    return f"response {_median_and_tail(rtt)}; {text}" if rtt else text


def _lost(lost: int, sent: int) -> str:
    return f"{lost} of {sent} lost ({percent(lost / sent)})" if lost else "none lost"


def _ways(pair: Pair) -> str:
    texts = []
    for way, figures in pair.ways.items():
        text = f"seen {seen_of(figures).where or 'in part'} only"
        if whole := figures["stages"].get("end_to_end"):
            text = _median_and_tail(whole)
        texts.append(f"{way} {text}")
    return "; ".join(texts)


def _of_samples(kind: str, figures: Mapping[str, Any]) -> str:
    """Say how long a kind took, and what was lost if the file says so."""
    lost, histogram = figures["lost"], figures["histogram"]
    losses = [] if lost is None else [_lost(lost, figures["sent"])]
    if lost and (where := counts(figures.get("lost_where") or {})):
        losses = [f"{losses[0]}: {where}"]
    if figures["n"]:
        n = "1 latency" if figures["n"] == 1 else f"{figures['n']:,} latencies"
        took = f"{n}, {_median_and_tail(_of_all(figures))}"
    elif histogram:
        took = _of_histogram(histogram)
    else:
        took = _of_given(figures["given"])
    texts = [*filter(None, [took]), *losses]
    return f"{kind}: {'; '.join(texts)}" if texts else ""


def _of_histogram(histogram: Mapping[str, Any]) -> str:
    """Say between what the median and the farthest percentile lie."""
    found = histogram["percentiles"]
    names = [name for name in ("p50", *_TAILS) if name in found][:2]
    texts = [
        f"{name} {duration_band(found[name]['low_ns'], found[name]['high_ns'])}"
        for name in names
    ]
    return ", ".join([f"a histogram of {histogram['n']:,}", *texts])


def _of_given(given: Sequence[Mapping[str, Any]]) -> str:
    """Say from where to where the medians or means of a file's rows go."""
    for statistic in ("p50", "mean", "smoothed"):
        ends = [row["median_ns"] for row in given if row["statistic"] == statistic]
        if ends:
            low, high = duration(min(ends)), duration(max(ends))
            text = low if low == high else f"{low} to {high}"
            return f"{statistic} {text}, as the file gives it"
    return ""


def _of_all(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the percentiles of a kind of samples, as round trips have theirs."""
    found = (figures.get("tail") or {}).get("percentiles") or {}
    values = {
        f"{p}_ns": one["value_ns"] for p, one in found.items() if "value_ns" in one
    }
    most = [size["max_ns"] for size in figures["sizes"].values()]
    return {"n": figures["n"], "max_ns": max(most, default=None), **values}


def _median_and_tail(figures: Mapping[str, Any]) -> str:
    """Write the median, and the farthest percentile with enough values."""
    there = [p for p in ("p50", *_TAILS) if figures.get(f"{p}_ns") is not None]
    names = there[: 2 if "p50" in there else 1]
    texts = [f"{name} {duration(figures[f'{name}_ns'])}" for name in names]
    return ", ".join(texts) if figures["n"] else "not seen"


def _remarks(document: Mapping[str, Any]) -> Iterator[Text]:
    """Say what was lost, what was slow, and what must be known to trust the rest."""
    if lost := losses(document):
        load = ", of the flows of the load, too" if document.get("load") else ""
        yield Text(f"lost: {lost}{load}", tone="warning")
    if again := retransmitted(document):
        yield Text(f"retransmitted: {again}", tone="warning")
    if document.get("slowest"):
        yield Text(slowest_sentence(document["slowest"], document.get("lab")))
    for stall in document.get("stalls", ())[:MOST_STALLS]:
        yield Text(_stall(stall))
    yield from (Text(text, quiet=True) for text in _some(document, "note"))
    yield from left_out(document, _MOST_NOTES)
    yield from (Text(text, tone="warning") for text in _some(document, "warning"))


def _some(document: Mapping[str, Any], noun: str) -> Iterator[str]:
    """Say the first of some, and how many there are more."""
    every = list(dict.fromkeys(document.get(f"{noun}s") or ()))
    few = every if len(every) <= _MOST_NOTES + 1 else every[:_MOST_NOTES]
    yield from (f"{noun}: {text}" for text in few)
    if rest := len(every) - len(few):
        yield f"and {plural(rest, f'more {noun}')}{_MORE}"


def left_out(document: Mapping[str, Any], most: int) -> Iterator[Text]:
    """Say which rows were left out, and how many there are more."""
    rows = (document.get("skipped") or [])[:most]
    yield from (Text(f"left out: {row}", tone="warning") for row in rows)
    if (rest := document.get("skipped_rows", 0) - len(rows)) > 0:
        yield Text(f"left out: {plural(rest, 'more row')}", tone="warning")


def _stall(stall: Mapping[str, Any]) -> str:
    """Say who did not read, and how many messages waited for it."""
    return (
        f"stall: {stall['reader_comm']} (pid {stall['reader_pid']}) read nothing for "
        f"{duration(stall['until_ns'] - stall['from_ns'])}, "
        f"{stall['after_ns'] / NS_PER_SECOND:.3g} s after the first message: "
        f"{plural(stall['messages'], 'message')} waited together"
    )


def _ending(document: Mapping[str, Any]) -> list[Part]:
    """Say how sure it is, and where it stands."""
    runs = document.get("runs") or {}
    only = next(iter(runs.values())) if len(runs) == 1 else {}
    sure = _certainty(dict(only) | dict(document))
    lines = [sure] if sure else []
    if folder := document.get("folder"):
        lines += [f"folder: {folder}", f"next: latprof report {shlex.quote(folder)}"]
    return [Items(lines)] if lines else []


def _certainty(document: Mapping[str, Any]) -> str:
    """Say in a line how much was recorded, at which cost, and how exactly."""
    if not {"records", "lost_records", "cost", "capabilities"} <= document.keys():
        return ""
    lost, cost = counts(document["lost_records"]), document["cost"]
    found = [f"{plural(document['records'], 'record')}, {lost or 'none'} lost"]
    probes = cost["probes_cpu_share"]
    found.append(f"probes {percent(probes)} of a CPU" if probes is not None else "")
    found.append(f"agent {percent(cost['agent_cpu_share'])}")
    partial = sum(c["state"] != "exact" for c in document["capabilities"])
    found.append(f"{plural(partial, 'stamp')} not exact" if partial else "")
    return "; ".join(filter(None, found)) + " (all: --all)"


def losses(document: Mapping[str, Any]) -> str:
    """Say where packets or datagrams were lost; nothing where none were."""
    places: dict[str, Counter[str]] = defaultdict(Counter)
    for run in (document.get("runs") or {"": document}).values():
        for place, way, n in _lost_of(run):
            places[place][way] += n or 0  # of a run.json from elsewhere
    texts = [_lost_at(place, +ways) for place, ways in places.items() if +ways]
    generated = (document.get("workload") or {}).get("runs") or ()
    late = sum(run.get("late", 0) for run in generated)
    texts += [f"{late} answered after the time-out"] if late else []
    return ", ".join(texts)


def retransmitted(document: Mapping[str, Any]) -> str:
    """Say what TCP sent again, which need not have been lost; nothing without any."""
    kinds = (document.get("kinds") or {}).values()
    again = sum(figures["retransmits"] for figures in kinds)
    if not again:
        return ""
    resent = plural(sum(figures["resent"] for figures in kinds), "message")
    text = f"{plural(again, 'segment')} of {resent}"
    needless = document.get("needless_retransmits")  # older runs have none
    if not needless:
        return text
    count = "all" if needless == again else f"{needless} of them"
    return f"{text}, {count} needlessly: the message had arrived before"


def _lost_at(place: str, ways: Counter[str]) -> str:
    """Count what was lost at a place, by way or end where these are known."""
    if "" in ways:
        return f"{ways.total()} {place}"
    where = next(iter(ways)) if len(ways) == 1 else counts(ways)
    return f"{plural(ways.total(), 'packet')} ({where}) {place}"


def _lost_of(run: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Yield what one run lost, by place and way."""
    link = run.get("link_counters") or {}
    for name, place in _EMULATED.items():
        for way, figures in link.get("emulator", {}).items():
            yield place, way_name(way), figures[name]
    for way, ends in link.get("netem", {}).items():
        dropped = root_qdisc(ends)["dropped_packets"]
        yield _EMULATED["dropped_loss"], way_name(way), dropped
    for place, figures in egresses(link):
        yield "in a qdisc", place, root_qdisc(figures)["dropped_packets"]
    counters = run.get("counters") or {}
    unresolved = counters.get("datagrams_without_address", 0)
    yield "datagrams for want of a link address (neighbour resolution)", "", unresolved
    at_socket = counters.get("datagrams_dropped_at_socket", 0)
    yield "datagrams at a full socket", "", at_socket
    yield "datagrams unread at close", "", run.get("unread_at_close") or 0


def _tables(document: Mapping[str, Any], room: int) -> Iterator[Part]:
    """Lay out stages, then round trips by size or what stands for them."""
    if document.get("ops"):
        yield from ops_parts(document)
        return
    if document.get("bulk"):
        yield from bulk_parts(document)
        return
    trips = document.get("round_trips") or {}
    if not trips and document.get("exchanges"):
        yield from exchange_parts(document, most=1)
    frequent, rare = _frequent(document)
    yield from meshes_parts(document)
    yield from _stage_table(frequent, rare)
    if not meshes_of(document):  # whose tables have them by size
        yield from _size_table("response", trips, room)
    yield from load_parts(document)
    kinds = samples_of(document)
    timed = {
        kind: {"sizes": figures["sizes"], "rtt": _of_all(figures)}
        for kind, figures in kinds.items()
        if figures["n"]
    }
    yield from _size_table("latency", timed, room)
    yield from bucket_parts(kinds)
    yield from given_parts(kinds, _MOST_GIVEN)
    yield from transfer_parts(document)
    yield from histogram_parts(document, most=2)


def _explained(tables: Sequence[Part]) -> list[Part]:
    shown = (table for table in tables if isinstance(table, Table) and table.whole)
    few = any(NOT_ENOUGH in row[1:] for table in shown for row in table.rows)
    return [Text(FEW, quiet=True)] if few else []


class _Layout(NamedTuple):
    """Which figures of a way are shown, the share of time last; how each is written."""

    columns: tuple[str, ...]
    time: Callable[[float | None], str] = duration
    share: Callable[[float | None], str] = percent


def _joined(ns: float | None) -> str:
    return duration(ns).replace(" ", "")


# From wide to narrow.
_LAYOUTS = (
    _Layout(("p50", "p95", "p99", "max", "share")),
    _Layout(("p50", "p95", "p99", "share")),
    _Layout(("p50", "p99", "share")),
    _Layout(("p50", "p99", "share"), _joined),
    _Layout(("p50", "p99", "%"), short_duration, short_percent),
    _Layout(("p50", "%"), short_duration, short_percent),
)
_SIZE_COLUMNS = (("p50", "p90", "p95", "p99", "max", "n"), ("p50", "p90", "p99", "max"))


def _stage_table(frequent: Sequence[Pair], rare: Sequence[Pair]) -> list[Table]:
    """Lay out the stages of three pairs, or where there is no room of fewer."""
    pairs = [
        pair for pair in frequent if any(seen_of(f).stages for f in pair.ways.values())
    ]
    forms = [
        _stage_form(pairs[:n], layout, [*pairs[n:], *rare])
        for n in range(min(MOST_PAIRS, len(pairs)), 0, -1)
        for layout in _LAYOUTS
    ]
    return [replace(forms[0], narrow=forms[1:])] if forms else []


def _stage_form(
    pairs: Sequence[Pair], layout: _Layout, others: Sequence[Pair]
) -> Table:
    stages = _stages_of(pairs)
    names = [" of it wakeup" if stage == "wakeup" else stage for stage in stages]
    columns = [["stage", *names]]
    inner, outer = [], []
    for pair in pairs:
        before = len(columns)
        for way, figures in pair.ways.items():
            found = _way_columns(seen_of(figures).stages, stages, layout)
            columns += found
            inner.append((f"{way} {seen_of(figures).where}".rstrip(), len(found)))
        outer.append((pair.name, len(columns) - before))
    head, *rows = zip(*columns, strict=True)
    ways = sum(len(pair.ways) for pair in others)
    note = f"and {plural(ways, 'more way')}{_MORE}" if ways else ""
    return Table("", head, rows, note, heads=[outer, inner], whole="end_to_end")


def _stages_of(pairs: Sequence[Pair]) -> list[str]:
    """Name the stages that are not rare, in the order of the path."""
    found: set[str] = set()
    for seen in (seen_of(figures) for pair in pairs for figures in pair.ways.values()):
        most = seen.messages
        enough = max(1, _RARE * most, min(samples_needed(0.5), most))
        found |= {name for name, one in seen.stages.items() if one["n"] >= enough}
    order = [*STAGES, "wakeup", "end_to_end"]
    return sorted(found, key=lambda n: (order.index(n.rsplit("+", 1)[-1]), n))


def _way_columns(
    figures: Mapping[str, Any], stages: Sequence[str], layout: _Layout
) -> list[list[str]]:
    """Return the columns of one way that have a value, each below its title."""

    def column(name: str, key: str, write: Callable[[float | None], str]) -> list[str]:
        found = (figures.get(stage) for stage in stages)
        return [name, *(write(one.get(key)) if one else "" for one in found)]

    *times, share = layout.columns
    columns = [column(name, f"{name}_ns", layout.time) for name in times]
    columns.append(column(share, "share_of_end_to_end", layout.share))
    filled = [cells for cells in columns if set(cells[1:]) - {"", "-"}]
    if not {head for head, *_ in filled} & set(_TAILS):
        filled.insert(1, column("max", "max_ns", layout.time))
    return filled


def _size_table(
    title: str, groups: Mapping[str, Mapping[str, Any]], most: int
) -> list[Table]:
    """Lay out times by size, the protocols or kinds across."""
    groups = {name: g for name, g in groups.items() if g["rtt"]["n"]}
    if not groups:
        return []
    sizes = sorted({size for g in groups.values() for size in g["sizes"]}, key=_bytes)
    shown, most = sizes, max(most, _FEWEST_SIZES)
    if len(sizes) > most + 1:  # a line for the rest is one, too
        step = (len(sizes) - 1) / (most - 1)
        shown = [sizes[round(i * step)] for i in range(most)]
    labels = [f"{size} B" if size[:1].isdecimal() else size for size in shown]
    first = [title, *labels, *(["all sizes"] if len(shown) != 1 else [])]
    forms = []
    for n in range(len(groups), 0, -1):
        left = {"more size": len(sizes) - len(shown), "more kind": len(groups) - n}
        more = " and ".join(plural(of, what) for what, of in left.items() if of)
        note = f"and {more}{_MORE}" if more else ""
        for names in _SIZE_COLUMNS:
            found = {
                name: _size_columns(groups[name], shown, names)
                for name in list(groups)[:n]
            }
            # of one size the row of all sizes, which is the same, is left out
            columns = (column for each in found.values() for column in each)
            head, *rows = zip(first, *columns, strict=False)
            heads = [[(name, len(each)) for name, each in found.items()]]
            forms.append(Table("", head, rows, note, heads=heads, whole="all sizes"))
    return [replace(forms[0], narrow=forms[1:])]


def _bytes(label: str) -> int:
    first = label.partition("-")[0]
    return int(first) if first.isdecimal() else -1


def _size_columns(
    figures: Mapping[str, Any], sizes: Sequence[str], columns: Sequence[str]
) -> list[list[str]]:
    rows = [*(figures["sizes"].get(size, {}) for size in sizes), figures["rtt"]]
    found = []
    for name in columns:
        if name == "n":
            cells = [str(row.get("n", 0)) for row in rows]
        else:
            cells = [duration(row.get(f"{name}_ns")) for row in rows]
        # a percentile that only all sizes together have is in the answer above
        known = [cell for cell, row in zip(cells, rows, strict=True) if row]
        if 2 * known.count(NOT_ENOUGH) < len(known):
            found.append([name, *cells])
    return found
