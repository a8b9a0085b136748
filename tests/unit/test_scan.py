"""A scan gives the figures of the rows, however they are cut and parsed."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pandas as pd
import pytest
from latprof_analysis.errors import LatprofError
from latprof_analysis.read import ReadError, batches, cells, read_runs
from latprof_analysis.stages import BLANK, STAMPS
from latprof_analysis.stats.histogram import bucket_edges
from latprof_analysis.study import drawn, grouped, scan
from latprof_analysis.study.analysis import analyze
from latprof_analysis.study.scan import scan_runs
from made_runs import SIZES, as_parquet, messages, round_trips, write_run, write_table

PERCENTILES = {
    "p50_ns": 0.5,
    "p90_ns": 0.9,
    "p95_ns": 0.95,
    "p99_ns": 0.99,
    "p99.9_ns": 0.999,
}


def figures(found: scan.Scan) -> str:
    """All figures of a scan as text, so that their order counts, too."""
    parts = {
        "kinds": found.messages.as_dict(),
        "slowest": found.messages.slowest,
        "missing": found.messages.missing,
        "trips": {name: t.as_dict() for name, t in found.trip_totals.items()},
        "rows": sorted(found.row_counts.items()),
        "skipped": [str(row) for row in found.skipped],
    }
    return json.dumps(parts)


def check_same(found: scan.Scan, expected: scan.Scan) -> None:
    assert figures(found) == figures(expected)
    for name in ("message_rows", "slow_rows", "round_trip_rows"):
        one, other = getattr(found, name), getattr(expected, name)
        pd.testing.assert_frame_equal(one, other, check_categorical=False)
    assert set(found.lost) == set(expected.lost)
    for kind, lost in found.lost.items():
        np.testing.assert_array_equal(lost, expected.lost[kind])
    assert set(found.trips) == set(expected.trips)
    for key, trips in found.trips.items():
        for name, values in vars(trips).items():
            np.testing.assert_array_equal(values, vars(expected.trips[key])[name])


def half_bucket(value: float) -> float:
    edges = bucket_edges()
    at = np.searchsorted(edges, value, side="right")
    return (edges[at] - edges[at - 1]) / 2


def check_percentiles(found: dict, values: pd.Series) -> None:
    """Percentiles are those of the values, within half a bucket of the histogram."""
    assert found["n"] == len(values)
    assert found["max_ns"] == values.max()
    for name, p in PERCENTILES.items():
        if found[name] is not None:
            exact = np.quantile(values, p, method="inverted_cdf")
            assert abs(found[name] - exact) <= half_bucket(exact) + 0.5


def test_percentiles_by_kind_stage_and_size_are_those_of_a_groupby(tmp_path):
    folder = write_run(tmp_path / "run", 6000)
    kinds = scan_runs(folder).messages.as_dict()
    frame = pd.read_csv(folder / "messages.csv")
    frame = frame[frame["end_to_end_ns"].notna() & (frame["kind"] != "warmup")]
    checked = 0
    for (protocol, kind), part in frame.groupby(["protocol", "kind"]):
        found = kinds[f"{protocol} {kind}"]
        for stage in ("send_queue", "transit", "receive_queue", "end_to_end"):
            values = part[f"{stage}_ns"].dropna()
            check_percentiles(found["stages"][stage], values)
            for size, of_size in part.groupby("size_bytes"):
                values = of_size[f"{stage}_ns"].dropna()
                check_percentiles(found["sizes"][str(size)][stage], values)
                checked += 1
        for packets, of_packets in part.groupby("packets"):
            values = of_packets["end_to_end_ns"]
            check_percentiles(found["by_packets"][str(packets)], values)
    assert checked == 4 * 4 * len(SIZES)


@pytest.mark.parametrize("way", ["pieces", "column by column", "parquet"])
def test_figures_and_rows_are_the_same_however_a_run_is_read(
    tmp_path, monkeypatch, way
):
    folder = write_run(tmp_path / "run", 400)
    expected = scan_runs(folder)
    if way == "pieces":
        monkeypatch.setattr(batches, "PIECE_BYTES", 3000)
    elif way == "column by column":
        monkeypatch.setattr(cells, "_is_odd", lambda data, columns: True)
        monkeypatch.setattr(batches, "PIECE_ROWS", 100)
        for table in ("messages", "round_trips"):
            as_parquet(folder / f"{table}.csv")
    check_same(scan_runs(folder), expected)


@pytest.mark.parametrize("piece_bytes", [3000, 1 << 24])
def test_lost_datagrams_are_told_in_the_order_of_sending_whatever_the_files(
    tmp_path, monkeypatch, piece_bytes
):
    monkeypatch.setattr(batches, "PIECE_BYTES", piece_bytes)
    expected: dict[str, list[bool]] = {}
    for name, seed in (("one", 1), ("two", 2)):
        write_run(tmp_path / name, 600, seed=seed)
        rows = messages(600, seed)
        rng = np.random.default_rng(seed)
        for i in rng.choice(600, 80, replace=False):
            rows[i] |= dict.fromkeys(("arrive_ns", "ready_ns", "read_ns"))
        # what nobody sent, and what arrived from a sender that was not seen
        rows[11] |= dict.fromkeys(f"{stamp}_ns" for stamp in STAMPS)
        rows[15] |= dict.fromkeys(("created_ns", "send_ns", "queue_ns", "xmit_ns"))
        frame = pd.DataFrame(rows)
        frame = frame[(frame["kind"] != "warmup") & (frame["protocol"] == "udp")]
        frame["since"] = frame["send_ns"].fillna(frame["queue_ns"])
        for kind, part in frame.dropna(subset="since").groupby("kind"):
            sent = part.sort_values("since")
            lost = sent["arrive_ns"].isna() & sent["read_ns"].isna()
            expected.setdefault(f"udp {kind}", []).extend(lost)
        # a recorder writes what was lost last
        late = sorted(rows, key=lambda row: row["read_ns"] is None)
        write_table(tmp_path / name / "messages.csv", late)
    found = scan_runs(tmp_path).lost
    assert {kind: lost.tolist() for kind, lost in found.items()} == expected
    assert 0 < sum(map(sum, expected.values())) < 160


def test_round_trips_have_their_tail_and_messages_their_losses_however_many(
    tmp_path, monkeypatch
):
    write_run(tmp_path / "run", 6000)
    whole = analyze(tmp_path / "run").document
    for module in (drawn, scan):
        monkeypatch.setattr(module, "EVEN_ROWS", 500)
    some = analyze(tmp_path / "run").document
    assert some["thinned"]["messages"]["of"] == 6000
    assert some["round_trips"] == whole["round_trips"]
    (n,) = {t["tail"]["n"] for t in some["round_trips"].values()}
    assert n == 3000 - 3000 // 20
    for kind in ("udp request", "udp reply"):
        assert some["messages"][kind]["loss"] == whole["messages"][kind]["loss"]
    # one in 50 died, of which every other one is a datagram
    assert some["messages"]["udp reply"]["loss"]["share"]["lost"] == 60


def test_losses_of_which_no_end_was_seen_are_none(tmp_path):
    folder = write_run(tmp_path / "run")
    rows = messages(300)
    for reply in (row for row in rows if row["kind"] == "reply"):
        reply.update(dict.fromkeys(("arrive_ns", "ready_ns", "read_ns")))
    write_table(folder / "messages.csv", rows)
    assert set(scan_runs(folder).lost) == {"udp request"}


def test_losses_of_other_programs_have_the_names_of_their_ways(tmp_path, monkeypatch):
    # more ways than are told apart: those of one port are one, or all to servers
    monkeypatch.setattr(grouped, "MOST_WAYS", 3)
    monkeypatch.setattr(batches, "PIECE_BYTES", 3000)
    folder = write_run(tmp_path / "run")
    rows = messages(300)
    for i, row in enumerate(rows):
        if row["kind"] == "request":
            row |= {"kind": "message", "way": f"curl -> 10.0.0.{i % 40}:{80 + i % 2}"}
    write_table(folder / "messages.csv", rows)
    found = scan_runs(folder)
    kinds = {kind for kind in found.messages.as_dict() if kind.startswith("udp")}
    assert set(found.lost) == kinds
    assert sum(map(len, found.lost.values())) == sum(
        row["protocol"] == "udp" and row["kind"] != "warmup" for row in rows
    )


def test_several_runs_are_summed_up_together(tmp_path):
    for name, count in (("one", 40), ("two", 60)):
        write_run(tmp_path / name, count, seed=count)
    found = scan_runs(tmp_path)
    assert found.row_counts == {
        **{("one", "messages"): 40, ("one", "round_trips"): 20},
        **{("two", "messages"): 60, ("two", "round_trips"): 30},
    }
    assert set(found.trips) == {("one", "udp"), ("two", "udp")}
    rows = found.message_rows
    assert rows["run"].value_counts().to_dict() == {"one": 40, "two": 60}
    assert found.documents["one"]["summary"] == {"format": 1}
    expected = read_runs(tmp_path).messages
    pd.testing.assert_frame_equal(rows, expected, check_categorical=False)


def test_rows_to_draw_are_even_ones_and_apart_the_slowest_of_each_kind(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(drawn, "EVEN_ROWS", 100)
    monkeypatch.setattr(scan, "EVEN_ROWS", 100)
    monkeypatch.setattr(drawn, "SLOWEST_ROWS", 7)
    monkeypatch.setattr(batches, "PIECE_BYTES", 20_000)
    folder = write_run(tmp_path / "run", 2000)
    rows = read_runs(folder).messages
    found = scan_runs(folder)
    even, slow = found.message_rows, found.slow_rows
    for frame in (even, slow):
        assert list(frame.columns) == list(rows.columns)
        assert frame["sequence"].is_monotonic_increasing
    # a piece's last rows may be too few for one of them
    assert 90 <= len(even) <= 100
    assert np.diff(even["sequence"]).max() <= 3 * 2000 / 100
    assert not set(even["sequence"]) & set(slow["sequence"])
    for _, part in rows.groupby(["protocol", "kind"], observed=True):
        slowest = part.nlargest(7, "end_to_end_ns")["sequence"]
        assert set(slowest) <= set(even["sequence"]) | set(slow["sequence"])
    assert len(slow) <= 7 * 6


def test_of_kinds_that_take_turns_each_has_its_share_of_the_rows_to_draw(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(drawn, "EVEN_ROWS", 200)
    monkeypatch.setattr(scan, "EVEN_ROWS", 200)
    monkeypatch.setattr(scan, "STRETCH_ROWS", 300)
    folder = write_run(tmp_path / "run", 4000)
    rows = read_runs(folder).messages
    found = scan_runs(folder)
    even = found.message_rows
    shares = even["kind"].value_counts(normalize=True)
    assert shares["request"] == pytest.approx(0.5, abs=0.1)  # 3 sigma of 200
    # what needs neighbours has them: the first rows, none left out
    stretch = found.stretch_rows
    assert stretch["sequence"].tolist() == rows["sequence"].tolist()[:300]
    assert set(even.columns) == set(stretch.columns)


def test_where_nothing_is_thinned_all_rows_are_the_stretch(tmp_path):
    found = scan_runs(write_run(tmp_path / "run", 50))
    assert found.rows["stretch"] is found.rows["messages"]


def _ended(task):
    os.kill(os.getpid(), signal.SIGKILL)


def test_processes_find_what_one_finds(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "PIECE_BYTES", 20_000)
    folder = write_run(tmp_path / "run", 1000)
    alone = scan_runs(folder)
    monkeypatch.setattr(scan, "ROWS_FOR_PROCESSES", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    check_same(scan_runs(folder), alone)


def test_a_process_that_is_killed_is_told_in_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "PIECE_BYTES", 20_000)
    folder = write_run(tmp_path / "run", 1000)
    monkeypatch.setattr(scan, "ROWS_FOR_PROCESSES", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(scan, "scan_piece", _ended)
    with pytest.raises(LatprofError, match="was ended: was there too little memory"):
        scan_runs(folder)


def test_round_trips_keep_their_rounds_times_and_losses(tmp_path):
    folder = write_run(tmp_path / "run", 300)
    expected = pd.DataFrame(round_trips(150))
    found = scan_runs(folder).trips["run", "udp"]
    assert found.size_bytes.dtype == np.uint32
    assert found.size_bytes.tolist() == expected["size_bytes"].tolist()
    assert found.rtt_ns.tolist() == expected["rtt_ns"].fillna(BLANK).tolist()
    assert found.sent_ns.tolist() == expected["sent_ns"].tolist()
    assert found.lost.tolist() == (expected["lost"] == 1).tolist()
    assert found.round_index.tolist() == [i // 3 for i in range(150)]


def test_without_a_generator_a_round_is_how_often_the_size_was_sent(tmp_path):
    folder = write_run(tmp_path / "run", 60)
    (folder / "run.json").write_text('{"state": "done", "workload": {"plan": null}}')
    found = scan_runs(folder).trips["run", "udp"]
    assert found.round_index.tolist() == [i // 3 for i in range(30)]


@pytest.mark.parametrize(
    "text", ["[]", '{"workload": [1]}', '{"workload": {"plan": 7}}']
)
def test_a_run_that_tells_nonsense_of_itself_is_read(tmp_path, text):
    folder = write_run(tmp_path / "run", 60)
    (folder / "run.json").write_text(text)
    found = scan_runs(folder).trips["run", "udp"]
    assert found.round_index.tolist() == [i // 3 for i in range(30)]


def test_wrong_rows_are_told_by_their_line_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "PIECE_BYTES", 3000)
    folder = write_run(tmp_path / "run", 200)
    path = folder / "messages.csv"
    text = path.read_text().splitlines()
    for line in (5, 150, 199):
        text[line - 1] = "tcp,spoiled"
    path.write_text("\n".join(text) + "\n")
    found = scan_runs(folder)
    columns = text[0].count(",") + 1
    assert [str(row) for row in found.skipped] == [
        f"{path}:{line}: 2 fields where {columns} belong" for line in (5, 150, 199)
    ]
    assert found.skipped_rows == 3
    assert found.row_counts["run", "messages"] == 197


def test_a_killed_run_is_read_as_far_as_it_goes_and_noted(tmp_path):
    folder = write_run(tmp_path / "run", 20)
    (folder / "summary.json").unlink()
    (folder / "round_trips.csv").unlink()
    path = folder / "messages.csv"
    path.write_text(path.read_text()[:-3])
    found = scan_runs(folder)
    assert found.row_counts == {("run", "messages"): 19}
    assert found.round_trip_rows.empty
    assert found.notes == read_runs(folder).notes
    assert "it was cut" in found.skipped[0].why


def test_a_table_by_itself_is_read(tmp_path):
    path = write_table(tmp_path / "m.csv", messages(0))
    path = write_table(tmp_path / "messages.csv", messages(30)).rename(path)
    assert list(scan_runs(path).row_counts.values()) == [30]


def test_what_is_no_run_is_refused_in_one_line(tmp_path):
    path = tmp_path / "x.csv"
    with pytest.raises(ReadError, match="the folder has none of messages"):
        scan_runs(tmp_path)
    path.write_text("Size = 18 bytes, average latency = 3 ms\n")
    with pytest.raises(ReadError, match="it is no run folder, and no table of one"):
        scan_runs(path)


def test_a_table_with_any_number_of_kinds_is_refused(tmp_path):
    rows = [{**row, "kind": f"k{i}"} for i, row in enumerate(messages(80))]
    path = write_table(tmp_path / "messages.csv", rows)
    with pytest.raises(ReadError, match=f"{path}: kinds of messages must be at most"):
        scan_runs(tmp_path)


def test_a_file_of_which_most_rows_are_wrong_is_refused(tmp_path):
    path = write_table(tmp_path / "messages.csv", messages(5))
    path.write_text(path.read_text() + "tcp\n" * 6)
    with pytest.raises(ReadError, match="most rows are wrong"):
        scan_runs(tmp_path)


def test_progress_ends_with_all_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "PIECE_BYTES", 3000)
    told = []
    scan_runs(
        write_run(tmp_path / "run", 200), progress=lambda *rows: told.append(rows)
    )
    done, planned = zip(*told, strict=True)
    assert list(done) == sorted(done)
    assert done[-1] == planned[-1]
    assert len(done) > 5
