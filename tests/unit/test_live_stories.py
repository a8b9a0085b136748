"""Which slow records become live stories, when, and what is bounded; made records."""

from __future__ import annotations

import json

import numpy as np
import pytest
from latprof_agent.probes.layout import layout_of
from latprof_agent.story import live_stories
from latprof_agent.story.live_stories import LiveStories
from latprof_analysis.read.stories import check_stories
from latprof_analysis.records.joiner import Joiner
from latprof_analysis.story.story import NO_FLIGHT

LAYOUT = layout_of()
SLOW = LAYOUT.flags["RECORD_SLOW"]
MS = 1_000_000
NOW_NS = 10**12


class Symbols:
    source = "bcc"
    settled = True

    def stack(self, _sample):
        return ("main",)


class Recorder:
    """Has a copy of everything as long as `copied`."""

    def __init__(self):
        self.wanted, self.copied, self.symbols = [], True, Symbols()
        self.calls, self.layout = {}, LAYOUT
        self.forgotten_ns = 0
        self.has_copies = True

    def want(self, begin_ns, took_ns, pids):
        self.wanted.append((begin_ns, took_ns, sorted(set(map(int, pids)))))

    def flight(self, _begin_ns, _end_ns):
        return NO_FLIGHT if self.copied else None

    def forget_before(self, time_ns):
        self.forgotten_ns = time_ns


@pytest.fixture
def stories():
    return LiveStories(Recorder(), LAYOUT, 0)


def batch(**rows):
    found = {name: np.zeros(0, dtype) for name, dtype in LAYOUT.rings.items()}
    for ring, values in rows.items():
        found[ring] = np.zeros(len(values), LAYOUT.rings[ring])
        for record, value in zip(found[ring], values, strict=True):
            for name in value:
                record[name] = value[name]
    return found


def read(took_ns, pid=7, **more):
    begin_ns = NOW_NS - took_ns
    stamps = {"arrive_ns": begin_ns, "ready_ns": begin_ns + 1, "read_ns": NOW_NS}
    return {"flags": SLOW, "pid": pid, "key": 9, "size_bytes": 64, **stamps, **more}


def turn(role, took_ns=5 * MS):
    stamps = {"ready_ns": NOW_NS - took_ns, "send_ns": NOW_NS}
    return {"flags": SLOW, "pid": 8, "role": LAYOUT.roles[role], **stamps}


def take(stories, found):
    stories.notice(found)
    joiner = Joiner(LAYOUT)
    joiner.feed(found, NOW_NS)
    stories.add(found, joiner)


def test_a_copy_is_asked_for_at_once_and_a_story_told_when_it_is_there(stories):
    told = []
    stories.takes.append(lambda story, document: told.append((story, document)))
    stories.recorder.copied = False
    take(stories, batch(received_ranges=[read(5 * MS)], turns=[turn("server")]))
    assert stories.recorder.wanted == [
        (NOW_NS - 5 * MS, 5 * MS, [7]),
        (NOW_NS - 5 * MS, 5 * MS, [8]),
    ]
    stories.step(NOW_NS)
    assert told == []
    assert stories.recorder.forgotten_ns <= NOW_NS - 5 * MS + 5 * MS
    stories.recorder.copied = True
    stories.step(NOW_NS)
    assert [story["message"]["kind"] for story, _ in told] == ["message", "exchange"]
    for story, document in told:
        check_stories(json.loads(json.dumps(document)))
        assert document["stories"] == [story]
        sums = sum(of["time_ns"] for of in story["stages"].values())
        assert sums == 5 * MS
    assert set(stories.totals()["stories"]) == {(7, NOW_NS), (8, NOW_NS)}
    stories.step(NOW_NS + 10**10)
    assert stories.totals()["story_counts"] == {"told": 2}


@pytest.mark.parametrize(
    "found",
    [
        batch(received_ranges=[read(MS - 1)]),  # above p99.9, but no stack tells why
        batch(received_ranges=[read(5 * MS, flags=0)]),
        batch(received_ranges=[read(5 * MS, read_ns=0)]),
        batch(turns=[turn("client")]),  # it waited for another host
    ],
)
def test_what_no_recorder_can_explain_is_not_asked_for(stories, found):
    take(stories, found)
    stories.step(NOW_NS)
    assert stories.recorder.wanted == []
    assert stories.totals()["story_counts"] == {"told": 0}


def test_below_the_users_limit_nothing_is_told(stories):
    stories.above_ns = 6 * MS
    take(stories, batch(received_ranges=[read(5 * MS), read(7 * MS)]))
    stories.step(NOW_NS)
    assert [of["stages"]["receive_queue"]["time_ns"] for of in stories.kept] == [
        7 * MS - 1
    ]


def test_names_are_waited_for_but_not_for_ever(stories):
    stories.recorder.symbols.settled = False
    take(stories, batch(received_ranges=[read(5 * MS)]))
    stories.step(NOW_NS + MS)
    assert stories.count == 0
    stories.step(NOW_NS + live_stories.JOINED_NS + live_stories.PATIENCE_NS + 1)
    assert stories.count == 1


def test_what_has_no_copy_or_no_room_is_counted(stories):
    stories.recorder.copied = False
    take(stories, batch(received_ranges=[read(5 * MS)] * (live_stories.WAITING + 5)))
    stories.step(NOW_NS)
    stories.step(NOW_NS + live_stories.JOINED_NS + live_stories.PATIENCE_NS + 1)
    assert stories.totals()["story_counts"] == {
        "told": 0,
        "too_many": 5,
        "no_copy": live_stories.WAITING,
    }


@pytest.mark.parametrize(
    ("read_ns", "took_ns", "kinds"),
    [
        (4 * MS, 5 * MS, ["message"]),  # it waited, and was answered soon
        (2 * MS, 40 * MS, ["exchange"]),  # the server worked
    ],
)
def test_a_request_and_its_exchange_are_one_event(stories, read_ns, took_ns, kinds):
    stories.recorder.copied = False
    request = read(read_ns, key=0, flow=5, end=100)
    take(stories, batch(received_ranges=[request]))
    take(stories, batch(turns=[turn("server", took_ns) | {"flow": 5, "end": 100}]))
    stories.recorder.copied = True
    stories.step(NOW_NS)
    assert [one["message"]["kind"] for one in stories.kept] == kinds
    assert stories.totals()["story_counts"] == {"told": 1, "same_event": 1}


def test_requests_of_another_flow_or_place_are_another_event(stories):
    found = batch(
        received_ranges=[read(4 * MS, key=0, flow=5, end=100)],
        turns=[
            turn("server") | {"flow": 5, "end": 200},
            turn("server") | {"flow": 6, "end": 100},
        ],
    )
    take(stories, found)
    stories.step(NOW_NS)
    assert stories.count == 3
