"""The page in a browser: Chromium, driven through its DevTools protocol."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from latprof_analysis.read.result import Samples, samples_frame
from latprof_analysis.report.build import build_report
from latprof_analysis.report.html import html_page
from latprof_analysis.report.parts import Chart, Figure, Fold, Report, Section
from latprof_analysis.report.vega import colour, named, top_legend
from latprof_analysis.study import findings
from latprof_analysis.study.analysis import Study
from latprof_analysis.study.samples import study_samples
from made_stories import HOSTILE, MS, SCRIPT, document, story
from studies import study

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
_WHY = (
    "needs Chromium (apt install chromium; Ubuntu has a snap only, which cannot "
    "read the page) and pip install playwright"
)
MOST_BYTES = 1_500_000

if os.environ.get("LATPROF_BROWSER_TESTS") == "1":
    assert CHROMIUM, _WHY  # may not be skipped
    from playwright import sync_api
else:
    sync_api = pytest.importorskip("playwright.sync_api", reason=_WHY)
    if CHROMIUM is None:
        pytest.skip(_WHY, allow_module_level=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(study(), tmp_path_factory.mktemp("report"))


def written(found: Study, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(html_page(build_report(found, "run-1")), encoding="utf-8")
    return path


class Watched:
    """A page, with all that it said and asked for."""

    def __init__(self, browser: Any, file: Path, **context: Any) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        size = context.pop("viewport", {"width": 1280, "height": 900})
        self.context = browser.new_context(viewport=size, **context)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append("a script ran"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())
        self.page.evaluate("latprofDrawAll()")

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def domain(self, figure: str, axis: str = "x") -> list[float]:
        """What a figure's first chart shows of an axis."""
        told: list[float] = self.page.evaluate(
            "([id, axis]) => latprofViews.get(document.querySelector(`#${id} .view`))"
            ".scale(axis).domain()",
            [figure, axis],
        )
        return told


@pytest.mark.parametrize("n", [3000, 140])  # of few there are not all intervals
def test_every_figure_is_drawn_and_nothing_is_asked_of_a_network(
    browser: Any, tmp_path: Path, n: int
) -> None:
    page_file = written(study(n), tmp_path)
    with Watched(browser, page_file) as watched:
        marks = watched.page.evaluate(
            "[...document.querySelectorAll('.view')].map("
            "(view) => view.querySelectorAll('svg .mark-group, svg path').length)"
        )
        assert len(marks) > 15
        assert min(marks) > 3
        assert watched.said == []
        assert watched.asked == [page_file.as_uri()]
    assert page_file.stat().st_size <= MOST_BYTES


def test_buttons_zoom_in_move_and_show_all_again(browser: Any, page_file: Path) -> None:
    with Watched(browser, page_file) as watched:
        press = watched.page.locator("#over-time")
        first, last = watched.domain("over-time")
        press.get_by_role("button", name="Zoom in").click()
        from_s, to_s = watched.domain("over-time")
        assert to_s - from_s == pytest.approx((last - first) / 2, rel=1e-6)
        press.get_by_role("button", name="Later").click()
        assert watched.domain("over-time")[0] > from_s
        press.get_by_role("button", name="Show all").click()
        assert watched.domain("over-time") == [first, last]


def test_levels_and_losses_are_drawn_and_told_also_where_time_is_zoomed(
    browser: Any, tmp_path: Path
) -> None:
    found, at = study(900), np.arange(900)
    steps = np.where(at >= 600, 2e6, 0) + np.random.default_rng(5).random(900)
    when = findings.When(np.zeros(900, int), ["run-1"], at * 5e-3)
    time = findings.over_time(steps, when)
    found.document["messages"]["tcp request"]["time"] = time
    lost = np.random.default_rng(1).random(2000) < 0.1
    found.document["round_trips"]["tcp"]["loss"] = findings.losses(lost)
    with Watched(browser, written(found, tmp_path)) as watched:
        assert watched.page.locator("#loss-runs-tcp-round-trips svg").count() == 2
        change = watched.page.locator("#over-time [aria-label*='level changed at']")
        change.last.hover(force=True)
        told = watched.page.locator("#vg-tooltip-element").inner_text()
        assert "3 s" in told.replace("3.0", "3")
        for button in ("Zoom in", "Zoom in", "Later", "Later", "Later"):
            watched.page.get_by_role("button", name=button).click()
        assert watched.domain("over-time")[0] > 3
        assert watched.said == []


