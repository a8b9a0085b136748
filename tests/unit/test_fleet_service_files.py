"""What comes with a fleet's service: its unit, and the configuration it starts with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from latprof_agent.fleet import fleet_config
from latprof_agent.fleet.fleet_config import FleetConfig, read_fleet_config
from latprof_agent.service.config import ConfigTable
from test_service_files import COMMENTED, FOLDER, PROGRAM, analyze, needs_analyze

TOML = FOLDER / "fleet.toml"
UNIT = FOLDER / "latprof-fleet.service"
MOST_EXPOSED = 15  # of 100, as systemd counts: it may reach all of the network


def test_a_fleets_configuration_is_the_default():
    assert read_fleet_config(TOML, {}) == FleetConfig()


def test_what_it_shows_is_right_and_is_every_key(tmp_path, monkeypatch):
    text = COMMENTED.sub(r"\1", TOML.read_text())
    password = tmp_path / "password"
    password.write_text("secret\n")
    text = text.replace(
        "/run/credentials/latprof-fleet.service/fleet.password", str(password)
    )
    # authorities are read when it starts, and there are none here
    text = re.sub("^certificates = .*\n", "", text, flags=re.MULTILINE)
    known, taken = set(), ConfigTable.take

    def take(table, key, read):
        known.add(key)
        return taken(table, key, read)

    monkeypatch.setattr(fleet_config.ConfigTable, "take", take)
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    shown = read_fleet_config(file, {})

    for key in known - {"certificates"}:
        assert re.search(rf"^(\[{key}\]|{key} = )", text, re.MULTILINE), key
    for name in ("listen", "interval_seconds"):
        assert getattr(shown, name) == getattr(FleetConfig(), name)
    assert shown.access.timeout_seconds == FleetConfig().access.timeout_seconds
    assert shown.access.password == "secret"
    assert (len(shown.agents), len(shown.dns)) == (2, 1)
    assert shown.agents_file == Path("/etc/latprof/agents")
    assert shown.users["prometheus"].fits("secret")
    assert shown.tls


@pytest.fixture
def unit(tmp_path):
    """The unit, with a program that is there."""
    file = tmp_path / UNIT.name
    file.write_text(UNIT.read_text().replace(PROGRAM, "/bin/true"))
    return file


@needs_analyze
def test_systemd_finds_nothing_wrong_with_a_fleets_unit(unit):
    found = analyze("verify", "--man=no", unit)
    told = [line for line in found.stderr.splitlines() if unit.name in line]
    assert (found.returncode, found.stdout, told) == (0, "", [])


@needs_analyze
def test_systemd_finds_a_fleets_unit_hardly_exposed(unit):
    limit = f"--threshold={MOST_EXPOSED}"
    found = analyze("security", "--no-pager", "--offline=true", limit, unit)
    assert found.returncode == 0, found.stdout


def test_a_fleets_unit_has_no_capability_and_reads_the_file_beside_it():
    text = UNIT.read_text()
    assert "\nCapabilityBoundingSet=\n" in text
    assert f"\nExecStart={PROGRAM} fleet --config /etc/latprof/fleet.toml\n" in text
