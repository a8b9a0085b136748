"""The fuzzing of both C programs: every target builds, and passes its seeds."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / "fuzz" / "native" / "run.sh"
TARGETS = (
    *("load_options", "link_options", "responder", "client", "handshake", "bulk"),
    *("path", "rows", "kernel_types"),
)


def has_runtime() -> bool:
    """Whether clang's sanitizers are installed."""
    if not shutil.which("clang"):
        return False
    words = ["clang", "--print-resource-dir"]
    found = subprocess.run(words, capture_output=True, text=True, check=True)
    return any(Path(found.stdout.strip()).glob("lib/linux/libclang_rt.fuzzer-*.a"))


pytestmark = pytest.mark.skipif(
    not has_runtime(), reason="needs clang's runtime, see tests/fuzz/native/run.sh"
)


def fuzz(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """With what it keeps below the test's own folder."""
    return subprocess.run(
        [RUN, *words],
        env=os.environ | {"FUZZ_OUT": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_passes_its_seeds(tmp_path, target):
    done = fuzz(tmp_path, "1", target)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{target}: Done ")


@pytest.mark.timed
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace")
def test_both_programs_stand_hostile_peers(tmp_path):
    done = fuzz(tmp_path, "9", "peers")
    assert done.returncode == 0, done.stderr
    rounds = int(done.stdout.split()[1])
    assert rounds >= 3, "each kind of peer had a turn"


def test_a_wrong_word_is_said_in_one_line(tmp_path):
    for words in ((), ("x",), ("1", "nothing")):
        done = fuzz(tmp_path, *words)
        assert done.returncode == 2
        assert done.stderr.startswith("run.sh: ")
        assert done.stderr.count("\n") == 1