def test_dragging_across_a_figure_zooms_all_charts_to_what_was_dragged_over(
    browser: Any, page_file: Path
) -> None:
    with Watched(browser, page_file) as watched:
        view = watched.page.locator("#over-time .view").first
        view.scroll_into_view_if_needed()
        first, last = watched.domain("over-time")
        box = view.bounding_box()
        middle = box["y"] + box["height"] / 2
        watched.page.mouse.move(box["x"] + box["width"] * 0.4, middle)
        watched.page.mouse.down()
        watched.page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=4)
        watched.page.mouse.up()
        shown = watched.page.evaluate(
            "[...document.querySelectorAll('#over-time .view')]"
            ".map((view) => latprofViews.get(view).scale('x').domain())"
        )
        (from_s, to_s), *others = shown
        # a fifth of the view, of which the axis takes up to a tenth
        assert 0.2 <= (to_s - from_s) / (last - first) <= 0.25
        for other in others:
            assert other == pytest.approx([from_s, to_s])


def test_the_switch_changes_the_scale_of_both_axes(
    browser: Any, page_file: Path
) -> None:
    kind = (
        "(id) => { const view = latprofViews.get("
        "document.querySelector(`#${id} .view`));"
        "return ['x', 'y'].map((axis) => view.scale(axis).type); }"
    )
    with Watched(browser, page_file) as watched:
        seen = {}
        for scale in ("linear", "semi-log", "log-log"):
            watched.page.locator(f"#pieces-tcp-request input[value={scale}]").check(
                force=True
            )
            watched.page.wait_for_selector(f"#pieces-tcp-request[data-drawn={scale}]")
            seen[scale] = watched.page.evaluate(kind, "pieces-tcp-request")
        assert seen == {
            "linear": ["linear", "linear"],
            "semi-log": ["linear", "log"],
            "log-log": ["log", "log"],
        }
        assert watched.said == []


def test_pointing_at_a_mark_tells_its_value_with_its_unit(
    browser: Any, page_file: Path
) -> None:
    with Watched(browser, page_file) as watched:
        bars = "#stages-by-size-tcp-request [aria-roledescription=bar]"
        watched.page.locator(bars).nth(3).hover(force=True)
        told = watched.page.locator("#vg-tooltip-element").inner_text()
        assert "share" in told
        assert any(unit in told for unit in (" ns", " µs", " ms"))


def test_a_click_saves_a_figures_table_as_csv(browser: Any, page_file: Path) -> None:
    with Watched(browser, page_file) as watched:
        with watched.page.expect_download() as download:
            watched.page.locator("#slowest .csv").click()
        saved = Path(download.value.path()).read_text()
        assert saved.splitlines()[0] == "stage,time_ns,to_ns,from_ns"
        assert download.value.suggested_filename == "slowest.csv"


@pytest.mark.parametrize("width", [320, 375, 768])
def test_nothing_stands_out_at_the_right_of_a_narrow_screen(
    browser: Any, page_file: Path, width: int
) -> None:
    with Watched(
        browser, page_file, viewport={"width": width, "height": 800}
    ) as watched:
        room = watched.page.evaluate("document.documentElement.scrollWidth")
        assert room == width


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_first_screen_has_the_whole_picture_and_a_phone_at_most_8000_pixels(
    browser: Any, page_file: Path, width: int, height: int
) -> None:
    size = {"width": width, "height": height}
    with Watched(browser, page_file, viewport=size) as watched:
        watched.page.evaluate(
            "document.querySelectorAll('details').forEach((one) => one.open = false)"
        )
        box = watched.page.locator("#picture svg").bounding_box()
        assert box["y"] + box["height"] < height
        assert box["x"] + box["width"] <= width
        tall = watched.page.evaluate("document.documentElement.scrollHeight")
        assert tall <= 8000


