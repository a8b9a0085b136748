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
# Of a sample: of so many cases one, and of so many tests that measure time.
CASES, TIMED = 8, 3
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
        help="of each test one case in eight, none that is thorough, and of those that "
        "measure time a third",
    )


def _is_sampled(item: pytest.Item, cases: list[str]) -> bool:
    """One case of a test, or of many each eighth; which, depends on its name."""
    name = crc32(item.nodeid.partition("[")[0].encode())
    timed_apart = item.get_closest_marker("timed") and name % TIMED
    if timed_apart or item.get_closest_marker("thorough"):
        return False
    step = min(len(cases), CASES)
    return cases.index(item.nodeid) % step == name // TIMED % step


def _sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    cases: dict[str, list[str]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item.nodeid)
    chosen = [_is_sampled(item, cases[item.nodeid.partition("[")[0]]) for item in items]
    config.hook.pytest_deselected(
        items=[item for item, kept in zip(items, chosen, strict=True) if not kept]
    )
    items[:] = [item for item, kept in zip(items, chosen, strict=True) if kept]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Begin with the guests, which take longest; skip what cannot run here."""
    if config.getoption("sample"):
        _sample(config, items)
    items.sort(key=lambda item: HERE / "vm" not in item.path.parents)
    if os.geteuid() == 0 or os.environ.get("LATPROF_KERNEL_TESTS") == "1":
        return
    for item in items:
        if not set(AS_ROOT).isdisjoint(item.path.parents):
            item.add_marker(pytest.mark.skip(reason="needs root"))
