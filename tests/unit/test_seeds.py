"""Five published measurements: their figures, and what they say they computed.

The figures are those that their texts print. Each is computed twice from the files
in tests/data/seeds: by our functions, and here, anew and plainly, as the text says
that it was done.
"""

import csv
import math
import re
import statistics
from itertools import pairwise

import latprof_analysis as lp
import numpy as np
import pytest
from published import CLEAR, MCDTP, PROXYSTORE, SEEDS, TMSN

PRINTED = 0.51e-6  # six decimals


def rounds_of_lines(path):
    """Split a log by hand: for each run its place in its test, and its lines."""
    place, found = -1, []
    for line in path.read_text().splitlines():
        if line.startswith("start new test"):
            place = -1
        elif line.startswith("load_size"):
            place += 1
            found.append((place, []))
        elif line.startswith("stress perf"):
            found[-1][1].append(line.split(","))
    return found


def tmsn_by_hand(path):
    """Sum times and echoes of all machines in each test; then mean and spread."""
    places = {}
    for place, lines in rounds_of_lines(path):
        local = next(fields for fields in lines if fields[2] == "local")
        counts = [int(cell) for cell in local[3:10]]
        time_us = sum(int(fields[8]) for fields in lines)
        echoes = sum(int(fields[5]) for fields in lines)
        row = (int(local[1]), counts[0], counts[1], counts[3], counts[4])
        row += (time_us / echoes, float(local[11]))
        places.setdefault(place, []).append(row)
    for _, rows in sorted(places.items()):
        columns = list(zip(*rows, strict=True))
        means = [statistics.fmean(column) for column in columns]
        yield (*means, *(statistics.stdev(column) for column in columns[5:]))


@pytest.mark.parametrize(("name", "machines"), TMSN)
def test_tmsns_tables_come_out_of_its_log_by_hand(name, machines):
    table = list(tmsn_by_hand(SEEDS / name))
    np.testing.assert_allclose(table, TMSN[name, machines], rtol=0, atol=PRINTED)


@pytest.mark.parametrize(("name", "machines"), TMSN)
def test_tmsns_samples_weighted_by_echoes_have_the_published_mean(name, machines):
    frame = lp.read_samples(SEEDS / name).frame
    rows = TMSN[name, machines]
    for size in {row[0] for row in rows if [r[0] for r in rows].count(row[0]) == 1}:
        (published,) = [row[5] for row in rows if row[0] == size]
        of_size = frame[(frame["kind"] == "message") & (frame["size_bytes"] == size)]
        mean_us = np.average(of_size["latency_ns"], weights=of_size["count"]) / 1e3
        # the published mean weighs tests alike, also where one lacks some echoes
        assert mean_us == pytest.approx(published, rel=1e-3)
        assert of_size["count"].sum() == pytest.approx(
            100 * (machines - 1) * (10 if len(rows) == 5 else 7), abs=5
        )


def off_whole(value):
    return abs(value - round(value))


def test_tmsns_heartbeat_means_divide_by_heartbeats_and_not_by_echoes():
    for (_, machines), rows in TMSN.items():
        full = [r for r in rows if r[3] == 9 * (machines - 1)]
        tests = 10 if len(rows) == 5 else 7
        assert len(full) >= 3
        for row in full:
            received, echoes = round(tests * row[3]), round(tests * row[4])
            assert off_whole(row[6] * received) <= PRINTED * received
        assert any(off_whole(r[6] * echoes) > PRINTED * echoes for r in full)


@pytest.mark.parametrize(
    ("row", "tests", "missing"),
    [
        (TMSN["tmsn_3_machines_50ms.txt", 3][4], 10, True),
        (TMSN["tmsn_3_machines_50ms.txt", 3][0], 10, False),
        (TMSN["tmsn_10_machines_10ms.txt", 10][1], 8, True),
        (TMSN["tmsn_10_machines_10ms.txt", 10][0], 8, False),
    ],
)
def test_tmsns_means_tell_where_echoes_are_missing(row, tests, missing):
    sum_us = row[5] * tests * row[2]
    assert (off_whole(sum_us) > PRINTED * tests * row[2]) == missing


