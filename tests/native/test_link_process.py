"""latprof-link as a process: its command line, its end, its place among others."""

import json
import os
import signal
import subprocess
import sys

import pytest
from latprof_agent.executables import find_executable
from latprof_agent.lab import netns

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")


def start_bare(*options):
    """latprof-link in two namespaces of its own, and their names."""
    names = [f"latprof-link-test-{os.urandom(4).hex()}" for _ in "ab"]
    for name in names:
        netns.create(name)
    ends = [f"--{end}-netns={name}" for end, name in zip("ab", names, strict=True)]
    command = [find_executable("latprof-link"), *ends, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return process, names


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_its_counters_as_json(number):
    process, names = start_bare()
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        said, _ = process.communicate(timeout=20)
    finally:
        process.kill()
        for name in names:
            netns.remove(name)
    counters = json.loads(said)
    assert process.returncode == 0
    assert counters["ab"]["packets_in"] == counters["ba"]["packets_out"] == 0


def test_it_dies_with_its_parent():
    names = [f"latprof-link-test-{os.urandom(4).hex()}" for _ in "ab"]
    for name in names:
        netns.create(name)
    ends = [f"--{end}-netns={name}" for end, name in zip("ab", names, strict=True)]
    command = [str(find_executable("latprof-link")), *ends, "--die-with-parent"]
    # The link holds its standard output open for as long as it lives.
    parent = "import subprocess, sys; subprocess.Popen(sys.argv[1:]); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", parent, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        child.kill()
        said, _ = child.communicate(timeout=20)
    finally:
        for name in names:
            netns.remove(name)
    assert set(json.loads(said)) == {"ab", "ba"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rate=-1"], "--rate must be a whole number from 0 to 10^12, got -1"),
        (["--loss=1.5"], "--loss must be a probability from 0 to 1, got 1.5"),
        (["--loss=nan"], "--loss must be a probability from 0 to 1, got nan"),
        (["--ge=0.1,0.2"], "--ge must be four probabilities P,R,1-K,1-H, got 0.1,0.2"),
        (["--drop-a=0"], "--drop-a must be packet numbers from 1 on, as in 3,7,8"),
        (["--delay"], "--delay needs a value"),
        (["--dealy=1"], "--dealy=1 is not an option"),
        ([], "--a-netns and --b-netns are both needed"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(options, said):
    command = [find_executable("latprof-link"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"latprof-link: {said}")
    assert done.stderr.count("\n") == 1


def test_a_namespace_that_is_not_there_is_one_line_and_exit_code_1():
    name = f"latprof-none-{os.urandom(4).hex()}"
    command = [find_executable("latprof-link"), f"--a-netns={name}", "--b-netns=x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"latprof-link: cannot enter the network namespace {name}"
    )
    assert done.stderr.count("\n") == 1