def test_a_table_wider_than_a_phone_says_so(browser: Any, page_file: Path) -> None:
    for width, seen in ((390, True), (1280, False)):
        size = {"width": width, "height": 800}
        with Watched(browser, page_file, viewport=size) as watched:
            hint = watched.page.locator("#stages .hint").first
            hint.wait_for(state="visible" if seen else "hidden")


def test_no_text_of_an_open_figure_is_clipped_on_a_phone(
    browser: Any, page_file: Path
) -> None:
    outside = """() => [...document.querySelectorAll('.view')]
        .filter((view) => !view.closest('.fold'))
        .flatMap((view) => {
            const room = view.getBoundingClientRect();
            return [...view.querySelectorAll('svg text')].filter((text) => {
                const box = text.getBoundingClientRect();
                const seen = box.width && text.getAttribute('opacity') !== '0';
                return seen && text.textContent
                    && (box.right > room.right + 1 || box.left < room.left - 1);
            }).map((text) => text.textContent);
        })"""
    size = {"width": 390, "height": 844}
    with Watched(browser, page_file, viewport=size) as watched:
        assert watched.page.evaluate(outside) == []


def test_dark_where_the_system_asks_for_it_and_light_at_a_click(
    browser: Any, page_file: Path
) -> None:
    def paper(watched: Watched) -> str:
        colour = "getComputedStyle(document.body).backgroundColor"
        return str(watched.page.evaluate(colour))

    def label(watched: Watched) -> str:
        text = "document.querySelector('#over-time svg text')"
        return str(watched.page.evaluate(f"getComputedStyle({text}).fill"))

    with Watched(browser, page_file, color_scheme="dark") as watched:
        dark = paper(watched), label(watched)
        watched.page.get_by_role("button", name="Light").click()
        light = paper(watched), label(watched)
    with Watched(browser, page_file, color_scheme="light") as watched:
        assert (paper(watched), label(watched)) == light
    assert dark[0] == "rgb(19, 21, 24)"
    assert light[0] == "rgb(247, 247, 245)"
    assert dark[1] != light[1]


def test_on_paper_it_is_light_and_what_is_folded_is_open(
    browser: Any, page_file: Path
) -> None:
    with Watched(browser, page_file, color_scheme="dark") as watched:
        watched.page.emulate_media(media="print")
        colour = "getComputedStyle(document.body).getPropertyValue('--ink')"
        assert watched.page.evaluate(colour) == "#1b1e23"
        closed = "document.querySelectorAll('details.fold:not([open])').length"
        assert watched.page.evaluate(closed) == 0
        printed = watched.page.pdf()
        assert printed.startswith(b"%PDF-")
        assert len(printed) > 50_000  # figures are in it


