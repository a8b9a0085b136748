"""Packages that some commands need and others do not, and how to get them.

`pip install latprof` brings what measures: these are its extras, as pyproject.toml
has them, so that a host which only measures has a third of it all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from latprof_analysis.errors import LatprofError

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "analysis": ("pandas", "pyarrow", "scipy"),
    "dask": ("dask", "distributed"),
    "pods": ("h2",),
    "proxystore": ("proxystore",),
    "redis": ("hiredis", "redis"),
    "report": ("typst", "vl_convert"),
    "shell": ("shtab",),
}
# Of who packages latprof for a distribution: how an extra is had there.
_PACKAGERS_WORD = "share/latprof/add-{extra}"
_NOT_PACKAGED = "share/latprof/add-others"


def extra_of(module: str | None) -> str | None:
    """Return the extra that brings a module, by the name that an import refused."""
    package = (module or "").partition(".")[0]
    return next((extra for extra, has in EXTRAS.items() if package in has), None)


def has_extra(extra: str) -> bool:
    """Say whether all of an extra is installed."""
    return not _missing(extra)


def need_extra(extra: str, who: str) -> None:
    """Raise LatprofError, with the command that brings it, where an extra lacks."""
    if missing := _missing(extra):
        are = "is" if len(missing) == 1 else "are"
        raise LatprofError(
            f"{who} needs {', '.join(missing)}, which {are} not installed; "
            f"{how_to_add(extra)}"
        )


def not_installed(what: str, module: str | None) -> LatprofError:
    """Make one line of an import that failed."""
    extra = extra_of(module)
    how = how_to_add(extra) if extra else "install latprof again"
    return LatprofError(f"cannot {what}: {module} is not installed; {how}")


@contextmanager
def needed(what: str) -> Iterator[None]:
    """Say in one line that what is imported in the block is not installed."""
    try:
        yield
    except ImportError as error:
        raise not_installed(what, error.name) from error


def _missing(extra: str) -> list[str]:
    return [name for name in EXTRAS[extra] if find_spec(name) is None]


def how_to_add(extra: str) -> str:
    """Say which command installs an extra, beside what runs now."""
    for name in (_PACKAGERS_WORD.format(extra=extra), _NOT_PACKAGED):
        word = Path(sys.prefix, name)
        if word.is_file():
            return word.read_text().strip()
    return f"run `{sys.executable} -m pip install '{_distribution()}[{extra}]'`"


def _distribution() -> str:
    """Return by which name pip knows us: the agent's package has the analysis, too."""
    try:
        metadata.distribution("latprof")
    except metadata.PackageNotFoundError:
        return "latprof-analysis"
    return "latprof"
