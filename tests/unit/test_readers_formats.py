"""Other tools' files say through our readers what the tools say themselves."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from latprof_analysis.cli import OFFLINE, VERSION
from latprof_analysis.cli.program import run_program
from latprof_analysis.read import ReadError, detect, read_columns, read_samples
from latprof_analysis.report.build import build_report
from latprof_analysis.study.analysis import analyze
from scipy.stats import linregress

DATA = Path(__file__).parent.parent / "data"
# sockperf's modes and options: each wrote a full log and a text
LOGS = ("full_rtt", "tcp", "under_load", "playback", "histogram", "histogram_rtt")
# iperf3's directions, of which iperf3 sums up each
TRANSFERS = {
    "tcp_reverse": ("to the client",),
    "tcp_bidir": ("to the server", "to the client"),
    "tcp_4": ("to the server",),
    "udp_lossy": ("to the server",),
    "udp_reverse": ("to the client",),
    "udp_bidir": ("to the server", "to the client"),
    "udp_4": ("to the server",),
}
FILES = {
    "run": "run",
    "run/messages.csv": "messages",
    "run/round_trips.csv": "round-trips",
    "proxystore_remote_ops.csv": "proxystore",
    "tmsn_stress.txt": "tmsn",
    "clear_result.txt": "clear",
    "sockperf_ping_pong.txt": "sockperf",
    "sockperf_full_log.csv": "sockperf-log",
    **{f"sockperf_{name}.csv": "sockperf-log" for name in LOGS},
    **{f"sockperf_{name}.txt": "sockperf" for name in LOGS},
    "iperf3_tcp.json": "iperf3",
    "iperf3_udp.json": "iperf3",
    **{f"iperf3_{name}.json": "iperf3" for name in TRANSFERS},
    "iperf3_server.json": "iperf3",
    "iperf3_server_sends.json": "iperf3",
    "irtt.json": "irtt",
    "irtt.json.gz": "irtt",
}


@pytest.mark.parametrize(("name", "form"), FILES.items())
def test_a_format_is_known_by_its_content_whatever_its_name(name, form, tmp_path):
    link = tmp_path / "file.xyz"
    link.symlink_to(DATA / name)
    assert detect(link) == form
    samples = read_samples(link)
    assert samples.skipped_rows == 0
    assert samples.meta["latency"]


def test_a_mark_of_byte_order_and_windows_line_ends_do_not_matter(tmp_path):
    name = "proxystore_remote_ops.csv"
    path = tmp_path / "a"
    text = (DATA / name).read_bytes().replace(b"\n", b"\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text)
    assert (
        read_samples(path)
        .frame["latency_ns"]
        .equals(read_samples(DATA / name).frame["latency_ns"])
    )


# seed 001 prints these for its first file, in ms
PUBLISHED_REDIS_GET = {
    1000: 0.227,
    10_000: 0.155,
    100_000: 0.236,
    1_000_000: 0.803,
    10_000_000: 9.151,
}


def test_proxystores_means_are_those_of_its_published_table():
    frame = read_samples(DATA / "proxystore_remote_ops.csv").frame
    got = frame[frame["kind"] == "REDIS GET"].set_index("size_bytes")["latency_ns"]
    assert {size: round(ns / 1e6, 3) for size, ns in got.items()} == PUBLISHED_REDIS_GET
    assert frame[frame["kind"] == "REDIS EVICT"]["size_bytes"].isna().all()


def test_proxystores_backends_are_apart_and_a_payload_crosses_once():
    path = DATA / "seeds" / "proxystore_theta.csv"
    rows = pd.read_csv(path)
    kinds = analyze(path).document["samples"]["kinds"]
    for backend in ("REDIS", "ENDPOINT"):
        for op in ("GET", "SET"):
            mine = rows[(rows["backend"] == backend) & (rows["op"] == op)]
            line = linregress(mine["payload_size_bytes"], mine["avg_time_ms"] / 1e3)
            fit = kinds[f"{backend} {op}"]["least_squares"]
            got = fit["bandwidth_bits_per_second"]["value"]
            assert got == pytest.approx(8 / line.slope, rel=1e-6)
            assert fit["fixed_delay_seconds"]["value"] == pytest.approx(line.intercept)
        for op in ("EXISTS", "EVICT"):
            assert kinds[f"{backend} {op}"]["fit"]["reason"] == (
                "no payload is sent either way"
            )


def test_proxystores_count_is_its_total_over_its_mean():
    samples = read_samples(DATA / "proxystore_remote_ops.csv")
    totals = samples.table["total_time_ms"] / samples.table["avg_time_ms"]
    assert samples.frame["count"].tolist() == totals.round().astype(int).tolist()


def test_proxystores_rows_with_a_mean_outside_its_extremes_are_left_out(tmp_path):
    text = (DATA / "proxystore_remote_ops.csv").read_text()
    path = tmp_path / "mixed.csv"
    path.write_text(text.replace("0.203647,0.24244", "0.24244,0.203647"))
    skipped = read_samples(path).skipped
    assert [(row.line, row.why) for row in skipped] == [
        (2, "its times are not min <= avg <= max")
    ]


def test_tmsns_means_are_summed_times_over_summed_echoes():
    samples = read_samples(DATA / "tmsn_stress.txt")
    frame = samples.frame
    messages = frame[(frame["kind"] == "message") & (frame["size_bytes"] == 204800)]
    weight = messages["count"].astype(float)
    mean_ns = (messages["latency_ns"] * weight).sum() / weight.sum()
    assert mean_ns == pytest.approx(1e3 * (321000 + 324200) / (99 + 100), rel=1e-12)
    assert frame[frame["kind"] == "heartbeat"]["size_bytes"].isna().all()


def test_tmsns_runs_and_tests_are_numbered_as_they_begin():
    table = read_samples(DATA / "tmsn_stress.txt").table
    assert table["run_id"].tolist() == [1] * 3 + [2] * 3 + [3] * 3
    assert table["test_id"].tolist() == [0] * 6 + [1] * 3
    assert table["address"].tolist()[:2] == ["local", "10.0.0.2:8082"]


def test_clears_lines_give_back_the_line_they_were_made_of():
    frame = read_samples(DATA / "clear_result.txt").frame
    sizes = frame["size_bytes"].to_numpy(float)
    fit = linregress(sizes, frame["latency_ns"] / 1e6)
    assert fit.slope == pytest.approx(0.0000016977, rel=1e-3)  # as seed 004 prints it
    assert fit.intercept == pytest.approx(0.0818, rel=1e-6)
    assert frame["count"].eq(100).all()


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0.083 ms", 83_000),
        ("8.3e-02 ms", 83_000),
        ("1e-05 ms", 10),
        ("8.3E+1 us", 83_000),
        ("83 \N{MICRO SIGN}s", 83_000),
        ("83000 ns", 83_000),
        ("0.000083 s", 83_000),
    ],
)
def test_clears_latency_may_have_any_unit_and_an_exponent(text, ns, tmp_path):
    path = tmp_path / "result.txt"
    path.write_text(f"Size = 18 bytes, Count = 5, average latency = {text}\n")
    assert read_samples(path).frame["latency_ns"].tolist() == [pytest.approx(ns)]


def test_a_reply_of_no_bytes_is_one_way(tmp_path, capsys):
    path = tmp_path / "any.csv"
    rows = [
        f"{size},{1e6 + 80 * size + 100 * (i % 7)}\n"
        for i in range(40)
        for size in (64, 1000, 4000, 16000, 64000)
    ]
    path.write_text("size,ns\n" + "".join(rows))
    words = ["--latency-column", "ns", "--unit", "ns", "--size-column", "size"]
    words = ["analyze", str(path), *words, "--reply", "0", "--json"]
    assert run_program(OFFLINE, VERSION, words) == 0
    fit = json.loads(capsys.readouterr().out)["fit"]
    got = fit["bandwidth_bits_per_second"]["value"]
    assert got == pytest.approx(8e9 / 80, rel=0.001)


def sockperf_prints(name: str) -> dict[str, float]:
    """The figures of the text, in us."""
    text = (DATA / name).read_text()
    found = dict(re.findall(r"percentile (\S+) = +(\S+)", text))
    found |= dict(re.findall(r"<(M..)> observation = +(\S+)", text))
    found |= dict(re.findall(r"(avg)-(?:latency|rtt)=(\S+) ", text))
    found |= dict(re.findall(r"(Total) (\d+) observations", text))
    return {name: float(value) for name, value in found.items()}


@pytest.mark.parametrize("name", LOGS)
def test_every_mode_of_sockperf_is_read_as_it_prints_itself(name):
    printed = sockperf_prints(f"sockperf_{name}.txt")
    each = read_samples(DATA / f"sockperf_{name}.csv")
    us = each.frame["latency_ns"] / 1e3
    assert each.skipped_rows == 0
    assert len(us) == printed["Total"]
    # both cut what is below a ns
    assert us.mean() == pytest.approx(printed["avg"], abs=2e-3)
    assert us.min() == pytest.approx(printed["MIN"], abs=2e-3)
    assert us.max() == pytest.approx(printed["MAX"], abs=2e-3)
    given = read_samples(DATA / f"sockperf_{name}.txt")
    means = given.frame[given.frame["statistic"] == "mean"]["latency_ns"] / 1e3
    assert means.tolist() == [pytest.approx(printed["avg"])]
    assert given.meta["latency"] == each.meta["latency"]


@pytest.mark.parametrize("name", LOGS)
def test_sockperf_says_half_or_whole_round_trips_as_its_stamps_do(name):
    samples = read_samples(DATA / f"sockperf_{name}.csv")
    whole = name.endswith("rtt")
    times = samples.table["rtt_ns"] / (1 if whole else 2)
    assert abs(samples.frame["latency_ns"] - times).max() <= 1.0  # it prints ns
    assert samples.meta["latency"].startswith("round trip" if whole else "half of")
    kinds = samples.frame["kind"].unique().tolist()
    assert kinds == ["round trip" if whole else "ping"]


def test_sockperfs_round_trips_of_several_sizes_need_no_reply_mode(tmp_path):
    """Of half of an echo a byte is crossing once, of a whole one twice."""
    link_ns = 80  # a byte, at 100 Mbit/s
    rates = []
    for head, factor in (("latency", 1), ("rtt", 2)):
        paths = []
        for size in (64, 1000, 4000, 16000, 64000):
            path = tmp_path / f"{head}{size}.csv"
            lines = [
                f"--msg-size={size}",
                f"packet, txTime(sec), rxTime(sec), {head}(usec)",
            ]
            for i in range(40):
                us = (1e5 + 2 * link_ns * size + 100 * (i % 7)) / 1e3
                sent = i / 100
                told = us * factor / 2
                lines.append(f"{i}, {sent:.9f}, {sent + us / 1e6:.9f}, {told:.3f}")
            path.write_text("\n".join(lines) + "\n")
            paths.append(path)
        (kind,) = analyze(paths).document["samples"]["kinds"].values()
        rates.append(kind["fit"]["bandwidth_bits_per_second"]["value"])
    assert rates == [pytest.approx(1e8, rel=0.01)] * 2


def test_sockperfs_throughput_times_nothing_and_is_refused_with_what_to_do():
    with pytest.raises(ReadError, match="times no messages; run ping-pong or under-l"):
        read_samples(DATA / "untimed" / "sockperf_throughput.txt")


def test_sockperfs_log_has_the_mean_and_extremes_that_sockperf_prints():
    samples = read_samples(DATA / "sockperf_full_log.csv")
    us = samples.frame["latency_ns"] / 1e3
    printed = sockperf_prints("sockperf_full_log.csv")
    assert len(us) == 108  # "Total 108 observations"
    assert us.mean() == pytest.approx(printed["avg"], abs=1e-3)
    assert us.min() == pytest.approx(printed["MIN"], abs=1e-3)  # it prints us
    assert us.max() == pytest.approx(printed["MAX"], abs=1e-3)
    assert samples.frame["size_bytes"].eq(64).all()


def test_sockperfs_latency_is_half_of_the_round_trip():
    samples = read_samples(DATA / "sockperf_full_log.csv")
    half_ns = samples.table["rtt_ns"] / 2
    assert abs(samples.frame["latency_ns"] - half_ns).max() <= 1.0  # it prints ns
    assert "half" in samples.meta["latency"]


def test_sockperfs_text_gives_the_figures_it_prints():
    frame = read_samples(DATA / "sockperf_ping_pong.txt").frame
    got = frame.set_index("statistic")["latency_ns"] / 1e3
    printed = sockperf_prints("sockperf_ping_pong.txt")
    assert len(got) == len(printed) - 1 == 11  # and the total
    assert got["mean"] == pytest.approx(printed["avg"])
    assert got["max"] == pytest.approx(printed["MAX"])
    assert got["p99.9"] == pytest.approx(printed["99.900"])
    assert got["p50"] == pytest.approx(printed["50.000"])
    assert frame["count"].eq(19399).all()


def test_iperf3s_intervals_add_up_to_its_own_totals():
    document = json.loads((DATA / "iperf3_tcp.json").read_text())
    samples = read_samples(DATA / "iperf3_tcp.json")
    sender = document["end"]["streams"][0]["sender"]
    srtt_us = samples.frame["latency_ns"] / 1e3
    assert (srtt_us.min(), srtt_us.max()) == (sender["min_rtt"], sender["max_rtt"])
    assert int(srtt_us.mean()) == sender["mean_rtt"]
    assert samples.table["bytes"].sum() == document["end"]["sum_sent"]["bytes"]
    assert samples.table["retransmits"].sum() == sender["retransmits"]
    (transfer,) = samples.meta["transfers"]
    assert transfer["sent_bytes"] == sender["bytes"]
    assert transfer["retransmits"] == sender["retransmits"]


@pytest.mark.parametrize(("name", "directions"), TRANSFERS.items())
def test_iperf3s_rate_loss_and_jitter_are_told_of_each_direction(
    name, directions, capsys
):
    path = DATA / f"iperf3_{name}.json"
    end = json.loads(path.read_text())["end"]
    transfers = analyze(path).document["transfers"]
    assert tuple(transfer["direction"] for transfer in transfers) == directions
    assert run_program(OFFLINE, VERSION, ["analyze", str(path)]) == 0
    told = capsys.readouterr().out
    for transfer, ending in zip(transfers, ("", "_bidir_reverse"), strict=False):
        sent, received = end[f"sum_sent{ending}"], end[f"sum_received{ending}"]
        assert transfer["sent_bits_per_second"] == sent["bits_per_second"]
        assert transfer["received_bits_per_second"] == received["bits_per_second"]
        if name.startswith("tcp"):
            assert transfer["retransmits"] == sent["retransmits"]
            continue
        counted = end[f"sum{ending}"]
        assert transfer["jitter_ns"] == pytest.approx(1e6 * counted["jitter_ms"])
        assert f"of {counted['packets']} ({counted['lost_percent']:.1f}%)" in told
        lost_bytes = transfer["sent_bytes"] - transfer["received_bytes"]
        assert lost_bytes / 1000 == pytest.approx(transfer["lost_packets"], abs=1)
    if name.startswith("udp"):  # nft dropped every twentieth datagram of them all
        packets = sum(transfer["packets"] for transfer in transfers)
        lost = sum(transfer["lost_packets"] for transfer in transfers)
        assert lost == pytest.approx(packets / 20, abs=1)
    page = build_report(analyze(path), "iperf3")
    (section,) = (each for each in page.sections if each.name == "transfers")
    assert len(section.parts[0].rows) == len(directions)


def test_a_file_without_latencies_is_read_beside_one_with(capsys):
    paths = [str(DATA / f"iperf3_{name}.json") for name in ("udp_4", "tcp_bidir")]
    assert run_program(OFFLINE, VERSION, ["analyze", *paths, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    told = [(t["protocol"], t["direction"]) for t in document["transfers"]]
    assert told == [
        ("UDP", "to the server"),
        ("TCP", "to the server"),
        ("TCP", "to the client"),
    ]
    assert document["samples"]["kinds"]


def test_what_iperf3s_server_is_not_told_is_not_zero():
    (came,) = analyze(DATA / "iperf3_server.json").document["transfers"]
    assert (came["direction"], came["sent_bytes"]) == ("to the server", None)
    assert (came["received_bytes"], came["lost_packets"]) == (125_000, 0)
    (went,) = analyze(DATA / "iperf3_server_sends.json").document["transfers"]
    assert (went["direction"], went["sent_bytes"]) == ("to the client", 125_000)
    assert went["received_bytes"] is went["lost_packets"] is went["jitter_ns"] is None


def test_iperf3s_udp_has_packets_and_no_latency():
    document = json.loads((DATA / "iperf3_udp.json").read_text())
    samples = read_samples(DATA / "iperf3_udp.json")
    assert samples.frame.empty
    assert samples.table["packets"].sum() == document["end"]["sum"]["packets"]
    assert samples.table["srtt_ns"].isna().all()


@pytest.mark.parametrize(("name", "size"), [("irtt.json", 172), ("irtt.json.gz", 1400)])
def test_irtts_rtt_is_what_its_stamps_say_without_the_servers_time(name, size):
    content = (DATA / name).read_bytes()
    if name.endswith(".gz"):
        content = gzip.decompress(content)
    document = json.loads(content)
    samples = read_samples(DATA / name)
    rows = samples.frame.itertuples()
    for trip, got in zip(document["round_trips"], rows, strict=True):
        client, server = (trip["timestamps"][side] for side in ("client", "server"))
        if got.lost:
            assert trip["lost"].startswith("true")
            continue
        whole = client["receive"]["monotonic"] - client["send"]["monotonic"]
        inside = server["send"]["monotonic"] - server["receive"]["monotonic"]
        assert got.latency_ns == whole - inside
    assert samples.frame["size_bytes"].eq(size).all()


@pytest.mark.parametrize("name", ["irtt.json", "irtt.json.gz"])
def test_irtts_losses_and_rtts_are_those_that_it_counts_itself(name):
    content = (DATA / name).read_bytes()
    if name.endswith(".gz"):
        content = gzip.decompress(content)
    told = json.loads(content)["stats"]
    samples = read_samples(DATA / name)
    rtt = samples.frame["latency_ns"][~samples.frame["lost"]]
    assert len(samples.frame) == told["packets_sent"]
    assert len(rtt) == told["packets_received"] == told["rtt"]["n"]
    assert (rtt.min(), rtt.max()) == (told["rtt"]["min"], told["rtt"]["max"])
    assert int(rtt.mean()) == told["rtt"]["mean"]
    # by the last one that the server saw the client knows of those before it
    where = samples.table["lost_where"].value_counts()
    lost_up = told["packets_sent"] - told["server_packets_received"]
    assert where["up"] <= lost_up <= where["up"] + where.get("unknown", 0)
    assert where["down"] > 0


@pytest.mark.parametrize(
    ("unit", "factor"), [("ns", 1), ("us", 1e3), ("ms", 1e6), ("s", 1e9)]
)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_any_csv_is_read_by_its_columns_and_unit(tmp_path, unit, factor, delimiter):
    path = tmp_path / "a.csv"
    rows = [["when", "bytes", "took"], ["9:00", "64", "2.5"], ["9:01", "", ""]]
    path.write_text("".join(delimiter.join(row) + "\n" for row in rows))
    frame = read_columns(
        path, latency_column="took", unit=unit, size_column="bytes", lost_if="empty"
    ).frame
    assert frame["latency_ns"].iloc[0] == pytest.approx(2.5 * factor)
    assert frame["lost"].tolist() == [False, True]
    assert np.isnan(frame["latency_ns"].iloc[1])
    assert frame["size_bytes"].iloc[0] == 64
    assert frame["size_bytes"].isna().tolist() == [False, True]


def test_files_of_several_formats_are_put_together():
    names = ["clear_result.txt", "irtt.json", "tmsn_stress.txt"]
    parts = [read_samples(DATA / name) for name in names]
    both = read_samples([DATA / name for name in names])
    assert both.format == "mixed"
    assert len(both.frame) == sum(len(part.frame) for part in parts)
    assert both.frame["source"].dtype == "category"
    latencies = np.concatenate([part.frame["latency_ns"] for part in parts])
    np.testing.assert_array_equal(both.frame["latency_ns"], latencies)
