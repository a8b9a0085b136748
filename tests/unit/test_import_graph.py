"""Which folders import which: no ring in a package, and borders that hold."""

from __future__ import annotations

import ast
import importlib.util
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {"latprof_agent": ROOT / "agent", "latprof_analysis": ROOT / "analysis"}
PATHS = {
    ".".join(path.relative_to(folder).with_suffix("").parts): path
    for package, folder in FOLDERS.items()
    for path in (folder / package).rglob("*.py")
}
MODULES = {name.removesuffix(".__init__"): path for name, path in PATHS.items()}


def imported(name):
    """The modules of both packages that one imports, within functions, too."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} imports by dots"
            within = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [one if one in MODULES else node.module for one in within]
        else:
            continue
        found |= MODULES.keys() & set(names)
    return found


def folder_of(name):
    """`latprof_agent.capture` of a module in it; a module beside folders is its own."""
    return ".".join(name.split(".")[:2])


@pytest.fixture(scope="module")
def graph():
    """By folder those that it imports."""
    found = defaultdict(set)
    for name in MODULES:
        found[folder_of(name)] |= {folder_of(other) for other in imported(name)}
    return {folder: others - {folder} for folder, others in found.items()}


def test_no_folder_imports_another_in_a_ring(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_analysis_imports_nothing_of_the_agent(graph):
    for folder, others in graph.items():
        if folder.startswith("latprof_analysis"):
            assert not [one for one in others if one.startswith("latprof_agent")]
            assert importlib.util.find_spec(folder), folder


@pytest.mark.parametrize("folder", ["lab", "workload"])
def test_what_makes_traffic_is_imported_by_runs_and_commands_only(graph, folder):
    users = {one for one in graph if f"latprof_agent.{folder}" in graph[one]}
    runs = {"session", "rebuild", "join", "cli", "workload"}
    assert users <= {f"latprof_agent.{one}" for one in runs}


@pytest.mark.parametrize("package", FOLDERS)
def test_no_module_is_called_as_another_of_its_package(package):
    """But subcommands, which are called as their commands are, and folders."""
    counts = Counter(
        path.stem
        for name, path in MODULES.items()
        if name.startswith(f"{package}.") and ".cli." not in name
    )
    del counts["__init__"]
    assert [name for name, count in counts.items() if count > 1] == []
