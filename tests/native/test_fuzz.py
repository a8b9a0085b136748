"""The fuzzing of both C programs: every target builds, and passes its seeds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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


needs_runtime = pytest.mark.skipif(
    not has_runtime(), reason="needs clang's runtime, see tests/fuzz/native/run.sh"
)


def fuzz(
    tmp_path: Path, *words: str, program: tuple[str, ...] = (str(RUN),), **more: str
) -> subprocess.CompletedProcess[str]:
    """With what it keeps below the test's own folder."""
    return subprocess.run(
        [*program, *words],
        env=os.environ | {"FUZZ_OUT": str(tmp_path)} | more,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@needs_runtime
@pytest.mark.parametrize("target", TARGETS)
def test_a_target_passes_its_seeds(tmp_path, target):
    done = fuzz(tmp_path, "1", target)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{target}: Done ")


@needs_runtime
@pytest.mark.timed
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace")
def test_both_programs_stand_hostile_peers(tmp_path):
    done = fuzz(tmp_path, "9", "peers")
    assert done.returncode == 0, done.stderr
    rounds = int(done.stdout.split()[1])
    assert rounds >= 3, "each kind of peer had a turn"


@needs_runtime
def test_a_wrong_word_is_said_in_one_line(tmp_path):
    for words in ((), ("x",), ("1", "nothing")):
        done = fuzz(tmp_path, *words)
        assert done.returncode == 2
        assert done.stderr.startswith("run.sh: ")
        assert done.stderr.count("\n") == 1


# A clang without its runtime: it does everything but link.
BARE = """#!/bin/sh
[ "$1" != -dumpversion ] || exec echo 14.0.6
echo 'ld: cannot find libclang_rt.fuzzer-x86_64.a' >&2
exit 1
"""
ALL = (sys.executable, str(RUN.parents[1]))  # what `make fuzz` runs


@pytest.mark.parametrize("program", [ALL, (str(RUN),)], ids=["all", "native"])
def test_a_missing_runtime_is_no_finding(tmp_path, program):
    clang = tmp_path / "clang"
    clang.write_text(BARE)
    clang.chmod(0o755)
    done = fuzz(tmp_path, "1", program=program, CC=str(clang))

    assert done.returncode == 2
    assert done.stdout == ""
    why = f"cannot fuzz: {clang} has no runtime library"
    assert done.stderr == f"run.sh: {why}; apt-get install libclang-rt-14-dev\n"


def test_a_missing_clang_is_no_finding(tmp_path):
    done = fuzz(tmp_path, "1", CC=str(tmp_path / "clang"))

    assert done.returncode == 2
    assert done.stderr.startswith(f"run.sh: cannot fuzz: there is no {tmp_path}/clang")
    assert done.stderr.count("\n") == 1


@needs_runtime
def test_what_cannot_be_built_is_no_finding(tmp_path):
    """As where the headers of Python are missing."""
    clang = tmp_path / "clang"
    clang.write_text('#!/bin/sh\ncase "$*" in *rows.c*) exit 1 ;; esac\nclang "$@"\n')
    clang.chmod(0o755)
    done = fuzz(tmp_path, "1", "rows", CC=str(clang))

    assert done.returncode == 2
    assert done.stderr.startswith("run.sh: cannot build rows: see above; ")
