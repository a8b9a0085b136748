"""What kernel tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec


@pytest.fixture
def make_lab() -> Iterator[Callable[..., Lab]]:
    """Make labs that are removed after the test; options as of LinkSpec."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Lab(LinkSpec(**options)))
