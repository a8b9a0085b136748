"""A Dask cluster gives the same answer, also when a worker dies in the middle."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from dask_clusters import running_scheduler, starting_workers
from latprof_analysis.errors import LatprofError, UsageError
from latprof_analysis.read import ReadError, batches
from latprof_analysis.study import cluster
from latprof_analysis.study.cluster import ClusterError
from latprof_analysis.study.scan import scan_runs
from made_runs import write_run
from test_scan import check_same


@pytest.fixture(scope="module")
def scheduler():
    """A scheduler without workers, on the loopback interface."""
    with running_scheduler() as address:
        yield address


@pytest.fixture
def start_workers(scheduler, tmp_path):
    """Start workers as processes that nobody starts again."""
    with starting_workers(scheduler, tmp_path) as start:
        yield start


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run folder in many pieces, with wrong rows far from its beginning."""
    monkeypatch.setattr(batches, "PIECE_BYTES", 20_000)
    folder = write_run(tmp_path / "run", 4000)
    path = folder / "messages.csv"
    text = path.read_text().splitlines()
    for line in (5, 3000):
        text[line - 1] = "tcp,spoiled"
    path.write_text("\n".join(text) + "\n")
    return folder


@pytest.mark.thorough
def test_a_cluster_gives_the_answer_of_one_machine_though_a_worker_dies(
    folder, start_workers, scheduler, monkeypatch
):
    monkeypatch.chdir(folder.parent)  # workers have another directory
    expected = scan_runs("run")
    assert len(expected.skipped) == 2
    processes = start_workers(3)
    killed_at = []

    def kill_one(done: int, planned: int) -> None:
        if not killed_at and 0 < done < planned:
            processes[0].kill()
            killed_at.append(done / planned)

    began = time.monotonic()
    found = scan_runs("run", dask=scheduler, progress=kill_one)
    assert killed_at
    assert killed_at[0] < 1
    assert processes[0].wait(10) == -9
    check_same(found, expected)
    assert time.monotonic() - began < 60


def test_a_file_that_cannot_be_read_is_told_as_on_one_machine(
    folder, start_workers, scheduler
):
    start_workers(1)
    path = folder / "messages.csv"
    path.write_text(path.read_text().replace(",kind,", ",sort,"))
    with pytest.raises(ReadError) as here:
        scan_runs(folder)
    with pytest.raises(ReadError) as there:
        scan_runs(folder, dask=scheduler)
    assert str(there.value) == str(here.value)


def test_an_address_where_nothing_listens_is_refused_in_time(folder):
    began = time.monotonic()
    with pytest.raises(ClusterError, match="no Dask scheduler answers at tcp"):
        scan_runs(folder, dask="tcp://127.0.0.1:1")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("address", ["nonsense", "http://127.0.0.1:80", "tcp://x"])
def test_what_is_no_address_is_refused(folder, address):
    with pytest.raises(UsageError, match=f"--dask: '{address}' is no address like"):
        scan_runs(folder, dask=address)


def test_a_cluster_without_workers_is_refused(folder, scheduler):
    with pytest.raises(ClusterError, match="has no worker; start one"):
        scan_runs(folder, dask=scheduler)


def test_workers_without_latprof_are_refused(
    folder, start_workers, scheduler, tmp_path
):
    # read when Python starts, behind the finder of an editable install
    hide = tmp_path / "hide" / "sitecustomize.py"
    hide.parent.mkdir()
    hide.write_text("import sys; sys.modules['latprof_analysis'] = None")
    start_workers(1, PYTHONPATH=str(hide.parent))
    with pytest.raises(ClusterError, match="cannot import latprof_analysis: tcp"):
        scan_runs(folder, dask=scheduler)


def test_a_cluster_that_loses_its_last_worker_ends_the_scan(
    folder, start_workers, scheduler, monkeypatch
):
    monkeypatch.setattr(cluster, "ALONE_SECONDS", 0)
    (process,) = start_workers(1)
    with pytest.raises(ClusterError, match=r"has no worker any more|died again"):
        scan_runs(folder, dask=scheduler, progress=lambda *rows: process.kill())


def test_without_dask_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(LatprofError, match=r"pip install .latprof\[dask\]"):
        scan_runs(folder, dask="tcp://127.0.0.1:1")


def test_of_what_is_no_address_one_line_is_said(folder):
    """Its client would say it once more, with a traceback, as the program ends."""
    command = [sys.executable, "-m", "latprof_analysis", "analyze", str(folder)]
    done = subprocess.run(
        [*command, "--dask", "nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "'nonsense' is no address like" in done.stderr
