"""`latprof analyze`: figures of known links, refusals, texts of strangers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from known_links import RATE, TCP
from latprof_analysis import cli
from latprof_analysis.stages import STAMPS, stages_of
from latprof_analysis.study import drawn, scan
from latprof_analysis.study.analysis import analyze as analyze_paths
from run_folders import write_run
from simulated_links import Fifo, message

DATA = Path(__file__).parents[1] / "data"
_OTHERS = ("seeds", "untimed", "make.sh", "tools", "README.md", "hdr_v2_figures.json")
# one says its columns are of no tool; of others nobody says the unit
_OTHERS += ("capture_icmp_tshark.csv", "hdr_v2.hlog", "hdr_percentiles.hgrm")
_OTHERS += ("memtier_hdr_SET.txt", "memtier_hdr_SET.hgrm")
_EVERY = [*sorted(DATA.iterdir()), *sorted((DATA / "tools").iterdir())]
FILES = [path for path in _EVERY if path.name not in _OTHERS]
ANALYSIS = Path(__file__).parents[2] / "analysis"


def analyze(capsys, *words):
    """The document that `--json` prints."""
    assert cli.main(["analyze", *map(str, words), "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def refused(capsys, *words):
    """The line and the exit status of a command that cannot be done."""
    try:
        status = cli.main(["analyze", *map(str, words)])
    except SystemExit as exit_:
        status = exit_.code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert shown.err.startswith("latprof: ")
    return shown.err, status


@pytest.mark.parametrize(("reply", "factor"), [("echo", 2), (18, 1)])
def test_a_link_of_100_mbit_is_found_within_1_percent(tmp_path, capsys, reply, factor):
    write_run(tmp_path / "run", reply=reply)
    found = analyze(capsys, tmp_path / "run")

    bandwidth = found["fit"]["bandwidth_bits_per_second"]
    assert bandwidth["value"] == pytest.approx(1e8, rel=0.01)
    assert bandwidth["low"] <= bandwidth["value"] <= bandwidth["high"]
    assert (found["fit"]["model"], found["fit"]["factor"]) == ("line", factor)
    assert bandwidth["n"] == found["round_trips"]["tcp"]["sent"]
    ways = {
        fit["direction"]: fit["fit"]["bandwidth_bits_per_second"]
        for fit in found["stage_fits"]
        if fit["quantity"] == "one_way"
    }
    assert ways["request"]["value"] == pytest.approx(1e8, rel=0.01)


def test_stages_and_sizes_are_what_numpy_makes_of_the_rows(tmp_path, capsys):
    rows = write_run(tmp_path / "run")
    found = analyze(capsys, tmp_path / "run")

    requests = rows[rows["kind"] == "request"]
    kind = found["kinds"]["tcp request"]
    assert kind["messages"] == len(requests)
    for stage in ("transit", "end_to_end", "receive_queue"):
        times = requests[f"{stage}_ns"]
        # half a bucket of 1/128
        half = np.quantile(times, 0.5, method="inverted_cdf")
        assert kind["stages"][stage]["p50_ns"] == pytest.approx(half, rel=1 / 256)
        assert kind["stages"][stage]["max_ns"] == times.max()
        assert kind["stages"][stage]["n"] == len(times)
    sizes = found["round_trips"]["tcp"]["sizes"]
    assert sorted(map(int, sizes)) == sorted(requests["size_bytes"].unique())


def test_datagrams_without_a_receiver_are_lost(tmp_path, capsys):
    rows = write_run(tmp_path / "run")
    requests = np.flatnonzero(rows["kind"] == "request")
    lost = requests[np.random.default_rng(3).random(requests.size) < 0.1]
    rows = rows.assign(protocol="udp").astype({"arrive_ns": "Int64"})
    at_receiver = ["arrive_ns", "ready_ns", "read_ns", "end_to_end_ns"]
    rows[at_receiver] = rows[at_receiver].astype("Int64")
    for column in at_receiver:
        rows.loc[lost, column] = None
    rows.to_csv(tmp_path / "run" / "messages.csv", index=False)
    found = analyze(capsys, tmp_path / "run")

    share = found["messages"]["udp request"]["loss"]["share"]
    assert (share["lost"], share["n"]) == (lost.size, requests.size)
    assert share["low"] < 0.1 < share["high"]
    assert found["messages"]["udp reply"]["loss"]["share"]["lost"] == 0


def test_runs_with_other_links_are_not_fitted_together(tmp_path, capsys):
    write_run(tmp_path / "all" / "a")
    other = {"kind": "veth", "rate_bps": 10**9, "delay_ns": 0, "loss": 0}
    link = {**other, "burst_bytes": None, "qdisc": None, "mtu_bytes": 1500}
    write_run(tmp_path / "all" / "b", seed=2, link={**link, "link_header_bytes": 0})
    found = analyze(capsys, tmp_path / "all", "--pool")

    assert found["fit"] is None
    assert sorted(found["runs"]) == ["a", "b"]
    (warning,) = (w for w in found["warnings"] if w.startswith("no fit"))
    assert "link" in warning


@pytest.mark.thorough
def test_runs_of_one_link_on_several_hosts_are_taken_together(tmp_path, capsys):
    for seed, host in enumerate(("x", "y")):
        write_run(tmp_path / "all" / host, seed=seed, host=host)
    found = analyze(capsys, tmp_path / "all")

    assert found["fit"]["bandwidth_bits_per_second"]["value"] == pytest.approx(
        1e8, rel=0.01
    )
    assert found["differences"] == ["host: 'x' (x), 'y' (y)"]
    one = analyze(capsys, tmp_path / "all" / "x")
    both = found["kinds"]["tcp request"]["messages"]
    assert both == 2 * one["kinds"]["tcp request"]["messages"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_known_format_is_described_and_its_json_is_json(capsys, path):
    assert analyze(capsys, path)["format"] == 1
    assert cli.main(["analyze", str(path)]) == 0
    assert capsys.readouterr().out


def test_a_csv_of_another_tool_is_fitted_when_the_reply_is_told(tmp_path, capsys):
    path = tmp_path / "times.csv"
    sizes = np.tile([64, 1000, 8000, 64000], 50)
    noise = np.random.default_rng(1).exponential(0.002, sizes.size)
    text = [f"{s},{2 + 16e-5 * s + e:.6f}" for s, e in zip(sizes, noise, strict=True)]
    path.write_text("\n".join(["bytes,ms", *text]))
    words = [path, "--latency-column", "ms", "--unit", "ms", "--size-column", "bytes"]

    untold = analyze(capsys, *words)
    assert untold["fit"] is None
    (kind,) = untold["samples"]["kinds"].values()
    assert "--reply" in kind["fit"]["reason"]
    told = analyze(capsys, *words, "--reply", "echo")
    assert told["fit"]["bandwidth_bits_per_second"]["value"] == pytest.approx(
        1e8, rel=0.01
    )


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        ([], 2, "PATH"),
        (["nowhere"], 1, "nowhere"),
        (["no*thing"], 1, "no*thing"),
        (["a.csv", "--latency-column", "b"], 2, "--unit"),
        (["a.csv", "--reply", "all"], 2, "echo"),
        (["a.csv", "--size-column", "b"], 2, "--size-column"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(capsys, words, status, text):
    line, found = refused(capsys, *words)
    assert found == status
    assert text in line


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\xff" * 999, b"a,b\n1,2\n", b"protocol,kind,size_bytes,send_ns\n"],
    ids=["empty", "binary", "unknown", "header only"],
)
def test_files_without_figures_do_not_become_figures(tmp_path, capsys, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    try:
        status = cli.main(["analyze", str(path)])
    except SystemExit as exit_:
        status = exit_.code
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert status == 1 or "no latencies" in shown.out


def test_wrong_rows_are_named_and_the_rest_is_used(tmp_path, capsys):
    write_run(tmp_path / "run")
    path = tmp_path / "run" / "round_trips.csv"
    lines = path.read_text().splitlines()
    lines[5] = lines[5].replace("tcp", "tcp").rsplit(",", 2)[0] + ",-5,0"
    path.write_text("\n".join(lines) + "\n")
    found = analyze(capsys, tmp_path / "run")

    assert found["skipped_rows"] == 1
    assert "round_trips.csv:6" in found["skipped"][0]
    assert cli.main(["analyze", str(tmp_path / "run")]) == 0
    assert "left out: " in capsys.readouterr().out


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(12))
def test_bytes_that_were_changed_cost_rows_not_the_program(tmp_path, capsys, seed):
    write_run(tmp_path / "run")
    random = np.random.default_rng(seed)
    for name in ("messages.csv", "round_trips.csv", "run.json"):
        path = tmp_path / "run" / name
        data = bytearray(path.read_bytes())
        for at in random.integers(0, len(data), 1 + len(data) // 2000):
            data[at] = random.integers(0, 256)
        path.write_bytes(data)
    status = cli.main(["analyze", str(tmp_path / "run")])

    shown = capsys.readouterr()
    assert status in (0, 1)
    # a refusal names the file
    assert shown.err == "" if not status else str(tmp_path / "run") in shown.err


def test_a_run_that_tells_no_congestion_control_is_shown_without(tmp_path, capsys):
    write_run(tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text().replace('"congestion_control"', '"spoiled"'))
    assert cli.main(["analyze", str(tmp_path / "run")]) == 0
    assert "MTU 1500\n" in capsys.readouterr().out


def test_a_killed_run_is_analyzed_as_far_as_it_goes(tmp_path, capsys):
    write_run(tmp_path / "run", state="running")
    (tmp_path / "run" / "summary.json").unlink()
    found = analyze(capsys, tmp_path / "run")

    assert found["fit"]["model"] == "line"
    assert any("killed" in note for note in found["notes"])


@pytest.mark.parametrize("text", ['{"workload": 7}', "[]", '{"lab": {"known": 1}}'])
def test_a_run_json_of_a_stranger_costs_the_fit_only(tmp_path, capsys, text):
    write_run(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(text)
    found = analyze(capsys, tmp_path / "run")

    assert found["fit"] is None
    assert found["kinds"]["tcp request"]["messages"]
    assert found["notes"]


@pytest.mark.parametrize("size", ["0", ""])
@pytest.mark.parametrize("more", [(), ("--all",)])
def test_messages_of_no_size_are_in_no_fit(tmp_path, capsys, size, more):
    rows = write_run(tmp_path / "run").astype({"size_bytes": object})
    rows.loc[rows.index % 3 == 0, "size_bytes"] = size
    rows.to_csv(tmp_path / "run" / "messages.csv", index=False)
    trips = pd.read_csv(tmp_path / "run" / "round_trips.csv")
    trips.loc[::3, "size_bytes"] = 0
    trips.loc[1::3, "rtt_ns"] = 0
    trips.to_csv(tmp_path / "run" / "round_trips.csv", index=False)
    assert cli.main(["analyze", str(tmp_path / "run"), *more]) == 0
    assert capsys.readouterr().err == ""


def test_markup_and_control_characters_in_names_are_shown_as_they_are(tmp_path, capsys):
    folder = tmp_path / "[red]run\x1b[31m"
    write_run(folder, host="<script>[/]\x07")
    assert cli.main(["analyze", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "[red]run" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_analysis_runs_where_the_agent_is_not_installed(tmp_path):
    write_run(tmp_path / "run")
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if 'agent' not in p]\n"
        "from importlib.machinery import PathFinder\n"
        "class Hidden:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.split('.')[0] == 'latprof_agent': return None\n"
        "        return PathFinder.find_spec(name, *rest)\n"
        "sys.meta_path = [f for f in sys.meta_path if f is not PathFinder]\n"
        "sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)]\n"
        "sys.meta_path.append(Hidden())\n"
        f"sys.path.insert(0, {str(ANALYSIS)!r})\n"
        "from latprof_analysis.cli import main\n"
        f"status = main(['analyze', {str(tmp_path / 'run')!r}])\n"
        "assert 'latprof_agent' not in sys.modules\n"
        "sys.exit(status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "transit" in done.stdout


def test_all_shows_sizes_stages_and_rivals_of_the_same_line(tmp_path, capsys):
    rows = write_run(tmp_path / "run")
    assert cli.main(["analyze", str(tmp_path / "run"), "--all"]) == 0
    shown = capsys.readouterr().out
    requests = rows[rows["kind"] == "request"]
    for title in ("by size, packets, hops", "what a byte adds", "by other estimators"):
        assert title in shown
    assert f" {requests['packets'].max()} packets " in shown
    # 80 ns a byte on the wire
    transit = next(
        line for line in shown.splitlines() if line.startswith(" tcp request one_way")
    )
    assert float(transit.split()[3]) == pytest.approx(80 * 1500 / 1448, rel=0.01)
    assert "p10_theil_sen" in shown
    assert "tukey" in shown


def test_the_library_gives_what_the_command_prints(tmp_path, capsys):
    write_run(tmp_path / "run")
    found = analyze_paths(tmp_path / "run")

    assert found.document == analyze(capsys, tmp_path / "run")
    assert len(found.messages) == sum(
        kind["messages"] for kind in found.document["kinds"].values()
    )


def test_dispersion_and_pairs_of_a_thinned_run_are_those_of_neighbours(
    tmp_path, monkeypatch
):
    # Every second message of a train would have it arrive at half the link's rate.
    for module in (drawn, scan):
        monkeypatch.setattr(module, "EVEN_ROWS", 500)
    monkeypatch.setattr(scan, "STRETCH_ROWS", 3000)
    link, rng, rows, t_ns = Fifo(), np.random.default_rng(1), [], 1e9
    for i in range(6000):
        t_ns += 8e7 if i % 100 == 0 else 1e4
        rows.append(message("request", i, 1400, t_ns, link, rng.exponential(2e3)))
    frame = pd.DataFrame(rows).assign(protocol="udp", hops=0)
    times = [name for name in frame if name.endswith("_ns")]
    frame[times] = frame[times].round().astype("int64")
    stamps = {name: frame[f"{name}_ns"].to_numpy() for name in STAMPS}
    for name, values in stages_of(stamps).items():
        frame[f"{name}_ns"] = values
    frame.to_csv(tmp_path / "messages.csv", index=False)
    found = analyze_paths(tmp_path).document
    assert found["thinned"]["messages"]["of"] == 6000
    dispersion = found["dispersion"]["udp request"]
    wire_share = 1400 / TCP.wire_bytes(1400)  # told of no headers
    rate = dispersion["bandwidth_bits_per_second"]["value"]
    assert rate == pytest.approx(RATE * wire_share, rel=0.001)
    assert dispersion["packets"] <= 3000


def test_a_screen_of_a_run_does_without_pandas(tmp_path):
    """Which takes as long to load as all else of a small run."""
    write_run(tmp_path / "run")
    code = (
        "import sys; from latprof_analysis.cli import main\n"
        f"main(['analyze', {str(tmp_path / 'run')!r}])\n"
        "print('pandas' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "the link" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"
