"""Network namespaces are found by their processes and by their names."""

import secrets
import socket
import subprocess
from pathlib import Path

import pytest
from latprof_agent import netns
from recording import wait_until

OURS = Path("/proc/self/ns/net")


@pytest.fixture
def named():
    name = f"test-{secrets.token_hex(4)}"
    netns.create(name)
    yield name
    netns.remove(name)


def _inodes() -> list[int]:
    return [path.stat().st_ino for path in netns.every()]


def test_each_with_a_process_or_a_name_is_there_once(named):
    inside = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    try:
        theirs = Path(f"/proc/{inside.pid}/ns/net")
        wait_until(
            lambda: theirs.stat().st_ino != OURS.stat().st_ino, "a namespace of its own"
        )
        process = theirs.stat().st_ino
        found = _inodes()
        assert found[0] == OURS.stat().st_ino
        assert {process, netns.inode(named)} <= set(found)
        assert len(set(found)) == len(found)
    finally:
        inside.kill()
        inside.wait()
    wait_until(lambda: process not in _inodes(), "the end of the namespace")


def test_work_is_done_in_the_one_of_a_file(named):
    def ours_and_interfaces():
        inode = Path("/proc/thread-self/ns/net").stat().st_ino
        return inode, [name for _, name in socket.if_nameindex()]

    inode, names = netns.run_in(netns.NETNS_DIRECTORY / named, ours_and_interfaces)
    assert inode == netns.inode(named) != OURS.stat().st_ino
    assert names == ["lo"]
