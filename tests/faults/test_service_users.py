"""The user that an agent of root becomes, where there is none of its own."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

# It waits for a line, so that all ask at once, and keeps its user until it ends.
ASK = """
import sys
from pathlib import Path
from latprof_agent import privileges
from latprof_agent.errors import LatprofError
privileges.SERVICE_USER = "no-user-of-this-name"
print("ready", flush=True)
sys.stdin.readline()
try:
    print(privileges.service_user(None, locks=Path(sys.argv[1])).uid, flush=True)
except LatprofError as error:
    print(error, flush=True)
sys.stdin.read()
"""
AGENTS = 30


@contextmanager
def asking(locks: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that asks for a user when it reads a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", ASK, str(locks)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def ask(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def user_for(locks: Path, stack: ExitStack) -> int:
    process = stack.enter_context(asking(locks))
    ask(process)
    assert line_of(process) == "ready"
    return int(line_of(process))


def test_agents_that_start_at_once_are_each_a_user_of_their_own(tmp_path):
    with ExitStack() as stack:
        agents = [stack.enter_context(asking(tmp_path)) for _ in range(AGENTS)]
        assert {line_of(agent) for agent in agents} == {"ready"}
        for agent in agents:
            ask(agent)
        users = [int(line_of(agent)) for agent in agents]
        assert len(set(users)) == AGENTS


def test_the_user_of_an_agent_that_was_killed_is_free_again(tmp_path):
    with ExitStack() as stack:
        with ExitStack() as killed:
            first = user_for(tmp_path, killed)
            assert user_for(tmp_path, stack) != first
        assert user_for(tmp_path, stack) == first


def test_a_user_that_systemd_has_made_is_left_alone(tmp_path):
    with ExitStack() as stack:
        with ExitStack() as asked:
            free = user_for(tmp_path, asked)
        held = stack.enter_context((tmp_path / str(free)).open("w"))
        fcntl.flock(held, fcntl.LOCK_EX)
        assert user_for(tmp_path, stack) != free


@pytest.mark.parametrize("there", ["a file", "/proc/self"])
def test_where_no_lock_can_be_it_is_one_line(tmp_path, there):
    folder = tmp_path / "file" if there == "a file" else Path(there)
    if there == "a file":
        folder.touch()
    with asking(folder / "locks") as process:
        ask(process)
        assert line_of(process) == "ready"
        said = line_of(process)
    assert said.startswith("cannot keep a user for the agent alone in ")
    assert said.endswith("; mount that file system for writing, or use --user NAME")
