"""Recorded scenarios: what is made of them is what their programs counted themselves.

tests/recordings/record.py made them; that they come out the same however they are cut
into steps, and at whatever time, needs no truth but themselves.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from latprof_agent.cli import main
from latprof_agent.rebuild import rebuild
from latprof_analysis.records.recording import NAME, PERIODS, Recording, Step
from latprof_analysis.report.story_lines import conclusion

HERE = Path(__file__).parents[1] / "recordings"
# By name, of other kernels behind their number: 6.1/quic.
TRUTH = {
    str(path.relative_to(HERE).with_suffix("")): json.loads(path.read_text())
    for path in sorted(HERE.glob("**/*.json"))
}
TABLES = ("messages", "exchanges", "other_turns", "round_trips")
HOUR_NS = 3_600_000_000_000
Change = Callable[[Iterator[Step]], Iterator[Step]]


def having(key: str) -> list[str]:
    return [name for name, truth in TRUTH.items() if key in truth]


def rebuilt(name: str, change: Change | None = None) -> dict[str, Any]:
    """Tables as lines, and the summary, of a recording whose steps may be changed."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        run, out = Path(folder) / "run", Path(folder) / "again"
        run.mkdir()
        shutil.copy(HERE / f"{name}.arrows.zst", run / NAME)
        if change:
            steps = Recording.steps
            patch.setattr(
                Recording, "steps", lambda recording: change(steps(recording))
            )
        made = rebuild.rebuild(run, out, lambda *_: None)
        found: dict[str, Any] = {t: pd.read_csv(out / f"{t}.csv") for t in TABLES}
        if (stories := out / "stories.json").exists():
            found["stories"] = json.loads(stories.read_text())
        return found | {"summary": made.summary}


@cache
def plain(name: str) -> dict[str, Any]:
    return rebuilt(name)


@pytest.mark.parametrize("name", having("exchanges"))
def test_there_is_an_exchange_for_each_answer(name):
    assert len(plain(name)["exchanges"]) == TRUTH[name]["exchanges"]


@pytest.mark.parametrize("name", having("sent"))
def test_there_is_a_whole_message_for_each_send_call(name):
    messages = plain(name)["messages"]
    whole = messages[(messages["send_ns"] > 0) & (messages["read_ns"] > 0)]
    assert len(whole) == len(messages) == TRUTH[name]["sent"]


@pytest.mark.parametrize("name", having("translated"))
def test_messages_whose_addresses_a_nat_changed_say_so(name):
    assert plain(name)["messages"]["translated"].sum() == TRUTH[name]["translated"]


@pytest.mark.parametrize("name", having("retransmits"))
def test_segments_that_were_sent_again_are_as_many_as_tcp_counts(name):
    assert plain(name)["messages"]["retransmits"].sum() == TRUTH[name]["retransmits"]


@pytest.mark.parametrize("name", list(TRUTH))
def test_no_more_was_sent_again_needlessly_than_was_sent_again(name):
    summary = plain(name)["summary"]
    again = sum(kind["retransmits"] for kind in summary["kinds"].values())
    assert 0 <= summary["needless_retransmits"] <= again


@pytest.mark.parametrize("name", having("cause"))
def test_the_cause_of_a_slow_message_is_the_one_that_was_planted(name):
    cause = TRUTH[name]["cause"]
    stories = plain(name)["stories"]["stories"]
    assert len(stories) == cause["messages"]
    for one in stories:
        planted = others = 0
        for part in one["stages"][cause["stage"]]["parts"]:
            is_it = part["kind"] == cause["kind"] and cause["what"] in part["what"]
            if "who" in cause:
                first = next(iter(part["who"]), {"comm": ""})
                is_it &= first["comm"].startswith(cause["who"])
                lower = first.get("lower_class", False)
                is_it &= lower == cause.get("lower_class", False)
            planted += part["time_ns"] * is_it
            others += part["time_ns"] * (not is_it)
        assert planted >= cause["least_ms"] * 1e6
        assert planted > 3 * others


def in_plain_words(story: dict[str, Any]) -> str:
    """Its conclusion without times, numbers of threads and functions that were busy."""
    text = re.sub(r"[\d.]+ (ns|us|ms|s)\b", "T", conclusion(story))
    text = re.sub(r" for T(?=, until|, while|$)", "", text)
    text = re.sub(r"(?<=: busy) in .*", ")", text)
    text = text.replace("(pipe_read)", "(anon_pipe_read)")  # until Linux 6.14
    text = re.sub(r"[\d.]+(?=%| kB)|(?<=tbf )\w+", "N", text)
    return re.sub(r"(?<=thread )\d+", "N", text)


