"""What was installed and does not start says why, in one line."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import latprof_agent
import latprof_analysis
import pytest
from latprof_analysis.cli.installation import check_processor, not_loaded
from latprof_analysis.errors import LatprofError

# of /proc/cpuinfo: AMD's first Opteron of 64 bits, and Intel's Nehalem, the first of v2
OPTERON = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush "
    "mmx fxsr sse sse2 syscall nx mmxext lm 3dnowext 3dnow rep_good nopl"
)
NEHALEM = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush "
    "dts acpi mmx fxsr sse sse2 ss ht tm pbe syscall nx rdtscp lm constant_tsc pni "
    "dtes64 monitor ds_cpl vmx est tm2 ssse3 cx16 xtpr pdcm sse4_1 sse4_2 popcnt"
)


def cpuinfo(folder, flags):
    file = folder / "cpuinfo"
    file.write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t:\n")
    return file


def test_a_processor_without_what_numpy_is_built_for_is_refused(tmp_path):
    with pytest.raises(LatprofError, match="has no popcnt, sse4_1, "):
        check_processor(cpuinfo(tmp_path, OPTERON), "x86_64")


def test_what_numpy_runs_on_is_let_through(tmp_path):
    check_processor(cpuinfo(tmp_path, NEHALEM), "x86_64")
    check_processor(cpuinfo(tmp_path, OPTERON), "aarch64")
    check_processor(tmp_path / "missing", "x86_64")
    check_processor()


@pytest.mark.parametrize(
    ("why", "built_for", "todo"),
    [
        (
            "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found",
            "cpython-311-x86_64-linux-gnu",
            "this glibc is too old: use Debian 12,",
        ),
        (
            "Error loading shared library ld-linux-x86-64.so.2: No such file",
            "cpython-311-x86_64-linux-musl",
            "this Python is musl's, ",
        ),
    ],
)
@pytest.mark.always
def test_a_library_that_does_not_load_is_one_line(why, built_for, todo):
    line = str(not_loaded(ImportError(why), "/", built_for))
    assert line.startswith(f"cannot load what latprof needs: {why}; {todo}")


def test_where_latprof_runs_from_a_checkout_it_is_a_bug():
    with pytest.raises(ImportError, match="no such name"):
        not_loaded(ImportError("no such name"), "/nowhere")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An environment with copies of our packages, and what they import first."""
    folder = tmp_path_factory.mktemp("environment")
    words = ["venv", "--without-pip", "--symlinks", folder]
    subprocess.run([sys.executable, "-Im", *words], check=True)
    packages = Path(
        sysconfig.get_path("purelib", "venv", {"base": str(folder)}),
    )
    for module in (latprof_agent, latprof_analysis):
        ignored = shutil.ignore_patterns("__pycache__")
        source = Path(module.__file__).parent
        shutil.copytree(source, packages / source.name, ignore=ignored)
    own = sysconfig.get_path("purelib")
    for name in ("numpy", "numpy.libs", "lazy_loader"):
        (packages / name).symlink_to(Path(own, name))
    return folder, packages


@pytest.mark.parametrize("gone", ["numpy", "latprof_analysis/stages.py", "nothing"])
@pytest.mark.always
def test_files_that_were_removed_are_one_line(installed, tmp_path, gone):
    folder, packages = installed
    if gone != "nothing":  # of a checkout the compiled modules stand elsewhere
        (packages / gone).rename(tmp_path / "gone")
    try:
        ended = subprocess.run(
            [folder / "bin" / "python3", "-Im", "latprof_agent", "watch", "--once"],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        if gone != "nothing":
            (tmp_path / "gone").rename(packages / gone)
    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert line.startswith("latprof: cannot load what latprof needs: ")
    assert line.endswith("of several versions: install latprof again")
