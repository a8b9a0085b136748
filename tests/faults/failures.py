"""What must hold of every run that fails."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
from latprof_process import Latprof

LINE = re.compile(r"latprof: .+: .+; .+|latprof: .+ must .+, got .+")


def assert_failed(latprof: Latprof, status: int, *texts: str) -> None:
    """One line on stderr, with these texts; the exit status; nothing left."""
    assert latprof.process.returncode == status, latprof.err
    lines = latprof.err.splitlines()
    assert len(lines) == 1 and LINE.fullmatch(lines[0]), latprof.err
    for text in texts:
        assert text in lines[0]
    assert latprof.left() == []


def assert_readable(folder: Path) -> int:
    """Whole lines, each with all fields; the number of messages."""
    for name in ("messages.csv", "round_trips.csv"):
        text = (folder / name).read_text()
        assert text.endswith("\n")
        counts = {line.count(",") for line in text.splitlines()}
        assert len(counts) == 1, name
    return len(pd.read_csv(folder / "messages.csv"))


def state_of(folder: Path) -> str:
    """What run.json says of the run."""
    return str(json.loads((folder / "run.json").read_text())["state"])
