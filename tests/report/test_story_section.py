"""Why messages were slow, on the page: names are text, boxes are as wide as counted."""

from __future__ import annotations

import argparse
import json
from html import unescape
from typing import Any

import numpy as np
import pytest
from latprof_analysis import analyze
from latprof_analysis.cli import story as command
from latprof_analysis.read.stories import stories_of_runs
from latprof_analysis.report.build import build_report
from latprof_analysis.report.html import html_page
from latprof_analysis.report.parts import Figure, Fold, Section, Table
from latprof_analysis.report.story_parts import flame_rows, story_sections
from latprof_analysis.report.write import write_report
from made_stories import MS, SCRIPT, document, story
from studies import study

HEAD = "protocol,kind,sequence,size_bytes,send_ns,read_ns\n"


def figures_of(section: Section) -> dict[str, Figure]:
    def of(parts: Any) -> dict[str, Figure]:
        found: dict[str, Figure] = {}
        for one in parts:
            found |= {one.name: one} if isinstance(one, Figure) else {}
            found |= of(one.parts) if isinstance(one, Fold) else {}
        return found

    return of(section.parts)


def test_without_stories_there_is_no_section() -> None:
    assert story_sections(None) == []
    assert "Why messages were slow" not in html_page(build_report(study(300), "run"))


def test_what_waited_together_is_told_once() -> None:
    waits = [story(1000 * MS, 90 * MS), story(1000 * MS + 10, 80 * MS)]
    later = [story(1200 * MS, 70 * MS), story(1000 * MS, 60 * MS, reader_pid=3)]
    (section,) = story_sections(document(*waits, *later))
    names = {f"story-{n}" for n in (1, 2, 3)}
    assert names == {n for n in figures_of(section) if n.count("-") == 1}
    texts = [one.text for one in section.parts if hasattr(one, "text")]
    assert any("1 other message waited there with it" in text for text in texts)
    assert texts[0] == "4 messages took 10.0 ms or longer; 3 of 4 stories shown."


def test_the_time_line_has_stages_and_threads_where_they_were() -> None:
    (section,) = story_sections(document(story(1000 * MS, 80 * MS)))
    rows = figures_of(section)["story-1"].data.set_index(["lane", "what"])
    assert rows.loc[("stages", "send_queue"), "to_ns"] == 3000
    spans = rows.loc["reader's thread"]
    assert spans.loc["asleep", ["from_ns", "to_ns"]].tolist() == [
        3000,
        3000 + 20 * MS,
    ]
    assert spans.loc["on a CPU", "to_ns"] == 3000 + 80 * MS
    (causes,) = (one for one in section.parts if isinstance(one, Table))
    shares = {str(row[0]).partition(": ")[2][:6]: row[1] for row in causes.rows}
    assert (shares["busy i"], shares["asleep"]) == ("75.0%", "25.0%")


def test_what_held_a_socket_has_a_lane_of_its_own() -> None:
    one = story(1000 * MS, 80 * MS)
    span = {"from_ns": 500, "time_ns": 2000, "kind": "held", "what": "Nagle"}
    one["stages"]["send_queue"]["timeline"] = [{**span, "cpu": None}]
    (section,) = story_sections(document(one))
    rows = figures_of(section)["story-1"].data.set_index("lane")
    held = rows.loc["sender's socket"]
    assert held[["what", "detail", "from_ns", "to_ns"]].tolist() == [
        *("held in its socket", "Nagle", 500, 2500)
    ]


