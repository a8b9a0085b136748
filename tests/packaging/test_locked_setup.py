"""The set-up installs what packaging/lock names by hash, or nothing."""

import os

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def test_what_is_installed_is_what_the_lock_names(machine):
    machine.publish(
        "needed", machine.checkout / "agent/latprof_agent/probes/proof.py", "1.0"
    )

    ended = machine.call("install")

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "latprof: cannot install what latprof needs: needed==1.0 is not the file that"
        " packaging/lock names by its hash; the full log is /var/log/latprof-setup.log"
    )
    assert ended.stderr.count("latprof: ") == 1
    assert not list(machine.at("/opt/latprof").rglob("needed*"))


@pytest.mark.thorough
def test_what_works_stays_where_an_upgrade_gets_another_file(installed):
    wheel = installed.publish_needed("2.0")
    wheel.write_bytes(wheel.read_bytes() + b"more")

    ended = installed.call("upgrade")

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-2:] == [
        "latprof: cannot install what latprof needs: needed==2.0 is not the file that"
        " packaging/lock names by its hash; the full log is /var/log/latprof-setup.log",
        "latprof-setup: the version before is in place again: latprof 1.0",
    ]
    assert (
        installed.run("/usr/local/bin/latprof", "--version").stdout == "latprof 1.0\n"
    )


@pytest.mark.thorough
def test_an_upgrade_installs_what_the_new_lock_names(installed):
    installed.publish_needed("2.0")

    ended = installed.call("upgrade")

    assert ended.stderr.splitlines()[-1].endswith(
        " latprof 1.0 before, latprof 2.0 now"
    )
    assert (
        installed.run("/usr/local/bin/latprof", "--version").stdout == "latprof 2.0\n"
    )
