"""A comparison is the same in pieces and on a cluster; packed latencies are near."""

from __future__ import annotations

import json

import compared_runs
import made_runs
import pytest
from latprof_analysis.compare import compare_sides, document, read_sides, run_series
from latprof_analysis.errors import UsageError
from latprof_analysis.read import batches

# A packed latency is at most so far from itself; a ratio of two of them twice that.
PACKED = 0.00025


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Runs of a lab, of which one is slower, and of rows that lack this and that."""
    base = tmp_path_factory.mktemp("runs")
    lab = [("a", 1, 1.0, 0.0), ("b", 2, 1.0, 0.0), ("slow", 3, 1.1, 0.1)]
    made = [made_runs.write_run(base / f"made{i}", 900, seed=i) for i in (1, 2)]
    return [
        *(
            compared_runs.write_run(
                base / name, seed, rounds=2000, factors={"transit": factor}, lost=lost
            )
            for name, seed, factor, lost in lab
        ),
        *map(str, made),
    ]


def found_in(folders, **options):
    return json.loads(
        json.dumps(document(compare_sides(read_sides(folders, **options))))
    )


@pytest.mark.parametrize("chosen", [slice(0, 3), slice(3, 5)], ids=["lab", "made"])
def test_a_comparison_is_the_same_however_the_tables_are_cut(
    folders, monkeypatch, chosen
):
    whole = found_in(folders[chosen])
    monkeypatch.setattr(batches, "PIECE_BYTES", 200_000)
    assert found_in(folders[chosen]) == whole


def check_near(found, exact):
    """A value is as near as its latency; of ends that follow from ranks a tenth more.

    Values that fell into one bucket are equal, which moves how many are independent.
    """
    assert found["n"] == exact["n"]
    assert found["value_ns"] == pytest.approx(exact["value_ns"], rel=PACKED)
    for end in ("low_ns", "high_ns"):
        width = abs(exact[end] - exact["value_ns"]) if exact[end] else 0
        near = PACKED * exact["value_ns"] + 0.1 * width
        assert found[end] == pytest.approx(exact[end], abs=near)


def test_packed_latencies_give_the_same_words_and_nearly_the_same_figures(
    folders, monkeypatch
):
    exact = found_in(folders[:3])
    monkeypatch.setattr(run_series, "MOST_EXACT_ROWS", 0)
    monkeypatch.setattr(batches, "PIECE_BYTES", 200_000)
    packed = found_in(folders[:3])
    assert packed["counts"] == exact["counts"]
    assert packed["counts"][folders[2]]["slower"]
    checked = 0
    for before, after in zip(exact["groups"], packed["groups"], strict=True):
        for name, one in before["percentiles"].items():
            other = after["percentiles"][name]
            assert other["verdict"] == one["verdict"]
            for end in "ab":
                assert (other[end] is None) == (one[end] is None)
                if one[end]:
                    check_near(other[end], one[end])
                    checked += other[end]["value_ns"] != one[end]["value_ns"]
    assert checked > 20
    # what has no latencies is not packed
    assert packed["loss"] == exact["loss"]
    assert packed["throughput"] == exact["throughput"]


@pytest.mark.thorough
def test_a_cluster_compares_as_one_machine_does(folders, tmp_path, monkeypatch):
    from dask_clusters import running_scheduler, starting_workers

    monkeypatch.setattr(batches, "PIECE_BYTES", 200_000)
    expected = found_in(folders[:2])
    with (
        running_scheduler() as address,
        starting_workers(address, tmp_path) as start_workers,
    ):
        start_workers(2)
        assert found_in(folders[:2], dask=address) == expected


def test_a_cluster_reads_no_other_files(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("ms\n" + "2\n" * 50)
    with pytest.raises(UsageError, match="reads run folders only"):
        read_sides(
            [str(path)], latency_column="ms", unit="ms", dask="tcp://127.0.0.1:1"
        )
