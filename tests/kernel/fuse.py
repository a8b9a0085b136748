"""File systems of FUSE that tests mount: programs of their own, with libfuse 3."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from recording import wait_until


def fuse_flags():
    """What to compile them with; skips where they cannot be had."""
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if flags.returncode:
        pytest.skip("needs libfuse 3 (apt-get install libfuse3-dev)")
    if not Path("/dev/fuse").exists():
        pytest.skip("needs /dev/fuse")
    return flags.stdout.split()


def wait_for_mount(process, file):
    """Wait until a file of it is there; `process` has its standard error as text."""
    wait_until(
        lambda: process.poll() is not None or file.exists(),
        "the file system",
    )
    if process.poll() is not None:
        pytest.skip(f"cannot mount FUSE: {process.stderr.read().strip()}")
