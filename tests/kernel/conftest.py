"""What kernel tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec


@pytest.fixture
def make_lab() -> Iterator[Callable[..., Lab]]:
    """Make labs that are removed after the test; options as of LinkSpec."""
    with ExitStack() as stack:

        def make(hosts: int = 2, **options: Any) -> Lab:
            return stack.enter_context(Lab(LinkSpec(**options), hosts=hosts))

        yield make
