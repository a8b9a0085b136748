"""What is said of wall clocks, beside packets: true, wide, wrong, and of no use.

Two hosts are made of one recording (tests/split_recording.py), so that the truth is
known; their wall clocks are as wrong as each test says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from latprof_agent.join.estimate import NOTHING_ASSUMED, Assumed
from latprof_agent.join.join import JoinOptions, join
from latprof_agent.rebuild import rebuild
from latprof_analysis.records.recording import NAME
from latprof_analysis.report.clock_words import clock_sentences, clock_tables
from latprof_analysis.report.parts import Text
from latprof_analysis.text import duration
from split_recording import Wall, own_time, split

RECORDINGS = Path(__file__).parents[1] / "recordings"
AHEAD_NS = 3_000_000_000
MS = 1_000_000
SERVER = "192.0.2.1"
KEY = ["protocol", "source_port", "destination_port", "sequence", "size_bytes"]


def ahead(times: np.ndarray) -> np.ndarray:
    return times + AHEAD_NS


def chrony(error_ns: int, **other: Any) -> dict[str, Any]:
    """As `clock_sources` reads it of chronyd; so wrong may its clock be."""
    return {
        "reference": SERVER,
        "stratum": 3,
        "leap": "Normal",
        "system_time_ns": -error_ns // 4,
        "root_delay_ns": error_ns,
        "root_dispersion_ns": error_ns // 4,
        "skew_ppb": 0,
        **other,
    }


@dataclass(frozen=True)
class Joined:
    """What was joined, and its messages beside those of before they were split."""

    summary: dict[str, Any]
    both: pd.DataFrame

    @property
    def pair(self) -> dict[str, Any]:
        (pair,) = self.summary["clocks"]["pairs"]
        return pair

    @property
    def word(self) -> dict[str, Any] | None:
        return self.pair["wall_word"]


def said(error_ns: int, *, wrong_ns: int = 0, **other: Any) -> Wall:
    return Wall(wrong_ns, chrony(error_ns, **other), largest_error_ns=error_ns // 2)


def joined(
    name: str,
    one: Wall | None = None,
    other: Wall | None = None,
    *,
    assumed: Assumed = NOTHING_ASSUMED,
) -> Joined:
    path = RECORDINGS / f"{name}.arrows.zst"
    walls = [wall for wall in (one, other) if wall]
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        hosts = split(path, folder, own_time, ahead, walls=walls)
        options = JoinOptions(None, assumed)
        found = join(hosts, folder / "joined", lambda *_: None, options)
        (folder / "whole").mkdir()
        (folder / "whole" / NAME).write_bytes(path.read_bytes())
        rebuild.rebuild(folder / "whole", folder / "again", lambda *_: None)
        both = [
            pd.read_csv(folder / where / "messages.csv", low_memory=False)
            for where in ("again", "joined")
        ]
    return Joined(found.summary, both[0].merge(both[1], on=KEY, suffixes=("", "_j")))


def holds(found: Joined) -> bool:
    """Whether each interval has the true transit; there are some."""
    rows = found.both[found.both.transit_low_ns.notna() & found.both.transit_ns.notna()]
    assert len(rows)
    low, high = rows.transit_low_ns, rows.transit_high_ns
    return bool(((low <= rows.transit_ns) & (rows.transit_ns <= high)).all())


@pytest.mark.parametrize("name", ["ping-pong", "under-load"])
def test_of_both_the_narrower_is_used(name):
    alone, both = joined(name), joined(name, said(4000), said(4000))
    assert both.word["outcome"] == "narrower"
    # two times the word of each, and what a second without one leaves open
    assert both.pair["error_ns"] < 100_000 < 500_000 < alone.pair["error_ns"]
    assert holds(both)
    assert both.pair["base_round_trip_ns"] == alone.pair["base_round_trip_ns"]
    (line, *_) = clock_sentences(both.summary)
    # and each may run wrong by 1 us/s until chrony looks again
    assert 8000 <= both.word["error_ns"] <= 8000 + 2 * 6000
    most = duration(both.word["error_ns"])
    assert line.endswith(f"narrower by what chrony says (wall clocks within {most})")


@pytest.mark.parametrize("name", ["ping-pong", "under-load", "keep-alive"])
def test_a_wide_word_changes_nothing(name):
    alone, both = joined(name), joined(name, said(2 * MS), said(2 * MS))
    assert both.word["outcome"] == "wider"
    for figure in ("error_ns", "largest_error_ns", "drift_ppb", "state", "reason"):
        assert both.pair[figure] == alone.pair[figure]


@pytest.mark.parametrize("error_ns", [4000, 2 * MS])
def test_what_goes_one_way_has_an_interval(error_ns):
    alone = joined("coalesced")
    assert (alone.pair["state"], alone.pair["error_ns"]) == ("one direction only", None)
    both = joined("coalesced", said(error_ns), said(error_ns))
    assert both.word["outcome"] == "narrower"
    assert both.pair["state"] == "approximate"
    assert both.pair["largest_error_ns"] < 2 * error_ns + 100_000
    assert holds(both)


@pytest.mark.parametrize("name", ["under-load", "keep-alive", "coalesced"])
@pytest.mark.parametrize("wrong_ns", [3 * MS, -3 * MS])
def test_a_word_that_cannot_be_true_is_not_used_and_said(name, wrong_ns):
    alone = joined(name)
    both = joined(name, said(4000, wrong_ns=wrong_ns), said(4000))
    if name == "coalesced" and wrong_ns < 0:  # which no packet contradicts
        assert both.word["outcome"] == "narrower"
        return
    assert both.word["outcome"] == "contradicts"
    for figure in ("error_ns", "largest_error_ns", "drift_ppb", "state", "reason"):
        assert both.pair[figure] == alone.pair[figure]
    assert any("contradicts packets" in text for text in both.summary["warnings"])


@pytest.mark.parametrize(
    ("wall", "why"),
    [
        (said(40, reference="PHC0", stratum=1), "a clock of its own, PHC0"),
        (said(40, reference="7F7F0101", stratum=10), "a clock of its own, 7F7F0101"),
        (said(40, leap="Not synchronised"), "was not synchronised"),
        (Wall(0, {"unknown": "there is no chronyc"}), "there is no chronyc"),
        (Wall(), "has no chrony"),
        (replace(said(40), synchronised=0), "did not have its clock as synchronised"),
    ],
)
def test_what_says_nothing_of_an_error_is_no_word(wall, why):
    alone, both = joined("keep-alive"), joined("keep-alive", said(40), wall)
    assert both.word["outcome"] == "unknown"
    assert both.word["error_ns"] is None
    assert why in both.word["why"]
    assert both.pair["error_ns"] == alone.pair["error_ns"]
    texts = [part.text for part in clock_tables(both.summary) if isinstance(part, Text)]
    assert any(why in text for text in texts)


def test_without_chrony_the_user_may_know():
    alone = joined("ping-pong", Wall(), Wall())
    assert alone.word is None
    both = joined("ping-pong", Wall(), Wall(), assumed=Assumed(wall_error_ns=5000))
    assert both.word == {
        "by": "--wall-error",
        "error_ns": 5000,
        "outcome": "narrower",
        "why": "",
    }
    assert both.pair["error_ns"] < 100_000
    assert holds(both)
