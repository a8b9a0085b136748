"""All that a document holds, as parts: every table, then how sure it is.

Of a run's summary.json or of what `analyze` makes; nothing is computed. Without
pandas, as the overview.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latprof_analysis.report.bulk_text import bulk_parts
from latprof_analysis.report.clock_words import clock_tables
from latprof_analysis.report.link import (
    direction_parts,
    estimator_parts,
    fit_parts,
    loggp_tables,
    sample_fit_parts,
    stage_line_parts,
)
from latprof_analysis.report.link_counters import root_qdisc
from latprof_analysis.report.load_text import load_parts
from latprof_analysis.report.mesh_text import mesh_depth
from latprof_analysis.report.ops import ops_parts
from latprof_analysis.report.overview import left_out, losses, opening, retransmitted
from latprof_analysis.report.parts import Items, Part, Table, Text
from latprof_analysis.report.sentences import (
    capability_sentence,
    large_changes,
    levels_alike,
    step_ns,
)
from latprof_analysis.report.tables import (
    FEW,
    bucket_parts,
    exchange_parts,
    given_parts,
    histogram_parts,
    samples_of,
    size_parts,
    stage_parts,
    times_table,
    transfer_parts,
    trip_parts,
)
from latprof_analysis.report.time_warp_table import time_warp_tables
from latprof_analysis.study.incomplete import incomplete_text
from latprof_analysis.study.likely_cause import slowest_sentence, slowest_stages
from latprof_analysis.text import counts, duration, fixed, percent, plural, span

Figures = Mapping[str, Any]

_MOST_LISTED = 5  # wrong rows, and changes of level, one by one


def depth(document: Figures) -> list[Part]:
    """Lay out everything."""
    parts = list(opening(document, depth))
    # of a run it is one of the warnings
    if (lacks := incomplete_text(document)) and "runs" in document:
        parts.append(Text(lacks, tone="answer"))
    return [
        *parts,
        *clock_tables(document),
        *_of_runs(document),
        *_of_samples(document),
        *_ending(document),
    ]


def _of_runs(document: Figures) -> Iterator[Part]:
    yield from ops_parts(document)
    yield from bulk_parts(document)
    yield from histogram_parts(document)
    yield from mesh_depth(document)
    yield from exchange_parts(document)
    kinds = document.get("kinds") or {}
    for kind, figures in kinds.items():
        yield from stage_parts(kind, figures)
        # a run's own summary has the sizes without what a byte or a hop adds
        if figures["stages"] and "messages" in document:
            yield from size_parts(kind, figures)
    yield from load_parts(document, everything=True)
    yield from time_warp_tables(document)
    trips = document.get("round_trips") or {}
    for protocol, figures in trips.items():
        yield from trip_parts(protocol, figures)
    if kinds or trips:
        yield Text(FEW, quiet=True)
    yield from fit_parts(document)
    yield from loggp_tables(document)
    yield from direction_parts(document)
    yield from stage_line_parts(document)
    yield from estimator_parts(document)
    messages = document.get("messages") or {}
    groups = {f"{kind}, end to end": figures for kind, figures in messages.items()}
    groups |= {f"{p} round trip": f for p, f in trips.items()}
    yield from _tails_and_order(groups)


def _of_samples(document: Figures) -> Iterator[Part]:
    """Lay out what files of other formats hold."""
    kinds = samples_of(document)
    for kind, figures in kinds.items():
        if n := figures["n"]:
            lost = f", {figures['lost']} lost" if figures["lost"] else ""
            title = f"{kind}: {n} {'latency' if n == 1 else 'latencies'}{lost}"
            sizes = {f"{size} B": one for size, one in figures["sizes"].items()}
            yield times_table(title, "size", sizes)
        yield from bucket_parts({kind: figures})
        yield from given_parts({kind: figures}, len(figures["given"]))
        yield from sample_fit_parts(kind, figures)
    yield from transfer_parts(document)
    if any(figures["n"] for figures in kinds.values()):
        yield Text(FEW, quiet=True)
    yield from _tails_and_order(kinds)


def _tails_and_order(groups: Mapping[str, Figures]) -> Iterator[Part]:
    timed = {name: f for name, f in groups.items() if f.get("tail", {}).get("n")}
    yield from _tails(timed)
    yield from _order(timed)


def _tails(groups: Mapping[str, Figures]) -> Iterator[Part]:
    """Lay out percentiles with intervals, the three pieces, and modes."""
    rows: list[list[str]] = []
    for name, figures in groups.items():
        of = name
        found = figures["tail"]["percentiles"]
        for p, one in () if "reason" in found else found.items():
            if one["value_ns"] is not None:
                value, n = duration(one["value_ns"]), str(one["n"])
                rows.append([of, p, value, _interval(one), n])
                of = ""
    if rows:
        title = "tails: percentiles with 95% intervals, open where n is too small"
        yield Table(title, ["of", "", "value", "interval", "n"], rows)
    for name, figures in groups.items():
        tail = figures["tail"]
        yield Text(f" {name}: {_pieces(tail)}", quiet=True)
        if modes := _modes(tail["modes"]):
            of = f", messages of {tail['modes_of']} bytes" if tail["modes_of"] else ""
            yield Text(f" {name}{of}: {modes}")


def _interval(figure: Figures) -> str:
    low, high = figure["low_ns"], figure["high_ns"]
    if low is not None and high is not None:
        return span(low, high, duration, 3)
    return f"{duration(low)} to {duration(high)}"


def _pieces(tail: Figures) -> str:
    if not isinstance(tail["pieces"], list):
        return str(tail["pieces"]["reason"])
    return "; ".join(
        f"{piece['name']} {span(piece['low_ns'], piece['high_ns'], duration, 3)}"
        for piece in tail["pieces"]
        if piece["count"]
    )


def _modes(modes: Figures) -> str:
    """Name modes where there is more than one, and why the later ones take longer."""
    found = modes.get("modes", [])
    if len(found) < 2:
        return ""
    texts = []
    for mode in found:
        why, longer = percent(mode["share"]), mode.get("longer_in")
        if longer:
            why += f", {duration(longer['by_ns'])} more in {longer['stage']}"
        texts.append(f"{mode['name']} at {duration(mode['value'])} ({why})")
    return f"{len(found)} modes: {', '.join(texts)}"


def _order(groups: Mapping[str, Figures]) -> Iterator[Part]:
    """Show what the order of time says: dependence, changes of level, loss, queues."""
    by_group = {name: list(_order_sentences(one)) for name, one in groups.items()}
    if any(by_group.values()):
        yield Text("in the order of time", tone="answer")
    for name, sentences in by_group.items():
        yield from (Text(f" {name}: {sentence}", quiet=True) for sentence in sentences)


def _order_sentences(figures: Figures) -> Iterator[str]:
    of_time, median = figures["time"], figures["tail"]["percentiles"].get("p50", {})
    every = of_time.get("every", 1)
    # which makes neighbours alike: the cause first
    yield from _changes(of_time["level_changes"], median.get("value_ns"), every)
    yield from _dependence(of_time["autocorrelation"])
    for name, sentences in (
        ("delay_variation", _variation),
        ("queueing", _queueing),
        ("loss", _loss),
    ):
        if name in figures:
            yield from sentences(figures[name])


def _dependence(correlation: Figures) -> Iterator[str]:
    """Say where neighbours are so alike that the intervals are wider for it."""
    if "reason" in correlation:
        return
    n, worth = correlation["n"], correlation["n_effective"]
    if worth < n / 2:
        yield (
            f"neighbours are alike (correlation {fixed(correlation['lag_1'], 3)}): the "
            f"intervals are those of {worth:.0f} independent values, not of {n}"
        )


def _changes(levels: Figures, median_ns: float | None, every: int) -> Iterator[str]:
    """Say when the level changed, where it is of any size beside the median."""
    changes = large_changes(levels, median_ns)
    for change in changes[:_MOST_LISTED]:
        yield _change(change, median_ns, every)
    if len(changes) > _MOST_LISTED:
        yield f"and {plural(len(changes) - _MOST_LISTED, 'more change')} of level"
    if changes and levels_alike(levels):
        yield (
            "neighbours are alike here (a queue), which looks like changes of level: "
            "believe the large ones"
        )


def _change(change: Figures, median_ns: float | None, every: int) -> str:
    step = step_ns(change)
    share = f" ({percent(abs(step) / median_ns)} of the median)" if median_ns else ""
    before, after = (change[side].get("value_ns") for side in ("before", "after"))
    if before is not None:
        share += f", {duration(before)} to {duration(after)}"
    return (
        f"from {_place(change, every)} on it took {duration(abs(step))} "
        f"{'more' if step >= 0 else 'less'}{share}: figures of the whole run mix both"
    )


def _place(change: Figures, every: int) -> str:
    """Say where a level begins, and in which interval: in s, or by the order."""
    if "t_s" in change:
        ends = change["low_s"], change["high_s"]
        within = f" [{ends[0]:.3g}, {ends[1]:.3g}]" if None not in ends else ""
        return f"{change['t_s']:.3g} s{within}"
    at, low, high = (every * change[key] + 1 for key in ("index", "low", "high"))
    return f"value {at:,} [{low:,}, {high:,}]"


def _variation(variation: Figures) -> Iterator[str]:
    texts = []
    for name in ("ipdv", "pdv"):
        percentiles = variation[name].get("percentiles", {})
        median = percentiles.get("p50", {}).get("value_ns")
        if median is not None:
            texts.append(f"{name.upper()} {duration(median)} p50")
    if texts:
        size = variation["size_bytes"]
        yield f"{', '.join(texts)} ({variation['of']} of messages of {size} bytes)"


def _queueing(queue: Figures) -> Iterator[str]:
    if "reason" not in queue and queue["slope"] is not None:
        rank = fixed(queue["rank_correlation"], 3)
        low, high = queue["slope_low"], queue["slope_high"]
        yield (
            f"each byte that waited before it: {queue['slope']:.3g} ns [{low:.3g}, "
            f"{high:.3g}] more in receive_queue; rank correlation {rank}"
        )


def _loss(loss: Figures) -> Iterator[str]:
    share, episodes = loss["share"], loss["episodes"]
    if not share.get("lost"):
        return
    text = f"lost {share['lost']} of {share['n']}: {percent(share['value'])}"
    if share["low"] is not None:
        text += f" [{percent(share['low'])}, {percent(share['high'])}]"
    text += f" in {plural(episodes['count'], 'episode')}, the longest "
    text += str(episodes["longest"])
    if loss["model"] and loss["model"].get("best"):
        text += f"; model by BIC: {loss['model']['best']}"
    yield text


def _ending(document: Figures) -> Iterator[Part]:
    """Show the slowest, what was lost, and how sure all of it is."""
    if slowest := document.get("slowest"):
        sentence = slowest_sentence(slowest, document.get("lab"))
        yield Text(f"{sentence} {slowest_stages(slowest)}")
    if lost := losses(document):
        yield Text(f"lost: {lost}", tone="warning")
    if again := retransmitted(document):
        yield Text(f"retransmitted: {again}", tone="warning")
    runs = document.get("runs") or {"": {}}
    for name, run in runs.items():
        merged = dict(run) | dict(document)
        if "records" in merged:
            yield from _certainty(merged, name if len(runs) > 1 else "")
    for note in document.get("notes") or ():
        yield Text(f"note: {note}", quiet=True)
    yield from left_out(document, _MOST_LISTED)
    for warning in document.get("warnings") or ():
        yield Text(f"warning: {warning}", tone="warning")
    if "folder" in document:
        yield Items([f"folder: {document['folder'] or 'removed'}"])


def _certainty(document: Figures, name: str) -> Iterator[Part]:
    """Show what was recorded and what was not, at which cost, and how exactly."""
    if name:
        yield Text(name, tone="answer")
    lost = counts(document.get("lost_records") or {}) or "none"
    yield Text(f"records: {document['records']}, lost: {lost}")
    untraced = document.get("untraced_time") or {}
    if untraced.get("periods"):
        yield Text(
            f"untraced time: {duration(1e9 * untraced['seconds'])} in "
            f"{plural(untraced['periods'], 'period')} of single CPUs; this kernel hid "
            "its interrupts then, so packets may lack stamps"
        )
    # created is the generator's own: other programs have no such stamp
    stamps = document.get("missing_stamps") or {}
    missing = {stamp: n for stamp, n in stamps.items() if stamp != "created"}
    for title, found in (
        ("counted, but not recorded", document.get("counters") or {}),
        ("unmatched", document.get("unmatched") or {}),
        ("messages with two stages merged, by missing stamp", missing),
    ):
        if counts(found):
            yield Text(f"{title}: {counts(found)}")
    if unread := document.get("unread_at_close"):
        text = f"unread at close: {plural(unread, 'datagram')}"
        yield Text(f"{text} came, and nobody had read when the socket closed")
    yield from _link_counters(document.get("link_counters") or {})
    if cost := document.get("cost"):
        yield Text(_cost(cost))
    for capability in document.get("capabilities") or ():
        yield from _capability(capability)


def _link_counters(counters: Figures) -> Iterator[Part]:
    for way, figures in counters.get("netem", {}).items():
        root = root_qdisc(figures)
        drops = root["dropped_packets"]
        text = f"netem {way}: {plural(root['sent_packets'], 'packet')}, "
        yield Text(text + (f"{drops} dropped" if drops else "none dropped"))
    for way, figures in counters.get("emulator", {}).items():
        lost = {k: n for k, n in figures.items() if k.startswith("dropped_")}
        text = f"emulator {way}: {plural(figures['packets_in'], 'packet')}, "
        yield Text(text + (counts(lost) or "none dropped"))


def _cost(cost: Figures) -> str:
    probes = cost["probes_cpu_share"]
    share = "not sampled" if probes is None else f"{percent(probes)} of one CPU"
    return (
        f"overhead: probes {share}; agent {cost['agent_cpu_seconds']:.2f} s of CPU in "
        f"{cost['wall_seconds']:.1f} s ({percent(cost['agent_cpu_share'])}), "
        f"{cost['agent_peak_bytes'] / 1e6:.0f} MB"
    )


def _capability(capability: Figures) -> Iterator[Part]:
    """Say what is offered of a quantity, where that is not all of it."""
    if capability["state"] == "unavailable":
        yield Text(capability_sentence(capability), tone="warning")
    elif capability["state"] != "exact":
        yield Text(capability_sentence(capability), quiet=True)
    for where in capability.get("taken", ()):
        yield Text(where, quiet=True)
