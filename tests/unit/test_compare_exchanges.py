"""`latprof compare` of exchanges: by way and part, gated by the response."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from exchange_rows import exchange, write_exchanges
from latprof_analysis import cli

WAY = "cli -> srv:80"


def write_run(folder, seed, work=20_000, **values):
    """Write 400 exchanges; the server works `work` ns and a bit."""
    rng = np.random.default_rng(seed)
    gaps = rng.integers(1_000, 2_000, (400, 4)) + np.array([0, 0, work, 0])
    sent = 10**12 + 10**6 * np.arange(400)
    stamps = sent[:, None] + np.c_[np.zeros(400, int), gaps.cumsum(axis=1)]
    folder.mkdir(parents=True)
    rows = [exchange(tuple(row), way=WAY, **values) for row in stamps.tolist()]
    # they are in the order in which they ended, which is not that of sending
    write_exchanges(folder / "exchanges.csv", rows[::-1])
    for name in ("run.json", "summary.json"):
        (folder / name).write_text("{}")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs before, and three whose server takes 20% longer."""
    base = tmp_path_factory.mktemp("runs")
    for i in range(3):
        write_run(base / "a" / str(i), i)
        write_run(base / "b" / str(i), 10 + i, work=24_000)
    return base


def compared(capsys, *words):
    status = cli.main(["compare", *map(str, words), "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_the_part_that_became_slower_is_found_and_by_how_much(runs, capsys):
    status, found = compared(capsys, runs / "a", runs / "b")
    assert status == 0
    groups = {(g["kind"], g["stage"]): g for g in found["groups"]}
    assert {kind for kind, _ in groups} == {f"tcp {WAY}"}
    slower = {stage for (_, stage), g in groups.items() if g["verdict"] == "slower"}
    assert slower == {"response", "server", "server_work"}
    for part in slower:
        for side, key in (("a", "a"), ("b", "b")):
            medians = [
                pd.read_csv(path)[f"{part}_ns"].median()
                for path in sorted((runs / side).glob("*/exchanges.csv"))
            ]
            told = groups[f"tcp {WAY}", part]["percentiles"]["p50"][key]
            assert told["value_ns"] == pytest.approx(np.mean(medians), rel=0.002)


@pytest.mark.parametrize(
    ("only", "parts"),
    [
        ((), {"response"}),
        (("--only", "server"), {"server"}),
        (("--only", "reply_way"), set()),
        (("--only", "srv:80"), {"response", "server", "server_work"}),
    ],
)
def test_the_gate_looks_at_the_response_or_at_what_only_names(
    runs, capsys, only, parts
):
    words = (runs / "a", runs / "b", "--fail-if-slower", "5%", *only)
    status, found = compared(capsys, *words)
    assert status == (3 if parts else 0)
    findings = found["gate"]["findings"]
    assert {f["stage"] for f in findings if f["outcome"] == "failed"} == parts


def test_the_same_again_is_not_slower(runs, tmp_path, capsys):
    for i in range(3):
        write_run(tmp_path / str(i), 20 + i)
    status, _ = compared(capsys, runs / "a", tmp_path, "--fail-if-slower", "5%")
    assert status == 0


def test_warmup_is_not_compared(runs, tmp_path, capsys):
    write_run(tmp_path / "warm", 1, kind="warmup")
    assert cli.main(["compare", str(runs / "a"), str(tmp_path / "warm")]) == 1
    assert "nothing to compare" in capsys.readouterr().err
