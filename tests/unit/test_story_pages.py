"""What the agent shows of its stories: on its page, in exemplars and metrics."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from latprof_agent.monitor.totals import Exemplar, Quantity, Totals
from latprof_agent.sinks.metrics.families import DEFAULT_EDGES, Histograms, families
from latprof_agent.sinks.story_folder import StoryFolder, story_id
from latprof_agent.web.passwords import PasswordHash
from latprof_analysis.calling_user import find_user
from made_monitor import PART, STORY
from made_totals import busy_host
from served import served

UNIX_US = 1_795_000_000_000_000
HOSTILE = "<script>alert(1)</script>\x1b[2J"


@pytest.fixture
def folder(tmp_path):
    found = StoryFolder(tmp_path, find_user(str(os.geteuid())))
    found.begin()
    for i in range(3):
        story = STORY | {"id": story_id(UNIX_US + 1_000_000 * i, 4_000 + i)}
        if i == 2:
            message = STORY["message"] | {"reader_comm": HOSTILE}
            part = PART | {"what": f"in {HOSTILE}"}
            stages = {"server": {"time_ns": 4_000_000, "parts": [part]}}
            story |= {"message": message, "stages": stages}
        recorder = {"copies": 1, "skipped": 0, "symbols": "bcc"}
        document = {"limit_ns": None, "slow_messages": 1, "recorder": recorder}
        found.add(story, document | {"stories": [story]})
    yield found
    found.close()


def test_the_page_lists_them_and_leads_to_each(folder):
    names = [kept.id for kept in folder.kept()]
    with served(stories=folder) as one:
        page = one.get("/").text.decode()
        places = [page.index(f'href="stories/{name}"') for name in names]
        assert places == sorted(places, reverse=True)  # the newest first
        assert "3 stories of what was slow" in page
        assert "2026-11-18 11:06:42 UTC" in page  # date -u -d @1795000001
        assert page.count("which slept for another thread (futex)") == 2
        told = one.get(f"/stories/{names[0]}")
        text = told.text.decode()
        assert "3.90 ms  asleep for another thread (futex)" in text
        assert "default-src 'none'" in told.headers["Content-Security-Policy"]
        found = one.get(f"/stories/{names[0]}.json")
        assert found.headers["Content-Type"] == "application/json"
        assert json.loads(found.text)["stories"][0]["id"] == names[0]
        for text in (page, one.get(f"/stories/{names[2]}").text.decode()):
            assert "<script" not in text
            assert "\x1b" not in text
            assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    "path",
    [
        "none",
        "",
        "../metrics",
        "%2e%2e/x",
        "..%2f..%2fetc/passwd.json",
        "x.json",
        ".json",
    ],
)
def test_what_is_no_story_is_not_there(folder, path, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with served(stories=folder) as one:
        assert one.get(f"/stories/{path}").status == 404
    with served() as one:
        assert one.get(f"/stories/{folder.kept()[0].id}").status == 404


def test_what_others_made_of_a_file_is_no_page(folder, tmp_path):
    names = [kept.id for kept in folder.kept()]
    (tmp_path / f"{names[0]}.json").write_text('{"stories": [{"message": 5}]}')
    (tmp_path / f"{names[1]}.json").unlink()
    with served(stories=folder) as one:
        assert one.get("/").status == 200
        assert one.get(f"/stories/{names[0]}").status == 404
        assert one.get(f"/stories/{names[1]}").status == 404
        assert one.get(f"/stories/{names[2]}").status == 200


def test_who_has_no_password_reads_none(folder):
    with served(stories=folder, users={"a": PasswordHash.of("b")}) as one:
        assert one.get(f"/stories/{folder.kept()[0].id}").status == 401


def marks_of(totals: Totals):
    return [
        mark
        for family in families(totals, DEFAULT_EDGES)
        if isinstance(family, Histograms)
        for row in family.rows
        for mark in row.marks.values()
    ]


@pytest.mark.parametrize("process", ["a", "a" * 200])
def test_an_exemplar_leads_to_its_story_where_there_is_room(process):
    totals = busy_host(1)
    group = next(iter(totals.groups))
    stages = {"server": 4_000_000_000}
    quantity = Quantity.SEND_QUEUE
    slow = Exemplar(group, quantity, 4 * 10**9, 5, 10**9, stages, process, 7)
    name = story_id(UNIX_US, 4_000_000_000)
    key = slow.pid, slow.t_ns
    told = replace(totals, exemplars=[slow], stories={key: {"id": name}})
    (mark,), (without,) = marks_of(told), marks_of(replace(told, stories={}))
    assert "story" not in without.labels
    # OpenMetrics 1.0: all names and values of an exemplar together
    fits = characters(without) + len("story") + len(name) <= 128
    assert fits is (process == "a")
    assert mark.labels == without.labels | ({"story": name} if fits else {})


def characters(mark):
    return sum(len(name) + len(value) for name, value in mark.labels.items())


def test_outcomes_are_counted_where_stories_are_told():
    totals = replace(busy_host(1), story_counts={"told": 5, "no_copy": 2})
    by_name = {f.name: f for f in families(totals, DEFAULT_EDGES)}
    samples = by_name["latprof_stories"].samples
    assert {s.labels["outcome"]: s.value for s in samples} == totals.story_counts
    names = {f.name for f in families(busy_host(1), DEFAULT_EDGES)}
    assert "latprof_stories" not in names
