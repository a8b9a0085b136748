"""latprof-link as a process: its command line, its end, its place among others."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from latprof_agent import netns
from latprof_agent.executables import find_executable
from stamped import Flow

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


def test_lists_make_links_that_share_no_packet():
    """Each between a namespace of its own and a device of its own in one middle."""
    names = [f"latprof-link-test-{os.urandom(4).hex()}" for _ in range(4)]
    *hosts, middle = names
    for name in names:
        netns.create(name)
    command = [
        find_executable("latprof-link"),
        f"--a-netns={','.join(hosts)}",
        f"--b-netns={middle}",
        "--b-name=p0,p1,p2",
        "--delay-ba=1ms",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        inside = netns.run_in(middle, socket.if_nameindex)
        assert {name for _, name in inside} == {"lo", "p0", "p1", "p2"}
        for number, name in enumerate(hosts):
            send_first(name, middle, f"p{number}", packets=number + 1)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=20)
    finally:
        process.kill()
        for name in names:
            netns.remove(name)
    counters = json.loads(said)
    assert [link["ab"]["packets_in"] for link in counters] == [1, 2, 3]
    assert [link["ab"]["packets_out"] for link in counters] == [1, 2, 3]
    assert [link["ba"]["packets_in"] for link in counters] == [0, 0, 0]


def send_first(name, middle, port, packets):
    """Send datagrams over tun0 of a namespace until the kernel counts them behind."""
    # with an MTU that IPv6 does not take the kernel itself says nothing
    for where, device in ((name, "tun0"), (middle, port)):
        ip(where, "link", "set", device, "mtu", "1000", "up")
    ip(name, "address", "add", "10.9.0.1/24", "dev", "tun0")
    sock = netns.run_in(name, lambda: socket.socket(type=socket.SOCK_DGRAM))
    with sock:
        for _ in range(packets):
            sock.sendto(b"x", ("10.9.0.2", 9))

    def received():
        told = json.loads(ip(middle, "-s", "-j", "link", "show", port))
        return told[0]["stats64"]["rx"]["packets"]

    deadline = time.monotonic() + 20
    while received() < packets:
        assert time.monotonic() < deadline


def ip(name, *words):
    """Run iproute2's ip in a namespace; what it says."""
    command = ["ip", "-n", name, *words]
    return subprocess.run(command, check=True, stdout=-1, text=True).stdout


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
        (["--rate=-1"], "--rate must be a rate from 0 to 1000gbit, got -1"),
        (["--rate=1tbit"], "--rate must be a rate from 0 to 1000gbit, got 1tbit"),
        (["--rate-ba=1001gbit"], "--rate-ba must be a rate from 0 to 1000gbit, got"),
        (["--delay=1m"], "--delay must be a time from 0 to 60s, got 1m"),
        (["--delay=60001ms"], "--delay must be a time from 0 to 60s, got 60001ms"),
        (["--delay=1.5"], "--delay must be a time from 0 to 60s, got 1.5"),
        (["--queue=0"], "--queue must be a size from 1 to 256mib, got 0"),
        (["--seed=18446744073709551616"], "--seed must be a whole number from 0 to"),
        (
            ["--a-netns=x", "--b-netns=x", "--a-name=sixteen-letters-"],
            "--a-name must be a text with a length from 1 to 15, got",
        ),
        (
            ["--a-netns=x,y", "--b-netns=x", "--a-name=a,"],
            "--a-name must be a text with a length from 1 to 15, got",
        ),
        (["--a-netns=x,,z", "--b-netns=x"], "--a-netns must name a namespace for"),
        (
            ["--a-netns=x,y,z", "--b-netns=x,y"],
            "--b-netns must name one for all links or 3, as the longest list, got 2",
        ),
        (
            [f"--a-netns={','.join('x' * 65)}", "--b-netns=x"],
            "there must be at most 64 links, got 65",
        ),
        (["--loss=1.5"], "--loss must be a probability from 0 to 1, got 1.5"),
        (["--loss=nan"], "--loss must be a probability from 0 to 1, got nan"),
        (["--ge=0.1,0.2"], "--ge must be P,R,1-K,1-H, each a probability from 0 to 1"),
        (["--ge=0,0,0,0,0"], "--ge must be P,R,1-K,1-H, each a probability"),
        (["--ge=0,0,0,0", "--loss=0.1"], "--ge excludes --loss and --loss-burst"),
        (["--loss=0.9", "--loss-burst=2"], "--loss-burst must be at least loss / "),
        (["--drop-a=0"], "--drop-a must be N,N,..., each a whole number from 1"),
        (["--drop-a=3,"], "--drop-a must be N,N,..., each a whole number from 1"),
        (["--delay"], "--delay needs a value"),
        (["--die-with-parent=1"], "--die-with-parent takes no value, got 1"),
        (["--dealy=1"], "--dealy=1 is not an option"),
        (["--dela=1"], "--dela=1 is not an option"),  # not the start of one, either
        (["-d", "1"], "-d is not an option"),
        (["1"], "1 is not an option"),
        (["--a\nb\x1b[2J\x7f"], "--a?b?[2J? is not an option"),  # nor a second line
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


def test_a_namespace_whose_name_has_control_characters_is_one_line():
    command = [find_executable("latprof-link"), "--a-netns=a\n\x9b31mü", "--b-netns=x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "latprof-link: cannot enter the network namespace a???31mü: "
    )
    assert done.stderr.count("\n") == 1


def test_of_an_option_given_twice_the_later_counts(link):
    lab = link("--drop-a=1,2", "--drop-a", "3", "--delay=1s", "--delay-ab=0.5us")
    with Flow(lab) as flow:
        sent_ns = flow.send(1, 8)
        assert flow.receive().t_ns - sent_ns < 500_000_000
        flow.send(2, 8)
        flow.send(3, 8)
        flow.send(4, 8)
        assert [arrival.number for arrival in flow.receive_all(2)] == [2, 4]
