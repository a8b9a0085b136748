"""BPF programs of tests, which stand for those of others."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCES = Path(__file__).parent / "kernel"


@contextmanager
def compiled(name: str, *options: str) -> Iterator[str]:
    """Compile one of them; its object is there while this lasts."""
    source = SOURCES / name
    machine = subprocess.run(
        ["gcc", "-print-multiarch"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with TemporaryDirectory() as folder:
        program = f"{folder}/{source.stem}.o"
        flags = ["-O2", "-g", "-target", "bpf", "-mcpu=v3", f"-I/usr/include/{machine}"]
        words = ["clang", *flags, *options, "-c", str(source), "-o", program]
        subprocess.run(words, check=True)
        yield program