@pytest.mark.parametrize(("of", "unit"), [("samples", "samples"), ("time_ns", "ns")])
def test_boxes_are_as_wide_as_the_stacks_that_they_are_in(of: str, unit: str) -> None:
    """Against a count of prefixes, function by function."""
    rng = np.random.default_rng(4)
    stacks = [
        {
            "frames": [*"ab"[: rng.integers(1, 3)], *rng.choice([*"abc"], depth)],
            of: int(rng.integers(1, 5)),
        }
        for depth in rng.integers(0, 6, 60)
    ]
    whole = sum(one[of] for one in stacks)
    prefixes: dict[tuple[str, ...], int] = {}
    for one in stacks:
        frames = [str(frame) for frame in one["frames"]]
        for depth in range(len(frames)):
            key = tuple(frames[: depth + 1])
            prefixes[key] = prefixes.get(key, 0) + one[of]
    boxes = flame_rows(stacks)
    assert len(boxes) == len(prefixes)
    wide = (boxes[f"to_{unit}"] - boxes[f"from_{unit}"]).tolist()
    told = sorted(zip(boxes["depth"], boxes["name"], wide, strict=True))
    assert told == sorted((len(k) - 1, k[-1], n) for k, n in prefixes.items())
    assert boxes[f"to_{unit}"].max() == whole
    for _, level in boxes.groupby("depth"):  # none lies over another
        ends = level[f"to_{unit}"].to_numpy()[:-1]
        assert (level[f"from_{unit}"].to_numpy()[1:] >= ends).all()


@pytest.mark.parametrize("stack", [{"frames": [], "samples": 3}, {"frames": ["a"]}])
def test_of_stacks_that_tell_nothing_there_is_no_figure(stack: Any) -> None:
    one = story(1000 * MS, 80 * MS)
    for part in one["stages"]["receive_queue"]["parts"]:
        part["stacks"] = [stack]
    figures = [
        part.name
        for section in story_sections(document(one))
        for part in section.parts
        if isinstance(part, Figure)
    ]
    assert figures == ["story-1"]


def test_deep_stacks_keep_their_innermost_functions() -> None:
    frames = [f"f{i}" for i in range(200)]
    boxes = flame_rows([{"frames": frames, "samples": 1}])
    assert len(boxes) == 60
    assert boxes["name"].iloc[[0, -1]].tolist() == ["...", "f199"]


@pytest.mark.parametrize("chosen", ["html", "md"])
def test_hostile_names_are_text(tmp_path: Any, chosen: str) -> None:
    found = study(300)
    found.stories = document(story(1000 * MS, 80 * MS, reader_comm=SCRIPT))
    out = tmp_path / f"report.{chosen}"
    files = [out, *write_report(build_report(found, "run"), out, chosen)]
    for file in files:
        text = file.read_text()
        # a table's cell is what it is, and no page
        assert file.suffix == ".csv" or "<script>alert" not in text, file
        assert not {"\x1b", "\u202e"} & set(text)
        assert "\n=cmd" not in text and ",=cmd" not in text
    assert SCRIPT in unescape(unescape(out.read_text())).replace("\\", "")


def test_hostile_names_do_nothing_to_a_terminal(tmp_path: Any, capsys: Any) -> None:
    told = document(story(1000 * MS, 80 * MS, reader_comm="\x1b]0;owned\x07"))
    told["stories"][0]["stages"]["receive_queue"]["parts"][0]["what"] = "\x1b[2J\u202e"
    (tmp_path / "stories.json").write_text(json.dumps(told))
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    assert command.run(parser.parse_args([str(tmp_path)])) == 0
    shown = capsys.readouterr().out
    assert "owned" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


def test_broken_stories_are_a_note_and_not_the_end(tmp_path: Any) -> None:
    notes: list[str] = []
    for name, text in (("a", "{"), ("b", json.dumps(document()))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "stories.json").write_text(text)
    told = stories_of_runs([tmp_path / name for name in "abc"], notes)
    assert told is not None and told["slow_messages"] == 0
    assert len(notes) == 1 and notes[0].startswith("stories are left out: ")


def test_stories_are_read_for_the_report_alone(tmp_path: Any) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "messages.csv").write_text(HEAD + "tcp,message,1,64,1000,2000\n")
    (run / "stories.json").write_text(json.dumps(document(story(1000 * MS, 80 * MS))))
    assert analyze(run).stories is None
    told = analyze(run, stories=True).stories
    assert told is not None and told["slow_messages"] == 1
