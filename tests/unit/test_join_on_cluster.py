"""A join on a Dask cluster gives the files of one without, byte for byte.

Scenarios' ends become hosts (tests/split_recording.py). A partition holds what is
joined together: both directions of a connection, and what a translator made of it.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from dask_clusters import distributed, running_scheduler, starting_workers
from halves import LAYOUT
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_agent.cli import main
from latprof_agent.join import on_cluster
from latprof_agent.join.join import JoinOptions, join
from latprof_agent.join.partitions import partitions_of
from latprof_analysis.records.conversations import Conversations
from latprof_analysis.records.flows import SIDE_RECEIVER, SIDE_SENDER, Flows
from latprof_analysis.study import cluster
from latprof_analysis.study.cluster import ClusterError
from split_recording import own_time, split

HERE = Path(__file__).parents[1] / "recordings"
# Streams and datagrams, through NAT and a balancer, below a bridge; with round trips;
# with conversations that have no exchange; with segments that were sent again.
SCENARIOS = (
    *("balanced", "bridged", "datagrams", "encrypted", "mesh", "quic", "tunnelled"),
    *("resent", "several-at-once", "short-connections", "translated", "workers"),
    "window-of-requests",
)


def nothing(*_) -> None:
    """Show no progress."""


def running_fast(times: np.ndarray) -> np.ndarray:
    """A clock that is ahead, and by 20 us a second more."""
    return times + 3_000_000_000 + times // 50_000


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """Give a scenario's hosts, and what a join of them without a cluster made."""
    folder = tmp_path_factory.mktemp("halves")

    @cache
    def made(name: str) -> tuple[list[Path], dict[str, bytes]]:
        into = folder / name
        hosts = split(HERE / f"{name}.arrows.zst", into, own_time, running_fast)
        join(hosts, into / "joined", nothing, JoinOptions())
        return hosts, files_of(into / "joined")

    return made


def files_of(folder: Path) -> dict[str, bytes]:
    """Read all files, without the folder's own name in them."""
    own = str(folder).encode()
    return {f.name: f.read_bytes().replace(own, b".") for f in folder.iterdir()}


@pytest.fixture(scope="module", params=[1, 3, 8])
def threads(request):
    """A cluster of so many threads, in this process."""
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=request.param,
        processes=False,
        dashboard_address=None,
        silence_logs=50,
    ) as local:
        yield local.scheduler_address


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_files_are_those_of_a_join_without(name, halves, threads, tmp_path):
    hosts, expected = halves(name)
    join(hosts, tmp_path / "joined", nothing, JoinOptions(dask=threads))
    assert files_of(tmp_path / "joined") == expected


@pytest.fixture(scope="module")
def scheduler():
    """A scheduler without workers, on the loopback interface."""
    with running_scheduler() as address:
        yield address


@pytest.fixture
def start_workers(scheduler, tmp_path):
    """Start workers as processes that nobody starts again."""
    with starting_workers(scheduler, tmp_path / "workers") as start:
        yield start


DOOMED = """\
import os, signal
from latprof_agent.join.merged import Merged

def dask_setup(worker):
    steps = Merged.steps

    def until_one_is_joined(self):
        for step in steps(self):
            yield step
            os.kill(os.getpid(), signal.SIGKILL)

    Merged.steps = until_one_is_joined
"""


def test_a_worker_that_is_killed_midway_makes_no_difference(
    halves, start_workers, scheduler, tmp_path
):
    hosts, expected = halves("mesh")
    doomed_py = tmp_path / "doomed.py"
    doomed_py.write_text(DOOMED)
    # with four of six threads it has a task, whichever the others get
    (doomed,) = start_workers(1, 4, ["--preload", str(doomed_py)])
    start_workers(2)
    join(hosts, tmp_path / "joined", nothing, JoinOptions(dask=scheduler))
    assert doomed.wait(10) == -9
    assert files_of(tmp_path / "joined") == expected


def test_workers_that_die_again_and_again_end_it_and_nothing_is_left(
    halves, start_workers, scheduler, tmp_path, monkeypatch
):
    monkeypatch.setattr(cluster, "ALONE_SECONDS", 0)
    doomed_py = tmp_path / "doomed.py"
    doomed_py.write_text(DOOMED)
    start_workers(1, 1, ["--preload", str(doomed_py)])
    hosts, _ = halves("translated")
    with pytest.raises(ClusterError, match=r"has no worker any more|died again"):
        join(hosts, tmp_path / "joined", nothing, JoinOptions(dask=scheduler))
    assert not (tmp_path / "joined").exists()


def test_a_worker_that_does_not_see_the_recordings_is_named_with_them(
    halves, threads, tmp_path, monkeypatch
):
    hosts, _ = halves("translated")
    absolute = on_cluster._absolute

    def moved(host):
        return absolute(on_cluster.replace(host, path=Path("/not/there")))

    monkeypatch.setattr(on_cluster, "_absolute", moved)
    with pytest.raises(ClusterError, match=r"cannot read /not/there .*the same paths"):
        join(hosts, tmp_path / "joined", nothing, JoinOptions(dask=threads))
    assert not (tmp_path / "joined").exists()


