"""The wheel of this checkout runs where there is no compiler: on a minimal Debian."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from minimal_debian import check

BUILD = Path(__file__).parents[2] / "packaging" / "build-wheel"
EPOCH = "1700000000"


def build(folder: Path) -> Path:
    words = [BUILD, sys.executable, platform.machine(), folder]
    ended = subprocess.run(
        words,
        env=os.environ | {"SOURCE_DATE_EPOCH": EPOCH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return folder / ended.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    pytest.importorskip("auditwheel")
    return build(tmp_path_factory.mktemp("wheel"))


def test_it_holds_what_it_needs_and_fits_any_python(wheel):
    assert re.fullmatch(
        rf"latprof-.*-cp311-abi3-manylinux_2_34_{platform.machine()}\.whl", wheel.name
    )
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    libraries = re.findall(r"latprof\.libs/(lib[a-z]+)", "\n".join(names))
    assert sorted(libraries) == ["libbpf", "libelf"]
    assert {"latprof_agent/bin/latprof-load", "latprof_agent/bin/latprof-link"} <= {
        *names
    }
    assert wheel.stat().st_size < 4 << 20


@pytest.mark.thorough
def test_it_is_the_same_bytes_each_time(wheel, tmp_path):
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_it_measures_on_a_debian_without_a_compiler(wheel, suite):
    check("check_wheel.sh", suite, wheel)
