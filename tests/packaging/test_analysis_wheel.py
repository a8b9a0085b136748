"""The offline analysis is a package of its own: no compiler, no root, no agent."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 60


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of analysis/, built without the network."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    words = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder]
    subprocess.run(
        [sys.executable, "-m", "pip", *words, ROOT / "analysis"],
        check=True,
        capture_output=True,
        timeout=DEADLINE_SECONDS,
    )
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_holds_every_module_and_nothing_compiled(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "analysis" / "latprof_analysis"
    modules = {str(path.relative_to(package.parent)) for path in package.rglob("*.py")}
    assert modules <= names
    assert not [name for name in names if name.endswith((".so", ".o", ".pyc"))]


def test_the_wheel_alone_analyzes_a_file(wheel, tmp_path):
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    code = (
        "import sys\n"
        "sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)]\n"
        f"sys.path.insert(0, {str(installed)!r})\n"
        "import latprof_analysis\n"
        f"assert latprof_analysis.__file__.startswith({str(installed)!r})\n"
        "from latprof_analysis.cli import OFFLINE, VERSION\n"
        "from latprof_analysis.cli.program import run_program\n"
        "status = run_program(OFFLINE, VERSION)\n"
        "assert not any(m.startswith('latprof_agent') for m in sys.modules)\n"
        "sys.exit(status)\n"
    )
    path = ROOT / "tests" / "data" / "clear_result.txt"
    done = subprocess.run(
        [sys.executable, "-c", code, "analyze", path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("clear: ")
