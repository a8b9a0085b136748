"""Rows of round trips put together to trains, and what a run tells of them."""

import json

import numpy as np
import pandas as pd
import pytest
from known_trains import Hosts, prtt
from latprof_analysis import analyze, read_runs
from latprof_analysis.compare.sides import Group, read_sides
from latprof_analysis.fit.loggp import fit_loggp
from latprof_analysis.read.schema import ROUND_TRIPS
from latprof_analysis.stages import BLANK
from latprof_analysis.study.train_rows import COLUMNS, TrainRows, together
from run_folders import run_json
from simulated_links import Fifo

SIZES = [64, 1024, 16_384, 32_768, 65_000]
N, ROUNDS = 16, 30


def rows_of(*messages):
    """Numbers of rows; each message (sequence, sent, received, more columns)."""
    given = [
        {"sequence": sequence, "size_bytes": 64, "sent_ns": sent, "received_ns": came}
        | more
        for sequence, sent, came, more in messages
    ]
    return {name: np.array([g.get(name, BLANK) for g in given]) for name in COLUMNS}


def trains_of(*messages, per_round=4):
    rows = TrainRows()
    numbers = rows_of(*messages)
    half = len(messages) // 2  # as pieces of a file come
    for at in (np.arange(half), np.arange(half, len(messages))):
        part = TrainRows()
        part.add(numbers, at)
        rows.extend(part)
    return rows.trains(per_round)


THREE = {"train": 5, "train_messages": 3, "train_gap_ns": 0}


def test_a_train_lasts_from_its_first_send_to_its_last_reply():
    columns, left_out = trains_of(
        (10, 1000, 1900, {"send_returned_ns": 1030, "receive_called_ns": 1880}),
        (11, 2000, 2900, THREE),
        (12, 2010, 3100, THREE),
        (13, 2020, 3000, THREE),
        (14, 4000, 4500, {}),
    )
    assert left_out == {}
    assert columns["train_ns"].tolist() == [900, 500, 1100]
    rows = list(
        zip(
            columns["round_index"].tolist(),
            columns["messages"].tolist(),
            columns["send_ns"].tolist(),
            columns["receive_ns"].tolist(),
            strict=True,
        )
    )
    assert rows[0] == (0, 1, 30.0, 20.0)
    assert [row[:2] for row in rows] == [(0, 1), (1, 1), (0, 3)]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ({"received_ns": BLANK}, "a reply did not come"),
        ({"train": 6}, "it is not whole in the file"),
    ],
)
def test_a_train_with_a_message_that_spoils_it_is_left_out(second, why):
    columns, left_out = trains_of(
        (11, 2000, 2900, THREE),
        (12, 2010, 3100, THREE | second),
        (13, 2020, 3000, THREE),
    )
    assert columns["messages"].size == 0
    assert set(left_out) == {why}


def test_trains_that_others_met_on_their_way_are_left_out():
    columns, left_out = trains_of(
        (11, 2000, 2900, THREE),
        (12, 2010, 3100, THREE),
        (13, 2020, 3000, THREE),
        (14, 3050, 3500, {}),
        (15, 3600, 3700, {}),
    )
    assert columns["train_ns"].tolist() == [100]
    assert left_out == {"others were on their way": 2}


def test_rounds_of_several_runs_are_apart():
    one = [trains_of((1, 10, 20, {}), (5, 30, 40, {})) for _ in range(2)]
    columns, _ = together(one)
    assert columns["round_index"].tolist() == [0, 1, 2, 3]


