"""Recordings of hosts joined: what one recording of all of them says is the truth.

Each scenario's ends become hosts with clocks of their own (tests/split_recording.py).
Joined, there must be the same messages and exchanges, with the same times at each
host; what lies between hosts must hold the true value in its interval.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from latprof_agent.cli import main
from latprof_agent.errors import LatprofError
from latprof_agent.join.estimate import Assumed
from latprof_agent.join.join import JoinOptions, join
from latprof_agent.rebuild import rebuild
from latprof_analysis.records.recording import NAME, Recording
from latprof_analysis.report.clock_words import clock_sentences
from latprof_analysis.report.story_lines import conclusion
from split_recording import Clock, own_time, split

HERE = Path(__file__).parents[1] / "recordings"
TABLES = ("messages", "exchanges", "other_turns", "round_trips")
AHEAD_NS = 3_000_000_000
SKEW = 20e-6
KEY = ["protocol", "source_port", "destination_port", "sequence", "size_bytes"]
SENDER_STAGES = ("send_queue_ns", "qdisc_ns")
READER_STAGES = ("receive_stack_ns", "receive_queue_ns")
# Scenarios with packets both ways, and those in which one end only says something.
BOTH_WAYS = (
    *("balanced", "bridged", "datagrams", "encrypted", "fast-opened", "half-closed"),
    *("in-pieces", "keep-alive", "late-neighbour", "long-reply"),
    *("late-neighbour-of-a-datagram", "of-a-container", "quic"),
    *("redirected", "resent", "several-at-once"),
    *("short-connections", "translated", "tunnelled", "workers"),
    *("6.1/translated", "6.12/resent", "6.1/tunnelled"),
)
ONE_WAY = (
    *("coalesced", "filtered", "full-socket", "merged", "never-read", "unseen"),
    "6.12/reordered",
)


def running_fast(times: np.ndarray) -> np.ndarray:
    """A clock that is ahead, and by 20 us a second more."""
    return times + AHEAD_NS + times // round(1 / SKEW)


@dataclass
class Joined:
    """Tables of the whole recording, and of hosts' recordings that were joined."""

    whole: dict[str, pd.DataFrame]
    hosts: dict[str, pd.DataFrame]
    summary: dict[str, Any]
    unmatched: dict[str, int]

    def both(self) -> pd.DataFrame:
        """Messages of both, side by side; the joined ones with `_j`."""
        tables = self.whole["messages"], self.hosts["messages"]
        return tables[0].merge(tables[1], on=KEY, suffixes=("", "_j"))


def read(folder: Path) -> dict[str, pd.DataFrame]:
    return {table: pd.read_csv(folder / f"{table}.csv") for table in TABLES}


def joined(
    recording: Path,
    *clocks: Clock,
    options: JoinOptions = JoinOptions(),  # noqa: B008 - frozen
    swapped: bool = False,
) -> Joined:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "run").mkdir()
        shutil.copy(recording, folder / "run" / NAME)
        made = rebuild.rebuild(folder / "run", folder / "whole", lambda *_: None)
        hosts = split(recording, folder, *clocks)
        order = hosts[::-1] if swapped else hosts
        found = join(order, folder / "joined", lambda *_: None, options)
        return Joined(
            read(folder / "whole"),
            read(folder / "joined"),
            found.summary,
            made.summary["unmatched"],
        )


@cache
def scenario(name: str, *, swapped: bool = False) -> Joined:
    path = HERE / f"{name}.arrows.zst"
    return joined(path, own_time, running_fast, swapped=swapped)


