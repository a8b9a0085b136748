"""What comes with the service: its unit, and the configuration that it starts with."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from latprof_agent import privileges
from latprof_agent.filters.groupings import GROUPINGS
from latprof_agent.service import config
from latprof_agent.service.config import Config, read_config

FOLDER = Path(__file__).parents[2] / "packaging" / "systemd"
TOML = FOLDER / "agent.toml"
UNIT = FOLDER / "latprof-agent.service"
PROGRAM = "/usr/local/bin/latprof"
MOST_EXPOSED = 25  # of 100, as systemd counts
COMMENTED = re.compile(r"^#(\[|[a-z_]+ = )", re.MULTILINE)

needs_analyze = pytest.mark.skipif(
    not shutil.which("systemd-analyze"),
    reason="no systemd-analyze here; apt-get install systemd",
)


@pytest.fixture
def everything(tmp_path):
    """The file of the service, nothing of which is a comment any more."""
    file = tmp_path / "agent.toml"
    file.write_text(COMMENTED.sub(r"\1", TOML.read_text()))
    return file


def test_the_services_configuration_is_the_default():
    assert read_config(TOML, {}) == Config()


def test_what_it_shows_as_default_is_the_default(everything):
    shown = read_config(everything, {})

    stories = ("story_above", "story_count", "story_bytes")
    for name in ("listen", "max_overhead", *stories, "by"):
        assert getattr(shown, name) == getattr(Config(), name), name


def test_its_examples_are_right(everything):
    shown = read_config(everything, {})

    assert shown.user == "latprof"
    assert shown.watched != Config().watched
    assert shown.tls
    assert shown.edges != Config().edges
    folder = "/var/lib/latprof-agent/"  # as systemd makes it
    assert str(shown.story_dir).startswith(folder)
    assert f"\nStateDirectory={Path(folder).name}\n" in UNIT.read_text()
    assert shown.users["prometheus"].fits("secret")


def test_it_shows_every_key_there_is(everything, tmp_path, monkeypatch):
    known = set()
    taken = config.ConfigTable.take

    def take(table, key, read):
        known.add(table._path + key)
        return taken(table, key, read)

    monkeypatch.setattr(config.ConfigTable, "take", take)
    empty = tmp_path / "empty.toml"
    empty.touch()
    read_config(empty, {})

    text = everything.read_text()
    for path in known:
        table, _, key = path.rpartition(".")
        inside = text.partition(f"\n[{table}]\n")[2] if table else text
        assert re.search(rf"^(\[{key}\]|{key} = )", inside, re.MULTILINE), path
    assert all(name in text for name in GROUPINGS)


@pytest.fixture
def unit(tmp_path):
    """The unit, with a program that is there."""
    file = tmp_path / UNIT.name
    file.write_text(UNIT.read_text().replace(PROGRAM, "/bin/true"))
    return file


def analyze(*words):
    return subprocess.run(
        ["systemd-analyze", *words], capture_output=True, text=True, check=False
    )


@needs_analyze
def test_systemd_finds_nothing_wrong_with_the_unit(unit):
    found = analyze("verify", "--man=no", unit)

    # it looks at the machine's other units, too
    told = [line for line in found.stderr.splitlines() if unit.name in line]
    assert (found.returncode, found.stdout, told) == (0, "", [])


@needs_analyze
def test_systemd_finds_the_unit_little_exposed(unit):
    limit = f"--threshold={MOST_EXPOSED}"
    found = analyze("security", "--no-pager", "--offline=true", limit, unit)

    assert found.returncode == 0, found.stdout


def test_the_unit_starts_what_the_set_up_links_with_the_file_that_it_puts():
    script = (FOLDER.parent / "latprof").read_text()
    (start,) = re.findall("^ExecStart=(.*)", UNIT.read_text(), re.MULTILINE)

    assert f"\nPROGRAM={PROGRAM}\n" in script
    assert start == f"{PROGRAM} agent --config /etc/latprof/agent.toml"


def test_the_unit_gives_the_capabilities_that_loading_needs():
    # include/uapi/linux/capability.h
    numbers = {"BPF": 39, "PERFMON": 38, "NET_ADMIN": 12, "SYSLOG": 34, "SYS_ADMIN": 21}
    text = UNIT.read_text()
    for key in ("AmbientCapabilities", "CapabilityBoundingSet"):
        (given,) = re.findall(f"^{key}=(.*)", text, re.MULTILINE)
        names = [name.removeprefix("CAP_") for name in given.split()]
        assert sorted(numbers[n] for n in names) == sorted(privileges.LOADING)
