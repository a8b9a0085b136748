"""What is attached to control groups that do not hold all sockets says so."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from latprof_agent.monitor.groups import OUTSIDE
from latprof_agent.probes.catalogue import CGROUP, PROBES, capabilities
from latprof_agent.probes.cgroup import cgroup2_mount, is_root, widest_mount

UNREAD = "unread at close (udp)"
# in a control group, where its own mount shows less; the host's may be at $5
INSIDE = """
echo $$ > "$1/cgroup.procs" && exec unshare --cgroup --mount sh -c '
    { [ -z "$4" ] || mount --bind "$0" "$4"; } &&
    umount "$0" && mount -t cgroup2 none "$0" && exec "$@"' "$2" "$3" -c "$4" "$5"
"""
ASKED = """
import json
from latprof_agent.monitor.groups import OUTSIDE
from latprof_agent.probes.catalogue import capabilities
print(json.dumps([c.as_dict() for c in capabilities()]))
"""


# what it counts by control group, from "ready" to a line on its standard input
COUNTED = """
import sys
from dataclasses import replace
from latprof_agent.filters.words import filter_of_words, read_words
from latprof_agent.monitor.monitor import Monitor
from latprof_agent.probes.grouping import Grouping
watched = replace(filter_of_words(read_words("port=%d")), older=True)
with Monitor(watched, Grouping(("cgroup",))) as monitor:
    monitor.start()
    print("ready", flush=True)
    sys.stdin.readline()
    monitor.stop()
    for group, found in monitor.totals().groups.items():
        unread = [n for drop, n in found.drops.items() if drop.place == "close"]
        print(group.cgroup, sum(unread))
"""
UNREAD_DATAGRAMS = 20


@pytest.fixture
def group():
    """A control group of our own, with nothing in it at the end."""
    mount = cgroup2_mount()
    assert mount
    made = mount / f"latprof-test-{secrets.token_hex(8)}"
    made.mkdir()
    yield made
    made.rmdir()


def inside(group, script, host=""):
    """Start it in a cgroup namespace; at `host` is the host's mount."""
    words = ["sh", "-c", INSIDE, "sh", group, group.parent, sys.executable, script]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*words, host], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


def asked_inside(group, host=""):
    process = inside(group, ASKED, host)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return {c["quantity"]: c for c in json.loads(out)}


def test_a_cgroup_namespace_of_its_own_makes_what_is_attached_there_partial(group):
    found = asked_inside(group)
    outside = {c.quantity: c for c in capabilities()}
    assert outside[UNREAD].state == "exact"
    assert found[UNREAD]["state"] == "partial"
    assert "cgroup namespace" in found[UNREAD]["reason"]
    there = {p.quantity for p in PROBES if any(w.kind == CGROUP for w in p.ways)}
    for quantity in outside.keys() - there:
        assert found[quantity]["state"] == outside[quantity].state


def test_the_hosts_mount_makes_it_exact(group, tmp_path):
    found = asked_inside(group, tmp_path)
    assert found[UNREAD]["state"] == "exact", found[UNREAD]


def leave_unread(port, sender, reader):
    for n in range(UNREAD_DATAGRAMS):
        sender.sendto(bytes([n]), ("127.0.0.1", port))
    reader.close()


def counted_of_a_neighbour(group, host=""):
    """Counts inside, by control group, of datagrams that we leave unread outside."""
    with socket.socket(type=socket.SOCK_DGRAM) as reader:
        reader.bind(("127.0.0.1", 0))
        port = reader.getsockname()[1]
        process = inside(group, COUNTED % port, host)
        try:
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
            with socket.socket(type=socket.SOCK_DGRAM) as sender:
                leave_unread(port, sender, reader)
            out, err = process.communicate("\n")
        finally:
            process.kill()
    assert process.returncode == 0, err
    rows = (line.rpartition(" ") for line in out.splitlines())
    return {name: int(count) for name, _, count in rows if name != "other"}


def own_cgroup():
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return next(line[3:] for line in lines if line.startswith("0::"))


@pytest.mark.thorough
def test_with_the_hosts_mount_a_neighbours_datagrams_are_counted(group, tmp_path):
    assert counted_of_a_neighbour(group, tmp_path) == {own_cgroup(): UNREAD_DATAGRAMS}


@pytest.mark.thorough
def test_without_it_a_neighbour_is_out_of_view_and_not_gone(group):
    """What `partial` says: none of these is counted. Messages are, and have a group."""
    where = Path(f"{group.parent}{own_cgroup()}").stat().st_ino
    assert counted_of_a_neighbour(group) == {f"{OUTSIDE} {where}": 0}


def test_the_root_of_all_control_groups_is_known(group):
    assert is_root(group.parent)
    assert not is_root(group)


def test_the_first_process_may_have_the_mount_that_shows_all(group, tmp_path):
    """Where we share its pid namespace; our own mount begins at a group."""
    own, first = tmp_path / "own", tmp_path / "1"
    own.write_text(f"cgroup2 {group} cgroup2 rw 0 0\n")
    first.mkdir()
    assert widest_mount(own, first) == group
    (first / "root").symlink_to("/")
    (first / "mounts").write_text(f"cgroup2 {group.parent} cgroup2 rw 0 0\n")
    assert widest_mount(own, first) == first / "root" / group.parent.relative_to("/")
