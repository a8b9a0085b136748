"""Totals as metrics: prometheus_client reads what we write; counts are numpy's."""

from __future__ import annotations

import doctest
import gzip
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_agent.monitor.totals import (
    Counted,
    Group,
    GroupTotals,
    Own,
    Quantity,
    Room,
    Totals,
)
from latprof_agent.service.metrics import buckets as bucket_module
from latprof_agent.service.metrics import exposition, protobuf
from latprof_agent.service.metrics import families as label_module
from latprof_agent.service.metrics.buckets import ClassicBuckets, native, stacked
from latprof_agent.service.metrics.families import (
    DEFAULT_EDGES,
    Histograms,
    families,
    label_value,
)
from latprof_analysis.stats.kernel_histogram import edges_ns
from made_totals import (
    CLIENT,
    ELSEWHERE,
    HERE,
    SERVER,
    add_losses,
    busy_host,
    fit,
    group_totals,
    lasting,
    of,
    own,
    scaled,
    slow,
)
from prometheus_client import generate_latest
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

DURATIONS = st.lists(st.integers(0, 2**37), max_size=200)
EDGES = st.lists(st.integers(1, 2**36), min_size=1, max_size=9, unique=True)


@pytest.fixture(scope="module")
def totals():
    rng = np.random.default_rng(2)
    lossy = group_totals(rng, (*HERE, Quantity.SERVER))
    add_losses(lossy)
    return Totals(
        *(5 * 10**12, 1_790_000_000.0),
        {SERVER: lossy, CLIENT: group_totals(rng, (*ELSEWHERE, Quantity.RESPONSE))},
        own(),
        {(SERVER, Quantity.END_TO_END): fit()},
        [slow(CLIENT, Quantity.RESPONSE)],
        [{"quantity": "send (tcp)", "state": "exact"}],
    )


def written(totals, form=exposition.PLAIN):
    return form.write(families(totals, DEFAULT_EDGES)).decode()


def samples(text, parse=text_string_to_metric_families):
    """Every sample that a text has, by name and labels."""
    found = {}
    for family in parse(text):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample
    return found


def one(found, name, **labels):
    """The value of the one sample with at least these labels."""
    named = [s for (n, _), s in found.items() if n == name]
    (sample,) = [s for s in named if labels.items() <= s.labels.items()]
    return sample.value


class AsPrometheusClientHasThem:
    """A collector for prometheus_client's own writers."""

    def __init__(self, totals):
        self.totals = totals

    def collect(self):
        for family in families(self.totals, DEFAULT_EDGES):
            yield family.as_metric() if isinstance(family, Histograms) else family


@pytest.mark.parametrize("form", [exposition.PLAIN, exposition.OPEN_METRICS])
def test_both_texts_say_what_prometheus_client_would_write(totals, form):
    parse = text_string_to_metric_families
    if form is exposition.OPEN_METRICS:
        parse = openmetrics_parser.text_string_to_metric_families
    ours = samples(written(totals, form), parse)
    theirs = samples(generate_latest(AsPrometheusClientHasThem(totals)).decode())

    assert {k: s.value for k, s in ours.items()} == {
        k: s.value for k, s in theirs.items()
    }


def test_counts_and_sums_are_those_of_the_histogram(totals):
    found = samples(written(totals))
    histogram = totals.groups[SERVER].histograms[Quantity.RECEIVE_QUEUE]
    labels = {"stage": "receive_queue", "direction": "received", "role": "server"}

    assert one(found, "latprof_stage_seconds_count", **labels) == histogram.count
    total = one(found, "latprof_stage_seconds_sum", **labels)
    assert total == pytest.approx(histogram.sum_ns / 1e9, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("latprof_stage_seconds_count", {"stage": "qdisc", "direction": "sent"}),
        ("latprof_stage_seconds_count", {"stage": "transit", "direction": "sent"}),
        ("latprof_stage_seconds_count", {"stage": "range_wakeup"}),
        (
            "latprof_stage_seconds_count",
            {"stage": "transit", "direction": "received"},
        ),
        ("latprof_end_to_end_seconds_count", {"direction": "sent"}),
        ("latprof_end_to_end_seconds_count", {"direction": "received"}),
        ("latprof_response_seconds_count", {"role": "client"}),
        ("latprof_server_seconds_count", {"role": "server"}),
        ("latprof_network_rtt_seconds_count", {"source": "floor"}),
        ("latprof_messages_total", {"direction": "received"}),
        ("latprof_bytes_total", {"direction": "sent"}),
        ("latprof_fit_bandwidth_bytes_per_second", {"quantity": "end_to_end"}),
        ("latprof_fit_fixed_delay_seconds", {"quantity": "end_to_end"}),
        ("latprof_lost_records_total", {"ring": "flows"}),
        ("latprof_unmatched_total", {"cause": "no_sender"}),
        ("latprof_probe_seconds_total", {"program": "on_send"}),
        ("latprof_probe_runs_total", {"program": "on_send"}),
        ("latprof_capability", {"quantity": "send (tcp)", "state": "exact"}),
    ],
)
def test_every_metric_has_its_name_and_labels(totals, name, labels):
    named = [n for n, key in samples(written(totals)) if labels.items() <= key]

    assert name in named


