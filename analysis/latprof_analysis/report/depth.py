"""All that a document holds, as parts: every table, then how sure it is.

Of a run's summary.json or of what `analyze` makes; nothing is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from latprof_analysis.report.overview import (
    answers,
    heading,
    holds_figures,
    losses,
)
from latprof_analysis.report.parts import Fold, Items, Part, Table, Text
from latprof_analysis.report.tables import (
    FEW,
    direction_parts,
    estimator_parts,
    exchange_parts,
    fit_parts,
    given_parts,
    histogram_parts,
    size_parts,
    stage_line_parts,
    stage_parts,
    transfer_parts,
    trip_parts,
)
from latprof_analysis.study.likely_cause import slowest_sentence, slowest_stages
from latprof_analysis.study.ways import unseen_ends
from latprof_analysis.text import (
    counts,
    duration,
    fixed,
    percent,
    plural,
    rate,
    span,
    with_interval,
)

Figures = Mapping[str, Any]

_TOLD = 5  # wrong rows, and changes of level, one by one
_LEAST_STEP = 0.01  # of the median: smaller changes of level are counted
_ALIKE = 2  # variance of a mean by dependence, over that of independent values


def depth(document: Figures) -> list[Part]:
    """Lay out everything.

    Examples
    --------
    >>> document = {"notes": ["one"], "warnings": [], "samples": {"kinds": {}}}
    >>> [part.text for part in depth(document)]
    ['no latencies in it', 'note: one']
    """
    setups = document.get("setups") or ()
    parts: list[Part] = [
        Fold(f"set-up {i} of {len(setups)}", depth(one))
        for i, one in enumerate(setups, 1)
    ]
    parts += [Text(text) for text in heading(document)]
    parts += [Text(text, tone="answer") for text in answers(document)]
    # of a run it is one of the warnings
    if (unseen := unseen_ends(document)) and "runs" in document:
        parts.append(Text(unseen, tone="answer"))
    tables = [*_of_runs(document), *_of_samples(document)]
    if not (setups or holds_figures(document)):
        parts.append(Text("no latencies in it"))
    return [*parts, *tables, *_ending(document)]


def _of_runs(document: Figures) -> Iterator[Part]:
    yield from histogram_parts(document)
    yield from exchange_parts(document)
    kinds = document.get("kinds") or {}
    for kind, figures in kinds.items():
        yield from stage_parts(kind, figures)
        # a run's own summary has the sizes without what a byte or a hop adds
        if figures["stages"] and "messages" in document:
            yield from size_parts(kind, figures)
    trips = document.get("round_trips") or {}
    for protocol, figures in trips.items():
        yield from trip_parts(protocol, figures)
    if kinds or trips:
        yield Text(FEW, quiet=True)
    yield from fit_parts(document)
    yield from direction_parts(document)
    yield from stage_line_parts(document)
    yield from estimator_parts(document)
    messages = document.get("messages") or {}
    groups = {f"{kind}, end to end": figures for kind, figures in messages.items()}
    groups |= {f"{p} round trip": f for p, f in trips.items()}
    yield from _tails_and_order(groups)


def _of_samples(document: Figures) -> Iterator[Part]:
    """Lay out what files of other formats hold."""
    kinds = (document.get("samples") or {}).get("kinds") or {}
    for kind, figures in kinds.items():
        if figures["n"]:
            yield from _sizes(kind, figures)
        yield from given_parts({kind: figures}, len(figures["given"]))
        yield from _fit(kind, figures["fit"])
        if "least_squares" in figures:
            yield from _least_squares(kind, figures["least_squares"])
    yield from transfer_parts(document)
    if any(figures["n"] for figures in kinds.values()):
        yield Text(FEW, quiet=True)
    yield from _tails_and_order(kinds)


def _sizes(kind: str, figures: Figures) -> Iterator[Part]:
    names = ("p50", "p90", "p99", "p99.9", "max")
    rows = [
        [
            f"{size} B",
            *(duration(values[f"{name}_ns"]) for name in names),
            str(values["n"]),
        ]
        for size, values in figures["sizes"].items()
    ]
    lost = f", {figures['lost']} lost" if figures["lost"] else ""
    n = figures["n"]
    title = f"{kind}: {n} {'latency' if n == 1 else 'latencies'}{lost}"
    yield Table(title, ["size", *names, "n"], rows)


def _fit(kind: str, fit: Figures) -> Iterator[Part]:
    if "model" not in fit:
        yield Text(f" {kind}: no fit: {fit['reason']}", quiet=True)
        return
    line = _line(fit)
    told = f"{line} ({fit['model']}: {fit['reason']})" if line else fit["reason"]
    yield Text(f" {kind}: {told}" if line else f" {kind}: no bandwidth: {told}")
    for caveat in fit["caveats"]:
        yield Text(f" {kind}: {caveat}", quiet=True)


def _line(fit: Figures) -> str:
    """Write what a line says; nothing where it tells no bandwidth."""
    hinge = fit.get("hinge")
    if hinge and fit.get("model") == "hinge":
        knot = f"{hinge['knot_bytes']['value']:,.0f} B"
        below, above = (
            with_interval(hinge[side]["bandwidth_bits_per_second"], rate)
            for side in ("below", "above")
        )
        return f"bandwidth {below} up to {knot}, {above} above"
    if not fit["bandwidth_bits_per_second"]:
        return ""
    bandwidth = with_interval(fit["bandwidth_bits_per_second"], rate)
    delay = with_interval(fit["fixed_delay_seconds"], duration, 1e9)
    return f"bandwidth {bandwidth}, fixed delay {delay}"


def _least_squares(kind: str, fit: Figures) -> Iterator[Part]:
    """Tell the procedure of means of five, which is what such files are made for."""
    if "reason" in fit:
        yield Text(f" {kind}: no means of five: {fit['reason']}", quiet=True)
        return
    how = f"least squares on {fit['means']} means of five, "
    how += f"{plural(fit['removed'], 'outlier')} removed"
    yield Text(f" {kind}: {_line(fit)} ({how})", quiet=True)


def _tails_and_order(groups: Mapping[str, Figures]) -> Iterator[Part]:
    told = {name: f for name, f in groups.items() if f.get("tail", {}).get("n")}
    yield from _tails(told)
    yield from _order(told)


def _tails(groups: Mapping[str, Figures]) -> Iterator[Part]:
    """Lay out percentiles with intervals, the three pieces, and modes."""
    rows = [
        [name, p, duration(one["value_ns"]), _interval(one), str(one["n"])]
        for name, figures in groups.items()
        for p, one in _percentiles(figures["tail"])
        if one["value_ns"] is not None
    ]
    for before, row in zip(reversed(rows[:-1]), reversed(rows[1:]), strict=True):
        row[0] = "" if row[0] == before[0] else row[0]
    if rows:
        title = "tails: percentiles with 95% intervals, open where n is too small"
        yield Table(title, ["of", "", "value", "interval", "n"], rows)
    for name, figures in groups.items():
        yield Text(f" {name}: {_pieces(figures['tail'])}", quiet=True)
        tail = figures["tail"]
        if modes := _modes(tail["modes"]):
            of = f", messages of {tail['modes_of']} bytes" if tail["modes_of"] else ""
            yield Text(f" {name}{of}: {modes}")


def _percentiles(tail: Figures) -> list[tuple[str, Figures]]:
    """Return what is told of each percentile; nothing where a reason stands."""
    found = tail["percentiles"]
    return [] if "reason" in found else list(found.items())


def _interval(figure: Figures) -> str:
    low, high = figure["low_ns"], figure["high_ns"]
    if low is not None and high is not None:
        return span(low, high, duration, 3)
    return f"{duration(low)} to {duration(high)}"


def _pieces(tail: Figures) -> str:
    if not isinstance(tail["pieces"], list):
        return str(tail["pieces"]["reason"])
    return "; ".join(
        f"{piece['name']} {_range(piece['low_ns'], piece['high_ns'])}"
        for piece in tail["pieces"]
        if piece["count"]
    )


def _range(low: float, high: float) -> str:
    return duration(low) if low == high else span(low, high, duration, 3)


def _modes(modes: Figures) -> str:
    """Name modes where there is more than one."""
    found = modes.get("modes", [])
    if len(found) < 2:
        return ""
    told = ", ".join(
        f"{mode['name']} at {duration(mode['value'])} ({percent(mode['share'])}"
        f"{_longer(mode)})"
        for mode in found
    )
    return f"{len(found)} modes: {told}"


def _longer(mode: Figures) -> str:
    """Say where a mode takes longer than the one below it, if that is known."""
    longer = mode.get("longer_in")
    if not longer:
        return ""
    return f", {duration(longer['by_ns'])} more in {longer['stage']}"


def _order(groups: Mapping[str, Figures]) -> Iterator[Part]:
    """Tell what the order of time says: dependence, changes of level, loss, queues."""
    told = {name: _order_sentences(figures) for name, figures in groups.items()}
    if any(told.values()):
        yield Text("in the order of time", tone="answer")
    for name, sentences in told.items():
        yield from (Text(f" {name}: {sentence}", quiet=True) for sentence in sentences)


def _order_sentences(figures: Figures) -> list[str]:
    levels = figures["time"]["level_changes"]
    found = [_dependence(figures["time"]["autocorrelation"])]
    found += _changes(levels, _median(figures["tail"]))
    if "delay_variation" in figures:
        found.append(_variation(figures["delay_variation"]))
    if "queueing" in figures:
        found.append(_queueing(figures["queueing"]))
    if "loss" in figures:
        found.append(_loss(figures["loss"]))
    return [sentence for sentence in found if sentence]


def _median(tail: Figures) -> float | None:
    median = tail["percentiles"].get("p50", {}).get("value_ns")
    return None if median is None else float(median)


def _dependence(correlation: Figures) -> str:
    """Say where neighbours are so alike that the intervals are wider for it."""
    if "reason" in correlation:
        return ""
    n, worth = correlation["n"], correlation["n_effective"]
    if worth >= n / 2:
        return ""
    return (
        f"neighbours are alike (correlation {fixed(correlation['lag_1'], 3)}): the "
        f"intervals are those of {worth:.0f} independent values, not of {n}"
    )


def _changes(levels: Figures, median_ns: float | None) -> list[str]:
    """Tell when the level changed, where it is of any size beside the median."""
    least = _LEAST_STEP * (median_ns or 0)
    changes = levels.get("changes", [])
    large = [change for change in changes if abs(_step_ns(change)) >= least]
    told = [change for change in large if "t_s" in change]
    found = [_change(change, median_ns) for change in told[:_TOLD]]
    if len(told) > _TOLD:
        found.append(f"and {plural(len(told) - _TOLD, 'more change')} of level")
    if told and float(levels.get("inflation", 1.0)) > _ALIKE:
        found.append(
            "neighbours are alike here (a queue), which looks like changes of level: "
            "believe the large ones"
        )
    return found


def _step_ns(change: Figures) -> float:
    return float(change["after"]["value"]) - float(change["before"]["value"])


def _change(change: Figures, median_ns: float | None) -> str:
    step = _step_ns(change)
    share = f" ({percent(abs(step) / median_ns)} of the median)" if median_ns else ""
    ends = change["low_s"], change["high_s"]
    within = f" [{ends[0]:.3g}, {ends[1]:.3g}]" if None not in ends else ""
    return (
        f"from {change['t_s']:.3g} s{within} on it took {duration(abs(step))} "
        f"{'more' if step >= 0 else 'less'}{share}: figures of the whole run mix both"
    )


def _variation(variation: Figures) -> str:
    told = []
    for name in ("ipdv", "pdv"):
        percentiles = variation[name].get("percentiles", {})
        median = percentiles.get("p50", {}).get("value_ns")
        if median is not None:
            told.append(f"{name.upper()} {duration(median)} p50")
    if not told:
        return ""
    size = variation["size_bytes"]
    return f"{', '.join(told)} ({variation['of']} of messages of {size} bytes)"


def _queueing(queue: Figures) -> str:
    if "reason" in queue or queue["slope"] is None:
        return ""
    rank = fixed(queue["rank_correlation"], 3)
    low, high = queue["slope_low"], queue["slope_high"]
    return (
        f"each byte that waited before it: {queue['slope']:.3g} ns [{low:.3g}, "
        f"{high:.3g}] more in receive_queue; rank correlation {rank}"
    )


def _loss(loss: Figures) -> str:
    share = loss["share"]
    if "lost" not in share or not share["lost"]:
        return ""
    text = f"lost {share['lost']} of {share['n']}: {percent(share['value'])}"
    if share["low"] is not None:
        text += f" [{percent(share['low'])}, {percent(share['high'])}]"
    episodes = loss["episodes"]
    text += f" in {plural(episodes['count'], 'episode')}, the longest "
    text += str(episodes["longest"])
    if loss["model"] and loss["model"].get("best"):
        text += f"; model by BIC: {loss['model']['best']}"
    return text


def _ending(document: Figures) -> Iterator[Part]:
    """Tell the slowest, what was lost, and how sure all of it is."""
    if slowest := document.get("slowest"):
        yield Text(
            f"{slowest_sentence(slowest, document.get('lab'))} "
            f"{slowest_stages(slowest)}"
        )
    if lost := losses(document):
        yield Text(f"lost: {lost}", tone="warning")
    runs = document.get("runs") or {"": {}}
    for name, run in runs.items():
        told = dict(run) | dict(document)
        if "records" in told:
            yield from _certainty(told, name if len(runs) > 1 else "")
    yield from (Text(f"note: {text}", quiet=True) for text in document["notes"])
    yield from _left_out(document)
    for warning in document["warnings"]:
        yield Text(f"warning: {warning}", tone="warning")
    if "folder" in document:
        yield Items([f"folder: {document['folder'] or 'removed'}"])


def _left_out(document: Figures) -> Iterator[Part]:
    rows: Sequence[Any] = (document.get("skipped") or [])[:_TOLD]
    for row in rows:
        yield Text(f"left out: {row}", tone="warning")
    if rest := document.get("skipped_rows", 0) - len(rows):
        yield Text(f"left out: {plural(rest, 'more row')}", tone="warning")


def _certainty(told: Figures, name: str) -> Iterator[Part]:
    """Tell what was recorded and what was not, at which cost, and how exactly."""
    if name:
        yield Text(name, tone="answer")
    lost = counts(told.get("lost_records") or {}) or "none"
    yield Text(f"records: {told['records']}, lost: {lost}")
    untraced = told.get("untraced_time") or {}
    if untraced.get("periods"):
        yield Text(
            f"untraced time: {duration(1e9 * untraced['seconds'])} in "
            f"{plural(untraced['periods'], 'period')} of single CPUs; this kernel hid "
            "its interrupts then, so packets may lack stamps"
        )
    # created is the generator's own: other programs have no such stamp
    stamps = told.get("missing_stamps") or {}
    missing = {stamp: n for stamp, n in stamps.items() if stamp != "created"}
    for title, found in (
        ("counted, but not recorded", told.get("counters") or {}),
        ("unmatched", told.get("unmatched") or {}),
        ("messages with two stages merged, by missing stamp", missing),
    ):
        if counts(found):
            yield Text(f"{title}: {counts(found)}")
    if unread := told.get("unread_at_close"):
        text = f"unread at close: {plural(unread, 'datagram')}"
        yield Text(f"{text} came, and nobody had read when the socket closed")
    yield from _link_counters(told.get("link_counters") or {})
    if cost := told.get("cost"):
        yield Text(_cost(cost))
    for capability in told.get("capabilities") or ():
        yield from _capability(capability)


def _link_counters(counters: Figures) -> Iterator[Part]:
    for way, figures in counters.get("netem", {}).items():
        passed = figures["qdiscs"][0]
        drops = passed["dropped_packets"]
        text = f"netem {way}: {plural(passed['sent_packets'], 'packet')}, "
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
    if capability["state"] != "exact":
        why = "; ".join(filter(None, (capability["reason"], capability["remedy"])))
        text = f"{capability['state']}: {capability['quantity']}: {why}"
        if capability["state"] == "unavailable":
            yield Text(text, tone="warning")
        else:
            yield Text(text, quiet=True)
    for where in capability.get("taken", ()):
        yield Text(where, quiet=True)
