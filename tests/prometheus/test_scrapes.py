"""What Prometheus itself makes of our metrics, in each format that it asks for."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from latprof_agent.monitor.totals import Counted, Group, GroupTotals, Quantity, Totals
from latprof_agent.service.metrics import exposition
from latprof_agent.service.metrics.families import DEFAULT_EDGES, families, label_value
from latprof_agent.service.web.passwords import PasswordHash
from latprof_analysis.stats.kernel_histogram import CoarseHistogram
from made_totals import CLIENT, SERVER, T_NS, fit, own, slow
from recording import wait_until
from served import served

HOSTILE = 'a\x1b[2J"\\\n\udcff'
RNG = np.random.default_rng(7)
# What Prometheus should be able to tell again: two modes, the ends of the range.
VALUES = np.concatenate(
    [
        RNG.lognormal(np.log(20_000), 0.3, 5000),
        RNG.lognormal(np.log(4_000_000), 0.5, 5000),
        RNG.integers(0, 64, 30),
        RNG.integers(2**36, 2**37, 20),
    ]
).astype("i8")
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
SELECTED = 'latprof_stage_seconds{stage="receive_queue",role="server"}'


NOW = float(int(time.time()))


@pytest.fixture(scope="module")
def totals():
    """Known values, names of others, slow messages in two buckets."""
    server = GroupTotals(
        {
            Quantity.RECEIVE_QUEUE: CoarseHistogram.of(VALUES),
            Quantity.RESPONSE: CoarseHistogram.of(np.array([5_000_000, 50_000_000])),
        },
        Counter({Counted.SENT_MESSAGES: 7}),
    )
    hostile = Group("tcp", comm=HOSTILE)
    earlier = replace(
        slow(SERVER, Quantity.RESPONSE, 50_000_000), t_ns=T_NS - 9 * 10**9
    )
    return Totals(
        *(T_NS, NOW),
        {SERVER: server, hostile: server},
        own(),
        {(SERVER, Quantity.END_TO_END): fit()},
        [earlier, slow(SERVER, Quantity.RESPONSE)],
        [{"quantity": "send (tcp)", "state": "exact"}],
    )


@pytest.fixture(scope="module")
def target(totals):
    with served() as made:
        made.make = lambda: totals
        yield made


def scraping(prometheus, target, **options):
    found = prometheus(f"{target.host}:{target.port}", "exemplar-storage", **options)
    found.wait_for_scrapes()
    return found


@pytest.fixture(scope="module")
def kinds(prometheus, target):
    """A Prometheus that asks for native histograms, and one that does not."""
    return {
        "native": scraping(prometheus, target, native=True),
        "classic": scraping(prometheus, target),
    }


@pytest.fixture
def native(kinds):
    return kinds["native"]


@pytest.fixture
def classic(kinds):
    return kinds["classic"]


@pytest.fixture(params=["native", "classic"])
def either(request, kinds):
    return kinds[request.param]


def histogram_of(found):
    """Count, sum and buckets of the histogram: (lower, upper, count) in seconds."""
    (series,) = found.query(SELECTED)
    _, histogram = series["histogram"]
    buckets = [tuple(map(float, b[1:])) for b in histogram["buckets"]]
    return float(histogram["count"]), float(histogram["sum"]), buckets


def test_a_scrape_is_whole_and_prometheus_has_nothing_to_say(either):
    assert either.complaints() == []
    assert either.value("up") == 1
    assert either.value("scrape_samples_scraped") > 20


def test_native_buckets_hold_what_was_measured(native):
    count, total, buckets = histogram_of(native)

    assert count == len(VALUES) == sum(bucket[2] for bucket in buckets)
    assert total == pytest.approx(VALUES.sum() / 1e9, rel=1e-9)
    below = 0.0
    values = VALUES / 1e9
    for _, upper, held in buckets[:-1]:
        below += held
        # a bucket of ours goes whole into the one that holds its middle
        assert np.sum(values < upper * (1 - 1 / 64)) <= below
        assert below <= np.sum(values < upper * (1 + 1 / 64))
    zero = [held for lower, upper, held in buckets if lower <= 0]
    assert zero == [np.sum(VALUES < 64)]
    assert buckets[-1][2] == np.sum(VALUES >= 2**36)


@pytest.mark.parametrize("q", QUANTILES)
def test_quantiles_of_native_histograms_are_within_a_bucket(native, q):
    found = native.value(f"histogram_quantile({q}, {SELECTED})")
    truth = np.quantile(VALUES, q, method="higher") / 1e9

    assert found == pytest.approx(truth, rel=2 ** (1 / 16) * (1 + 1 / 64) - 1)


@pytest.mark.parametrize("q", QUANTILES)
def test_quantiles_of_classic_buckets_are_within_a_quarter_of_an_octave(classic, q):
    name = SELECTED.replace("seconds", "seconds_bucket", 1)
    found = classic.value(f"histogram_quantile({q}, {name})")
    truth = np.quantile(VALUES, q, method="higher") / 1e9

    assert found == pytest.approx(truth, rel=2 ** (1 / 4) - 1)


def test_classic_buckets_count_what_is_below_their_edge(classic):
    name = SELECTED.replace("seconds", "seconds_bucket", 1)
    found = {float(s["metric"]["le"]): s["value"][1] for s in classic.query(name)}

    for ns in DEFAULT_EDGES.stages.upper_ns:
        inside = (ns / (1 + 1 / 32) <= VALUES) & (ns * (1 + 1 / 32) >= VALUES)
        counted = float(found.pop(ns / 1e9))
        assert counted == pytest.approx(np.sum(ns >= VALUES), abs=float(inside.sum()))
    assert found == {np.inf: str(len(VALUES))}


def test_native_ones_come_instead_of_classic_ones(native, classic):
    bucket = SELECTED.replace("seconds", "seconds_bucket", 1)

    assert native.query(bucket) == []
    assert classic.query(SELECTED) == []


def test_names_of_others_arrive_escaped(either):
    (series,) = either.query('latprof_messages_total{comm!=""}')

    assert series["metric"]["comm"] == label_value(HOSTILE)
    assert label_value(HOSTILE).isprintable()


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        ("native", "latprof_response_seconds", ["0.005"]),
        ("classic", "latprof_response_seconds_bucket", ["0.005", "0.05"]),
    ],
)
def test_exemplars_arrive_with_their_time(kinds, kind, name, values):
    found = kinds[kind].api(
        "query_exemplars", query=name, start=str(NOW - 100), end=str(NOW + 100)
    )
    exemplars = {e["value"]: e for series in found for e in series["exemplars"]}
    newest = exemplars["0.005"]

    # newer ones keep both of a native histogram
    assert set(values) <= set(exemplars) <= {"0.005", "0.05"}
    assert {s["seriesLabels"]["service"] for s in found} == {SERVER.service}
    assert newest["labels"]["process"] == "redis-server (pid 77)"
    assert newest["labels"]["longest_stage"] == "receive_queue"
    assert newest["timestamp"] == NOW - 4


def test_every_metric_has_its_type_and_help(either):
    found = either.api("metadata")
    kinds = {name.removesuffix("_total"): e[0]["type"] for name, e in found.items()}

    assert all(entries[0]["help"] for entries in found.values())
    assert kinds["latprof_stage_seconds"] == "histogram"
    assert kinds["latprof_fit_bandwidth_bytes_per_second"] == "gauge"
    assert kinds["latprof_coverage_ratio"] == "gauge"
    for name in ("latprof_messages", "latprof_lost_records", "latprof_probe_runs"):
        assert kinds[name] == "counter"


@pytest.mark.thorough
def test_what_grows_is_never_taken_for_a_reset(prometheus):
    with served() as made:
        found = prometheus(f"{made.host}:{made.port}", native=True)
        first = CoarseHistogram.of(VALUES)
        made.totals = Totals(
            groups={CLIENT: GroupTotals({Quantity.QDISC: first})}, own=own()
        )
        found.wait_for_scrapes()
        grown = first + CoarseHistogram.of(np.array([1, 300, 10**5, 2**36 + 1]))
        made.totals = Totals(
            groups={CLIENT: GroupTotals({Quantity.QDISC: grown})}, own=own()
        )
        count = "histogram_count(latprof_stage_seconds)"
        wait_until(
            lambda: found.query(f"{count} == {len(VALUES) + 4}"), "the grown histogram"
        )

        assert found.value("resets(latprof_stage_seconds[5m])") == 0
        assert found.complaints() == []


@pytest.mark.thorough
def test_a_scrape_with_tls_and_a_password(prometheus, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("no openssl here")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    words += " -subj /CN=latprof -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(
        ["openssl", *words.split(), "-out", "crt", "-keyout", "key"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    more = f"""\
  scheme: https
  tls_config: {{ca_file: {tmp_path}/crt}}
  basic_auth: {{username: scraper, password: secret}}
"""
    with served(tls=tls, users={"scraper": PasswordHash.of("secret")}) as made:
        found = prometheus(f"{made.host}:{made.port}", more=more)
        found.wait_for_scrapes()
        assert found.value("up") == 1


def test_promtool_accepts_the_text(programs, totals):
    text = exposition.PLAIN.write(families(totals, DEFAULT_EDGES)).decode()

    assert programs.promtool_says("check", "metrics", text=text) == ""
