"""What stands on a terminal while a run goes on, read from a pseudo-terminal."""

from __future__ import annotations

import re

import pytest
from latprof_process import COMMAND
from pseudo_terminal import on_a_terminal


@pytest.mark.timed
def test_a_command_without_an_end_shows_time_messages_and_rate(tmp_path):
    count = "import socket,time\n" + (
        "a, b = socket.socket(), socket.socket()\n"
        "a.bind(('127.0.0.1', 0)); a.listen(); b.connect(a.getsockname())\n"
        "c, _ = a.accept()\n"
        "for _ in range(300): b.send(b'x' * 64); c.recv(64); time.sleep(0.01)\n"
    )
    out = f"--out={tmp_path / 'run'}"
    words = (*COMMAND, "run", "--no-lab", out, "--", COMMAND[0], "-c", count)
    status, screen = on_a_terminal(words, tmp_path)
    assert status == 0, screen
    progress = screen[: screen.index("folder: ")]
    # about 100 a second; counted late, and the machine may be busy
    found = re.findall(r"command +0:00:0(\d) (\d+) messages, (\d+)/s", progress)
    assert found, screen
    seconds, messages, rate = map(int, found[-1])
    assert seconds >= 1 and 20 <= messages <= 300 and 10 <= rate <= 110
    assert "%" not in "".join(re.findall(r"\rcommand [^\r\n]*", progress))


def test_a_run_with_an_end_shows_how_far_it_is(tmp_path):
    words = (*COMMAND, "run", "--protocol=tcp", "--duration=2s", "--rate=0")
    status, screen = on_a_terminal((*words, f"--out={tmp_path / 'run'}"), tmp_path)
    assert status == 0, screen
    shares = [int(n) for n in re.findall(r"tcp .*? (\d+)% \d+ messages", screen)]
    assert shares and shares == sorted(shares) and shares[-1] > 50
