"""Trains on a terminal and in the report: what is shown is what the trains said."""

from __future__ import annotations

from typing import Any

import pytest
from known_trains import SINGLE, Hosts, trains
from latprof_analysis.fit.loggp import fit_loggp
from latprof_analysis.report.link import link_rows, loggp_lines, loggp_tables
from latprof_analysis.report.parts import Figure, Table, Text
from latprof_analysis.report.train_parts import train_parts
from latprof_analysis.report.vega import svg
from simulated_links import TokenBucket

SIZES = [18, 1024, 4096, 8192, 16_384, 40_000, 65_507]
KINDS = [SINGLE, (16, 0.0), (16, 2e5)]


def loggp(kinds: Any = KINDS, **options: Any) -> dict[str, Any]:
    columns, timed = trains(1, kinds, SIZES, **options)
    found = fit_loggp(*columns, reply_mode="echo", resamples=200, **timed)
    return found.as_dict() | {"left_out": {"a reply did not come": 2}}


def document(found: dict[str, Any]) -> dict[str, Any]:
    return {"round_trips": {"udp": {"loggp": found, "fit": None}, "tcp": {}}}


def test_a_line_for_each_protocol_has_all_letters():
    (line,) = loggp_lines(document(loggp()))
    # 80 ns a byte: 100 Mbit/s
    assert line.startswith("udp, trains of 16: L 1.000 ms, o_s 1.0")
    assert "o_r 7" in line
    assert "g 3.0" in line
    assert line.endswith("G 80.00 ns/B (100.0 Mbit/s of payload)")


def test_a_bucket_is_named_beside_what_is_told():
    found = loggp(link=TokenBucket, hosts=Hosts(gap_ns=0.0))
    (line,) = loggp_lines(document(found))
    assert "G 80.0" in line
    assert "a token bucket lets the first bytes of a train by" in line
    letters, *_ = loggp_tables(document(found))
    assert isinstance(letters, Table)
    by_letter = {row[0]: row for row in letters.rows}
    assert by_letter["g"][1] == "not told"
    # once, below the table, and not at each letter
    assert "token bucket" in letters.note
    assert str(by_letter["bucket"][1]).startswith("32,")


def test_where_nothing_is_told_the_line_says_why():
    (line,) = loggp_lines(document(loggp([SINGLE])))
    assert line.startswith("udp, trains of 0: it needs 4 sizes")
    letters, _ = loggp_tables(document(loggp([SINGLE])))
    assert isinstance(letters, Table)
    assert "it needs 4 sizes" in letters.note
    assert not any("it needs" in str(row[2]) for row in letters.rows)


def test_a_table_has_what_each_size_took():
    found = loggp()
    letters, left, sizes = loggp_tables(document(found))
    assert isinstance(letters, Table)
    assert [row[0] for row in letters.rows[:5]] == ["L", "o_s", "o_r", "g", "G"]
    assert left == Text(" udp: 2 trains left out: a reply did not come", quiet=True)
    assert isinstance(sizes, Table)
    assert "PRTT(16,200us,s)" in sizes.columns
    assert [row[0] for row in sizes.rows] == [f"{size} B" for size in SIZES]
    # 65,507 bytes at 80 ns, the link's 3 us, and 1 ms and back
    assert sizes.rows[-1][1] == "12.48 ms"


def test_the_figure_draws_what_single_messages_and_trains_took():
    found = loggp()
    figure, letters, *_ = train_parts("udp", found)
    assert isinstance(figure, Figure)
    assert isinstance(letters, Table)
    data = figure.data.set_index(["series", "size_bytes"])
    for one in found["sizes"]:
        for series, name in (
            ("one message", "single_ns"),
            ("a train", "train_ns"),
            ("each more of a train", "gap_ns"),
        ):
            told = data.loc[(series, one["size_bytes"])]
            assert told["value_ns"] == one[name]["value"]
    assert "100.0 Mbit/s of payload" in figure.title
    drawn = svg(figure, figure.charts[0], 600)
    assert drawn.count("each more of a train") >= 1


@pytest.mark.parametrize("link", [{}, {"link": {}}])
def test_trains_stand_beside_round_trips_not_in_their_place(link):
    bandwidth = {"value": 1e8, "low": 9.99e7, "high": 1.01e8, "n": 9}
    fit = {"bandwidth_bits_per_second": bandwidth, "fixed_delay_seconds": None}
    rate = {"bandwidth_bits_per_second": bandwidth}
    rows, _ = link_rows(
        {
            "round_trips": {"udp": {"fit": fit | {"model": "line"}}},
            "dispersion": {"udp train": rate, "udp train reply": rate},
        }
        | link
    )
    assert [(row.of, row.by) for row in rows] == [
        ("udp round trips", ""),
        ("request", "udp trains"),
        ("reply", "udp trains"),
    ]