def test_proxystores_table_comes_out_of_its_csv_by_hand():
    with (SEEDS / "proxystore_theta.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = {}
    for row in rows:
        size = int(row["payload_size_bytes"] or 0) or None
        mean = round(float(row["avg_time_ms"]), 3)
        found.setdefault((row["op"], size), {})[row["backend"]] = mean
    assert {key: (of["ENDPOINT"], of["REDIS"]) for key, of in found.items()} == (
        PROXYSTORE
    )


def test_proxystores_samples_are_the_published_table():
    samples = lp.read_samples(SEEDS / "proxystore_theta.csv")
    table = samples.table.assign(ms=(samples.frame["latency_ns"] / 1e6).round(3))
    for column, backend in enumerate(("ENDPOINT", "REDIS")):
        of = table[table["backend"] == backend]
        sizes = [int(size) or None for size in of["payload_size_bytes"].fillna(0)]
        found = dict(zip(zip(of["op"], sizes, strict=True), of["ms"], strict=True))
        assert found == {key: means[column] for key, means in PROXYSTORE.items()}


def test_proxystores_other_columns_follow_from_its_means_as_in_published_rows():
    # published, of Redis and GET: bytes, total ms, mean ms, megabytes a second
    for size, total, mean, rate in (
        (1000, 0.679763, 0.226588, 4.413303),
        (10_000_000, 27.453748, 9.151249, 1092.746972),
    ):
        assert total / mean == pytest.approx(3, rel=1e-5)
        assert size / mean / 1e3 == pytest.approx(rate, rel=1e-5)
    samples = lp.read_samples(SEEDS / "proxystore_theta.csv")
    assert samples.frame["count"].eq(3).all()
    assert samples.skipped_rows == 0


def test_mcdtps_figures_come_out_of_its_intervals():
    ends = {}
    with (SEEDS / "mcdtp_throughput.csv").open() as file:
        for row in csv.DictReader(file):
            key = int(row["channels"]), row["end"]
            start, end = float(row["start_s"]), float(row["end_s"])
            ends.setdefault(key, []).append((start, end, int(row["bytes"])))
    for channels, published in MCDTP.items():
        found, total = [], {}
        for name in ("server", "client"):
            rows = ends[channels, name]
            assert all(a[1] == b[0] for a, b in pairwise(rows))
            total[name] = sum(row[2] for row in rows)
            found.append(total[name] / rows[-1][1] / 1e6)
            found.append(max(row[2] / (row[1] - row[0]) for row in rows) / 1e6)
        assert total["server"] == 1_000_000_000
        lost = 100 * (1 - total["client"] / total["server"])
        assert [round(x, 3) for x in found] == list(published[:4])
        assert round(lost, 2) == published[4]


def test_mcdtps_loss_is_not_that_of_its_average_rates():
    for server, _, client, _, lost in MCDTP.values():
        assert abs(100 * (1 - client / server) - lost) > 2


# Time Warp: messages of both runs, and what graphs' titles say of their shares
@pytest.mark.parametrize("messages", [51_424, 52_050])
def test_three_pieces_hold_the_shares_that_time_warp_names(messages):
    sample = np.random.default_rng(1).exponential(1, messages)
    pieces = lp.three_pieces(sample)
    ordered = sorted(sample)
    first, second = math.ceil(0.95 * messages), math.ceil(0.999 * messages)
    assert [piece.count for piece in pieces] == [
        first,
        second - first,
        messages - second,
    ]
    assert [(piece.low, piece.high) for piece in pieces] == [
        (ordered[0], ordered[first - 1]),
        (ordered[first], ordered[second - 1]),
        (ordered[second], ordered[-1]),
    ]
    assert all(len(piece.counts) == 100 for piece in pieces)  # "near 100 data points"


def clear_by_hand():
    """Read, leave out what is beyond Tukey's fences of its size, mean of each five."""
    of_size = {}
    for line in (SEEDS / "clear.txt").read_text().splitlines():
        match = re.search(r"Size = (\d+) bytes, .* average latency = ([\d.]+) ms", line)
        of_size.setdefault(int(match[1]), []).append(float(match[2]))
    for size, values in of_size.items():
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        reach = 1.5 * (high - low)
        kept = [v for v in values if low - reach <= v <= high + reach]
        for start in range(0, len(kept), 5):
            yield size, statistics.fmean(kept[start : start + 5])


def test_clears_line_comes_out_of_its_text_by_hand():
    line = statistics.linear_regression(*zip(*clear_by_hand(), strict=True))
    found = f"{line.slope:.10f}", f"{line.intercept:.3f}", f"{line.intercept:.4f}"
    assert found == CLEAR


def test_clears_line_is_that_of_fit_means_of_five():
    frame = lp.read_samples(SEEDS / "clear.txt").frame
    fit = lp.fit_means_of_five(frame["size_bytes"], frame["latency_ns"])
    delay_ms = 1e3 * fit.fixed_delay_seconds.value
    slope = fit.slope_ns_per_byte.value / 1e6
    assert (f"{slope:.10f}", f"{delay_ms:.3f}", f"{delay_ms:.4f}") == CLEAR
    by_hand = statistics.linear_regression(*zip(*clear_by_hand(), strict=True))
    assert slope == pytest.approx(by_hand.slope, rel=1e-9)
    assert delay_ms == pytest.approx(by_hand.intercept, rel=1e-9)