def test_markup_and_scripts_in_the_files_are_text(browser: Any, tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    found = study(400, warnings=[hostile], notes=[hostile], kernel=hostile)
    found.messages["kind"] = found.messages["kind"].cat.rename_categories(
        {"request": hostile, "reply": "=HYPERLINK(1)"}
    )
    found.messages["run"] = pd.Categorical([hostile] * len(found.messages))
    found.document["kinds"] = {}
    with Watched(browser, written(found, tmp_path)) as watched:
        assert watched.page.locator("ul.warnings").inner_text() == hostile
        assert watched.page.locator("img").count() == 0
        assert watched.said == []
        assert len(watched.asked) == 1


def test_names_of_groups_are_text_in_legends_and_tooltips(
    browser: Any, tmp_path: Path
) -> None:
    names = ["<img src=x>", "@SUM(1)"]
    values = np.random.default_rng(3).exponential(1e6, 400)
    kinds = np.resize(names, 400)
    frame = samples_frame(400, "a.csv", kind=kinds, size_bytes=64, latency_ns=values)
    samples = Samples(frame, [], 0, "csv", {"latency": names[0]})
    found = study_samples(samples, None)
    with Watched(browser, written(found, tmp_path)) as watched:
        legend = watched.page.locator("#ccdf-samples svg .role-legend-label text")
        assert sorted(legend.all_text_contents()) == ["'@SUM(1)", names[0]]
        points = watched.page.locator("#ccdf-samples .mark-symbol [aria-label]")
        points.nth(10).hover(force=True)
        told = watched.page.locator("#vg-tooltip-element").inner_text()
        assert names[0] in told or names[1] in told
        assert watched.page.locator("img").count() == 0
        assert watched.said == []
        assert len(watched.asked) == 1


def test_the_page_runs_no_script_but_its_own(browser: Any, page_file: Path) -> None:
    with Watched(browser, page_file) as watched:
        watched.page.evaluate(
            "const s = document.createElement('script');"
            "s.textContent = 'window.foreign = 1'; document.body.append(s)"
        )
        assert watched.page.evaluate("window.foreign") is None
        assert any("Content Security Policy" in text for text in watched.said)


def test_stories_are_drawn_also_with_names_that_would_be_markup(
    browser: Any, tmp_path: Path
) -> None:
    found = study(300)
    found.stories = document(
        story(1000 * MS, 80 * MS, reader_comm=SCRIPT), story(1200 * MS, 70 * MS)
    )
    with Watched(browser, written(found, tmp_path)) as watched:
        page = watched.page
        page.locator("#stories details.fold").first.evaluate("one => one.open = true")
        graph = page.locator("#story-1-receive-queue-busy svg")
        # a box for main, and two for each function: itself, and what it called
        boxes = graph.locator(".mark-rect.role-mark path")
        assert boxes.count() == 1 + 2 * len(HOSTILE)
        names = graph.locator(".mark-text.role-mark text").all_text_contents()
        assert 'std::map<a, "b">' in names
        assert any(name.startswith("</script") for name in names)
        assert page.locator("#story-1 .mark-rect.role-mark path").count() == 4
        assert watched.said == []


def test_a_legend_on_a_phone_has_each_name_with_its_colour(
    browser: Any, tmp_path: Path
) -> None:
    names = [f"not yet read by client, waiting for CPU {i}" for i in range(3)]
    scale = {"domain": names, "range": [colour("mark")] * len(names)}
    spec = {
        "mark": "bar",
        "encoding": {
            "x": {"field": "ns", "type": "quantitative"},
            "color": named("what", scale, legend=top_legend(names)),
        },
    }
    figure = Figure(
        name="long-names",
        title="Long names",
        caption="",
        alt="Bars.",
        data=pd.DataFrame({"what": names, "ns": [1, 2, 3]}),
        charts=[Chart({"linear": spec})],
    )
    parts = [Fold("outer", [Fold("inner", [figure])])]
    report = Report("run", "", [], [], [Section("one", "One", parts)], [])
    path = tmp_path / "report.html"
    path.write_text(html_page(report), encoding="utf-8")
    size = {"width": 390, "height": 844}
    with Watched(browser, path, viewport=size) as watched:
        # what is at a click is drawn when it is seen
        watched.page.evaluate(
            "document.querySelectorAll('details').forEach((one) => (one.open = true))"
        )
        watched.page.locator("#long-names svg").scroll_into_view_if_needed()
        places = watched.page.wait_for_function(
            """() => {
              const svg = document.querySelector("#long-names svg");
              const room = svg.getBoundingClientRect();
              const marks = svg.querySelectorAll(
                ".role-legend-label text, .role-legend-symbol path");
              const at = [...marks].map((one) => {
                const { left, right } = one.getBoundingClientRect();
                return [left - room.left, room.right - right];
              });
              return at.flat().every((gap) => gap >= -1) && at;
            }"""
        ).json_value()
    assert len(places) == 2 * len(names)
