"""Messages of any sizes: a table of octaves, and each size once for the fit."""

from __future__ import annotations

import numpy as np
import pytest
from latprof_analysis.report.build import build_report
from latprof_analysis.study.analysis import analyze

NS_PER_BYTE = 80  # at 100 Mbit/s
DELAY_NS = 2e6


def sizes_of(n: int, seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.clip(rng.lognormal(8, 1.5, n), 64, 1e6).round()


@pytest.fixture
def studied(tmp_path):
    """Study latencies of these sizes."""

    def study(sizes, times, reply_mode):
        path = tmp_path / "free.csv"
        rows = zip(sizes.tolist(), times.tolist(), strict=True)
        path.write_text("size,ns\n" + "".join(f"{s:.0f},{t:.0f}\n" for s, t in rows))
        found = analyze(
            path,
            latency_column="ns",
            unit="ns",
            size_column="size",
            reply_mode=reply_mode,
        )
        (kind,) = found.document["samples"]["kinds"].values()
        return found, kind

    return study


@pytest.mark.parametrize(("reply_mode", "factor"), [("echo", 2), (0, 1)])
def test_700_sizes_are_a_few_octaves_and_one_line(studied, reply_mode, factor):
    sizes = sizes_of(700)
    assert np.unique(sizes).size > 600
    queue = np.random.default_rng(4).exponential(2e4, 700)
    found, kind = studied(
        sizes, DELAY_NS + factor * NS_PER_BYTE * sizes + queue, reply_mode
    )
    octaves = np.unique(np.floor(np.log2(sizes)))
    assert len(kind["sizes"]) == len(octaves) < 20
    assert sum(figures["n"] for figures in kind["sizes"].values()) == 700
    fit = kind["fit"]
    _, counts = np.unique(np.floor(2 * np.log2(sizes)), return_counts=True)
    n = counts[counts >= 25].sum()
    assert (fit["model"], fit["factor"], fit["n"]) == ("line", factor, n)
    # the tenth of all messages that waits least waits 2.1 us of 20
    assert fit["fixed_delay_seconds"]["value"] == pytest.approx(2.002e-3, abs=2e-6)
    rate = fit["bandwidth_bits_per_second"]["value"]
    assert rate == pytest.approx(8e9 / NS_PER_BYTE, rel=0.005)
    page = build_report(found, "free")
    (section,) = (each for each in page.sections if each.name == "sizes")
    assert len(section.parts[0].rows) == len(octaves)


def test_what_does_not_grow_along_a_line_has_no_bandwidth(studied):
    sizes = sizes_of(700)
    noise = np.random.default_rng(4).exponential(2e4, 700)
    bent = DELAY_NS + np.where(sizes < 4000, 10 * sizes, 400 * sizes - 1.56e6)
    _, kind = studied(sizes, bent + noise, "echo")
    assert kind["fit"]["model"] != "line"
    assert kind["fit"]["bandwidth_bits_per_second"] is None


def test_many_sizes_that_repeat_are_fitted_as_sizes(studied):
    sizes = np.tile(np.arange(100, 8100, 100), 40)  # 80 of them
    noise = np.random.default_rng(4).exponential(2e4, sizes.size)
    _, kind = studied(sizes, DELAY_NS + 2 * NS_PER_BYTE * sizes + noise, "echo")
    assert kind["fit"]["rounds"] == 40
    assert len(kind["sizes"]) == 7  # 64 to 127, ..., 4096 to 8191


def test_too_few_messages_of_a_class_are_told(studied):
    sizes = sizes_of(100)
    _, kind = studied(sizes, DELAY_NS + 160 * sizes, "echo")
    assert "classes of size, two to an octave" in kind["fit"]["reason"]
