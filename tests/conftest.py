"""What comes first, what a sample has, what is timed, and what needs root.

No example of Hypothesis is timed: how long it takes is the machine's doing. With
LATPROF_KERNEL_TESTS=1 those that need root may not be skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

import pytest
from hypothesis import settings
from latprof_analysis.cli.program import keep_blas_small

# As the program does before NumPy comes: a pool of threads would only spin.
keep_blas_small()

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

HERE = Path(__file__).parent
# Of a sample: of so many cases one, of so many tests that measure time, and of so many
# others of those folders, which start programs, labs and browsers.
CASES, TIMED, PROGRAMS = 8, 12, 2
WITH_PROGRAMS = ("faults", "kernel", "packaging", "prometheus", "report")
AS_ROOT = (HERE / "kernel", HERE / "faults")


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that other users can get into, which pytest's own are not."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a change be tested in a quarter of an hour."""
    parser.addoption(
        "--sample",
        action="store_true",
        help="of each test one case in eight, none that is thorough; of those that "
        "measure time a twelfth, of others that start programs half; and all that is "
        "marked always",
    )


def _is_sampled(item: pytest.Item, number: int, step: int, place: int) -> bool:
    """Whether it is the case that its test's number names, or an eighth after it."""
    if item.get_closest_marker("always"):
        return True
    one_in = 1
    if item.get_closest_marker("timed"):
        one_in = TIMED
    elif item.path.relative_to(HERE).parts[0] in WITH_PROGRAMS:
        one_in = PROGRAMS
    return number % one_in == 0 and place % step == number // one_in % step


def _sample(items: list[pytest.Item]) -> set[pytest.Item]:
    """Choose some, by the names of tests."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not item.get_closest_marker("thorough"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {
        item
        for name, cases in tests.items()
        for place, item in enumerate(cases)
        if _is_sampled(item, crc32(name.encode()), min(len(cases), CASES), place)
    }


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Begin with the guests, which take longest; skip what cannot run here."""
    if config.getoption("sample"):
        chosen = _sample(items)
        left = [item for item in items if item not in chosen]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item in chosen]
    items.sort(key=lambda item: HERE / "vm" not in item.path.parents)
    if os.geteuid() == 0 or os.environ.get("LATPROF_KERNEL_TESTS") == "1":
        return
    for item in items:
        if not set(AS_ROOT).isdisjoint(item.path.parents):
            item.add_marker(pytest.mark.skip(reason="needs root"))
