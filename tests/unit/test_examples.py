"""Each example of README.md and of the helps that needs no root works as written."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from zlib import crc32

import pytest
from examples import AS_ROOT, Example, examples, run_example
from latprof_analysis.read.stories import STORIES_FILE
from latprof_analysis.records.recording import NAME
from made_runs import write_run
from split_recording import own_time, split

DATA = Path(__file__).parents[1] / "data"
RECORDING = DATA.parent / "recordings" / "ping-pong.arrows.zst"
OFFLINE = [
    example
    for example in examples()
    if example.words[0] not in AS_ROOT
    and not (example.meets_another or example.needs_agents)
]
# What a run with --story leaves, of one message.
STORIES = {
    "limit_ns": 1_000_000,
    "slow_messages": 1,
    "recorder": {"copies": 1, "skipped": 0, "symbols": "bcc"},
    "stories": [
        {
            "message": {
                **{"protocol": "tcp", "kind": "request", "sequence": 1},
                **{"size_bytes": 64, "retransmits": 0, "end_to_end_ns": 2_000_000},
                **{"sender_pid": 1, "sender_comm": "a"},
                **{"reader_pid": 2, "reader_comm": "b", "arrive_ns": 5_000_000},
            },
            "stages": {"transit": {"time_ns": 2_000_000, "parts": None}},
        }
    ],
}
HOSTS = own_time, lambda times: times + 1_000_000, lambda times: times - 1_000_000
BEGINS = {"html": b"<!doctype html>", "pdf": b"%PDF", "png": b"\x89PNG", "md": b"# "}


def inputs_of(options: dict) -> list[str]:
    one = [str(options[name]) for name in ("folder", "path") if name in options]
    return list(options.get("paths") or options.get("inputs") or one)


def make_input(name: str, options: dict) -> None:
    """Make what an example takes for granted: run folders, and tables."""
    for part in ("1", "2"):
        path = Path(name.replace("*", part))
        if path.exists():
            continue
        if path.name == "latest":
            write_run(path.with_name("newest"), 300, seed=1)
            path.symlink_to("newest")
            (path / STORIES_FILE).write_text(json.dumps(STORIES))
            shutil.copy(RECORDING, path / NAME)
        elif options["command"] == "trace":
            path.mkdir()
            (path / STORIES_FILE).write_text(json.dumps(STORIES))
        elif path.suffix != ".csv":
            write_run(path, 300, seed=crc32(path.name.encode()))
            shutil.copy(RECORDING, path / NAME)
        elif options["latency_column"]:
            write_table(path, options["latency_column"], options["size_column"])
        else:
            shutil.copy(DATA / "seeds" / "proxystore_theta.csv", path)


def make_hosts(names: list[str]) -> None:
    """Make what each host recorded of one run."""
    path = RECORDING if len(names) == 2 else RECORDING.with_name("mesh.arrows.zst")
    hosts = split(path, Path("made"), *HOSTS[: len(names)])
    for made, name in zip(hosts, names, strict=True):
        made.rename(name)


def write_table(path: Path, latency: str, size: str | None) -> None:
    names = [latency, *([size] if size else [])]
    rows = [[10 + i % 7 + i % 4, 1000 * (1 + i % 4)][: len(names)] for i in range(400)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


@pytest.fixture
def cluster(request):
    """The address of a Dask cluster that sees our files."""
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as local:
        yield local.scheduler_address


def test_there_are_examples_of_every_offline_command():
    assert {example.words[0] for example in OFFLINE} == {
        *("analyze", "compare", "report", "story", "completion", "rebuild", "join"),
        *("trace", "schema"),
    }
    assert len(OFFLINE) >= 17


@pytest.mark.parametrize("example", OFFLINE, ids=lambda example: example.line)
def test_an_offline_example_does_what_it_says(example, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    options = example.options()
    line = example.line
    if options["command"] == "report":
        pytest.importorskip("vl_convert")
    if options["command"] == "completion":
        pytest.importorskip("shtab")
    if options.get("dask"):
        line = line.replace(str(options["dask"]), request.getfixturevalue("cluster"))
    for name in inputs_of(options):
        make_input(name, options)
    if options["command"] == "join":
        make_hosts(list(map(str, options["folders"])))
    written = Path(example.written_to.replace("~", str(tmp_path)))
    written.parent.mkdir(parents=True, exist_ok=True)

    status, screen = run_example(line, tmp_path)

    limits = [name for name in options if name.startswith("fail_if_")]
    expected = {0}
    if any(options[name] for name in limits):
        first = screen.partition(":")[0]
        expected = {{"passed": 0, "failed": 3, "undecided": 4}[first]}
    assert {status} == expected, screen
    # on a busy machine it takes long enough to show how far it is
    shown = re.sub(r"\r?read [\d,]+ of about [\d,]+ rows, \d+ s left\r?", "", screen)
    if example.written_to:
        assert not shown.strip()
        shown = written.read_text()
    assert shown
    check_output(example, options, shown)


def check_output(example: Example, options: dict, shown: str) -> None:
    if options["command"] == "schema":
        assert "watch" in shown
        return
    if options["command"] == "story":
        assert "stories" in shown or "story shown" in shown
        return
    if options.get("json"):
        document = json.loads(shown[shown.index("{") :])
        assert {"kinds", "round_trips"} <= document.keys()
        return
    if options["command"] == "compare":
        check_comparison(options, shown)
    elif options["command"] == "analyze":
        assert "messages" in shown or "latency" in shown
        if options["all"]:
            assert "by other estimators" in shown
    elif options["command"] == "join":
        assert re.search(r" <-> .*: offset .* \+- .*, good", shown)
    elif options["command"] == "trace":
        assert re.search(r"^trace: .* \(stories: \d+\)", shown)
    elif options["command"] == "rebuild":
        assert re.search(r"\b[1-9]\d* records, none lost", shown)
        assert "-rebuilt" in shown
    elif options["command"] == "report":
        check_report(options, shown)
    else:
        assert "complete" in shown and "latprof" in shown


def check_comparison(options: dict, shown: str) -> None:
    first, *others = inputs_of(options)
    if not others:  # the sides are in the file
        assert "REDIS" in shown and "ENDPOINT" in shown
        return
    has_limit = any(options[name] for name in options if name.startswith("fail_if_"))
    # what came of a limit stands before the answer, with a line between
    answer = (shown.partition("\n\n")[2] if has_limit else shown).splitlines()[0]
    assert others[0] in answer
    assert f" {first}" in answer or "Nothing can be told" in answer
    if options["only"]:
        assert "transit" not in shown
    if options["sizes"] and 1024 not in options["sizes"]:
        assert " 1024 B" not in shown


def check_report(options: dict, shown: str) -> None:
    path = Path(re.search(r"^report: (\S+)", shown, re.MULTILINE)[1])
    if options["out"]:
        assert path == options["out"]
    begin = path.read_bytes()[:15].lower()
    assert begin.startswith(BEGINS[path.suffix[1:]].lower())
    if options["csv"]:
        assert list(Path(options["csv"]).glob("*.csv"))