@pytest.mark.parametrize("quantity", Quantity)
def test_every_quantity_has_a_place_of_its_own(quantity):
    alone = GroupTotals({quantity: lasting(rng(), 9)})
    text = written(Totals(groups={SERVER: alone}))
    (count,) = [
        line for line in text.splitlines() if "_count{" in line and line.endswith(" 9")
    ]
    others = written(
        Totals(groups={SERVER: GroupTotals({q: lasting(rng(), 9) for q in Quantity})})
    )
    assert others.count(f"{count}\n") == 1


@pytest.mark.parametrize("module", [exposition, label_module, bucket_module])
def test_examples_in_the_docstrings_run(module):
    assert doctest.testmod(module).failed == 0


def test_drops_are_summed_over_what_is_no_label(totals):
    found = samples(written(totals))
    labels = {"place": "qdisc", "reason": "QDISC_DROP", "role": "server"}

    assert one(found, "latprof_dropped_packets_total", **labels) == 7 + 4


def test_coverage_is_the_share_of_the_time(totals):
    found = samples(written(totals))

    assert one(found, "latprof_coverage_ratio") == 0.25
    assert one(found, "latprof_covered_seconds_total") == 50
    assert one(found, "latprof_running_seconds_total") == 200


def test_labels_are_those_of_the_grouping_alone():
    by_comm = Totals(groups={Group(comm="curl"): group_totals(rng(), HERE)})
    text = written(by_comm)

    assert 'latprof_messages_total{direction="sent",comm="curl"}' in text
    assert not re.search("(role|service|protocol|remote)=", text)


def stack(rows):
    """Counts of the histograms of some durations, as the writers have them."""
    return next(stacked([of(row) for row in rows]))


def rng():
    return np.random.default_rng(3)


def test_nothing_measured_yet_is_written_too():
    found = samples(written(Totals(own=Own())))

    assert one(found, "latprof_coverage_ratio") == 0


def test_no_address_is_in_an_exemplar_and_its_time_is_when_it_was_over(totals):
    text = written(totals, exposition.OPEN_METRICS)
    (line,) = [line for line in text.splitlines() if " # {" in line]

    assert 'latprof_response_seconds_bucket{protocol="tcp",role="client"' in line
    assert 'le="0.00512"}' in line  # 5 ms
    labels = 'size_bytes="64",process="redis-server (pid 77)",'
    labels += 'longest_stage="receive_queue",longest_stage_seconds="0.004999000"'
    assert line.endswith(f" # {{{labels}}} 0.005 1789999996.000")


@settings(max_examples=50)
@given(DURATIONS, EDGES)
def test_classic_buckets_count_within_one_of_ours(durations, edges):
    buckets = ClassicBuckets(tuple(sorted(edges)))
    (counts,) = buckets.cumulative(stack([durations]))

    assert counts == sorted(counts)
    assert counts[-1] == len(durations)
    ours = edges_ns()
    for edge, count in zip(buckets.upper_ns, counts, strict=False):
        bucket = np.searchsorted(ours, edge, "right") - 1
        assert np.sum(np.array(durations) < ours[bucket]) <= count
        assert count <= np.sum(np.array(durations) < ours[bucket + 1])


def test_an_edge_of_ours_counts_exactly():
    values = np.arange(60, 70_000, 7)
    edges = (64, 1024, 1056, 65536)
    (counts,) = ClassicBuckets(edges).cumulative(stack([values]))

    assert counts == [*(np.sum(values < edge) for edge in edges), len(values)]


@settings(max_examples=50)
@given(st.lists(DURATIONS, min_size=1, max_size=4))
def test_native_buckets_hold_each_value_within_a_64th(rows):
    found = native(stack(rows))

    at = 0
    for i, values in enumerate(rows):
        indices = []
        for gap, length in zip(
            found.gap[found.run_row == i], found.length[found.run_row == i], strict=True
        ):
            begin = indices[-1] + 1 + gap if indices else gap
            indices += range(begin, begin + length)
        counts = np.cumsum(found.delta[at : at + len(indices)])
        at += len(indices)
        assert (counts > 0).all()
        assert found.zero[i] == sum(value < 64 for value in values)
        long = sorted(value for value in values if 64 <= value < 2**36)
        upper = 2.0 ** (np.repeat(indices, counts)[: len(long)] / 16) * 1e9
        assert (long <= upper * (1 + 1 / 64)).all()
        assert (long >= upper * 2 ** (-1 / 16) * (1 - 1 / 64)).all()
        assert counts.sum() + found.zero[i] == len(values)


