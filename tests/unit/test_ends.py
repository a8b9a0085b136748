"""Messages of other programs by who sent to whom, in analysis and comparison."""

from __future__ import annotations

import pandas as pd
from latprof_analysis.compare.sides import Input, sides_of
from latprof_analysis.read import Runs
from latprof_analysis.study.grouped import MOST_WAYS
from latprof_analysis.study.ways import by_ends, level_of


def rows(*ways, kind="message"):
    """A message each, as read from a folder."""
    frame = pd.DataFrame(
        {
            "protocol": "tcp",
            "kind": kind,
            "way": pd.Series(ways, dtype="object"),
            "run": "a",
            "size_bytes": pd.array([64] * len(ways), "Int64"),
            "send_ns": pd.array(range(len(ways)), "Int64"),
            "end_to_end_ns": pd.array([1000] * len(ways), "Int64"),
            "probe_statistics": pd.array([None] * len(ways), "Int64"),
        }
    )
    return frame.astype({"kind": "category", "way": "category", "run": "category"})


def test_requests_and_replies_of_a_generator_stay_what_they_are():
    generator = rows("a -> b:1", "b:1 -> a", kind="request")
    assert by_ends(generator, 0)["kind"].tolist() == ["request", "request"]
    older = generator.drop(columns="way")
    assert by_ends(older, 0) is older


def test_what_no_end_is_known_of_stays_a_message():
    assert by_ends(rows("a -> b:1", None), 0)["kind"].tolist() == [
        "a -> b:1",
        "message",
    ]


def test_the_level_is_that_of_all_rows_together():
    many = [f"c -> 10.0.0.{i}:80" for i in range(MOST_WAYS)]
    assert level_of([rows(*many)]) == 0
    assert level_of([rows(*many), rows("d -> e:1")]) == 1
    assert level_of([rows(*(f"c{i} -> s:80" for i in range(MOST_WAYS + 1)))]) == 2


def test_sides_are_compared_by_direction():
    both = "curl -> nginx:80", "nginx:80 -> curl"
    none = pd.DataFrame()
    runs = Runs(rows(*both), none, none, {}, [], [], 0)
    sides = sides_of([Input(name, runs, [], {}) for name in "ab"])
    for side in sides:
        assert {group.kind for group in side.groups} == {f"tcp {way}" for way in both}