def write_run(folder, *, trains=True):
    """A run of single messages and trains over 100 Mbit/s and 1 ms."""
    rng = np.random.default_rng(1)
    hosts = Hosts(gap_ns=0.0)
    took = {(n, s): prtt(Fifo, hosts, n, 0.0, s, s) for n in (1, N) for s in SIZES}
    rows, sequence, t_ns, number = [], 0, 10**9, 0
    turns = list(took)
    for _ in range(ROUNDS):
        for k in rng.permutation(len(turns)).tolist():
            n, size = turns[k]
            each = (took[N, size] - took[1, size]) / (N - 1)
            late = int(rng.exponential(3000))
            number += n > 1
            for i in range(n):
                sequence += 1
                sent = t_ns + 1000 * i
                come = round(t_ns + took[1, size] + i * each) + late
                alone = n == 1
                rows.append(
                    {
                        "protocol": "udp",
                        "sequence": sequence,
                        "size_bytes": size,
                        "reply_bytes": size,
                        "intended_ns": sent,
                        "sent_ns": sent,
                        "received_ns": come,
                        "rtt_ns": come - sent,
                        "lost": 0,
                        "train": None if alone else number,
                        "train_messages": None if alone else n,
                        "train_gap_ns": None if alone else 0,
                        "send_returned_ns": sent + 1000 + int(rng.exponential(200)),
                        "receive_called_ns": come - 700 - int(rng.exponential(200)),
                    }
                )
            t_ns += 2 * 10**8
    frame = pd.DataFrame(rows, columns=ROUND_TRIPS.names)
    plan = {"train_messages": N, "train_gap_ns": 0}
    if not trains:
        frame = frame[frame["train"].isna()]
        frame = frame.assign(sequence=np.arange(len(frame))).iloc[:, :10]
        plan = {}
    whole = frame.columns[1:]
    frame[whole] = frame[whole].astype("Int64")
    run = run_json("echo", SIZES)
    run["workload"]["plan"] |= plan
    folder.mkdir(parents=True)
    frame.to_csv(folder / "round_trips.csv", index=False)
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "summary.json").write_text(json.dumps({"format": 1, "state": "done"}))
    return folder


def test_a_run_tells_loggp_and_single_messages_what_they_told_without_trains(tmp_path):
    whole = analyze(write_run(tmp_path / "trains")).document["round_trips"]["udp"]
    alone = analyze(write_run(tmp_path / "alone", trains=False))
    alone = alone.document["round_trips"]["udp"]
    found = whole.pop("loggp")
    assert alone.pop("loggp") is None
    # the same single messages, in the same rounds
    assert whole.pop("fit") == alone.pop("fit")
    assert whole["sent"] == alone["sent"] == ROUNDS * len(SIZES)
    assert whole["sizes"] == alone["sizes"]
    assert whole["tail"] == alone["tail"]

    assert found["model"] == "line"
    assert (found["messages"], found["rounds"]) == (N, ROUNDS)
    assert found["n"] == 2 * ROUNDS * len(SIZES)
    assert found["gap_per_byte_ns"]["value"] == pytest.approx(80, rel=0.003)
    assert found["send_overhead_ns"]["value"] == pytest.approx(1020, abs=30)
    assert found["receive_overhead_ns"]["value"] == pytest.approx(720, abs=30)


def test_samples_and_comparisons_are_of_single_messages(tmp_path):
    folder = write_run(tmp_path / "trains")
    runs = read_runs(folder)
    assert len(runs.round_trips) == ROUNDS * len(SIZES) * (1 + N)
    assert len(runs.samples().frame) == ROUNDS * len(SIZES)
    (side,) = read_sides([str(folder)])
    (trips,) = side.trips[Group("udp", "rtt", -1)]
    assert trips.sent_ns.size == ROUNDS * len(SIZES)


@pytest.mark.parametrize("seed", range(4))
def test_no_cell_of_a_train_breaks_what_is_made_of_a_run(tmp_path, seed):
    rng = np.random.default_rng(seed)
    path = write_run(tmp_path / "run") / "round_trips.csv"
    rows = pd.read_csv(path, dtype="string")
    for name in (*ROUND_TRIPS.names[3:8], *ROUND_TRIPS.names[9:]):
        at = rng.random(len(rows)) < 0.02
        value = rng.choice(["", "0", "1", "17", str(2**62)])
        rows.loc[at, name] = value or pd.NA
    rows.to_csv(path, index=False)
    found = analyze(path.parent).document["loggp"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert sum(found["left_out"].values()) > 0


def test_pooled_runs_tell_loggp_of_all_their_trains(tmp_path):
    folders = [write_run(tmp_path / name) for name in "ab"]
    found = analyze(folders).document["loggp"]
    assert found["n"] == 4 * ROUNDS * len(SIZES)
    assert found["rounds"] == 2 * ROUNDS


def test_a_run_without_single_messages_tells_why_it_has_no_loggp():
    found = fit_loggp([64] * 9, [N] * 9, [0] * 9, [9] * 9, range(9), reply_mode="echo")
    assert found.model == "none"
