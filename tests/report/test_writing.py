"""Reports as files: every format, bad input, and what is not installed."""

from __future__ import annotations

import argparse
import builtins
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from latprof_analysis.cli import report as command
from latprof_analysis.errors import LatprofError, UsageError
from latprof_analysis.fit.line import fit_round_trips
from latprof_analysis.read.result import Losses, Samples, samples_frame
from latprof_analysis.report.build import build_report
from latprof_analysis.report.html import html_page
from latprof_analysis.report.markdown import _plain
from latprof_analysis.report.parts import Fold, Missing, Part, Report, Text
from latprof_analysis.report.stage_parts import slowest_parts
from latprof_analysis.report.write import write_csv, write_report
from latprof_analysis.study.analysis import Study
from latprof_analysis.study.samples import study_samples
from markdown_it import MarkdownIt
from studies import messages, study, study_of

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def whole() -> Report:
    return build_report(study(600), "run-1")


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    return parser.parse_args(words)


def missing_of(report: Report) -> dict[str, str]:
    """What is not told, and why."""

    def of(parts: Any) -> dict[str, str]:
        found: dict[str, str] = {}
        for part in parts:
            found |= {part.title: part.reason} if isinstance(part, Missing) else {}
            found |= of(part.parts) if isinstance(part, Fold) else {}
        return found

    parts: list[Part] = [part for one in report.sections for part in one.parts]
    return of(parts)


def test_the_answer_comes_first_and_says_where_the_time_goes(whole: Report) -> None:
    told, link = whole.answer
    assert re.match(r"tcp: 9\d\.\d% of the time in transit; ", told)
    assert told.endswith("; 4 of 604 lost (0.7%).")
    # how messages are cut into packets is not known: there is no upper end
    low = re.search(r"carries (\S+) Mbit/s or more, fixed delay ", link)[1]
    assert 98 < float(low) < 100
    page = html_page(whole)
    assert page.index('<section id="answer"') == page.index("<section id=")
    assert page.index("of the time in transit") < page.index("Where the time goes</h2>")


def test_the_sections_stand_in_the_order_in_which_a_reader_asks(whole: Report) -> None:
    assert [section.name for section in whole.sections] == [
        "stages",
        "fit",
        "distribution",
        "time",
        "loss",
        "slowest",
        "setting",
        "notes",
    ]


def test_what_could_not_be_told_stands_behind_what_was_found(whole: Report) -> None:
    def all_of(parts: Any) -> list[Part]:
        return [
            one
            for part in parts
            for one in (all_of(part.parts) if isinstance(part, Fold) else [part])
        ]

    *told, last = whole.sections
    for section in told:
        assert not any(isinstance(part, Missing) for part in all_of(section.parts))
    # sizes of queues are drawn at random: no evidence that they matter
    reason = missing_of(whole)["tcp request: queue at arrival against wait"]
    assert reason.startswith("no evidence that a longer queue")
    assert any(isinstance(part, Missing) for part in all_of(last.parts))


def test_every_figure_has_a_name_of_its_own_a_text_for_the_blind_and_its_data(
    whole: Report,
) -> None:
    figures = whole.figures()
    assert len({figure.name for figure in figures}) == len(figures) > 10
    for figure in figures:
        assert len(figure.alt) > 20
        assert figure.title
        assert figure.caption
        assert len(figure.data)


def test_every_axis_has_a_title_with_what_it_measures(whole: Report) -> None:
    def encodings(spec: Any) -> list[dict[str, Any]]:
        if isinstance(spec, list):
            return [one for part in spec for one in encodings(part)]
        if not isinstance(spec, dict):
            return []
        own = [spec["encoding"]] if "encoding" in spec else []
        return own + encodings(list(spec.values()))

    for figure in whole.figures():
        for spec in figure.charts[-1].scales.values():
            titles = {
                axis: one["title"]
                for encoding in encodings(spec)
                for axis, one in encoding.items()
                if axis in ("x", "y") and one.get("title")
            }
            assert titles, figure.name


def test_one_picture_has_the_first_figure_and_none_that_is_folded(
    whole: Report,
) -> None:
    shown = [figure.name for figure in whole.main_figures()]
    assert shown[:2] == ["picture", "stages-by-size-tcp-request"]
    folded = replace(whole.sections[0], folded=True)
    report = replace(whole, sections=[folded, *whole.sections[1:]])
    assert [figure.name for figure in report.main_figures()] == [shown[0], *shown[2:]]