@pytest.mark.parametrize("name", BOTH_WAYS + ONE_WAY)
def test_the_same_messages_are_whole(name):
    found = scenario(name)
    for table in ("messages", "exchanges", "other_turns"):
        assert len(found.hosts[table]) == len(found.whole[table]), table
    assert found.summary["unmatched"] == found.unmatched
    counts = [
        rows["messages"].groupby(KEY[:4], dropna=False).size()
        for rows in (found.whole, found.hosts)
    ]
    assert counts[0].equals(counts[1])


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_times_at_each_host_are_those_of_its_own_clock(name):
    both = scenario(name).both()
    for column in (*SENDER_STAGES, *READER_STAGES, "wakeup_ns"):
        apart = (both[column] - both[f"{column}_j"]).abs()
        # the other host's clock runs faster; with few packets by how much is not known
        allowed = 2 + 2e-4 * both[column].abs()
        assert (apart.isna() | (apart <= allowed)).all(), column
        assert both[column].isna().equals(both[f"{column}_j"].isna()), column


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_intervals_hold_the_true_transit(name):
    both = scenario(name).both()
    known = both[both["transit_ns_j"].notna()]
    assert len(known) > 0.9 * both["transit_ns"].notna().sum()
    assert (known["transit_low_ns"] <= known["transit_ns"]).all()
    assert (known["transit_ns"] <= known["transit_high_ns"]).all()
    assert (known["transit_low_ns"] <= known["transit_ns_j"]).all()
    assert (known["transit_ns_j"] <= known["transit_high_ns"]).all()


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_stages_sum_to_the_whole(name):
    rows = scenario(name).hosts["messages"]
    rows = rows[rows["end_to_end_ns"].notna()]
    stages = (*SENDER_STAGES, "transit_ns", *READER_STAGES, "application_ns")
    assert (rows[[*stages]].fillna(0).sum(axis=1) == rows["end_to_end_ns"]).all()


@pytest.mark.parametrize("name", ONE_WAY)
def test_without_a_way_back_no_transit_is_known(name):
    rows = scenario(name).hosts["messages"]
    crossing = rows[rows["sender_host"].notna() & rows["reader_host"].notna()]
    assert set(crossing["clocks"]) == {"one direction only"}
    for column in ("transit_ns", "end_to_end_ns", "transit_high_ns"):
        assert crossing[column].isna().all()
    # the stamps of the host on whose clock all are, and no others
    sent = crossing["sender_host"] == "a"
    for stamp in ("send_ns", "queue_ns", "xmit_ns"):
        assert crossing.loc[~sent, stamp].isna().all()
    for stamp in ("arrive_ns", "ready_ns", "read_ns"):
        assert crossing.loc[sent, stamp].isna().all()
    assert crossing.loc[sent, "send_ns"].notna().all()
    assert crossing.loc[~sent, "arrive_ns"].notna().all()


@pytest.mark.parametrize("name", ["datagrams", "resent", "translated"])
def test_the_order_of_hosts_makes_no_difference_but_the_reference(name):
    one, other = scenario(name), scenario(name, swapped=True)
    tables = [found.hosts["messages"] for found in (one, other)]
    both = tables[0].merge(tables[1], on=KEY, suffixes=("", "_s"))
    assert len(both) == len(tables[0]) == len(tables[1])
    apart = (both["transit_ns"] - both["transit_ns_s"]).abs()
    # by the rate as it was estimated
    assert (apart.isna() | (apart <= 2 + 1.01 * SKEW * both["transit_ns"])).all()
    assert both["transit_ns"].isna().equals(both["transit_ns_s"].isna())
    assert one.summary["clocks"]["reference"] == "a"
    assert other.summary["clocks"]["reference"] == "b"


def test_each_end_has_its_host_and_its_own_process_number():
    found = scenario("datagrams")
    rows, whole = found.hosts["messages"], found.whole["messages"]
    rows, whole = rows.dropna(axis=1), whole.dropna(axis=1)
    assert set(zip(rows["sender_host"], rows["reader_host"], strict=True)) == {
        ("a", "b"),
        ("b", "a"),
    }
    for column in ("sender_pid", "reader_pid", "reader_thread"):
        assert set(rows[column]) == set(whole[column])
    exchanges = found.hosts["exchanges"]
    ends = set(zip(exchanges["client_host"], exchanges["server_host"], strict=True))
    assert ends in ({("a", "b")}, {("b", "a")})


