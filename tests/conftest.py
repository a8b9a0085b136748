"""What comes first, what decides on a change, and what needs root.

No example of Hypothesis is timed: how long it takes is the machine's doing. With
LATPROF_KERNEL_TESTS=1 those that need root may not be skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from latprof_analysis.cli.program import keep_blas_small
from printed import documents_checked

# As the program does before NumPy comes: a pool of threads would only spin.
keep_blas_small()

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

HERE = Path(__file__).parent
# They start programs, labs and browsers.
WITH_PROGRAMS = ("faults", "kernel", "packaging", "prometheus", "report")
AS_ROOT = (HERE / "kernel", HERE / "faults")


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that other users can get into, which pytest's own are not."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(autouse=True, scope="session")
def printed_documents() -> Iterator[None]:
    """Hold each document that a command prints against its schema."""
    with documents_checked():
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a change be tested in a quarter of an hour."""
    parser.addoption(
        "--quick",
        action="store_true",
        help="none that is thorough or measures time; of those that start programs, "
        "labs and browsers the first case each, and all cases of what is marked always",
    )


def _quick(items: list[pytest.Item]) -> list[pytest.Item]:
    """Choose those that decide on a change, whatever the machine does beside them."""
    chosen, begun = [], set()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if item.get_closest_marker("thorough") or item.get_closest_marker("timed"):
            continue
        further = name in begun and not item.get_closest_marker("always")
        if further and item.path.relative_to(HERE).parts[0] in WITH_PROGRAMS:
            continue
        begun.add(name)
        chosen.append(item)
    return chosen


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Begin with the guests, which take longest; skip what cannot run here."""
    if config.getoption("quick"):
        chosen = _quick(items)
        quick = set(chosen)
        config.hook.pytest_deselected(items=[i for i in items if i not in quick])
        items[:] = chosen
    items.sort(key=lambda item: HERE / "vm" not in item.path.parents)
    if os.geteuid() == 0 or os.environ.get("LATPROF_KERNEL_TESTS") == "1":
        return
    for item in items:
        if not set(AS_ROOT).isdisjoint(item.path.parents):
            item.add_marker(pytest.mark.skip(reason="needs root"))
