"""The sample that an agent gives away: each answer is a recording, and none is endless.

Batches are made, so that all records are known; what is read back is read by the reader
of recordings.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from latprof_agent.probes.layout import layout_of
from latprof_agent.rebuild.rebuilt import check_fields
from latprof_agent.service import published_sample
from latprof_agent.service.published_sample import Place, PublishedSample
from latprof_agent.service.web.passwords import PasswordHash
from latprof_analysis.records.flows import SIDE_CLOSED, SIDE_SENDER
from latprof_analysis.records.recording import Recording
from served import served
from test_web import basic

LAYOUT = layout_of()
CAPTURE = SimpleNamespace(
    layout=LAYOUT, capabilities=[], ephemeral_ports=range(32768, 61000)
)


def batch(number: int, *, flows: int = 1, sent: int = 10):
    """Records of which each has the number of its step."""
    found = {ring: np.zeros(0, dtype) for ring, dtype in LAYOUT.rings.items()}
    found["flows"] = np.zeros(flows, LAYOUT.rings["flows"])
    found["flows"]["flow"], found["flows"]["side"] = number, SIDE_SENDER
    found["sent_messages"] = np.zeros(sent, LAYOUT.rings["sent_messages"])
    found["sent_messages"]["end"] = number
    return found


def begun(most_bytes: int = 1 << 20) -> PublishedSample:
    made = PublishedSample(most_bytes)
    made.begin(CAPTURE, "everything")
    return made


def add(sample: PublishedSample, *numbers: int) -> None:
    for number in numbers:
        sample.add(batch(number), 1000 * number, {number: f"p{number}"})


def read(data: bytes, folder: Path) -> Recording:
    path = folder / "given.arrows.zst"
    path.write_bytes(data)
    recording = Recording(path)
    check_fields(recording)
    return recording


def ends(data: bytes, folder: Path, ring="sent_messages", field="end") -> list[int]:
    """The steps of which there are records."""
    recording = read(data, folder)
    steps = list(recording.steps())
    assert not recording.cut_off
    found = [np.unique(step.rings[ring][field]).tolist() for step in steps]
    return [number for of_step in found for number in of_step]


def test_an_answer_is_a_recording_of_what_its_asker_lacks(tmp_path):
    sample = begun()
    first = sample.since(None)
    add(sample, 1, 2)
    second = sample.since(first.next)
    add(sample, 3)
    third = sample.since(second.next)

    assert ends(first.recording, tmp_path) == []
    assert ends(second.recording, tmp_path) == [1, 2]
    assert ends(third.recording, tmp_path) == [3]
    assert ends(sample.since(third.next).recording, tmp_path) == []
    assert {given.lost_records for given in (first, second, third)} == {0}
    steps = list(read(second.recording, tmp_path).steps())
    assert [step.drained_ns for step in steps[1:]] == [1000, 2000]
    assert steps[1].notes == [{"processes": [[1, "p1"]]}]


def test_two_who_ask_get_the_same(tmp_path):
    sample = begun()
    place = sample.since(None).next
    add(sample, 1, 2)
    one, other = sample.since(place), sample.since(None)
    assert ends(one.recording, tmp_path) == ends(other.recording, tmp_path) == [1, 2]
    assert sample.outcomes["handed_out"] == 2 * 22  # 10 messages and a flow, twice


def test_nothing_is_kept_while_nobody_asks(tmp_path, monkeypatch):
    sample = begun()
    add(sample, 1)
    assert (sample.kept_bytes, sample.step_seconds) == (0, np.inf)
    sample.since(None)
    add(sample, 2)
    assert sample.kept_bytes > 0
    assert sample.step_seconds == published_sample.STEP_SECONDS
    monkeypatch.setattr(published_sample, "ASKED_SECONDS", -1.0)  # that is over
    add(sample, 3)
    assert sample.kept_bytes == 0


def test_who_begins_to_ask_learns_of_flows_from_before(tmp_path):
    sample = begun()
    closed = batch(9)
    closed["flows"]["side"] = SIDE_CLOSED
    sample.add(closed, 1, {})
    add(sample, 1, 2)
    given = sample.since(None)
    assert ends(given.recording, tmp_path, "flows", "flow") == [1, 2]
    assert ends(given.recording, tmp_path) == []


def test_flows_from_before_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(published_sample, "FLOWS_KEPT", 4)
    sample = begun()
    add(sample, *range(1, 20))
    found = ends(sample.since(None).recording, tmp_path, "flows", "flow")
    assert found == list(range(12, 20))  # each flow has two ends


def test_what_falls_out_is_counted_and_its_flows_stay(tmp_path):
    sample = begun(most_bytes=4000)
    place = sample.since(None).next
    add(sample, *range(1, 40))
    assert sample.kept_bytes <= 4000
    given = sample.since(place)
    got = ends(given.recording, tmp_path)
    assert got == list(range(40 - len(got), 40))
    assert 0 < len(got) < 39
    assert given.lost_records == 11 * (39 - len(got)) == sample.outcomes["fallen_out"]
    found = ends(given.recording, tmp_path, "flows", "flow")
    assert sorted(found) == list(range(1, 40))


def test_what_came_while_nobody_asked_is_lost_to_who_asks_again(monkeypatch):
    sample = begun()
    place = sample.since(None).next
    add(sample, 1)
    monkeypatch.setattr(published_sample, "ASKED_SECONDS", -1.0)
    add(sample, 2)
    assert sample.since(place).lost_records == 22


def test_a_place_of_before_a_restart_gets_all_there_is(tmp_path):
    one, other = begun(), begun()
    other.since(None)
    add(other, 1, 2)
    given = other.since(one.since(None).next)
    assert ends(given.recording, tmp_path) == [1, 2]
    assert given.lost_records == 0  # of this run nothing


def test_with_other_groups_the_run_is_another():
    sample = begun()
    before = sample.since(None).next
    add(sample, 1)
    sample.begin(CAPTURE, "everything")
    assert sample.since(None).next.run != before.run
    assert sample.kept_bytes == 0


@pytest.mark.parametrize(
    "text", ["", "1", "x.1.1", "0123456789abcdef.1.-1", "0123456789abcdef.1.1\n"]
)
def test_what_is_no_place_is_none(text):
    assert Place.read(text) is None


def test_the_page_gives_recordings_and_the_next_place(tmp_path):
    sample = begun()
    with served(sample=sample) as agent:
        first = agent.get("/samples")
        add(sample, 1)
        second = agent.get(f"/samples?since={first.headers['Latprof-Next']}")
    assert (first.status, second.status) == (200, 200)
    assert ends(second.text, tmp_path) == [1]
    assert second.headers["Latprof-Lost-Records"] == "0"
    assert second.headers["Cache-Control"] == "no-store"


def test_a_place_that_is_none_is_refused():
    with served(sample=begun()) as agent:
        answer = agent.get("/samples?since=yesterday")
    assert (answer.status, b"Latprof-Next" in answer.text) == (400, True)


def test_samples_are_behind_the_same_password():
    users = {"fleet": PasswordHash.of("secret")}
    sample = begun()
    with served(sample=sample, users=users) as agent:
        assert agent.get("/samples").status == 401
        assert sample.step_seconds == np.inf  # that was no question
        assert (
            agent.get("/samples", authorization=basic("fleet", "secret")).status == 200
        )


def test_samples_are_given_to_no_page_of_another_name():
    with served(sample=begun()) as agent:
        assert agent.get("/samples", host="evil.example").status == 421


def test_before_the_probes_are_loaded_there_are_none():
    with served(sample=PublishedSample()) as agent:
        assert agent.get("/samples").status == 503


def test_without_a_sample_there_is_no_such_page():
    with served() as agent:
        assert agent.get("/samples").status == 404
