"""What a notebook shows of what was read."""

from __future__ import annotations

import ast
import contextlib
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import latprof_analysis as lp
import numpy as np
import pytest
from latprof_analysis.notebook import distributions, figures

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "analysis" / "docs" / "notebook.ipynb"
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "=1</svg><script>alert(1)</script>\x1b[31m\u202e"


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [f"{name}={value}" for name, value in attrs]


def lines_of(svg: str) -> list[np.ndarray]:
    """Return the points of each distribution, in pixels."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}polyline")
    return [
        np.array([point.split(",") for point in one.attrib["points"].split()], float)
        for one in found
    ]


def test_the_picture_has_the_shares_where_they_are():
    times = 10.0 ** np.linspace(3, 6, 1001)  # evenly on the axis
    (line,) = lines_of(distributions({"a": times}).svg)
    x, y = line.T
    assert (np.diff(x) >= 0).all() and (np.diff(y) <= 0).all()
    middle = np.argmin(np.abs(x - (x[0] + x[-1]) / 2))
    # half of what is evenly spread is below the middle: to a pixel
    assert abs(y[middle] - (y[0] + y[-1]) / 2) < 1.5


def test_times_of_0_are_among_the_shares():
    times = np.r_[np.zeros(50), np.full(50, 1e6)]
    (line,) = lines_of(distributions({"a": times, "b": np.full(1, 1e3)}).svg)[:1]
    x, y = line.T
    at_0 = y[x == x.min()]
    assert np.ptp(at_0) == pytest.approx(0.5 * np.ptp(y), abs=2.5)


def test_each_kind_has_a_line_up_to_six():
    of = {f"kind {i}": np.arange(1.0, 100 + i) for i in range(8)}
    svg = distributions(of).svg
    assert len(lines_of(svg)) == 6
    assert "and 2 kinds more" in svg


@pytest.mark.parametrize("times", [np.array([0.0]), np.array([5.0]), np.full(9, 7.0)])
def test_few_or_equal_values_have_a_picture_or_none(times):
    picture = distributions({"a": times})
    assert (picture is None) == (times.max() == 0)
    assert distributions({}) is None
    if picture:
        assert np.isfinite(lines_of(picture.svg)[0]).all()


def test_a_percentile_that_has_no_bound_is_left_out():
    (_, few), (_, many) = (
        figures({"a": np.arange(1.0, n + 1) * 1e6}, {}) for n in (50, 2000)
    )
    assert few == ["a", "50", "", "25.0 ms", "", "50.0 ms"]
    assert many == ["a", "2,000", "", "1.00 s", "1.98 s", "2.00 s"]


def test_names_of_others_are_text(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("size,ms\n" + "64,2\n" * 9)
    samples = lp.read_samples(path, latency_column="ms", unit="ms")
    samples.frame["kind"] = HOSTILE
    shown = Tags(samples._repr_html_())
    assert set(shown.tags) <= {
        *("div", "p", "table", "tr", "th", "td", "svg", "title", "text", "line"),
        "polyline",
    }
    assert not [one for one in shown.attributes if "http" in one and "xmlns" not in one]
    assert "\x1b" not in samples._repr_html_()


def cells() -> list[str]:
    found = json.loads(NOTEBOOK.read_text())["cells"]
    assert not [cell for cell in found if cell.get("outputs")]  # made, not kept
    return ["".join(c["source"]) for c in found if c["cell_type"] == "code"]


def test_the_notebook_runs_and_shows_tables_and_pictures():
    names: dict[str, Any] = {}
    shown = []
    with contextlib.chdir(ROOT):  # its paths begin there
        for source in cells():
            *before, last = ast.parse(source).body
            exec(compile(ast.Module(before, []), "cell", "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
                shown.append(value)
            else:
                exec(compile(ast.Module([last], []), "cell", "exec"), names)
    samples, runs, study, picture, frame = shown
    for one in (samples, runs, study):
        html = one._repr_html_()
        assert Tags(html).tags.count("table") == Tags(html).tags.count("svg") == 1
        assert len(html) < 40_000
    in_figures = [kind for _, kind in frame.index if kind != "warmup"]
    assert len(lines_of(picture._repr_svg_())) == len(in_figures)
    for protocol, kind in frame.index:
        assert (f"{protocol} {kind}" in study._repr_html_()) == (kind != "warmup")
