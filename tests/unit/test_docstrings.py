"""Every example in a docstring of the analysis runs, and prints what it shows."""

import doctest
import pkgutil
from importlib import import_module

import latprof_analysis
import pytest

MODULES = [
    module.name
    for module in pkgutil.walk_packages(
        latprof_analysis.__path__, f"{latprof_analysis.__name__}."
    )
    if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", [latprof_analysis.__name__, *MODULES])
def test_examples_in_the_docstrings_run(name):
    assert doctest.testmod(import_module(name)).failed == 0


def test_each_function_that_the_package_gives_has_an_example():
    given = {name: getattr(latprof_analysis, name) for name in latprof_analysis.__all__}
    without = {
        name
        for name, value in given.items()
        if not isinstance(value, type) and ">>>" not in (value.__doc__ or "")
    }
    assert without == set()
