"""Messages of other programs by who sent to whom, in analysis and comparison."""

from __future__ import annotations

from latprof_analysis.compare import read_sides
from latprof_analysis.compare.run_series import RunSeries
from latprof_analysis.read.batches import read_batches
from latprof_analysis.study.grouped import MOST_WAYS
from latprof_analysis.study.ways import with_ends
from made_runs import write_table


def folder(path, *ways, kind="message"):
    """Write a run folder with a message each."""
    path.mkdir()
    (path / "run.json").write_text('{"format": 1, "state": "done"}')
    times = {"send_ns": 1, "read_ns": 1001, "end_to_end_ns": 1000}
    of_each = {"protocol": "tcp", "kind": kind, "size_bytes": 64, **times}
    rows = [{**of_each, "way": way} for way in ways]
    write_table(path / "messages.csv", rows)
    return path


def kinds(path, level):
    """The kinds of its messages, with ways in the place of other programs'."""
    (batch,) = read_batches(path, "messages")
    codes, labels = with_ends(batch, level).texts["kind"]
    return [labels[code] for code in codes]


def level_of(*ways):
    found = RunSeries()
    for some in ways:
        found.add_ways(some)
    return found.level


def test_requests_and_replies_of_a_generator_stay_what_they_are(tmp_path):
    generator = folder(tmp_path / "a", "a -> b:1", "b:1 -> a", kind="request")
    assert kinds(generator, 0) == ["request", "request"]
    older = folder(tmp_path / "older", None, None, kind="request")
    assert kinds(older, 0) == ["request", "request"]


def test_what_no_end_is_known_of_stays_a_message(tmp_path):
    both = folder(tmp_path / "a", "a -> b:1", None)
    assert kinds(both, 0) == ["a -> b:1", "message"]


def test_the_level_is_that_of_all_rows_together():
    many = {f"tcp c -> 10.0.0.{i}:80" for i in range(MOST_WAYS)}
    assert level_of(many) == 0
    assert level_of(many, {"tcp d -> e:1"}) == 1
    assert level_of({f"tcp c{i} -> s:80" for i in range(MOST_WAYS + 1)}) == 2


def test_sides_are_compared_by_direction(tmp_path):
    both = "curl -> nginx:80", "nginx:80 -> curl"
    for side in read_sides([str(folder(tmp_path / name, *both)) for name in "ab"]):
        assert {group.kind for group in side.groups} == {f"tcp {way}" for way in both}


def test_sides_have_ways_as_coarse_as_the_one_with_most_of_them(tmp_path):
    few = folder(tmp_path / "few", "c1 -> s:80", "s:80 -> c1", "c1 -> s:80")
    ways = [f"c{i} -> s:80" for i in range(MOST_WAYS + 1)]
    many = folder(tmp_path / "many", *ways, "s:80 -> c1")
    for side in read_sides([str(few), str(many)]):
        counts = {group.kind: runs[0].size for group, runs in side.series.items()}
        to = 2 if side.name == str(few) else len(ways)
        assert counts == {"tcp to servers": to, "tcp from servers": 1}
