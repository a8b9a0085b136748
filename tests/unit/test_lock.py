"""packaging/lock: what the set-up and developers install, by version and hash."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "packaging" / "lock").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
NEEDED = PROJECT["project"]["dependencies"] + [
    requirement for extra in ("report", "shell") for requirement in EXTRAS[extra]
]
BUILD = PROJECT["build-system"]["requires"] + PROJECT["dependency-groups"]["build"]
WANTED = {
    "build": BUILD,
    "run": NEEDED,
    "test": NEEDED + EXTRAS["test"],
    "dev": BUILD + NEEDED + EXTRAS["test"] + PROJECT["dependency-groups"]["dev"],
}


def locked(name):
    """Give what a lock names, by versions: of some there are two, for two Pythons."""
    text = (ROOT / "packaging" / "lock" / f"{name}.txt").read_text()
    found = re.findall(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==(\S+)", text, re.MULTILINE)
    return set(found)


@pytest.mark.parametrize("name", WANTED)
def test_the_lock_meets_what_pyproject_wants(name):
    versions = locked(name)

    for text in WANTED[name]:
        wanted = Requirement(text)
        known = canonicalize_name(wanted.name)
        there = [version for package, version in versions if package == known]
        assert any(map(wanted.specifier.contains, there)), f"{text}; run `make lock`"


@pytest.mark.parametrize("name", ["build", "run", "test"])
def test_all_locks_name_the_same_versions(name):
    assert locked(name) <= locked("dev")


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_a_lock_names_all_by_hash_and_no_registry(path):
    text = path.read_text()
    head, *entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)

    assert head.splitlines()[1:] == [
        "--only-binary :all:",
        "--no-binary argparse-manpage",
    ]
    assert entries
    for entry in entries:
        assert re.match(r"\S+==\S+", entry)
        assert "--hash=sha256:" in entry
    assert "://" not in text
