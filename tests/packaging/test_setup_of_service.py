"""The service's files: put where systemd runs, taken away again, and never another's.

systemctl finds no systemd on these machines: what it would be told has no effect.
"""

import os

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

FILES = {
    "latprof-agent.service": "/usr/local/lib/systemd/system/latprof-agent.service",
    "agent.toml": "/etc/latprof/agent.toml",
}


def boot_systemd(machine):
    """Make systemd run there, as far as anybody can tell."""
    (machine.at("/run") / "systemd" / "system").mkdir(parents=True, exist_ok=True)
    return machine


def ours(machine, name):
    return machine.checkout / "packaging" / "systemd" / name


def call(machine, command):
    ended = machine.call(command)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


@pytest.fixture
def with_service(installed):
    """A machine with systemd, on which version 1.0 works."""
    boot_systemd(installed)
    change(installed, "latprof-agent.service", "the unit of 1.0\n")
    call(installed, "install")
    return installed


def change(machine, name, text):
    """Change what the checkout has."""
    ours(machine, name).write_text(text)


def test_the_files_are_put_where_systemd_runs(with_service):
    for name, place in FILES.items():
        put = with_service.at(place)
        assert put.read_text() == ours(with_service, name).read_text()
        assert not put.is_symlink()
        assert put.stat().st_mode & 0o777 == 0o644
    enabled = with_service.at("/etc/systemd/system").rglob("latprof*")
    assert list(enabled) == []


def test_elsewhere_nothing_is_put(installed):
    for place in FILES.values():
        assert not installed.at(place).exists()


def test_an_upgrade_brings_new_ones(with_service):
    change(with_service, "latprof-agent.service", "a new unit\n")
    call(with_service, "upgrade")

    put = with_service.at(FILES["latprof-agent.service"])
    assert put.read_text() == "a new unit\n"


@pytest.mark.thorough
def test_a_configuration_that_was_changed_stays(with_service):
    place = FILES["agent.toml"]
    with_service.at(place).write_text("mine\n")
    change(with_service, "agent.toml", "# new\n")

    said = call(with_service, "upgrade")
    assert f"left as it is, since it is not as latprof put it: {place}\n" in said
    assert with_service.at(place).read_text() == "mine\n"

    said = call(with_service, "uninstall")
    assert f"left as it is, since it was changed: {place}\n" in said
    assert with_service.at(place).read_text() == "mine\n"
    assert not with_service.at(FILES["latprof-agent.service"]).exists()


@pytest.mark.thorough
def test_a_unit_that_is_anothers_stays(installed):
    place = FILES["latprof-agent.service"]
    boot_systemd(installed)
    installed.at(place).parent.mkdir(parents=True)
    installed.at(place).write_text("mine\n")
    change(installed, "latprof-agent.service", "a new unit\n")
    call(installed, "install")
    call(installed, "uninstall")

    assert installed.at(place).read_text() == "mine\n"


def test_uninstall_removes_them_and_their_folders(with_service):
    said = call(with_service, "uninstall")

    for place in FILES.values():
        assert f"removed {place}\n" in said
        assert not with_service.at(place).parent.exists()
    assert with_service.at("/usr/local/lib").exists()


@pytest.mark.thorough
def test_an_upgrade_that_fails_puts_the_old_ones_back(with_service):
    change(with_service, "latprof-agent.service", "a new unit\n")
    program = with_service.checkout / "agent" / "latprof_agent" / "cli" / "__init__.py"
    program.write_text("raise SystemExit(1)\n")
    ended = with_service.call("upgrade")

    assert ended.returncode == 1
    assert "the version before is in place again: latprof 1.0" in ended.stderr
    put = with_service.at(FILES["latprof-agent.service"])
    assert put.read_text() == "the unit of 1.0\n"
    assert not with_service.at("/opt/latprof.failed").exists()
    call(with_service, "uninstall")
    assert not put.exists()
