"""Files that other tools wrote say here what the tools print themselves."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path

import pytest
from latprof_analysis.cli import OFFLINE, VERSION
from latprof_analysis.cli.program import run_program
from latprof_analysis.read import ReadError, detect, read_samples
from latprof_analysis.read.result import Losses

DATA = Path(__file__).parent.parent / "data"
TOOLS = DATA / "tools"


def text_of(name: str) -> str:
    return (TOOLS / name).read_text()


def each_of(samples, kind=None):
    """The single latencies in ns, of a kind or of all."""
    frame = samples.frame
    frame = frame[(frame["statistic"] == "each") & ~frame["lost"]]
    return (
        frame["latency_ns"]
        if kind is None
        else frame["latency_ns"][frame["kind"] == kind]
    )


def given_of(samples, kind):
    """The statistics of a kind in ns by name."""
    frame = samples.frame[samples.frame["kind"] == kind]
    frame = frame[frame["statistic"] != "each"]
    return dict(zip(frame["statistic"].astype(str), frame["latency_ns"], strict=True))


def screen_of(path, capsys) -> str:
    assert run_program(OFFLINE, VERSION, ["analyze", str(path)]) == 0
    return capsys.readouterr().out


def ping_prints(text):
    """What was sent and received, and min, mean, max in ms."""
    sent, received = re.search(r"(\d+) packets transmitted, (\d+) ", text).groups()
    times = re.search(r"min/avg/max\S* = ([\d.]+)/([\d.]+)/([\d.]+)", text).groups()
    return int(sent), int(received), tuple(map(float, times))


@pytest.mark.parametrize(
    "name",
    ["ping", "ping_D_6", "ping_O", "ping_lost", "ping_busybox", "capture_icmp_ping"],
)
def test_ping_lines_and_losses_are_as_its_last_lines_count_them(name):
    sent, received, (least, mean, most) = ping_prints(text_of(f"{name}.txt"))
    samples = read_samples(TOOLS / f"{name}.txt")
    ms = each_of(samples) / 1e6
    assert (len(samples.frame), len(ms)) == (sent, received)
    assert list(samples.losses.values()) == [Losses(sent, sent - received)]
    assert (ms.min(), ms.max()) == (pytest.approx(least), pytest.approx(most))
    assert ms.mean() == pytest.approx(mean, abs=1e-3)


def test_ping_rows_that_are_lost_stand_where_their_numbers_are_missing():
    numbers = [
        int(n) for n in re.findall(r"icmp_seq=(\d+) ttl", text_of("ping_lost.txt"))
    ]
    lost = read_samples(TOOLS / "ping_lost.txt").frame["lost"]
    assert (lost[lost].index + 1).tolist() == sorted(set(range(1, 21)) - set(numbers))


def test_ping_flood_has_its_statistics_and_no_single_latency():
    sent, received, times = ping_prints(text_of("ping_flood.txt"))
    samples = read_samples(TOOLS / "ping_flood.txt")
    given = given_of(samples, "127.0.0.1")
    assert [given[n] / 1e6 for n in ("min", "mean", "max")] == list(
        map(pytest.approx, times)
    )
    assert samples.losses == {"127.0.0.1": Losses(sent, sent - received)}


def ping_of(*lines: str) -> str:
    return "\n".join(["PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.", *lines, ""])


def reply(number, ms, more=""):
    return f"64 bytes from 10.0.0.2: icmp_seq={number} ttl=64 time={ms} ms{more}"


def test_ping_duplicates_count_once_and_late_replies_stand_in_the_order_sent(tmp_path):
    path = tmp_path / "a"
    counts = (
        "3 packets transmitted, 3 received, +2 duplicates, 0% packet loss, time 9ms"
    )
    path.write_text(
        ping_of(
            *(reply(1, 1), reply(1, 5, " (DUP!)"), reply(3, 3), reply(2, 2)),
            *(reply(2, 9, " (DUP!)"), "", "--- 10.0.0.2 ping statistics ---", counts),
        )
    )
    samples = read_samples(path)
    assert (samples.frame["latency_ns"] / 1e6).tolist() == [1, 2, 3]
    assert samples.meta["duplicates"] == 2
    assert samples.losses == {"10.0.0.2": Losses(3, 0)}


def test_ping_numbers_run_on_where_16_bits_end(tmp_path):
    path = tmp_path / "a"
    numbers = [65534, 65535, 1, 2]
    path.write_text("\n".join(reply(number, 1) for number in numbers) + "\n")
    samples = read_samples(path)
    assert samples.frame["lost"].tolist() == [False, False, True, False, False]


def test_ping_that_was_cut_says_that_the_end_is_not_known(tmp_path, capsys):
    path = tmp_path / "a"
    path.write_text(ping_of(reply(1, 1), reply(2, 2), reply(4, 4)))
    assert read_samples(path).losses == {"10.0.0.2": Losses(4, 1)}
    assert "last lines are missing" in screen_of(path, capsys)


def test_ping_in_german_is_read(tmp_path):
    path = tmp_path / "a"
    line = "64 Bytes von 10.0.0.2: icmp_seq=1 ttl=64 Zeit=0,054 ms"
    path.write_text(f"{line}\n2 Pakete übertragen, 1 empfangen, 50% packet loss\n")
    samples = read_samples(path)
    assert each_of(samples).tolist() == [54_000]
    assert list(samples.losses.values()) == [Losses(2, 1)]


def test_fping_lines_are_as_its_lines_of_targets_count_them():
    pattern = r"(\S+) : xmt/rcv/%loss = (\d+)/(\d+)/\S+ min/avg/max = (\S+)/(\S+)/(\S+)"
    for name in ("fping_lost.txt", "fping_D.txt"):
        samples = read_samples(TOOLS / name)
        for target, sent, received, *times in re.findall(pattern, text_of(name)):
            ms = each_of(samples, target) / 1e6
            assert samples.losses[target] == Losses(
                int(sent), int(sent) - int(received)
            )
            assert len(ms) == int(received)
            got = [ms.min(), ms.mean(), ms.max()]
            assert got == [pytest.approx(float(time), abs=1e-3) for time in times]
    quiet = read_samples(TOOLS / "fping_q.txt")
    (target, *_, least, mean, most), _ = re.findall(pattern, text_of("fping_q.txt"))
    found = given_of(quiet, target)
    assert [found[n] / 1e6 for n in ("min", "mean", "max")] == [
        pytest.approx(float(time)) for time in (least, mean, most)
    ]
    times = read_samples(TOOLS / "fping_C.txt")
    for line in text_of("fping_C.txt").splitlines():
        target, _, *ms = line.split()
        assert (each_of(times, target) / 1e6).tolist() == list(
            map(pytest.approx, map(float, ms))
        )


def test_fping_without_any_reply_says_what_was_lost(tmp_path, capsys):
    path = tmp_path / "a"
    path.write_text("10.0.0.9 : - - -\n")
    assert "10.0.0.9: 3 of 3 lost (100.0%)" in screen_of(path, capsys)


def test_mtr_has_each_hop_in_every_form():
    hub = json.loads(text_of("mtr.json"))["report"]["hubs"][0]
    found = given_of(read_samples(TOOLS / "mtr.json"), "hop 1 127.0.0.1")
    names = {"mean": "Avg", "min": "Best", "max": "Wrst"}
    assert {k: found[k] for k in names} == {
        k: pytest.approx(1e6 * hub[name]) for k, name in names.items()
    }
    head, row = (line.split(",") for line in text_of("mtr.csv").splitlines())
    cells = dict(zip(head, row, strict=False))
    samples = read_samples(TOOLS / "mtr.csv")
    found = given_of(samples, "hop 1 127.0.0.1")
    assert {k: found[k] for k in names} == {
        k: pytest.approx(1e6 * float(cells[name])) for k, name in names.items()
    }
    assert samples.losses == {"hop 1 127.0.0.1": Losses(5, 0)}
    assert read_samples(TOOLS / "mtr.report").losses == samples.losses
    raw = [line.split() for line in text_of("mtr.raw").splitlines()]
    us = [float(word[2]) for word in raw if word[:2] == ["p", "0"]]
    read = each_of(read_samples(TOOLS / "mtr.raw"), "hop 1 127.0.0.1")
    assert (read / 1e3).tolist() == us


def test_mtr_hop_that_never_answers_is_lost_and_has_no_time(tmp_path):
    document = json.loads(text_of("mtr.json"))
    hub = {"count": 2, "host": "???", "Loss%": 100.0, "Snt": 5, "Avg": 0, "Best": 0}
    document["report"]["hubs"].append({**hub, "Wrst": 0})
    path = tmp_path / "a"
    path.write_text(json.dumps(document))
    samples = read_samples(path)
    assert samples.losses["hop 2 ???"] == Losses(5, 5)
    assert given_of(samples, "hop 2 ???") == {}


IPERF3 = DATA / "iperf3_tcp.json"


def stream_of(document) -> str:
    events = [("start", document["start"])]
    events += [("interval", interval) for interval in document["intervals"]]
    events += [("end", document["end"])]
    return "\n".join(json.dumps({"event": e, "data": d}) for e, d in events)


@pytest.mark.parametrize(
    ("write", "times"),
    [
        (lambda text: stream_of(json.loads(text)), 1),
        (lambda text: text + text, 2),
        (lambda text: text.rstrip() + "\niperf3: error - broken pipe\n", 1),
        (lambda text: "warning: JSON data length overflow\n" + text, 1),
    ],
    ids=["stream", "twice", "trailing", "leading"],
)
@pytest.mark.always
def test_iperf3_json_is_read_in_a_stream_several_times_and_with_text(
    write, times, tmp_path
):
    path = tmp_path / "a"
    path.write_text(write(IPERF3.read_text()))
    alone, found = read_samples(IPERF3), read_samples(path)
    assert found.format == "iperf3"
    assert (
        found.frame["latency_ns"].tolist() == times * alone.frame["latency_ns"].tolist()
    )
    files = found.meta.get("files", [found.meta])
    assert [meta["transfers"] for meta in files] == times * [alone.meta["transfers"]]


@pytest.mark.parametrize("spoiled", ["-nan", "-111", "nan", "inf"])
def test_iperf3_figure_that_is_no_number_is_missing_and_the_rest_holds(
    spoiled, tmp_path
):
    path = tmp_path / "a"
    text = (DATA / "iperf3_udp.json").read_text()
    path.write_text(re.sub(r'("jitter_ms":\s*)[\d.]+', rf"\g<1>{spoiled}", text))
    (transfer,) = read_samples(path).meta["transfers"]
    (whole,) = read_samples(DATA / "iperf3_udp.json").meta["transfers"]
    assert transfer == whole | {"jitter_ns": None}


def test_iperf3_that_was_interrupted_has_its_intervals_and_says_so(capsys):
    document = json.loads(text_of("iperf3_interrupted.json"))
    rtts = [i["streams"][0]["rtt"] for i in document["intervals"]]
    samples = read_samples(TOOLS / "iperf3_interrupted.json")
    assert (samples.frame["latency_ns"] / 1e3).tolist() == rtts
    assert samples.meta["transfers"][0]["received_bytes"] is None
    screen = screen_of(TOOLS / "iperf3_interrupted.json", capsys)
    assert "interrupted: 'interrupt - the client has terminated'" in screen


def test_iperf3_that_failed_says_why_in_full(tmp_path):
    why = "unable to connect to server - it may have stopped or use a different port"
    path = tmp_path / "a"
    path.write_text(json.dumps({"start": {}, "intervals": [], "end": {}, "error": why}))
    with pytest.raises(ReadError, match=why):
        read_samples(path)


def test_sockperf_counts_what_was_dropped_and_older_versions_print_avg_lat(tmp_path):
    path = tmp_path / "a"
    text = (DATA / "sockperf_under_load.csv").read_text()
    n = int(re.search(r"Total (\d+) observations", text)[1])
    path.write_text(text.replace("dropped messages = 0", "dropped messages = 28"))
    assert read_samples(path).losses == {"ping": Losses(n + 28, 28)}
    text = (DATA / "sockperf_ping_pong.txt").read_text()
    mean = float(re.search(r"avg-latency=(\S+)", text)[1])
    path.write_text(text.replace("avg-latency=", "avg-lat="))
    assert given_of(read_samples(path), "server 0")["mean"] == pytest.approx(1e3 * mean)


# what tells no losses: nothing is said of them
@pytest.mark.parametrize("name", ["clear_result.txt", "proxystore_remote_ops.csv"])
def test_a_format_without_losses_gets_no_word_of_them(name, capsys):
    assert read_samples(DATA / name).losses == {}
    assert "lost" not in screen_of(DATA / name, capsys)


FORMS = {
    **dict.fromkeys(("ping.txt", "ping_flood.txt", "ping_busybox.txt"), "ping"),
    **{f"fping_{name}.txt": "fping" for name in ("C", "D", "q", "lost")},
    **{f"mtr.{name}": "mtr" for name in ("json", "csv", "raw", "report")},
    "iperf3_interrupted.json": "iperf3",
    **dict.fromkeys(("wrk.txt", "wrk_404.txt", "wrk_latency.txt"), "wrk"),
    **{"wrk2.txt": "wrk2", "hey.txt": "hey", "hey.csv": "hey-csv", "oha.txt": "oha"},
    **{"oha.json": "oha-json", "ab.txt": "ab", "ab_g.tsv": "ab-gnuplot"},
    **{"k6.txt": "k6", "k6.csv": "k6-csv", "k6.json": "k6-json"},
    **{"k6_summary.json": "k6-summary", "vegeta.txt": "vegeta"},
    **{f"vegeta.{end}": f"vegeta-{end}" for end in ("csv", "json")},
    **{"vegeta_report.json": "vegeta-report", "vegeta_hdr.txt": "percentile-table"},
    **{f"netperf{end}.txt": "netperf" for end in ("", "_j", "_k")},
    **{"netperf_o.txt": "netperf-csv", "memtier.txt": "memtier"},
    **{"memtier.json": "memtier-json", "memtier_hdr_SET.hgrm": "hdr-log"},
    **{"redis_benchmark.txt": "redis-benchmark"},
    **{"redis_benchmark.csv": "redis-benchmark-csv", "hdr_v2.hlog": "hdr-log"},
    **{"hdr_percentiles.hgrm": "percentile-table", "flent.flent.gz": "flent"},
    **{"bcc_runqlat.txt": "log2-histogram", "netstacklat.txt": "log2-histogram"},
    **{"owping.txt": "owping", "owping_raw.txt": "owping"},
    **{f"capture_{of}": "capture" for of in ("icmp.pcap", "tcp.pcapng")},
    **{f"iperf3{end}.txt": "iperf-text" for end in ("", "_2", "_udp", "_interrupted")},
    **{f"iperf2{end}": "iperf-text" for end in (".txt", "_e.txt", ".csv", "_udp.csv")},
}


@pytest.mark.parametrize(("name", "form"), FORMS.items())
def test_a_tools_file_is_known_by_its_content(name, form):
    assert detect(TOOLS / name) == form


def printed(pattern: str, name: str) -> tuple[str, ...]:
    """The groups of a line that a tool printed."""
    found = re.search(pattern, text_of(name), re.M)
    assert found, pattern
    return found.groups() or (found[0],)


# name, and what the file itself prints of which statistic in which unit, and the count
SUMMARIES = {
    "wrk_latency.txt": (
        "request",
        {
            "mean": r"Latency +(\S+)us",
            "max": r"Latency +\S+ +\S+ +(\S+)ms",
            "p50": r"50% +(\S+)us",
            "p99": r"99% +(\S+)ms",
        },
        r"(\d+) requests in",
    ),
    "hey.txt": (
        "request",
        {
            "mean": r"Average:\s+(\S+) s",
            "min": r"Fastest:\s+(\S+) s",
            "max": r"Slowest:\s+(\S+) s",
            "p50": r"50%% in (\S+) s",
            "p99": r"99%% in (\S+) s",
        },
        r"\[200\]\s+(\d+) resp",
    ),
    "oha.txt": (
        "request",
        {
            "mean": r"Average:\s+(\S+) s",
            "max": r"Slowest:\s+(\S+) s",
            "p50": r"50.00% in (\S+) s",
            "p99": r"99.00% in (\S+) s",
        },
        r"\[200\] (\d+) resp",
    ),
    "ab.txt": (
        "request",
        {
            "mean": r"Total: +\d+ +(\d+) +()",
            "max": r"Total: .* (\d+)()$",
            "p99": r"99% +(\d+)()$",
        },
        r"Complete requests: +(\d+)",
    ),
    "vegeta.txt": (
        "request",
        {
            "min": r"max\] +(\S+)(µs),",
            "p50": r"max\] +\S+, \S+, (\S+)(µs),",
            "max": r"(\S+)(ms)$",
        },
        r"Requests .*\] +(\d+),",
    ),
    "netperf_k.txt": (
        "transaction",
        {
            "min": r"MIN_LATENCY=(\d+)()",
            "mean": r"MEAN_LATENCY=(\S+)()",
            "max": r"MAX_LATENCY=(\d+)()",
            "p50": r"P50_LATENCY=(\d+)()",
            "p99": r"P99_LATENCY=(\d+)()",
        },
        None,
    ),
    "memtier.txt": (
        "Gets",
        {
            "mean": r"Gets +(?:\S+ +){3}(\S+)()",
            "p50": r"Gets +(?:\S+ +){4}(\S+)()",
            "p99.9": r"Gets +(?:\S+ +){6}(\S+)()",
        },
        None,
    ),
}
UNITS = {"us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
OF_TOOL = {"ab.txt": "ms", "netperf_k.txt": "us", "memtier.txt": "ms"}


@pytest.mark.parametrize("name", SUMMARIES)
@pytest.mark.always
def test_a_summary_gives_the_figures_that_it_prints(name):
    kind, patterns, counted = SUMMARIES[name]
    samples = read_samples(TOOLS / name)
    given = given_of(samples, kind)
    for statistic, pattern in patterns.items():
        value, *unit = printed(pattern, name)
        if not unit:
            unit = [re.search(r"(us|ms| s)$", pattern)[0].strip()]
        ns = float(value) * UNITS[unit[0] or OF_TOOL[name]]
        assert given[statistic] == pytest.approx(ns), statistic
    if counted:
        n = int(printed(counted, name)[0])
        mean = samples.frame[samples.frame["statistic"] == "mean"]
        assert mean["count"].tolist() == [n]
    assert samples.losses == {}


def test_netperf_without_latencies_gives_the_mean_that_its_rate_is():
    rate = float(text_of("netperf.txt").splitlines()[-2].split()[-1])
    given = given_of(read_samples(TOOLS / "netperf.txt"), "transaction")
    assert given == {"mean": pytest.approx(1e9 / rate)}
    head, row = text_of("netperf_o.txt").splitlines()[1:3]
    cells = dict(zip(head.split(","), map(float, row.split(",")), strict=True))
    given = given_of(read_samples(TOOLS / "netperf_o.txt"), "transaction")
    names = {"p99": "99th Percentile", "mean": "Mean", "max": "Maximum"}
    for statistic, begin in names.items():
        assert given[statistic] == 1e3 * cells[f"{begin} Latency Microseconds"]


def test_wrk2_is_the_histogram_that_it_prints():
    samples = read_samples(TOOLS / "wrk2.txt")
    (kind,) = samples.histograms
    assert samples.histograms[kind].n == int(
        printed(r"Total count +=\s+(\d+)", "wrk2.txt")[0]
    )
    for p in ("50", "90"):
        # wrk2 prints two digits
        value, unit = printed(rf"^ {p}\.000% +([\d.]+)(us|ms)", "wrk2.txt")
        band = samples.histograms[kind].quantile(int(p) / 100)
        ns = float(value) * UNITS[unit]
        assert band.low_ns <= ns * 1.01
        assert band.high_ns >= ns * 0.99
    mean, unit = printed(r"Latency +([\d.]+)(us|ms)", "wrk2.txt")
    assert given_of(samples, kind)["mean"] == pytest.approx(float(mean) * UNITS[unit])


def test_redis_benchmark_is_its_histogram_and_its_csv():
    samples = read_samples(TOOLS / "redis_benchmark.txt")
    assert samples.histograms["GET"].n == 500
    figures = text_of("redis_benchmark.txt").split("p99       max\n")[1].split()
    given = given_of(samples, "GET")
    assert [given[n] / 1e6 for n in ("mean", "min", "max")] == [
        pytest.approx(float(figures[i])) for i in (0, 1, 5)
    ]
    band = samples.histograms["GET"].quantile(0.95)
    assert band.low_ns <= 1e6 * float(figures[3]) <= band.high_ns
    rows = list(csv.DictReader(text_of("redis_benchmark.csv").splitlines()))
    found = read_samples(TOOLS / "redis_benchmark.csv")
    for row in rows:
        given = given_of(found, row["test"])
        assert given["p99"] == pytest.approx(1e6 * float(row["p99_latency_ms"]))
        assert given["mean"] == pytest.approx(1e6 * float(row["avg_latency_ms"]))


def test_k6_values_are_by_metric_and_what_is_no_time_is_left_out(capsys):
    rows = list(csv.DictReader(text_of("k6.csv").splitlines()))
    samples = read_samples(TOOLS / "k6.csv")
    for metric in ("http_req_duration", "http_req_waiting", "iteration_duration"):
        ms = [
            float(row["metric_value"]) for row in rows if row["metric_name"] == metric
        ]
        assert (each_of(samples, metric) / 1e6).tolist() == list(map(pytest.approx, ms))
        of_json = each_of(read_samples(TOOLS / "k6.json"), metric)
        assert (of_json / 1e6).tolist() == list(map(pytest.approx, ms))
    kinds = set(samples.frame["kind"])
    assert not kinds & {"http_reqs", "vus", "data_sent", "http_req_failed"}
    screen = screen_of(TOOLS / "k6.csv", capsys)
    assert "left out, since no times that are known: http_reqs, " in screen
    printed_us = printed(
        r"http_req_duration\.+: avg=\S+ min=\S+ med=(\S+)µs", "k6.txt"
    )[0]
    for name in ("k6.txt", "k6_summary.json"):
        given = given_of(read_samples(TOOLS / name), "http_req_duration")
        assert given["p50"] == pytest.approx(1e3 * float(printed_us), rel=1e-3)


def test_vegeta_says_the_same_in_all_its_forms():
    report = json.loads(text_of("vegeta_report.json"))["latencies"]
    given = given_of(read_samples(TOOLS / "vegeta_report.json"), "request")
    names = {"min": "min", "mean": "mean", "50th": "p50", "99th": "p99", "max": "max"}
    assert {names[k]: v for k, v in report.items() if k in names} == {
        name: given[name] for name in names.values()
    }
    for name in ("vegeta.csv", "vegeta.json"):
        samples = read_samples(TOOLS / name)
        ns = each_of(samples)
        assert (len(ns), ns.min(), ns.max()) == (50, report["min"], report["max"])
        assert ns.mean() == pytest.approx(report["mean"], abs=1)
        assert samples.losses == {"request": Losses(50, 0)}
    table = read_samples(TOOLS / "vegeta_hdr.txt")
    assert table.histograms["latency"].n == 50
    assert table.histograms["latency"].quantile(0.5).high_ns == report["50th"]


def test_vegeta_requests_without_an_answer_are_lost(tmp_path):
    path = tmp_path / "a"
    row = "1700000000000000000,{},2550092,0,0,{},,attack,0,GET,http://localhost/,\n"
    path.write_text(
        row.format(200, "") + row.format(0, "refused") + row.format(503, "")
    )
    assert read_samples(path).losses == {"request": Losses(3, 1)}


def test_hey_and_ab_have_a_row_for_each_request_of_ab_without_order(capsys):
    rows = list(csv.DictReader(text_of("hey.csv").splitlines()))
    each = each_of(read_samples(TOOLS / "hey.csv"))
    assert each.tolist() == [
        pytest.approx(1e9 * float(r["response-time"])) for r in rows
    ]
    rows = list(csv.DictReader(text_of("ab_g.tsv").splitlines(), delimiter="\t"))
    times = sorted(float(row["ttime"]) for row in rows)
    samples = read_samples(TOOLS / "ab_g.tsv")
    assert samples.histograms["request"].quantile(0.99).high_ns == 1e6 * times[197]
    assert given_of(samples, "request")["max"] == 1e6 * times[-1]
    assert "a histogram of 200" in screen_of(TOOLS / "ab_g.tsv", capsys)


def test_oha_and_memtier_documents_have_their_figures():
    document = json.loads(text_of("oha.json"))
    given = given_of(read_samples(TOOLS / "oha.json"), "request")
    assert given["mean"] == pytest.approx(1e9 * document["summary"]["average"])
    for p, seconds in document["latencyPercentiles"].items():
        assert given[p] == pytest.approx(1e9 * seconds)
    gets = json.loads(text_of("memtier.json"))["ALL STATS"]["Gets"]
    samples = read_samples(TOOLS / "memtier.json")
    given = given_of(samples, "Gets")
    assert given["max"] == pytest.approx(1e6 * gets["Max Latency"])
    for name, p in (("p50.00", "p50"), ("p99.90", "p99.9")):
        assert given[p] == pytest.approx(1e6 * gets["Percentile Latencies"][name])
    counts = samples.frame[samples.frame["kind"] == "Gets"]["count"]
    assert set(counts) == {gets["Count"]}


def test_hdr_logs_hold_what_hdr_histogram_says_of_them():
    figures = json.loads(text_of("hdr_v2_figures.json"))
    (buckets,) = read_samples(TOOLS / "hdr_v2.hlog", unit="ns").histograms.values()
    assert buckets.n == figures["count"]
    assert buckets.low_ns.min() <= figures["min"] <= buckets.high_ns.min()
    assert buckets.high_ns.max() == figures["max"]
    for p in (50, 90, 95, 99, 99.9):
        band = buckets.quantile(p / 100)
        assert [band.low_ns, band.high_ns] == figures[f"p{p:g}"]
    (table,) = read_samples(
        TOOLS / "hdr_percentiles.hgrm", unit="ms"
    ).histograms.values()
    assert table.n == figures["count"]
    for p in (50, 90, 99):
        band = table.quantile(p / 100)
        low, high = figures[f"p{p}"]
        assert band.low_ns <= low + 500  # it prints us
        assert band.high_ns >= high - 500


def test_hdr_log_of_memtier_is_its_table_of_percentiles():
    (log,) = read_samples(TOOLS / "memtier_hdr_SET.hgrm", unit="us").histograms.values()
    (table,) = read_samples(
        TOOLS / "memtier_hdr_SET.txt", unit="ms"
    ).histograms.values()
    assert log.n == table.n == 20
    assert log.quantile(0.5).high_ns == pytest.approx(
        table.quantile(0.5).high_ns, abs=5e3
    )


@pytest.mark.parametrize("name", ["hdr_v2.hlog", "hdr_percentiles.hgrm"])
def test_a_histogram_without_a_unit_asks_for_it_and_has_no_word_of_order(name, capsys):
    with pytest.raises(ReadError, match="its values have no unit; say it with --unit"):
        read_samples(TOOLS / name)
    words = ["analyze", str(TOOLS / name), "--unit", "ns", "--all"]
    assert run_program(OFFLINE, VERSION, words) == 0
    screen = capsys.readouterr().out
    assert "has no order: nothing is said" in screen
    for word in ("lost", "level", "correlation"):
        assert word not in screen


def test_a_percentile_table_named_as_a_column_is_still_a_histogram(tmp_path):
    path = tmp_path / "a.csv"
    rows = [f"{i / 10},{i / 100:.12f},{i * 100},1.0\n" for i in range(1, 101)]
    path.write_text(
        '"Value","Percentile","TotalCount","1/(1-Percentile)"\n' + "".join(rows)
    )
    samples = read_samples(path, latency_column="Value", unit="ms")
    assert samples.histograms["latency"].n == 10_000
    assert samples.histograms["latency"].quantile(0.5).high_ns == 5e6


def test_log2_histograms_have_the_counts_they_were_printed_from():
    """bcc's and netstacklat's own printing, of counts that stand in README.md."""
    (found,) = read_samples(TOOLS / "bcc_runqlat.txt").histograms.values()
    assert found.n == 233 + 742 + 203 + 173 + 24 + 30 + 100 + 300 + 11
    # the 908th value: 333 are below 2 us, and 1042 below 4 us
    assert found.quantile(0.5)[:2] == (2e3, 4e3)
    by_host = read_samples(TOOLS / "bcc_tcprtt.txt").histograms
    assert [one.n for one in by_host.values()] == [100, 47]
    samples = read_samples(TOOLS / "netstacklat.txt")
    # all since it began: the second print of tcp-start has the first one in it
    assert samples.histograms["tcp-start"].n == 100
    assert samples.histograms["tcp-start"].quantile(0.5)[:2] == (1020.0, 2050.0)
    assert given_of(samples, "tcp-start")["mean"] == 1500
    last = samples.histograms["udp-socket-read, interface=2"]
    assert last.n == 6
    assert last.high_ns.max() == float("inf")


def test_flent_has_each_ping_that_fping_measured():
    document = json.loads(gzip.decompress((TOOLS / "flent.flent.gz").read_bytes()))
    values = [one["val"] for one in document["raw_values"]["Ping (ms) ICMP"]]
    samples = read_samples(TOOLS / "flent.flent.gz")
    ms = each_of(samples, "Ping (ms) ICMP") / 1e6
    assert ms.tolist() == list(map(pytest.approx, values))
    about = document["metadata"]["SERIES_META"]["Ping (ms) ICMP"]
    assert (ms.min(), ms.max()) == (about["MIN_VALUE"], about["MAX_VALUE"])
    assert samples.losses == {}


def test_owping_records_and_text_say_what_it_counts(capsys):
    counted = re.findall(r"(\d+) sent, (\d+) lost", text_of("owping.txt"))
    text, raw = (read_samples(TOOLS / f"owping{end}.txt") for end in ("", "_raw"))
    want = [Losses(int(sent), int(lost)) for sent, lost in counted]
    assert list(text.losses.values()) == want
    assert list(raw.losses.values()) == want
    first = text_of("owping_raw.txt").split("\n")[0].split()
    assert each_of(raw)[0] == pytest.approx(
        (int(first[4]) - int(first[1])) * 1e9 / 2**32
    )
    least = printed(r"min/median/max = ([\d.]+)/", "owping.txt")[0]
    assert text.frame["latency_ns"][0] == 1e6 * float(least)
    assert "clocks were not synchronised" in screen_of(TOOLS / "owping_raw.txt", capsys)


def test_owping_packets_that_never_came_are_lost(tmp_path):
    path = tmp_path / "a"
    lines = text_of("owping_raw.txt").splitlines()[:3]
    path.write_text("\n".join([*lines, "3 17201066381857885897 1 2e-10 0 0 0 255", ""]))
    assert read_samples(path).losses == {"one way": Losses(4, 1)}


@pytest.mark.parametrize("end", ["pcap", "pcapng"])
def test_a_capture_of_ping_agrees_with_ping_and_with_tshark(end):
    sent, received, _ = ping_prints(text_of("capture_icmp_ping.txt"))
    samples = read_samples(TOOLS / f"capture_icmp.{end}")
    assert samples.losses == {"ICMP echo": Losses(sent, sent - received)}
    rows = csv.DictReader(text_of("capture_icmp_tshark.csv").splitlines())
    ms = [float(row["icmp.resptime"]) for row in rows if row["icmp.resptime"]]
    assert (each_of(samples) / 1e6).tolist() == list(map(pytest.approx, ms))


@pytest.mark.parametrize("end", ["pcap", "pcapng"])
def test_a_capture_of_a_ping_pong_has_an_answer_for_each_request(end):
    samples = read_samples(TOOLS / f"capture_tcp.{end}")
    assert samples.frame["kind"].tolist() == ["TCP answer from port 7777"] * 20
    # answers are in the capture's order: tshark's times of segments with payload
    assert samples.losses == {}
    assert each_of(samples).between(1, 1e9).all()


def test_iperf_text_has_what_was_transferred():
    for name in ("iperf3.txt", "iperf3_udp.txt", "iperf3_2.txt"):
        whose = r"^\[SUM\]" if name == "iperf3_2.txt" else r"^\[  5\]"
        line = rf"{whose} .* ([\d.]+) ([MK])bits/sec.*"
        (transfer,) = read_samples(TOOLS / name).meta["transfers"]
        for end in ("sender", "receiver"):
            value, unit = printed(line + end, name)
            key = {"sender": "sent", "receiver": "received"}[end]
            rate = float(value) * {"M": 1e6, "K": 1e3}[unit]
            assert transfer[f"{key}_bits_per_second"] == rate
    assert transfer["direction"] == "to the server"
    (udp,) = read_samples(TOOLS / "iperf3_udp.txt").meta["transfers"]
    assert (udp["packets"], udp["lost_packets"]) == (125, 0)
    (cut,) = read_samples(TOOLS / "iperf3_interrupted.txt").meta["transfers"]
    assert cut["received_bytes"] is None


def test_iperf2_has_rtts_one_way_delays_and_histograms():
    rtts = re.findall(r"(\d+)\(\d+\) us", text_of("iperf2_e.txt"))[:-1]  # then of all
    each = read_samples(TOOLS / "iperf2_e.txt").frame["latency_ns"]
    assert (each / 1e3).tolist() == list(map(float, rtts))
    mean, least, most = printed(
        r"0\.0000-1\.0\d+ sec .* ([\d.]+)/([\d.]+)/([\d.]+)/[\d.]+ ms", "iperf2_udp.txt"
    )
    udp = read_samples(TOOLS / "iperf2_udp.txt")
    given = given_of(udp, "stream 1")
    assert [given[n] / 1e6 for n in ("mean", "min", "max")] == [
        float(x) for x in (mean, least, most)
    ]
    assert udp.losses == {"stream 1": Losses(90, 0)}
    server = read_samples(TOOLS / "iperf2_udp_server.txt")
    assert server.histograms["stream 1"].n == 90
    assert server.histograms["stream 1"].high_ns.tolist() == [1e4, 2e4, 3e4, 4e4]
    rate = int(text_of("iperf2.csv").splitlines()[-1].split(",")[-1])
    (transfer,) = read_samples(TOOLS / "iperf2.csv").meta["transfers"]
    assert transfer["sent_bits_per_second"] == rate


# the rows that seeds 000 and 001 publish
TMSN_TABLE = """\
Unnamed: 0,load,total,msg,msg_echo,hb,hb_echo,avg_msg,avg_hb,std_msg,std_hb
0,1024.0,226.0,200.0,0.0,18.0,8.0,662.2295,3856.805556,31.505743,2961.460809
1,5120.0,226.0,200.0,0.0,18.0,8.0,739.7485,327.044444,37.421536,77.01189
"""
PROXYSTORE_TABLE = """\
                                |  Payload  |  Avg Op Time (ms)