def last_peers(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The other ends at the ends of all chains of those that were waited for."""
    found = []
    for who in (who for part in parts for who in part.get("who", ())):
        further = last_peers(who.get("did", []))
        found += further or ([who["peer"]] if "peer" in who else [])
    return found


@pytest.mark.parametrize("name", having("chain"))
def test_whom_a_thread_waited_for_is_followed_to_who_had_the_time(name):
    """Within what the program's own clocks say, who was asked and who asked."""
    chain = TRUTH[name]["chain"]
    stories = [
        one
        for one in plain(name)["stories"]["stories"]
        if one["message"]["reader_comm"] == chain["reader"]
        and chain["stage"] in one["stages"]
        and one["stages"][chain["stage"]]["parts"]
    ]
    stories.sort(key=lambda one: one["message"]["ready_ns"])
    for place, (one, asked_ms) in enumerate(
        zip(stories, chain["asked_ms"], strict=True)
    ):
        assert in_plain_words(one).endswith(chain["words"])
        stage = one["stages"][chain["stage"]]
        assert stage["time_ns"] <= asked_ms * 1e6
        # a client asks: it answers nothing
        peers = [peer for peer in last_peers(stage["parts"]) if peer["answers"]]
        for peer in peers:
            assert peer["stage_ns"] >= chain["works_ms"][place] * 1e6
            assert peer["stage_ns"] <= peer["whole_ns"] <= asked_ms * 1e6


@pytest.mark.parametrize("name", having("cause"))
def test_what_a_reader_has_answered_it_has_not_in_hand(name):
    """Each request is answered before the next is sent."""
    for one in plain(name)["stories"]["stories"]:
        reads = one["stages"].get("receive_queue", {}).get("reads")
        senders = reads["senders"] if reads else ()
        assert not any(sender["in_hand"] for sender in senders)


@pytest.mark.parametrize("name", having("throttled_ms"))
def test_throttled_time_is_what_the_kernel_sums_up(name):
    parts = [
        part
        for one in plain(name)["stories"]["stories"]
        for part in one["stages"]["receive_queue"]["parts"]
    ]
    found_ns = sum(part["time_ns"] for part in parts if part["kind"] == "throttled")
    assert found_ns / 1e6 == pytest.approx(TRUTH[name]["throttled_ms"], rel=0.01)


@pytest.mark.parametrize("name", having("response_ms"))
def test_the_longest_response_is_as_long_as_for_the_client(name):
    took_ms = plain(name)["exchanges"]["response_ns"] / 1e6
    shortest, longest = TRUTH[name]["response_ms"]
    assert longest - max(0.1, 0.02 * longest) <= took_ms.max() <= longest
    assert took_ms.min() <= shortest


@pytest.mark.parametrize("name", having("unanswered"))
def test_requests_without_an_answer_have_what_ended_the_waiting(name):
    turns = plain(name)["other_turns"]
    assert turns["outcome"].value_counts().to_dict() == TRUTH[name]["unanswered"]


@pytest.mark.parametrize("name", having("handshakes"))
def test_handshakes_are_no_exchanges(name):
    turns = plain(name)["other_turns"]
    assert set(turns["kind"]) == {"handshake"}
    assert len(turns) == TRUTH[name]["handshakes"]


@pytest.mark.parametrize("name", having("no_exchange"))
def test_where_both_ends_talk_at_once_nothing_is_an_exchange(name):
    causes = plain(name)["summary"]["no_exchange"]
    counted = sum(sum(of.values()) for of in causes.values())
    assert counted == TRUTH[name]["no_exchange"]


@pytest.mark.parametrize("name", having("not_ready"))
def test_what_became_readable_unseen_has_no_such_stamp(name):
    messages = plain(name)["messages"]
    assert int(messages["ready_ns"].isna().sum()) == TRUTH[name]["not_ready"]


@pytest.mark.parametrize("name", having("datagrams"))
def test_datagrams_that_were_dropped_or_never_read_are_told_apart(name):
    truth, found = TRUTH[name], plain(name)
    messages = found["messages"]
    assert len(messages) == truth["datagrams"]
    assert int((messages["read_ns"] > 0).sum()) == truth["received"]
    assert found["summary"]["unread_at_close"] == truth.get("unread", 0)


@pytest.mark.parametrize("name", having("round_trips"))
def test_all_round_trips_of_the_generator_are_there(name):
    trips = plain(name)["round_trips"]
    idle = trips[trips["phase"] != "loaded"] if "phase" in trips else trips
    idle = idle[idle["train"].isna()] if "train" in idle else idle
    for protocol, sent in TRUTH[name]["round_trips"].items():
        assert int((idle["protocol"] == protocol).sum()) == sent
    summary = plain(name)["summary"]
    assert not any(summary["lost_records"].values())
    assert summary["stamps_backwards"] == 0


@pytest.mark.parametrize("name", having("servers"))
def test_forked_workers_have_their_names_and_numbers(name):
    servers = plain(name)["exchanges"]
    assert set(servers["server_comm"]) == {"answers"}
    assert servers["server_pid"].nunique() == TRUTH[name]["servers"]


def cut(steps: Iterator[Step]) -> Iterator[Step]:
    """Each step in two: the first half of the records came, and nothing is settled."""
    drained_ns = 0
    for step in steps:
        if step.drained_ns is None:
            yield step
            continue
        halves = [
            {ring: records[part] for ring, records in step.rings.items()}
            for part in (slice(None, None, 2), slice(1, None, 2))
        ]
        yield dataclasses.replace(step, drained_ns=drained_ns, rings=halves[0])
        drained_ns = step.drained_ns
        yield dataclasses.replace(step, rings=halves[1], notes=[], logs=[])


def joined(steps: Iterator[Step]) -> Iterator[Step]:
    """Two steps in one, where both are of records."""
    held: Step | None = None
    for step in steps:
        if held and step.drained_ns is not None:
            rings = {n: np.r_[held.rings[n], step.rings[n]] for n in step.rings}
            periods = np.r_[held.beside[PERIODS], step.beside[PERIODS]]
            notes, logs = [*held.notes, *step.notes], [*held.logs, *step.logs]
            beside = {**step.beside, PERIODS: periods}
            yield Step(step.drained_ns, rings, beside, logs, notes)
            held = None
            continue
        if held:
            yield held
            held = None
        if step.drained_ns is None:
            yield step
        else:
            held = step
    if held:
        yield held


def reversed_order(steps: Iterator[Step]) -> Iterator[Step]:
    """Of a step the last record comes first, and so the last ring.

    But announcements of flows: the probes make one at a time, each before what is of
    it, and of two that a NAT makes of one flow the first has the name.
    """
    for step in steps:
        rings = {
            name: records if name == "flows" else records[::-1]
            for name, records in step.rings.items()
        }
        yield dataclasses.replace(step, rings=dict(reversed(rings.items())))


def later(steps: Iterator[Step]) -> Iterator[Step]:
    """All an hour later; what did not happen still did not."""
    for step in steps:
        for records in (*step.rings.values(), step.beside[PERIODS]):
            for field in records.dtype.names:
                if field.endswith("_ns") and records[field].itemsize == 8:
                    records[field][records[field] > 0] += HOUR_NS
        drained_ns = step.drained_ns and step.drained_ns + HOUR_NS
        yield dataclasses.replace(step, drained_ns=drained_ns)


def lines(table: pd.DataFrame, shift_ns: int = 0) -> list[str]:
    """Its rows in any order, earlier by so much; which of two was first may change."""
    table = table.copy()
    for column in table.columns[table.columns.str.endswith("_ns")]:
        stamp = pd.to_numeric(table[column], errors="coerce") > HOUR_NS
        table.loc[stamp, column] = table.loc[stamp, column] - shift_ns
    return sorted(table.to_csv(index=False).splitlines())


@pytest.mark.parametrize("name", ["ping-pong", "mesh", "stories", "unanswered"])
def test_of_a_recording_that_breaks_off_every_screen_says_so(name, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    whole = (HERE / f"{name}.arrows.zst").read_bytes()
    (run / NAME).write_bytes(whole[: len(whole) * 4 // 5])
    again = str(tmp_path / "again")
    assert main(["rebuild", str(run), f"--out={again}", "--all"]) == 0
    assert "breaks off before its run's end" in capsys.readouterr().out
    summary = json.loads((Path(again) / "summary.json").read_text())
    assert "cost" not in summary
    assert (summary["records"] > 0) == (name != "unanswered")  # too short
    for words in (["analyze"], ["analyze", "--all"], ["analyze", "--json"]):
        assert main([*words, again]) == 0
        assert "Traceback" not in capsys.readouterr().err
    if name == "stories":
        assert main(["story", again]) == 0
        told = capsys.readouterr().out
        assert "the recording breaks off before them" in told
        assert "may not open their files" not in told


# What the generator logs is at its own times, which are not changed here.
TALKS = [name for name, truth in TRUTH.items() if "round_trips" not in truth]


@pytest.mark.parametrize("change", [cut, joined, reversed_order, later])
@pytest.mark.parametrize("name", TALKS)
def test_rows_are_the_same_however_they_came(name, change):
    before, after = plain(name), rebuilt(name, change)
    shift_ns = HOUR_NS if change is later else 0
    for table in TABLES:
        assert lines(after[table], shift_ns) == lines(before[table]), table
    assert after["summary"]["no_exchange"] == before["summary"]["no_exchange"]
    assert after["summary"]["unmatched"] == before["summary"]["unmatched"]
