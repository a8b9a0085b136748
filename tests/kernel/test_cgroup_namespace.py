"""What is attached to control groups that do not hold all sockets says so."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys

import pytest
from latprof_agent.probes.catalogue import CGROUP, PROBES, capabilities
from latprof_agent.probes.cgroup import cgroup2_mount, is_root

UNREAD = "unread at close (udp)"
INSIDE = """
echo $$ > "$1/cgroup.procs" && exec unshare --cgroup --mount sh -c '
    umount "$0" && mount -t cgroup2 none "$0" && exec "$@"' "$2" "$3" -c "$4"
"""
ASKED = """
import json
from latprof_agent.probes.catalogue import capabilities
print(json.dumps([c.as_dict() for c in capabilities()]))
"""


@pytest.fixture
def group():
    """A control group of our own, with nothing in it at the end."""
    mount = cgroup2_mount()
    assert mount
    made = mount / f"latprof-test-{secrets.token_hex(8)}"
    made.mkdir()
    yield made
    made.rmdir()


def test_a_cgroup_namespace_of_its_own_makes_what_is_attached_there_partial(group):
    words = ["sh", "-c", INSIDE, "sh", group, group.parent, sys.executable, ASKED]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    inside = {c["quantity"]: c for c in json.loads(done.stdout)}
    outside = {c.quantity: c for c in capabilities()}
    assert outside[UNREAD].state == "exact"
    assert inside[UNREAD]["state"] == "partial"
    assert "cgroup namespace" in inside[UNREAD]["reason"]
    there = {p.quantity for p in PROBES if any(w.kind == CGROUP for w in p.ways)}
    for quantity in outside.keys() - there:
        assert inside[quantity]["state"] == outside[quantity].state


def test_the_root_of_all_control_groups_is_known(group):
    assert is_root(group.parent)
    assert not is_root(group)
