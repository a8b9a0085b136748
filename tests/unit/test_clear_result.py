"""CLEAR's result text of a run: as its own script parses it, and as `analyze` does."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from latprof_agent.sinks.clear_result import clear_result
from latprof_analysis.study.analysis import analyze
from run_folders import write_run


def parse_file(text):
    """As the script of the seed does it, word for word."""
    sizes = []
    latencies = []
    for line in text.splitlines():
        match = re.search(r"Size = (\d+) bytes, .* average latency = ([\d.]+) ms", line)
        if match:
            sizes.append(int(match.group(1)))
            latencies.append(float(match.group(2)))
    return sizes, latencies


@pytest.fixture
def rows(tmp_path):
    """Round trips of a simulated link of 100 Mbit/s and 1 ms."""
    write_run(tmp_path / "run")
    table = pd.read_csv(tmp_path / "run" / "round_trips.csv")
    return table.sort_values("sent_ns")


def test_each_size_has_five_means_in_the_order_of_time(rows):
    sizes, rtts = rows["size_bytes"].to_numpy(), rows["rtt_ns"].to_numpy()
    found = parse_file(clear_result(sizes, rtts))
    for size in np.unique(sizes):
        means = [ms for of, ms in zip(*found, strict=True) if of == size]
        times = rtts[sizes == size]
        n = len(times) // 5
        # round trips that do not divide by five are in the first ones
        ends = np.cumsum([n + (i < len(times) % 5) for i in range(5)])
        parts = np.split(times, ends[:-1])
        assert means == pytest.approx([part.mean() / 1e6 for part in parts], abs=1e-9)


def test_a_size_of_fewer_round_trips_has_a_line_for_each():
    found = parse_file(
        clear_result(np.array([18, 18, 64]), np.array([5, 7, 9]) * 10**6)
    )
    assert found == ([18, 18, 64], [5.0, 7.0, 9.0])


@pytest.mark.thorough
def test_analyze_finds_the_figures_of_the_folder_in_its_text(rows, tmp_path):
    path = tmp_path / "clear_result.txt"
    path.write_text(
        clear_result(rows["size_bytes"].to_numpy(), rows["rtt_ns"].to_numpy())
    )
    (kind,) = analyze(path).document["samples"]["kinds"].values()
    n = rows.groupby("size_bytes")["rtt_ns"].count()
    assert {one["size_bytes"]: one["messages"] for one in kind["given"]} == dict(n)
    folder = analyze(tmp_path / "run", thorough=True).document["round_trips"]["tcp"]
    # the seed's own method, on means here and on round trips there
    of_text, of_folder = kind["least_squares"], folder["least_squares"]
    for key in ("slope_ns_per_byte", "fixed_delay_seconds"):
        value = of_folder[key]["value"]
        assert of_text[key]["value"] == pytest.approx(value, rel=0.002)
        assert of_text[key]["low"] <= value <= of_text[key]["high"]
