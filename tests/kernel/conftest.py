"""Kernel tests need root; with LATPROF_KERNEL_TESTS=1 they may not be skipped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot run here, unless it is demanded."""
    if os.geteuid() == 0 or os.environ.get("LATPROF_KERNEL_TESTS") == "1":
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture
def make_lab() -> Iterator[Callable[..., Lab]]:
    """Make labs that are removed after the test; options as of LinkSpec."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Lab(LinkSpec(**options)))