@pytest.mark.parametrize("name", ["datagrams", "short-connections", "translated"])
def test_ways_of_exchanges_have_their_interval(name):
    found = scenario(name)
    columns = ["request_way", "reply_way"]
    whole, rows = found.whole["exchanges"], found.hosts["exchanges"]
    key = ["protocol", "client_port", "request_last_sequence", "reply_last_sequence"]
    both = whole.merge(rows, on=key, suffixes=("", "_j"))
    assert len(both) == len(whole)
    for way in columns:
        known = both[both[f"{way}_ns"].notna()]
        assert (known[f"{way}_low_ns"] <= known[f"{way}_ns"]).all()
        assert (known[f"{way}_ns"] <= known[f"{way}_high_ns"]).all()
    apart = (both["server_ns"] - both["server_ns_j"]).abs()
    assert (apart <= 2 + SKEW * both["server_ns"]).all()


def test_how_far_wall_clocks_are_apart_is_known():
    found = scenario("resent")
    (pair,) = found.summary["clocks"]["pairs"]
    path = HERE / "resent.arrows.zst"
    first = next(iter(Recording(path).steps())).beside["clocks"]["monotonic_ns"]
    ahead_ns = running_fast(first)[0] - first[0]
    # the recording took less than a second
    assert abs(pair["wall_offset_ns"] - ahead_ns) < pair["error_ns"] + 20_000
    assert pair["state"] == "good"


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_a_drift_has_an_interval_which_holds_the_true_one(name):
    """Of a recording this short it is all by which two clocks may run apart."""
    (pair,) = scenario(name).summary["clocks"]["pairs"]
    assert abs(pair["drift_ppb"] - SKEW * 1e9) <= pair["drift_error_ppb"]
    said = next(iter(clock_sentences(scenario(name).summary)))
    assert f" +- {pair['drift_error_ppb'] / 1000:.3g} us/s, {pair['state']}" in said


def test_several_hosts_are_joined_on_one_clock():
    path = HERE / "mesh.arrows.zst"
    clocks = own_time, running_fast, lambda times: times - AHEAD_NS
    found = joined(path, *clocks)
    assert len(found.hosts["messages"]) == len(found.whole["messages"])
    assert found.summary["unmatched"] == found.unmatched
    both = found.both()
    known = both[both["transit_low_ns"].notna()]
    assert len(known) > 0.9 * len(both)
    assert (known["transit_low_ns"] <= known["transit_ns"]).all()
    assert (known["transit_ns"] <= known["transit_high_ns"]).all()
    assert len(found.summary["clocks"]["pairs"]) == 3
    assert [loop["hosts"] for loop in found.summary["clocks"]["loops"]] == [
        ["a", "b", "c"]
    ]


def test_behind_a_balancer_each_message_meets_its_own_half():
    """Three hosts: a client asks one address, behind which there are two servers."""
    clocks = own_time, running_fast, lambda times: times - AHEAD_NS // 2
    found = joined(HERE / "balanced.arrows.zst", *clocks)
    rows = found.hosts["messages"]
    assert (rows["translated"] == 1).all()
    # 3 connections and 3 datagram sockets a server, 10 turns each
    ways = rows.groupby(["protocol", "sender_host", "reader_host"]).size().to_dict()
    pairs = ("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")
    assert ways == {(p, *pair): 30 for p in ("tcp", "udp") for pair in pairs}
    both = found.both()
    assert len(both) == len(rows) == len(found.whole["messages"])
    assert (both["transit_low_ns"] <= both["transit_ns"]).all()
    assert (both["transit_ns"] <= both["transit_high_ns"]).all()


def test_a_clock_that_was_set_is_noticed_and_nothing_is_out_of_order():
    path = HERE / "ping-pong.arrows.zst"
    middle_ns = int(
        joined(path, own_time, own_time).whole["messages"]["send_ns"].median()
    )
    found = joined(
        path, own_time, lambda times: times + np.where(times > middle_ns, 50_000_000, 0)
    )
    rows, both = found.hosts["messages"], found.both()
    assert len(rows) == len(found.whole["messages"])
    (pair,) = found.summary["clocks"]["pairs"]
    assert pair["state"] == "broken"
    known = both[both["transit_low_ns"].notna()]
    assert len(known) > 0.9 * len(both)
    assert (known["transit_low_ns"] <= known["transit_ns"]).all()
    assert (known["transit_ns"] <= known["transit_high_ns"]).all()
    stamps = [f"{s}_ns" for s in ("send", "queue", "xmit", "arrive", "ready", "read")]
    latest = rows[stamps].cummax(axis=1)
    assert (rows[stamps].isna() | (rows[stamps] == latest)).all(axis=None)


