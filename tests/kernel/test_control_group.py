"""A command's control group: all in it end, without cgroup.kill too."""

import secrets
import subprocess

import pytest
from latprof_agent.errors import LabError, close_after
from latprof_agent.lab import control_group
from latprof_agent.lab.control_group import ControlGroup, kill_each
from latprof_analysis.cli import program

# Each child forks the next and ends: to read who is there is always too late.
FORKS = "f() { (sleep 0.02; f) & }; f; f; f"
SLEEPS = "sleep 1000 & sleep 1000 & wait"


@pytest.fixture
def group():
    made = ControlGroup(f"latprof-{secrets.token_hex(4)}")
    yield made
    made.close()


@pytest.mark.parametrize("script", [FORKS, SLEEPS])
@pytest.mark.parametrize("below", ["", "theirs"])
def test_members_are_killed_one_by_one(group, script, below):
    place = group.path / below
    place.mkdir(exist_ok=True)
    words = ["sh", "-c", f"echo $$ >{place}/cgroup.procs; echo; {script}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as started:
        started.stdout.readline()
        kill_each(group.path)
        assert "populated 0" in (group.path / "cgroup.events").read_text()
        started.stdout.close()


def test_others_are_not_killed(group):
    with subprocess.Popen(["sleep", "1000"]) as other:
        kill_each(group.path)
        assert other.poll() is None
        other.kill()


def test_a_group_without_cgroup_kill_is_removed(group, monkeypatch):
    """As Linux 5.10 has it: the file is not there, and none can be made."""
    exists = type(group.path).exists
    monkeypatch.setattr(
        type(group.path), "exists", lambda p: p.name != "cgroup.kill" and exists(p)
    )
    words = ["sh", "-c", f"echo $$ >{group.members}; echo; {SLEEPS}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as started:
        started.stdout.readline()
        assert control_group.remove(group.path.name)
        started.stdout.close()
    assert not group.path.is_dir()


def refuse():
    raise LabError("cannot remove control group")


def test_what_cannot_be_undone_is_said_after_the_reason():
    first = LabError("no tracepoint")
    close_after(first, refuse)
    assert first.__notes__ == ["cannot remove control group"]


def test_what_cannot_be_undone_is_another_line(monkeypatch, capsys):
    def fail(*_):
        close_after(first, refuse)
        raise first

    first = LabError("no tracepoint")
    monkeypatch.setattr(program, "_run", fail)
    assert program.run_program({}, "1", []) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == ["latprof: no tracepoint", "latprof: cannot remove control group"]


@pytest.mark.parametrize("first", [None, KeyboardInterrupt()])
def test_what_cannot_be_undone_is_said_without_a_reason(first):
    with pytest.raises(LabError, match="cannot remove control group"):
        close_after(first, refuse)