@pytest.mark.parametrize(
    "name",
    ["a\nb", 'a"b', "a\\b", "\x1b[2J", "\udcff", "\\u{1b}", "\u202e", "é", "日本"],
)
def test_names_of_others_arrive_escaped(name):
    group = Group(comm=name, cgroup=f"/{name}")
    made = Totals(groups={group: GroupTotals({Quantity.QDISC: lasting(rng(), 9)})})
    for form in (exposition.PLAIN, exposition.OPEN_METRICS):
        text = written(made, form)
        assert all(c.isprintable() for c in text.replace("\n", ""))
        (count,) = [
            s for (n, _), s in samples(text).items() if n.endswith("seconds_count")
        ]
        assert count.labels["comm"] == label_value(name)
    assert label_value(name).encode() in protobuf.write(families(made, DEFAULT_EDGES))


@given(st.text(max_size=9), st.text(max_size=9))
def test_no_name_becomes_anothers(first, second):
    assert (label_value(first) == label_value(second)) == (first == second)
    assert label_value(first).isprintable()


def test_no_escape_is_taken_for_another_name():
    assert label_value("\x1b") != label_value("\\u{1b}")


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", exposition.PLAIN),
        ("*/*", exposition.PLAIN),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", exposition.PLAIN),
        ("application/openmetrics-text;version=1.0.0", exposition.OPEN_METRICS),
        (
            # Prometheus 2.42 with native histograms
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
            "encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,"
            "application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            exposition.PROTOBUF,
        ),
        (
            # Prometheus 2.42 without
            "application/openmetrics-text;version=1.0.0,"
            "application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            exposition.OPEN_METRICS,
        ),
        (
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
            "encoding=text,text/plain;q=0.1",
            exposition.PLAIN,
        ),
        ("application/vnd.google.protobuf;q=0, text/plain;q=bad", exposition.PLAIN),
    ],
)
def test_the_format_is_the_one_that_is_wanted_most(accept, form):
    assert exposition.chosen(accept) is form


@pytest.mark.parametrize(
    ("form", "bytes_sent"),
    [
        (exposition.PLAIN, 1_000_000),
        (exposition.OPEN_METRICS, 1_000_000),
        (exposition.PROTOBUF, 3_000_000),
    ],
)
def test_two_hundred_groups_are_sent_in_few_megabytes(form, bytes_sent):
    made = busy_host(200)
    assert len(made.groups) == 200
    assert set(made.groups[Group("tcp", "client", "1024")].counted) == set(Counted)
    written = form.write(families(made, DEFAULT_EDGES))
    assert len(written if form.dense else gzip.compress(written, 1)) < bytes_sent


@pytest.mark.parametrize(
    ("low_ns", "high_ns", "to_an_octave"),
    [(1_000, 10_000, 2), (10_000, 100_000_000, 4), (100_000_000, 10**10, 1)],
)
@pytest.mark.parametrize("edges", DEFAULT_EDGES, ids=DEFAULT_EDGES._fields)
def test_classic_buckets_are_narrow_where_messages_and_users_wait(
    edges, low_ns, high_ns, to_an_octave
):
    upper = np.array(edges.upper_ns)
    first = np.searchsorted(upper, low_ns, "right") - 1
    assert upper[0] <= low_ns
    assert upper[-1] >= high_ns
    wide = upper[first + 1 :] / upper[first:-1]
    three_digits = 1.01
    within = upper[first:-1] < high_ns
    assert (wide[within] <= 2 ** (1 / to_an_octave) * three_digits).all()


def test_what_was_scaled_has_its_coverage_and_error():
    group = GroupTotals()
    group.counted.update({Counted.SENT_MESSAGES: 30, Counted.RECEIVED_MESSAGES: 10})
    made = Totals(groups={SERVER: scaled(group, times=20, error=0.1)})
    found = {
        family.name: family.samples[0].value
        for family in families(made, DEFAULT_EDGES)
        if not isinstance(family, Histograms) and family.samples
    }
    assert found["latprof_group_coverage_ratio"] == pytest.approx(1 / 20)
    variance = 60**2 + 20**2
    assert found["latprof_messages_variance"] == pytest.approx(variance)
    relative = found["latprof_group_relative_error_ratio"]
    assert relative == pytest.approx(variance**0.5 / 800)


def test_a_servers_time_is_in_seconds_by_what_its_thread_did():
    group = GroupTotals()
    group.counted.update({Counted.SERVER_RUN_NS: 3 * 10**9, Counted.SERVER_WAIT_NS: 5})
    (family,) = (
        one
        for one in families(Totals(groups={SERVER: group}), DEFAULT_EDGES)
        if one.name == "latprof_server_state_seconds"
    )
    found = {sample.labels["state"]: sample.value for sample in family.samples}
    assert found == {"on_cpu": 3.0, "waiting_for_cpu": 5e-9}


def test_full_groups_are_a_metric():
    room = Room(named=123, limit=128, evicted=7, refused=3, is_full=True)
    made = Totals(own=Own(groups=room))
    found = {
        family.name: family.samples[0].value
        for family in families(made, DEFAULT_EDGES)
        if family.name.startswith("latprof_groups")
    }
    assert found == {
        "latprof_groups": 123,
        "latprof_groups_limit": 128,
        "latprof_groups_full": 1,
        "latprof_groups_evicted": 7,
        "latprof_groups_refused": 3,
    }
