"""Where an agent may keep stories, and what a start that fails leaves there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from agent_process import FREE, Agent
from failures import assert_failed
from latprof_process import run

OTHER = 4712
EXAMPLE = "/var/lib/latprof/stories"
# In an own /var/lib, which is gone with the process.
ELSEWHERE = (
    *("unshare", "--mount", "sh", "-c"),
    'mount -t tmpfs none /var/lib && exec "$@"',
    "sh",
)
# An agent whose kernel refuses its programs, once it is nobody.
REFUSED = """
import sys
from pathlib import Path
from latprof_agent.service.config import Address, read_config
from latprof_agent.errors import LatprofError
from latprof_agent.service.service import serve
class Refused:
    takes_stories = []
    def load(self): raise LatprofError("refused")
    def close(self): pass
given = {"story_dir": Path(sys.argv[1]), "user": "nobody"}
config = read_config(None, given | {"listen": Address("127.0.0.1", 0)})
try:
    serve(config, lambda: config, lambda *_: Refused(), print)
except LatprofError as error:
    print(error)
"""


@pytest.fixture
def checkout(reachable):
    """A folder of a user's, in which root stands."""
    folder = reachable / "checkout"
    folder.mkdir()
    os.chown(folder, OTHER, OTHER)
    return folder


def test_in_a_users_checkout_the_refusal_names_a_folder_that_works(checkout):
    failed = run("agent", *FREE, "--story-dir", "stories", cwd=checkout)
    why = f"{checkout} belongs to user {OTHER}; "
    assert_failed(failed, 2, f"{checkout}/stories: {why}", f", as {EXAMPLE}")
    assert list(checkout.iterdir()) == []

    agent = Agent(*FREE, "--story-dir", EXAMPLE, cwd=checkout, before=ELSEWHERE)
    process = Path(f"/proc/{agent.process.pid}")
    owner = (process / f"root{EXAMPLE}").stat().st_uid
    assert owner != 0
    assert f"Uid:\t{owner}\t{owner}\t" in (process / "status").read_text()
    assert agent.end() == 0, agent.err


def test_a_start_that_fails_as_its_port_is_taken_leaves_no_folder(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ("--listen", where, "--story-dir", str(tmp_path / "new" / "stories"))
        failed = run("agent", *words)
    assert_failed(failed, 1, f"cannot listen on {where}: Address already in use; ")
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_fails_as_another_user_leaves_no_folder(tmp_path):
    words = [sys.executable, "-c", REFUSED, str(tmp_path / "new" / "stories")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout == "refused\n", done.stderr
    assert list(tmp_path.iterdir()) == []
