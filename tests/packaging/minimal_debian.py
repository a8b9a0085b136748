"""Checks that make a minimal Debian for themselves: scripts beside this file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent


def check(
    script: str, suite: str, *words: Path | str
) -> subprocess.CompletedProcess[str]:
    """Run a script with words on a release of Debian; gives how it ended."""
    ended = subprocess.run(
        [HERE / script, *words],
        env=os.environ | {"LATPROF_CHROOT_SUITE": suite},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended
