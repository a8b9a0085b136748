"""The kernel takes the programs of every clang that distributions build them with.

What they make of the same lines differs: clang 14 and 16 put a record of 4-byte
alignment where its 8-byte words were aligned by luck, clang 19 did not.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from latprof_agent import _drain
from latprof_agent.probes.catalogue import FUNCTION, PROBES, Way, missing_hook
from latprof_agent.probes.flight_probes import FLIGHT_PROBES
from latprof_agent.probes.loss_probes import LOSS_PROBES

CHECKOUT = Path(__file__).parents[2]
# Debian 12's, those between, Debian 13's, and the newest that Debian 12 has.
# Debian 12's own, 14, builds what all other tests load.
COMPILERS = [
    pytest.param(name, marks=pytest.mark.thorough)
    for name in ("clang-14", "clang-16", "clang-22")
]
COMPILERS += ["clang-19"]
OBJECT = "bpf/latprof.bpf.o"
# The constants of each use: code that a constant forbids is never verified.
USES = {
    "run": (),
    "watch": ("histograms",),
    "run --story": ("has_recorder", "held_ns", "slept_ns"),
    "watch --story": ("histograms", "has_recorder", "held_ns", "slept_ns"),
}


def needs(compiler: str) -> None:
    """Skip where the distribution has it not; on Debian 12 `test --all` installs it."""
    if not shutil.which(compiler):
        pytest.skip(f"needs {compiler}")


@pytest.fixture(scope="module", params=COMPILERS)
def built(request, tmp_path_factory) -> str:
    """Build the object as bpf/meson.build does, with another clang."""
    needs(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    binaries = folder / "binaries"
    binaries.write_text(f"[binaries]\nclang = '{request.param}'\n")
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for command in (
        ["meson", "setup", "--native-file", binaries, CHECKOUT, folder / "build"],
        ["ninja", "-C", folder / "build", OBJECT],
    ):
        ended = subprocess.run(
            ["env", f"PATH={programs}", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout
    return str(folder / "build" / OBJECT)


def load(path: str, programs: set[str], constants: tuple[str, ...]) -> None:
    drain = _drain.Drain(path)
    try:
        for program in programs:
            drain.enable(program)
        for name in constants:
            drain.set_constant(name, 1)
        drain.load()
    finally:
        drain.close()


def is_permitted(path: str, program: str) -> bool:
    """Whether fentry may be used here; what the verifier refuses is no EPERM."""
    try:
        load(path, {program}, ())
    except OSError as error:
        return error.errno != errno.EPERM
    return True


def offered(path: str) -> set[str]:
    """Give the programs whose hooks this kernel has."""
    probes = PROBES + LOSS_PROBES + FLIGHT_PROBES
    ways: list[Way] = [w for p in probes for w in p.ways if not missing_hook(w)]
    return {
        program
        for way in ways
        for program in way.programs
        if way.kind != FUNCTION or is_permitted(path, program)
    }


@pytest.mark.always
def test_the_kernel_takes_all_programs_of_each_compiler(built):
    programs = offered(built)
    assert {"on_send", "on_xmit", "on_queue", "on_read"} <= programs
    for constants in USES.values():
        load(built, programs, constants)
