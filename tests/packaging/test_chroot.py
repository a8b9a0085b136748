"""The README's commands on a minimal Debian 12. Opt in with LATPROF_CHROOT=1."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def test_the_readmes_commands_work_on_a_fresh_debian():
    if os.environ.get("LATPROF_CHROOT") != "1":
        pytest.skip("makes a Debian of its own: set LATPROF_CHROOT=1")
    if not shutil.which("debootstrap"):
        pytest.skip("needs debootstrap")
    ended = subprocess.run(
        [Path(__file__).parent / "check_chroot.sh"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