def test_another_recording_at_the_same_path_is_refused(
    halves, threads, tmp_path, monkeypatch
):
    hosts, _ = halves("translated")
    absolute, others = on_cluster._absolute, halves("balanced")[0]
    other = others[0] / "recording.arrows.zst"

    def another(host):
        return absolute(on_cluster.replace(host, path=other))

    monkeypatch.setattr(on_cluster, "_absolute", another)
    with pytest.raises(ClusterError, match="another recording at"):
        join(hosts, tmp_path / "joined", nothing, JoinOptions(dask=threads))


def test_workers_of_another_version_are_refused(halves, threads, tmp_path, monkeypatch):
    hosts, _ = halves("translated")
    monkeypatch.setattr(cluster, "VERSION", "0.0.1")
    with pytest.raises(ClusterError, match=r"has latprof_agent \S+, and this is 0.0.1"):
        join(hosts, tmp_path / "joined", nothing, JoinOptions(dask=threads))


def refusal(capfd, *arguments: str) -> tuple[int, str]:
    """Run the command; give its exit status and what it says."""
    code = main(["join", *arguments, "--quiet"])
    said = capfd.readouterr().err
    assert said.count("\n") == 1, said
    return code, said


def test_stories_are_joined_without_a_cluster(tmp_path, capfd):
    hosts = split(HERE / "asking-ten-times.arrows.zst", tmp_path, own_time, own_time)
    out = tmp_path / "joined"
    code, said = refusal(
        capfd, *map(str, hosts), "--out", str(out), "--dask", "tcp://127.0.0.1:1"
    )
    assert code == 2
    assert re.search("--dask: .* has stories, which go from one flow to another", said)
    assert not out.exists()


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("tcp://127.0.0.1:1", 1, "no Dask scheduler answers at tcp"),
        ("nonsense", 2, "'nonsense' is no address like"),
    ],
)
def test_an_address_without_a_cluster_is_refused(
    address, code, words, halves, tmp_path, capfd
):
    hosts, _ = halves("translated")
    out = tmp_path / "joined"
    found = refusal(capfd, *map(str, hosts), "--out", str(out), "--dask", address)
    assert found[0] == code
    assert words in found[1]
    assert not out.exists()


def test_without_dask_the_extra_is_named(halves, tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    hosts, _ = halves("translated")
    code, said = refusal(capfd, *map(str, hosts), "--dask", "tcp://127.0.0.1:1")
    assert code == 1
    assert "pip install 'latprof[dask]'" in said


def test_more_flows_than_are_kept_at_once_are_refused(
    halves, threads, tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(on_cluster, "FLOW_LIMIT", 1)
    hosts, _ = halves("translated")
    out = tmp_path / "joined"
    code, said = refusal(capfd, *map(str, hosts), "--out", str(out), "--dask", threads)
    assert code == 1
    assert re.search("these recordings have [0-9]+ flows", said)
    assert not out.exists()


ADDRESSES = st.sampled_from([1, 2, 3])
PORTS = st.sampled_from([80, 5000])
SEQUENCES = st.integers(0, 3)


@st.composite
def announced(draw) -> np.ndarray:
    """Flows between few ends, many of which have something in common."""
    count = draw(st.integers(1, 12))
    records = np.zeros(count, LAYOUT.rings["flows"])
    records["protocol"] = 6
    for record in records:
        record["flow"] = draw(st.integers(1, 20))
        record["side"] = draw(st.sampled_from([SIDE_SENDER, SIDE_RECEIVER]))
        record["t_ns"] = draw(st.integers(1, 9))
        record["source"][15], record["destination"][15] = (
            draw(ADDRESSES),
            draw(ADDRESSES),
        )
        record["source_port"] = draw(PORTS)
        record["destination_port"] = draw(PORTS)
        record["first_sequence"] = draw(SEQUENCES)
        record["first_answer"] = draw(SEQUENCES)
    return records


@settings(max_examples=300, deadline=None)
@given(announced(), st.integers(1, 9))
def test_what_is_joined_together_is_of_one_partition(records, count):
    """The joiner's own notion, announcement by announcement, is the truth."""
    partitions = partitions_of(records, count)
    flows = Flows(records.dtype)
    conversations = Conversations(flows)
    for one in range(len(records)):
        flows.add(records[one : one + 1])
        conversations.add(records[one : one + 1])
    numbers = np.unique(records["flow"])
    places = flows.index(numbers)
    of, identity = partitions.of(numbers), conversations.identity[places]
    for same in (places, identity):
        for value in np.unique(same):
            assert len(np.unique(of[same == value])) == 1
    assert (of < count).all()


@settings(max_examples=200, deadline=None)
@given(announced(), st.randoms(use_true_random=False))
def test_the_order_of_announcements_makes_no_difference(records, random):
    shuffled = records[random.sample(range(len(records)), len(records))]
    found = partitions_of(records, 5), partitions_of(shuffled, 5)
    assert all((one == other).all() for one, other in zip(*found, strict=True))


def test_connections_are_shared_out_evenly():
    records = np.zeros(64, LAYOUT.rings["flows"])
    records["protocol"], records["side"] = 6, SIDE_SENDER
    records["flow"] = np.arange(1, 65)
    records["source_port"] = np.arange(64) // 2 + 40_000
    records["destination_port"] = 80
    back = records[1::2]
    back["source_port"], back["destination_port"] = 80, back["source_port"].copy()
    partitions = partitions_of(records, 4)
    assert np.bincount(partitions.of(records["flow"])).tolist() == [16] * 4
