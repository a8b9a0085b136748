"""Totals as families of metrics: what there is, by which names and labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from latprof_analysis.stats.kernel_histogram import CoarseHistogram
from latprof_analysis.text import NS_PER_SECOND
from prometheus_client import Metric
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.samples import Exemplar as Mark

from latprof_agent.monitor.totals import (
    MESSAGES,
    SERVER_TIME,
    Counted,
    Exemplar,
    Group,
    GroupTotals,
    Own,
    Quantity,
    Totals,
    Waiting,
)
from latprof_agent.service.metrics.buckets import (
    ClassicBuckets,
    Counts,
    stacked,
    steps,
)

Labels = dict[str, str]


class EdgeSets(NamedTuple):
    """Classic buckets of the stages, and of what spans several of them."""

    stages: ClassicBuckets
    others: ClassicBuckets


# A percentile is known to its bucket: to 19% where messages and users wait, to 41%
# below; what takes longer is slow whatever its digits. A line of each is written for
# every group and quantity.
_DEFAULT = ClassicBuckets(
    steps(884, 10_000, 2)
    + steps(10_000, 163_840_000, 4)
    + steps(163_840_000, 10_500_000_000, 1)
)
DEFAULT_EDGES = EdgeSets(_DEFAULT, _DEFAULT)
_ALL_MARK_CHARACTERS = 128  # that all labels of an exemplar may have
_MARK_CHARACTERS = 40  # of a process

_STAGE = "latprof_stage_seconds"
_END_TO_END = "latprof_end_to_end_seconds"
_RTT = "latprof_network_rtt_seconds"
_HISTOGRAMS = {
    _STAGE: "Where messages spent their time; of range_..., what became readable at "
    "once where the sender is elsewhere; of transit, a sample.",
    _END_TO_END: "From the send call to the read, of a sample.",
    "latprof_response_seconds": "From a request's first send to its reply's last read.",
    "latprof_server_seconds": "From a request that could be read to its reply's send.",
    "latprof_tls_handshake_seconds": "From a client's hello to the last word of the "
    "handshake.",
    _RTT: "Round trips of the network alone, without the time in the server.",
}
_AT_THE_SENDER = (Quantity.SEND_QUEUE, Quantity.QDISC, Quantity.TRANSIT)


def _place(quantity: Quantity) -> tuple[str, Labels]:
    """Give the family of a quantity, and the labels that identify it there."""
    if quantity in (Quantity.RESPONSE, Quantity.SERVER, Quantity.TLS_HANDSHAKE):
        return f"latprof_{quantity}_seconds", {}
    if quantity.startswith("rtt_"):
        return _RTT, {"source": quantity.removeprefix("rtt_")}
    name = quantity.removeprefix("received_")
    if name == Quantity.END_TO_END:
        return _END_TO_END, {"direction": "sent" if name == quantity else "received"}
    sent = quantity in _AT_THE_SENDER
    return _STAGE, {"stage": name, "direction": "sent" if sent else "received"}


_COUNTERS = {
    "latprof_messages": "Messages; those received whose sender is on this host.",
    "latprof_ranges": "What became readable at once, of senders elsewhere.",
    "latprof_bytes": "Bytes of messages.",
    "latprof_packets": "Packets that carried messages.",
    "latprof_exchanges": "Requests with their replies.",
    "latprof_unanswered_requests": "Requests that were given up, or whose connection "
    "ended, without an answer.",
    "latprof_messages_without_turns": "Messages sent on connections on which both ends "
    "talk at once (HTTP/2, a window of requests): they are in no exchange.",
    "latprof_uncounted_exchanges": "First exchanges of TLS connections, at most, that "
    "are not counted: the request came with the handshake (0-RTT), or may have come "
    "with a client's certificate.",
    "latprof_server_state_seconds": "Time of servers by what their thread did: on_cpu, "
    "waiting_for_cpu once it had read, unread_or_asleep; of exchanges that were "
    "answered by the thread that had read.",
    "latprof_dropped_packets": "Packets, or what they carried, that died on this host.",
    "latprof_retransmitted_segments": "Segments that TCP sent again.",
    "latprof_odd_segments": "Segments that came twice, or before earlier ones.",
}
_SERVER_STATE = "latprof_server_state_seconds"
_COUNTED: dict[Counted, tuple[str, Labels]] = {
    Counted.SENT_MESSAGES: ("latprof_messages", {"direction": "sent"}),
    Counted.RECEIVED_MESSAGES: ("latprof_messages", {"direction": "received"}),
    Counted.RECEIVED_RANGES: ("latprof_ranges", {"direction": "received"}),
    Counted.SENT_BYTES: ("latprof_bytes", {"direction": "sent"}),
    Counted.RECEIVED_BYTES: ("latprof_bytes", {"direction": "received"}),
    Counted.SENT_PACKETS: ("latprof_packets", {"direction": "sent"}),
    Counted.EXCHANGES: ("latprof_exchanges", {}),
    Counted.UNANSWERED: ("latprof_unanswered_requests", {}),
    Counted.NO_TURNS: ("latprof_messages_without_turns", {}),
    Counted.UNCOUNTED: ("latprof_uncounted_exchanges", {}),
    Counted.SERVER_RUN_NS: (_SERVER_STATE, {"state": "on_cpu"}),
    Counted.SERVER_WAIT_NS: (_SERVER_STATE, {"state": "waiting_for_cpu"}),
    Counted.SERVER_REST_NS: (_SERVER_STATE, {"state": "unread_or_asleep"}),
}


class Row(NamedTuple):
    """One histogram of a family, and the newest exemplar of each classic bucket."""

    labels: Labels
    histogram: CoarseHistogram
    marks: dict[int, Mark]


@dataclass
class Histograms:
    """A family of histograms in seconds."""

    name: str
    documentation: str
    buckets: ClassicBuckets
    rows: list[Row] = field(default_factory=list)
    unit: str = "seconds"

    def counts(self) -> Iterator[Counts]:
        """Give the counts of all rows, some at a time."""
        return stacked([row.histogram for row in self.rows])

    def cumulative(self) -> list[list[int]]:
        """Count by classic buckets, one list per row."""
        return [row for part in self.counts() for row in self.buckets.cumulative(part)]

    def as_metric(self) -> HistogramMetricFamily:
        """Give the same as prometheus_client has it; slow where there is much."""
        names = sorted({name for row in self.rows for name in row.labels})
        metric = HistogramMetricFamily(self.name, self.documentation, labels=names)
        for row, counts in zip(self.rows, self.cumulative(), strict=True):
            buckets = [
                (le, count, row.marks[i]) if i in row.marks else (le, count)
                for i, (le, count) in enumerate(
                    zip(self.buckets.names, counts, strict=True)
                )
            ]
            values = [row.labels.get(name, "") for name in names]
            metric.add_metric(values, buckets, seconds(row.histogram.sum_ns))
        return metric


Family = Metric | Histograms


def seconds(ns: float) -> float:
    """Nanoseconds as Prometheus counts time."""
    return ns / NS_PER_SECOND


def label_value(text: str) -> str:
    """Return a name of others as text of visible characters; none becomes another's.

    Examples
    --------
    >>> print(label_value("a\\x1b[2J"), label_value(r"b\\x2dc"))
    a\\u{1b}[2J b\\x2dc
    """
    if text.isprintable() and "\\u{" not in text:
        return text
    text = text.replace("\\u{", "\\u{5c}u{")
    return re.sub(
        ".",
        lambda c: c[0] if c[0].isprintable() else f"\\u{{{ord(c[0]):x}}}",
        text,
        flags=re.DOTALL,
    )


def labels_of(group: Group) -> Labels:
    """Labels that identify a group: those of the grouping in use."""
    return {name: label_value(value) for name, value in vars(group).items() if value}


def families(totals: Totals, edges: EdgeSets) -> Iterator[Family]:
    """Give all that `totals` has."""
    groups = {group: labels_of(group) for group in sorted(totals.groups)}
    yield from _histograms(totals, groups, edges)
    yield from _counters(totals, groups)
    yield from _estimates(totals, groups)
    if totals.waiting is not None:
        yield from _waiting(totals.waiting, groups)
    yield from _fits(totals)
    yield from _own(totals.own)
    if totals.story_counts is not None:
        yield counter(
            "latprof_stories",
            "Slow messages and exchanges, by what became of their story.",
            [({"outcome": o}, n) for o, n in sorted(totals.story_counts.items())],
        )
    yield gauge(
        "latprof_filter_gone",
        "Namespaces, control groups and processes of the filter that are not there.",
        [({}, len(totals.gone))],
    )
    yield gauge(
        "latprof_capability",
        "What this kernel offers: 1 for the state of each quantity.",
        [
            ({"quantity": c["quantity"], "state": c["state"]}, 1)
            for c in totals.capabilities
        ],
    )


def _histograms(
    totals: Totals, groups: dict[Group, Labels], edges: EdgeSets
) -> Iterable[Histograms]:
    found = {
        name: Histograms(name, text, edges.stages if name == _STAGE else edges.others)
        for name, text in _HISTOGRAMS.items()
    }
    slow = _slow(totals)
    for group, labels in groups.items():
        for quantity, histogram in totals.groups[group].histograms.items():
            name, own = _place(quantity)
            marks = {
                found[name].buckets.holding(exemplar.duration_ns): mark
                for exemplar, mark in slow.get((group, quantity), ())
            }
            found[name].rows.append(Row(own | labels, histogram, marks))
    return found.values()


def _slow(
    totals: Totals,
) -> dict[tuple[Group, Quantity], list[tuple[Exemplar, Mark]]]:
    """Give exemplars as Prometheus has them, the newest last."""
    found: dict[tuple[Group, Quantity], list[tuple[Exemplar, Mark]]] = {}
    for slow in totals.exemplars:
        then = totals.unix_seconds - seconds(totals.t_ns - slow.t_ns)
        story = totals.stories.get((slow.pid, slow.t_ns), {})
        labels = _mark_labels(slow, str(story.get("id", "")))
        mark = Mark(labels, seconds(slow.duration_ns), then)
        found.setdefault((slow.group, slow.quantity), []).append((slow, mark))
    return found


def _mark_labels(slow: Exemplar, story: str) -> Labels:
    labels = {"size_bytes": str(slow.size_bytes)}
    if slow.process:
        labels["process"] = label_value(slow.process)[:_MARK_CHARACTERS]
    if slow.stages:
        stage, ns = max(slow.stages.items(), key=lambda item: item[1])
        labels |= {
            "longest_stage": stage,
            "longest_stage_seconds": f"{seconds(ns):.9f}",
        }
    if story and _characters(labels | {"story": story}) <= _ALL_MARK_CHARACTERS:
        labels["story"] = story
    return labels


def _characters(labels: Labels) -> int:
    return sum(len(name) + len(value) for name, value in labels.items())


def _metric(
    name: str, documentation: str, kind: str, rows: Iterable[tuple[Labels, float]]
) -> Metric:
    unit = name.rpartition("_")[2]
    unit = unit if unit in ("seconds", "bytes", "ratio") else ""
    metric = Metric(name, documentation, kind, unit)
    suffix = "_total" if kind == "counter" else ""
    for labels, value in rows:
        metric.add_sample(name + suffix, labels, value)
    return metric


def gauge(name: str, text: str, rows: Iterable[tuple[Labels, float]]) -> Metric:
    return _metric(name, text, "gauge", rows)


def counter(name: str, text: str, rows: Iterable[tuple[Labels, float]]) -> Metric:
    return _metric(name, text, "counter", rows)


def _counters(totals: Totals, groups: dict[Group, Labels]) -> Iterator[Metric]:
    rows: dict[str, list[tuple[Labels, float]]] = {name: [] for name in _COUNTERS}
    for group, labels in groups.items():
        for name, own, count in _counts(totals.groups[group]):
            rows[name].append((own | labels, count))
    for name, text in _COUNTERS.items():
        yield counter(name, text, rows[name])


def _waiting(
    found: dict[Group, Waiting], groups: dict[Group, Labels]
) -> Iterator[Metric]:
    """Requests without an answer so far; not known where little time is measured."""
    none = Waiting(0, 0.0)
    clients = {g: labels for g, labels in groups.items() if g.role == "client"}
    yield gauge(
        "latprof_waiting_requests",
        "Requests that wait for their answers now, at the client.",
        [(labels, found.get(g, none).count) for g, labels in clients.items()],
    )
    yield gauge(
        "latprof_oldest_waiting_request_seconds",
        "For how long the oldest of them has waited.",
        [(labels, found.get(g, none).oldest_seconds) for g, labels in clients.items()],
    )


def _estimates(totals: Totals, groups: dict[Group, Labels]) -> Iterator[Metric]:
    """How far the counts of messages hold, where a part of the time was measured."""
    of = [(labels, totals.groups[group]) for group, labels in groups.items()]
    there = [
        (labels, g, n) for labels, g in of if (n := sum(g.counted[c] for c in MESSAGES))
    ]
    yield gauge(
        "latprof_group_coverage_ratio",
        "Share of a group's messages since the start that was counted; the others are "
        "estimated by it.",
        [(o, sum(g.measured[c] for c in MESSAGES) / n) for o, g, n in there],
    )
    yield gauge(
        "latprof_group_relative_error_ratio",
        "One standard error of a group's messages since the start, as a share of them.",
        [(labels, g.error_of_all()) for labels, g, _ in there],
    )
    yield counter(
        "latprof_messages_variance",
        "Of a group's messages and ranges: the root of its increase is one standard "
        "error of theirs.",
        [(labels, g.error(*MESSAGES) ** 2) for labels, g, _ in there],
    )


def _counts(of_group: GroupTotals) -> Iterator[tuple[str, Labels, float]]:
    for counted, count in of_group.counted.items():
        in_ns = counted in SERVER_TIME
        yield *_COUNTED[counted], count / NS_PER_SECOND if in_ns else count
    drops: dict[tuple[str, str], int] = {}
    for drop, count in of_group.drops.items():
        kind = drop.place, drop.reason
        drops[kind] = drops.get(kind, 0) + count
    for (place, reason), count in drops.items():
        own = {"place": place, "reason": label_value(reason)}
        yield "latprof_dropped_packets", own, count
    for cause, count in of_group.retransmits.items():
        yield "latprof_retransmitted_segments", {"cause": cause}, count
    for kind_of_segment, count in of_group.arrivals.items():
        yield "latprof_odd_segments", {"kind": kind_of_segment}, count


def _fits(totals: Totals) -> Iterator[Metric]:
    rows = [
        ({"quantity": quantity.value, **labels_of(group)}, fit)
        for (group, quantity), fit in sorted(totals.fits.items())
    ]
    for name, text, value in _FITS:
        yield gauge(name, text, [(labels, value(fit)) for labels, fit in rows])


def _bandwidth(part: str) -> str:
    return f"latprof_fit_bandwidth{part}_bytes_per_second"


def _fixed_delay(part: str) -> str:
    return f"latprof_fit_fixed_delay{part}_seconds"


_LOW, _HIGH = "Lower end of its 95% interval.", "Upper end of its 95% interval."
_FITS = (
    (
        _bandwidth(""),
        "Bytes by which a message must grow to take a second longer, where a line is "
        "the right model.",
        lambda fit: fit.bandwidth_bytes_per_second,
    ),
    (_bandwidth("_low"), _LOW, lambda fit: fit.bandwidth_low),
    (_bandwidth("_high"), _HIGH, lambda fit: fit.bandwidth_high),
    (
        _fixed_delay(""),
        "What a message takes whatever its size, where a line is the right model.",
        lambda fit: seconds(fit.fixed_delay_ns),
    ),
    (_fixed_delay("_low"), _LOW, lambda fit: seconds(fit.fixed_delay_low_ns)),
    (_fixed_delay("_high"), _HIGH, lambda fit: seconds(fit.fixed_delay_high_ns)),
)


def _own(own: Own) -> Iterator[Metric]:
    def by(label: str, values: dict[str, float]) -> list[tuple[Labels, float]]:
        return [({label: name}, value) for name, value in sorted(values.items())]

    yield gauge(
        "latprof_coverage_ratio",
        "Share of the time since the start that was measured; the counts of messages "
        "are scaled by it.",
        [({}, own.coverage_ratio or 0.0)],
    )
    yield counter(
        "latprof_covered_seconds",
        "Time that was measured.",
        [({}, own.covered_seconds)],
    )
    yield counter(
        "latprof_running_seconds", "Time since the start.", [({}, own.seconds)]
    )
    room = own.groups
    yield gauge(
        "latprof_groups", "Groups that have counts of their own.", [({}, room.named)]
    )
    yield gauge(
        "latprof_groups_limit", "For how many there is memory.", [({}, room.limit)]
    )
    yield gauge(
        "latprof_groups_full",
        "1 where a new group found no room within a minute: it is other's.",
        [({}, int(room.is_full))],
    )
    yield counter(
        "latprof_groups_evicted",
        "Idle groups that made room: what they had counted is other's.",
        [({}, room.evicted)],
    )
    yield counter(
        "latprof_groups_refused",
        "How often a socket found no room for its group, for a moment or longer.",
        [({}, room.refused)],
    )
    yield counter(
        "latprof_lost_records",
        "Records of ours that found no room.",
        by("ring", dict(own.lost_records)),
    )
    yield counter(
        "latprof_unmatched",
        "What was seen at one place and not at another.",
        by("cause", dict(own.unmatched)),
    )
    yield counter(
        "latprof_probe_seconds",
        "CPU time of each program in the kernel; none where latprof_capability says "
        "that the cost of the probes is unavailable, as without CAP_SYS_ADMIN.",
        by("program", own.program_seconds),
    )
    yield counter(
        "latprof_probe_runs",
        "Runs of each program in the kernel.",
        by("program", own.program_runs),
    )