@pytest.mark.parametrize("swapped", [False, True])
def test_what_the_user_knows_of_the_ways_moves_the_estimate(swapped):
    path = HERE / "ping-pong.arrows.zst"
    options = JoinOptions("a", Assumed(asymmetry_ns=-400_000 if swapped else 400_000))
    clocks = own_time, running_fast
    plain = joined(path, *clocks).hosts["messages"]
    moved = joined(path, *clocks, options=options, swapped=swapped).hosts["messages"]
    both = plain.merge(moved, on=KEY, suffixes=("", "_m"))
    longer = both["transit_ns_m"] - both["transit_ns"]
    there = both["sender_host"] == "a"
    assert longer[there].median() == pytest.approx(200_000, abs=1000)
    assert longer[~there].median() == pytest.approx(-200_000, abs=1000)


def test_an_asymmetry_that_cannot_be_is_refused(tmp_path, capfd):
    a, b = two_hosts(tmp_path)
    out = tmp_path / "out"
    status, line = refused(capfd, a, b, "--asymmetry=5ms", "--out", out)
    assert (status, "--asymmetry: between a and b" in line) == (1, True)
    assert not out.exists()


def two_hosts(tmp_path: Path) -> list[Path]:
    return split(HERE / "resent.arrows.zst", tmp_path, own_time, running_fast)


def refused(capfd, *words: str | Path) -> tuple[int, str]:
    """The exit status, and the one line that stderr has."""
    status = main(["join", *map(str, words)])
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return status, lines[0]


def test_one_folder_given_twice_is_refused(tmp_path, capfd):
    a, _ = two_hosts(tmp_path)
    status, line = refused(capfd, a, a, "--out", tmp_path / "out")
    assert status == 2
    assert "given twice" in line
    assert not (tmp_path / "out").exists()


def test_two_folders_of_one_host_are_refused(tmp_path, capfd):
    a, _ = two_hosts(tmp_path)
    shutil.copytree(a, tmp_path / "again")
    status, line = refused(capfd, a, tmp_path / "again", "--out", tmp_path / "out")
    assert status == 2
    assert "of one host" in line


def test_one_folder_alone_is_refused(tmp_path, capfd):
    a, _ = two_hosts(tmp_path)
    status, line = refused(capfd, a, "--out", tmp_path / "out")
    assert (status, "2 to" in line) == (2, True)


def test_a_folder_without_a_recording_is_refused(tmp_path, capfd):
    a, b = two_hosts(tmp_path)
    (b / NAME).unlink()
    status, line = refused(capfd, a, b, "--out", tmp_path / "out")
    assert (status, f"it has no {NAME}" in line) == (1, True)


def test_a_reference_that_is_none_of_them_is_refused(tmp_path, capfd):
    a, b = two_hosts(tmp_path)
    out = tmp_path / "out"
    status, line = refused(capfd, a, b, "--reference", "c", "--out", out)
    assert (status, "must be one of a, b" in line) == (2, True)
    assert not out.exists()


def test_hosts_that_had_nothing_to_do_with_each_other_are_refused(tmp_path, capfd):
    a, _ = two_hosts(tmp_path)
    others = split(HERE / "datagrams.arrows.zst", tmp_path / "o", own_time, own_time)
    status, line = refused(capfd, a, others[1], "--out", tmp_path / "out")
    assert (status, "cannot join" in line) == (1, True)
    assert "do not overlap" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_of_a_recording_that_breaks_off_what_is_there_is_joined(tmp_path, share):
    a, b = split(HERE / "ping-pong.arrows.zst", tmp_path, own_time, running_fast)
    whole = (b / NAME).read_bytes()
    (b / NAME).write_bytes(whole[: round(share * len(whole))])
    try:
        found = join([a, b], tmp_path / "out", lambda *_: None, JoinOptions())
    except LatprofError as error:
        assert "cannot" in str(error)
        return
    rows = pd.read_csv(tmp_path / "out/messages.csv")
    assert (rows["sender_host"].notna() & rows["reader_host"].notna()).any()
    assert any("breaks off" in text for text in found.summary["warnings"])


