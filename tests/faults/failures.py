"""What must hold of every run that fails."""

from __future__ import annotations

import json
import re
from pathlib import Path

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


def assert_readable(folder: Path, *, killed: bool = False) -> int:
    """Whole lines, each with all fields; the number of messages.

    Of a call that SIGKILL interrupts the kernel has written whole pages: then the last
    line may be cut.
    """
    for name in ("round_trips.csv", "messages.csv"):
        whole, _, cut = (folder / name).read_text().rpartition("\n")
        assert killed or not cut
        lines = whole.splitlines()
        assert len({line.count(",") for line in lines}) == 1, name
    return len(lines) - 1


def state_of(folder: Path) -> str:
    """What run.json says of the run."""
    return str(json.loads((folder / "run.json").read_text())["state"])
