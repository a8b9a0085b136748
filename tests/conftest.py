"""What comes first, what is timed, and what needs root.

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

# As the program does before NumPy comes: a pool of threads would only spin.
keep_blas_small()

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

HERE = Path(__file__).parent
AS_ROOT = (HERE / "kernel", HERE / "faults")


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that other users can get into, which pytest's own are not."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the guests, which take longest; skip what cannot run here."""
    items.sort(key=lambda item: HERE / "vm" not in item.path.parents)
    if os.geteuid() == 0 or os.environ.get("LATPROF_KERNEL_TESTS") == "1":
        return
    for item in items:
        if not set(AS_ROOT).isdisjoint(item.path.parents):
            item.add_marker(pytest.mark.skip(reason="needs root"))