def test_pdf_and_png_are_files_of_their_kind(whole: Report, tmp_path: Path) -> None:
    pytest.importorskip("typst")
    write_report(whole, tmp_path / "a.pdf", "pdf")
    write_report(whole, tmp_path / "a.png", "png")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF-")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_markdown_links_pictures_and_tables_that_are_there(
    whole: Report, tmp_path: Path
) -> None:
    out = tmp_path / "my report.md"
    written = write_report(whole, out, "md")
    text = out.read_text()
    links = re.findall(r"\]\(<([^>]+)>\)", text)
    assert sorted(links) == sorted(str(p.relative_to(tmp_path)) for p in written)
    assert all((tmp_path / link).stat().st_size > 50 for link in links)
    drawn = [p for p in written if p.suffix == ".svg"]
    assert all(p.read_text().startswith("<svg") for p in drawn)
    assert not any("var(--" in p.read_text() for p in drawn)


def test_markdown_has_no_markup_from_the_files(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script> | [x](javascript:alert(1)) `a`\n# b"
    found = study_of({"notes": [hostile], "warnings": [hostile]}, messages(0))
    write_report(build_report(found, hostile), tmp_path / "a.md", "md")
    text = (tmp_path / "a.md").read_text()
    assert "<script" not in text
    assert "\n# b" not in text
    assert not re.search(r"(?<!\\)\[x", text)


@pytest.mark.parametrize(
    "name", ["- a", "+ a", "1. a", "12) a", "    a", "===", "> a", "# a", "---"]
)
def test_a_name_begins_no_list_or_title_of_markdown(tmp_path: Path, name: str) -> None:
    html = MarkdownIt().render(_plain(name))
    assert re.fullmatch(r"<p>[^<]*</p>\n", html)
    assert unescape(html[3:-5]) == name.strip()


@pytest.mark.parametrize(
    "name", ["http://a.example/", "see https://a.example", "www.a.example", "a@b.c"]
)
def test_a_name_is_no_link_of_markdown(name: str) -> None:
    assert not re.search(r"://|www\.|@", _plain(name))
    html = MarkdownIt().render(_plain(name))
    assert unescape(html[3:-5]) == name


def test_typst_in_names_is_text(tmp_path: Path) -> None:
    hostile = '#panic("x") $x$ *b* @ref <label> \\ #eval("1") `r` ] #] "'
    found = study_of({"notes": [hostile], "warnings": [hostile]}, messages(0))
    write_report(build_report(found, hostile), tmp_path / "a.pdf", "pdf")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


def test_each_figures_table_is_written_as_csv(whole: Report, tmp_path: Path) -> None:
    written = write_csv(whole, tmp_path / "csv")
    names = {figure.name: len(figure.data) for figure in whole.figures()}
    assert {path.stem: len(pd.read_csv(path)) for path in written} == names


@pytest.mark.parametrize("missing", ["vl_convert", "typst"])
def test_what_is_not_installed_is_told_in_one_line(
    whole: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    load = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == missing:
            raise ImportError(name=name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(LatprofError, match=r"is not installed; run `.*report]") as told:
        write_report(whole, tmp_path / "a", "html" if missing != "typst" else "pdf")
    assert "\n" not in str(told.value)


def test_a_study_without_messages_says_why_there_are_no_figures() -> None:
    report = build_report(study_of({}, messages(0)), "nothing")
    assert report.answer == ["These files hold no latencies that a report could show."]
    reasons = missing_of(report)
    assert reasons["Stages"] == "no message was seen from end to end"
    assert reasons["Fit"] == "there are no round trips: the runs had no generator"
    assert html_page(report).count("<figure") == 0


def test_one_message_that_is_alone_makes_a_page() -> None:
    found = study(600)
    found.messages = found.messages.iloc[[0]]
    report = build_report(found, "one")
    assert "slowest" in {figure.name for figure in report.figures()}
    assert "of no kind more than one message" in missing_of(report)["Stages"]


@pytest.mark.thorough
def test_messages_that_are_all_equal_make_a_page() -> None:
    found = study(600)
    one = found.messages.iloc[[0]]
    found.messages = pd.concat([one] * 300, ignore_index=True)
    page = html_page(build_report(found, "equal"))
    assert "fastest 95%" in page


@pytest.mark.parametrize("known", [0, 300])
def test_messages_whose_sender_was_not_seen_have_no_size(known: int) -> None:
    found = study(600)
    found.messages.loc[known:, "size_bytes"] = pd.NA
    report = build_report(found, "receiver only")
    drawn = {one.name: one for one in report.figures()}
    assert ("stages-by-size-tcp-request" in drawn) == (known > 0)
    assert "stages-by-percentile-tcp-request" in drawn
    if known:
        sizes = drawn["stages-by-size-tcp-request"].data
        assert sizes.drop_duplicates("group")["n"].sum() == known
    else:
        reason = missing_of(report)["tcp request, by size"]
        assert reason == "no message tells its size"


@pytest.mark.parametrize("size", [0, 300, 10**6])
def test_a_size_too_rare_for_the_fit_has_no_residual(size: int) -> None:
    found = study(600)
    found.round_trips.loc[found.round_trips.index[:3], "size_bytes"] = size
    figures = {one.name: one for one in build_report(found, "rare").figures()}
    assert size in set(figures["fit-tcp"].data["size_bytes"])
    residuals = figures["residuals-tcp"].data
    assert size not in set(residuals["size_bytes"])
    assert (residuals["residual_ns"].abs() < 0.1 * residuals["line_ns"]).all()


def test_a_slowest_message_of_which_nothing_more_is_told() -> None:
    row = {"protocol": "tcp", "kind": "request", "end_to_end_ns": 5000}
    row |= {"sequence": None, "size_bytes": None}
    text, missing = slowest_parts(row)
    assert text == Text(
        "Slowest message, 5.00 µs: no part of its time is known; tcp request of a "
        "size that is not told, unknown to unknown."
    )
    assert isinstance(missing, Missing)


def test_one_size_only_has_no_line_and_the_reason_stands_there() -> None:
    found = study(600)
    found.round_trips["size_bytes"] = 64
    reason = "a line needs 4 sizes with 10 round trips each, got 1"
    trips = found.round_trips
    sizes, rtt = (trips[name].to_numpy("float64") for name in ("size_bytes", "rtt_ns"))
    fit = fit_round_trips(
        sizes, rtt, np.arange(len(trips)), reply_mode="echo"
    ).as_dict()
    found.document["round_trips"]["tcp"]["fit"] = fit
    report = build_report(found, "one size")
    assert missing_of(report)["tcp: figures of the fit"] == reason
    (figure,) = [one for one in report.figures() if one.name == "fit-tcp"]
    assert reason in figure.title


def test_samples_with_nan_negative_and_lost_show_what_is_left() -> None:
    values = np.array([np.nan, -5.0, np.inf, *np.arange(1e3, 6e3, 100)])
    lost = np.isnan(values)
    frame = samples_frame(
        len(values), "a.csv", kind="ping", size_bytes=64, latency_ns=values, lost=lost
    )
    samples = Samples(frame, [], 0, "csv", {"latency": "round trip time"})
    found = Study({"samples": {"n": 50, "lost": 1, "kinds": {}}}, samples=samples)
    report = build_report(found, "a.csv")
    (tail,) = [one for one in report.figures() if one.name == "ccdf-samples"]
    assert set(tail.data["n"]) == {50}
    assert missing_of(report)["Stages"].endswith("no stamps of stages")


@pytest.mark.parametrize(
    "name", ["sockperf_full_log.csv", "irtt.json", "iperf3_udp.json", "tmsn_stress.txt"]
)
def test_files_of_other_tools_become_a_report(name: str, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert command.run(options(str(DATA / name), "--out", str(out))) == 0
    assert "no stamps of stages" in out.read_text()


def test_the_command_writes_where_it_was_told_and_prints_one_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, tables = tmp_path / "new" / "r.html", tmp_path / "csv"
    words = str(DATA / "run"), "--out", str(out), "--csv", str(tables), "--json"
    assert command.run(options(*words)) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["report"][0] == str(out)
    assert {Path(one) for one in told["report"][1:]} == set(tables.iterdir())
    assert "tcp request" in told["study"]["kinds"]


def test_a_name_of_no_known_format_is_refused() -> None:
    with pytest.raises(UsageError, match=r"must end in \.html, \.md, \.pdf, \.png"):
        command.run(options(str(DATA / "run"), "--out", "report.docx"))


def test_a_folder_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "report.html")
    with pytest.raises(LatprofError, match="cannot write") as told:
        command.run(options(str(DATA / "run"), "--out", out))
    assert "\n" not in str(told.value)


@pytest.mark.thorough
def test_the_same_study_makes_the_same_page() -> None:
    first, second = (html_page(build_report(study(300), "a")) for _ in range(2))
    assert first == second


def test_what_is_read_as_samples_has_its_own_sections() -> None:
    values = np.random.default_rng(1).exponential(1e6, 300)
    sizes = np.resize([64, 1000, 8000], 300)
    frame = samples_frame(300, "a", kind="GET", size_bytes=sizes, latency_ns=values)
    samples = Samples(frame, [], 0, "csv", {"latency": "x"})

    def names() -> list[str]:
        report = build_report(study_samples(samples, None), "a")
        return [section.name for section in report.sections]

    assert names() == ["sizes", "fit", "distribution", "time", "notes"]
    samples.losses = {"GET": Losses(300, 0)}
    assert names() == ["sizes", "fit", "distribution", "time", "loss", "notes"]
