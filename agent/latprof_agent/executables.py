"""Where our native executables are."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from latprof_agent.errors import LatprofError


def _folders() -> Iterator[Path]:
    yield Path(__file__).parent / "bin"
    yield Path(sys.executable).parent
    folders = map(Path, os.environ.get("PATH", "").split(os.pathsep))
    # an empty one is the working directory, which may be anybody's
    yield from (folder for folder in folders if folder.is_absolute())
    # last: to look for it takes long
    build = Path(__file__).parents[2] / "build"
    yield from sorted(build.glob("*/agent/native/*"))


def find_executable(name: str) -> Path:
    """Find `latprof-link` or the like.

    Looked for in our package, beside the Python interpreter, in PATH, and in the build
    folder of a source checkout, which an editable install has.
    """
    for folder in _folders():
        found = shutil.which(name, path=str(folder))
        if found:
            return Path(found)
    raise LatprofError(
        f"cannot find {name}: not in {Path(__file__).parent}, beside {sys.executable},"
        " in PATH or in a build folder; install latprof again"
    )
