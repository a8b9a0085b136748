"""The set-up tries what it has built: what the verifier refuses is not installed."""

import os

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

WHY = "cannot follow messages: xmit: the verifier refuses on_xmit; report it"
PROOF = """\
import sys

print({why!r})
print("the end of the verifier's log", file=sys.stderr)
sys.exit({status})
"""


def prove(machine, status):
    """Let the small latprof's proof end with this."""
    file = machine.checkout / "agent" / "latprof_agent" / "probes" / "proof.py"
    file.write_text(PROOF.format(why=WHY, status=status))


def log_of(machine):
    return machine.at("/var/log/latprof-setup.log").read_text()


def assert_failed(machine, ended):
    assert (ended.returncode, ended.stdout) == (1, "")
    failed = f"latprof: {WHY}; the full log is /var/log/latprof-setup.log"
    assert failed in ended.stderr.splitlines()
    assert ended.stderr.count("latprof: ") == 1
    assert "the end of the verifier's log" in log_of(machine)


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["run", "install"])
def test_what_the_verifier_refuses_fails_the_set_up(machine, command):
    prove(machine, 1)

    for _ in range(2):  # it is not taken for built the second time
        assert_failed(machine, machine.call(command))

    assert not machine.at("/usr/local/bin/latprof").is_symlink()


@pytest.mark.thorough
def test_what_worked_stays_where_the_verifier_refuses_an_upgrade(installed):
    prove(installed, 1)

    ended = installed.call("upgrade")

    assert_failed(installed, ended)
    assert ended.stderr.endswith("is in place again: latprof 1.0\n")
    proof = list(installed.at("/opt/latprof").rglob("probes/proof.py"))
    assert [file.read_text() for file in proof] == [""]


@pytest.mark.thorough
def test_what_the_kernel_does_not_allow_here_is_said(machine):
    prove(machine, 0)

    ended = machine.call("install")

    assert ended.returncode == 0, ended.stderr
    assert f"latprof-setup: {WHY}\n" in ended.stderr
    assert machine.run("/usr/local/bin/latprof", "--version").stdout == "latprof 1.0\n"
