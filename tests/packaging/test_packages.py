"""deb, rpm and tarball: what make-packages refuses, and that what it made works.

With LATPROF_PACKAGES=FOLDER, where it has made them: on a minimal Debian.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from minimal_debian import check

MAKE = Path(__file__).parents[2] / "packaging" / "make-packages"
MOST_BYTES = 25_000_000  # of a deb


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("numpy-1.0-cp311-cp311-manylinux_2_34_x86_64.whl", "it is not latprof's"),
        ("latprof-1.0-cp311-abi3-manylinux_2_34_i686.whl", "knows x86_64 and aarch64"),
        ("missing.whl", "no such file"),
    ],
)
@pytest.mark.always
def test_it_refuses_what_it_cannot_package_in_one_line(tmp_path, name, why):
    wheel = tmp_path / name
    if "-" in name:
        wheel.touch()
    words = [MAKE, wheel, tmp_path / "made"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("make-packages: ")
    assert why in line


def test_it_says_which_words_it_needs():
    ended = subprocess.run([MAKE], capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert ended.stderr == "make-packages: needs WHEEL FOLDER\n"


@pytest.fixture
def folder():
    if "LATPROF_PACKAGES" not in os.environ:
        pytest.skip("needs packages: set LATPROF_PACKAGES to their folder")
    return Path(os.environ["LATPROF_PACKAGES"])


@pytest.mark.thorough
@pytest.mark.parametrize(("suite", "release"), [("bookworm", 12), ("trixie", 13)])
def test_the_packages_work_on_a_fresh_debian(folder, suite, release):
    (deb,) = folder.glob(f"latprof_*~deb{release}_*.deb")
    assert deb.stat().st_size <= MOST_BYTES
    check("check_packages.sh", suite, folder)


@pytest.mark.thorough
def test_lintian_finds_no_error(folder):
    debs = sorted(folder.glob("latprof_*.deb"))
    words = ["lintian", "--allow-root", "--fail-on=error", *debs]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stdout
