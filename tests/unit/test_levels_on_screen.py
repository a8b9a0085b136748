"""A change of level that was found is said, with levels that stand in the data."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from latprof_analysis.cli import OFFLINE, VERSION
from latprof_analysis.cli.program import run_program

MS = np.random.default_rng(3).lognormal(3, 0.6, 5000) * np.repeat([1, 1.5], 2500)


@pytest.fixture
def step(tmp_path, capsys):
    """Analyze latencies whose level is half as much more from 2,501 on."""
    path = tmp_path / "step.csv"
    path.write_text("\n".join(["rtt", *map("{:.4f}".format, MS)]) + "\n")

    def analyze(*words):
        given = ["analyze", str(path), "--latency-column=rtt", "--unit=ms", *words]
        assert run_program(OFFLINE, VERSION, given) == 0
        return capsys.readouterr().out

    return analyze


def test_a_change_by_the_order_alone_stands_on_the_screen_before_what_it_does(step):
    shown = step("--all")
    found = re.search(
        r"from value ([\d,]+) \[([\d,]+), ([\d,]+)\] on it took (\S+) ms more "
        r"\(\S+ of the median\), (\S+) ms to (\S+) ms",
        shown,
    )
    place, low, high = (int(text.replace(",", "")) for text in found.groups()[:3])
    assert low <= 2501 <= high
    assert abs(place - 2501) < 50
    medians = [np.median(MS[:2500]), np.median(MS[2500:])]
    more, *levels = map(float, found.groups()[3:])
    assert levels == pytest.approx(medians, rel=0.01)
    assert more == pytest.approx(medians[1] - medians[0], rel=0.03)
    if "independent values" in shown:
        assert found.start() < shown.index("independent values")


def test_levels_in_json_are_absolute_in_ns(step):
    (kind,) = json.loads(step("--json"))["samples"]["kinds"].values()
    found = kind["time"]["level_changes"]
    medians = [1e6 * np.median(MS[:2500]), 1e6 * np.median(MS[2500:])]
    levels = [level["value_ns"] for level in found["levels"]]
    assert levels == pytest.approx(medians, rel=0.01)
    assert all(
        one["low_ns"] < one["value_ns"] < one["high_ns"] for one in found["levels"]
    )
    (change,) = found["changes"]
    assert [change[side]["value_ns"] for side in ("before", "after")] == levels
    assert found["usual_ns"] == pytest.approx(1e6 * np.median(MS), abs=100)