Systems                | Op     |   Bytes   | Endpoint |  Redis
-----------------------|--------|-----------|----------|---------
Theta \N{RIGHTWARDS ARROW} Theta          | GET    | 1000      |    1.605 |    0.227
Theta \N{RIGHTWARDS ARROW} Theta          | SET    | 1000000   |   72.135 |    0.744
Theta \N{RIGHTWARDS ARROW} Theta          | EVICT  | N/A       |    1.381 |    0.106
"""


def test_tmsns_published_table_is_read_as_its_means(tmp_path):
    path = tmp_path / "a"
    path.write_text(TMSN_TABLE)
    samples = read_samples(path)
    frame = samples.frame[samples.frame["statistic"] == "mean"]
    messages = frame[frame["kind"] == "message"]
    assert messages["size_bytes"].tolist() == [1024, 5120]
    assert messages["latency_ns"].tolist() == [662_229.5, 739_748.5]
    heartbeats = frame[frame["kind"] == "heartbeat"]
    assert (heartbeats["latency_ns"] / 1e3).tolist() == [3856.805556, 327.044444]
    assert samples.losses == {}


def test_proxystores_printed_table_is_read_by_backend(tmp_path):
    path = tmp_path / "a"
    path.write_text(PROXYSTORE_TABLE)
    samples = read_samples(path)
    frame = samples.frame.set_index(samples.frame["kind"].astype(str))
    ms = {
        kind: (rows["latency_ns"] / 1e6).tolist()
        for kind, rows in frame.groupby(level=0)
    }
    assert ms == {
        "ENDPOINT GET": [pytest.approx(1.605)],
        "REDIS GET": [pytest.approx(0.227)],
        "ENDPOINT SET": [pytest.approx(72.135)],
        "REDIS SET": [pytest.approx(0.744)],
        "ENDPOINT EVICT": [pytest.approx(1.381)],
        "REDIS EVICT": [pytest.approx(0.106)],
    }
    assert frame["size_bytes"].loc["REDIS SET"] == 1_000_000


def test_clears_client_prints_a_mean_without_its_size(tmp_path):
    path = tmp_path / "a"
    path.write_text("Average Round-trip time: 0.083 ms\n" * 2)
    frame = read_samples(path).frame
    assert frame["latency_ns"].tolist() == [83_000, 83_000]
    assert frame["size_bytes"].isna().all()


def test_four_stamps_are_the_papers_times_of_each_message(tmp_path):
    path = tmp_path / "a.csv"
    rows = ["0,10,25,125,2", "5,,,9,0", "100,90,110,120,1", "7,8,9,12,1"]
    path.write_text("\n".join(["stamp_1,stamp_2,stamp_3,stamp_4,hops", *rows, ""]))
    with pytest.raises(ReadError, match="its stamps have no unit; say it with --unit"):
        read_samples(path)
    samples = read_samples(path, unit="us")
    us = {
        kind[0]: (each_of(samples, kind) / 1e3).tolist()
        for kind in samples.frame["kind"].unique()
    }
    # A is what B, C and D add up to; a message within a node has only A
    assert us == {"A": [125, 4, 5], "B": [10, 1], "C": [15, 1], "D": [100, 3]}
    assert [(row.line, row.why) for row in samples.skipped] == [
        (4, "its stamps run backwards")
    ]
    path.write_text("t1_ms,t2_ms,t3_ms,t4_ms\n1,2,3,4\n")
    assert each_of(read_samples(path)).tolist() == [3e6, 1e6, 1e6, 1e6]


def test_netperf_with_several_transactions_at_once_has_no_mean(tmp_path):
    path = tmp_path / "a"
    path.write_text(text_of("netperf.txt").replace("first burst 0", "first burst 4"))
    with pytest.raises(ReadError, match="no latencies of netperf's"):
        read_samples(path)


def test_iperf_with_timestamps_and_omitted_intervals_is_the_same(tmp_path):
    path = tmp_path / "a"
    omitted = (
        "[  5]   0.00-0.25   sec   9 KBytes  1 Mbits/sec    9   1 MBytes (omitted)"
    )
    lines = text_of("iperf3.txt").splitlines()
    lines.insert(3, omitted)
    path.write_text("\n".join(f"Sun Nov 29 10:00:00 2026 {line}" for line in lines))
    found, alone = read_samples(path), read_samples(TOOLS / "iperf3.txt")
    assert found.meta["transfers"] == alone.meta["transfers"]
    assert found.table.equals(alone.table)


def test_iperf2_that_was_cut_has_the_histograms_of_its_intervals(tmp_path):
    path = tmp_path / "a"
    path.write_text(text_of("iperf2_udp_server.txt").split("[  1] 0.0000-1.")[0])
    buckets = read_samples(path).histograms["stream 1"]
    assert buckets.n == 46 + 42


def test_a_log_of_many_pings_is_one_series(tmp_path):
    path = tmp_path / "a"
    counts = ["1 packets transmitted, 1 received, 0% packet loss, time 0ms"]
    path.write_text("\n".join(ping_of(reply(1, ms), *counts) for ms in range(1, 301)))
    samples = read_samples(path)
    assert (samples.frame["latency_ns"] / 1e6).tolist() == list(range(1, 301))
    assert samples.losses == {"10.0.0.2": Losses(300, 0)}


@pytest.mark.parametrize(
    "names", [("wrk.txt", "wrk_latency.txt"), ("hey.csv", "hey.csv")]
)
def test_files_of_tools_are_compared(names, capsys):
    words = ["compare", "--all", *(str(TOOLS / name) for name in names)]
    assert run_program(OFFLINE, VERSION, words) == 0
    assert "request" in capsys.readouterr().out