@pytest.mark.parametrize("seed", range(12))
def test_damage_is_said_in_one_line(tmp_path, capfd, seed):
    a, b = two_hosts(tmp_path)
    data = bytearray((b / NAME).read_bytes())
    random = np.random.default_rng(seed)
    for at in random.integers(0, len(data), 3):
        data[at] ^= int(random.integers(1, 256))
    (b / NAME).write_bytes(data)
    status = main(["join", str(a), str(b), "--out", str(tmp_path / "out"), "--json"])
    said = capfd.readouterr()
    assert status in (0, 1)
    assert len(said.err.strip().splitlines()) == status
    if not status:
        assert json.loads(said.out)["hosts"]


def test_analyze_and_report_read_a_joined_folder(tmp_path, capfd):
    a, b = two_hosts(tmp_path)
    out = tmp_path / "out"
    assert main(["join", str(a), str(b), "--out", str(out)]) == 0
    assert "a <-> b: offset " in capfd.readouterr().out
    assert main(["analyze", str(out)]) == 0
    assert "a <-> b: offset " in capfd.readouterr().out
    assert main(["report", str(out), "--out", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "The hosts' clocks" in page or "The hosts&#x27; clocks" in page


@pytest.mark.parametrize("name", ["busy-server", "sleeping-server", "c-mutex"])
def test_stories_are_those_of_the_host_that_was_slow(name):
    """A slow exchange of a client has what its server did on the other host."""
    whole, hosts = stories_of(name)
    assert len(hosts["stories"]) == len(whole["stories"]) > 0
    for story, plain in zip(hosts["stories"], whole["stories"], strict=True):
        message, truth = story["message"], plain["message"]
        assert message["reader_comm"] == f"{truth['reader_comm']} on b"
        assert message["reader_pid"] == truth["reader_pid"]
        assert message["sender_comm"] == f"{truth['sender_comm']} on a"
        parts, true_parts = (s["stages"]["server"]["parts"] for s in (story, plain))
        assert [p["kind"] for p in parts] == [p["kind"] for p in true_parts]
        assert [p["what"] for p in parts] == [p["what"] for p in true_parts]
        for part, true_part in zip(parts, true_parts, strict=True):
            # the hosts' clocks run apart
            allowed = 20 + 2e-4 * true_part["time_ns"]
            assert abs(part["time_ns"] - true_part["time_ns"]) <= allowed


def test_who_was_waited_for_is_followed_to_its_host():
    whole, hosts = stories_of("over-three", second=("middle", "last"))
    lines = [line_of(story) for story in hosts["stories"]]
    chains = [line for line in lines if "at middle on b (pid" in line]
    assert chains
    for line in chains:
        assert re.search("until store on a .* until last on b .* answered", line), line
    assert len(lines) == len(whole["stories"])


def test_a_segment_that_no_host_dropped_was_lost_between_them():
    _, hosts = stories_of("stories-of-losses")
    lines = [line_of(story) for story in hosts["stories"]]
    lost = [line for line in lines if ", lost" in line or "transit, lost" in line]
    assert lost
    for line in lost:
        assert re.search(r"between (a's driver and b's|b's driver and a's) stack", line)


def line_of(story: dict[str, Any]) -> str:
    return conclusion(story)


def stories_of(
    name: str, second: tuple[str, ...] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Stories of the whole recording, and of its hosts' that were joined."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "run").mkdir()
        shutil.copy(HERE / f"{name}.arrows.zst", folder / "run" / NAME)
        rebuild.rebuild(folder / "run", folder / "whole", lambda *_: None)
        clocks = own_time, running_fast
        hosts = split(folder / "run" / NAME, folder, *clocks, second=second)
        join(hosts, folder / "joined", lambda *_: None, JoinOptions())
        return tuple(
            json.loads((folder / made / "stories.json").read_text())
            for made in ("whole", "joined")
        )
