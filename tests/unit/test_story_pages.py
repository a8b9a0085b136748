"""What the agent shows of its stories: on its page, in exemplars and metrics."""

from __future__ import annotations

import base64
import json
import os
import stat
from dataclasses import replace

import pytest
from latprof_agent.monitor.totals import Exemplar, Quantity, Totals
from latprof_agent.service.metrics.families import DEFAULT_EDGES, Histograms, families
from latprof_agent.service.web.passwords import PasswordHash
from latprof_agent.service.web.server import Limits
from latprof_agent.story.story_folder import StoryFolder, story_id
from latprof_analysis.calling_user import find_user
from made_monitor import PART, STORY
from made_totals import busy_host
from served import served

UNIX_US = 1_795_000_000_000_000
PATIENT = Limits(cpu_share=1.0)
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


def bearer(folder):
    return {"authorization": f"Bearer {folder.token}"}


def basic(user, password):
    given = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"authorization": f"Basic {given}"}


def test_the_page_lists_them_and_leads_to_each(folder):
    names = [kept.id for kept in folder.kept()]
    with served(stories=folder) as one:
        page = one.get("/", **bearer(folder)).text.decode()
        places = [page.index(f'href="stories/{name}"') for name in names]
        assert places == sorted(places, reverse=True)  # the newest first
        assert "3 stories of what was slow" in page
        assert "2026-11-18 11:06:42 UTC" in page  # date -u -d @1795000001
        assert page.count("which slept for another thread (futex)") == 2
        told = one.get(f"/stories/{names[0]}", **bearer(folder))
        text = told.text.decode()
        assert "3.90 ms  asleep for another thread (futex)" in text
        assert "default-src 'none'" in told.headers["Content-Security-Policy"]
        found = one.get(f"/stories/{names[0]}.json", **bearer(folder))
        assert found.headers["Content-Type"] == "application/json"
        assert json.loads(found.text)["stories"][0]["id"] == names[0]
        hostile = one.get(f"/stories/{names[2]}", **bearer(folder))
        for text in (page, hostile.text.decode()):
            assert "<script" not in text
            assert "\x1b" not in text
            assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    "path",
    [
        "none",
        "token",
        "token.json",
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
        assert one.get(f"/stories/{path}", **bearer(folder)).status == 404
    with served() as one:
        name = folder.kept()[0].id
        assert one.get(f"/stories/{name}", **bearer(folder)).status == 404


def test_what_others_made_of_a_file_is_no_page(folder, tmp_path):
    names = [kept.id for kept in folder.kept()]
    (tmp_path / f"{names[0]}.json").write_text('{"stories": [{"message": 5}]}')
    (tmp_path / f"{names[1]}.json").unlink()
    with served(stories=folder) as one:
        assert one.get("/", **bearer(folder)).status == 200
        found = [one.get(f"/stories/{name}", **bearer(folder)) for name in names]
        assert [answer.status for answer in found] == [404, 404, 200]


def test_where_passwords_are_asked_for_stories_need_one(folder):
    path = f"/stories/{folder.kept()[0].id}"
    with served(stories=folder, users={"a": PasswordHash.of("b")}) as one:
        assert one.get(path).status == 401
        assert one.get(path, **basic("a", "b")).status == 200
        page = one.get("/", **basic("a", "b")).text.decode()
        assert f'href="{path[1:]}"' in page
        # a password was chosen to let some in, and only them
        assert one.get(path, **bearer(folder)).status == 401


def without(folder):
    """What nobody but root and the agent's user can send."""
    return [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {folder.token[:-1]}"},
        {"authorization": f"Bearer {folder.token} "[1:]},
        {"authorization": "Bearer \xe4"},
        {"authorization": "Basic ???"},
        basic(folder.token, ""),
        basic("root", "wrong"),
    ]


def test_without_passwords_stories_need_the_folders_token(folder, tmp_path):
    names = [kept.id for kept in folder.kept()]
    paths = ["/stories/", "/stories/none"]
    paths += [f"/stories/{name}{end}" for name in names for end in ("", ".json")]
    with served(stories=folder, limits=PATIENT) as one:
        for wrong in without(folder):
            for path in paths:
                refused = one.get(path, **wrong)
                assert refused.status == 401
                assert f"with the token in {tmp_path}/token as" in refused.text.decode()
                assert refused.headers["WWW-Authenticate"] == 'Basic realm="latprof"'
            page = one.get("/", **wrong).text.decode()
            assert 'href="stories/"' in page
            assert not any(name in page for name in names)
            assert one.get(**wrong).status == 200
        for right in (
            bearer(folder),
            basic("", folder.token),
            basic("a", folder.token),
        ):
            assert one.get(f"/stories/{names[0]}", **right).status == 200
            assert f'href="stories/{names[0]}"' in one.get("/", **right).text.decode()


def test_a_browser_finds_the_list_where_it_was_asked_for_the_token(folder):
    name = folder.kept()[0].id
    with served(stories=folder) as one:
        page = one.get("/stories/", **bearer(folder)).text.decode()

    assert '<base href="..">' in page  # so that links are those of the page above
    assert f'href="stories/{name}"' in page
    assert 'href="metrics"' in page


def test_the_token_is_for_root_and_the_folders_user_and_new_with_each_start(folder):
    file = folder.path / "token"
    assert file.read_text() == f"{folder.token}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.stat().st_uid == os.geteuid()
    assert len(folder.token) >= 22  # 128 bits

    file.chmod(0o644)  # as somebody may have left it
    again = StoryFolder(folder.path, find_user(str(os.geteuid())))
    assert again.token == ""
    again.begin()
    assert file.read_text() == f"{again.token}\n" != f"{folder.token}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again.close()


def test_where_no_token_could_be_written_nobody_has_it(tmp_path):
    folder = StoryFolder(tmp_path, find_user(str(os.geteuid())))  # not begun
    with served(stories=folder) as one:
        for given in ({}, {"authorization": "Bearer "}, basic("", "")):
            assert one.get("/stories/", **given).status == 401
    folder.close()


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
