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
GROUPS = PROJECT["dependency-groups"]


def extra(name):
    """Give what an extra wants; our own extras in it by what those want."""
    for text in EXTRAS[name]:
        wanted = Requirement(text)
        if wanted.name == PROJECT["project"]["name"]:
            for other in wanted.extras:
                yield from extra(other)
        else:
            yield text


# What the set-up installs, see write-lock.
NEEDED = PROJECT["project"]["dependencies"] + [
    text for name in ("pods", "redis", "report", "shell") for text in extra(name)
]
BUILD = PROJECT["build-system"]["requires"]
TEST = [*NEEDED, *extra("test"), *GROUPS["release"]]
WANTED = {
    "backend": GROUPS["build"],
    "build": BUILD,
    "release": GROUPS["release"],
    "run": NEEDED,
    "sbom": GROUPS["sbom"],
    "test": TEST,
    "dev": [*GROUPS["build"], *BUILD, *TEST, *GROUPS["dev"]],
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


@pytest.mark.parametrize("name", sorted(WANTED.keys() - {"dev", "sbom"}))
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
