"""The README's commands on a minimal Debian.

The first one on Debian 13, whose clang is another than Debian 12's; all of them on
Debian 12 with LATPROF_CHROOT=1.
"""

import os

import pytest
from minimal_debian import check

CHECK = "check_chroot.sh"


@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_readmes_first_command_works_on_a_fresh_debian_13():
    ended = check(CHECK, "trixie", "--first")
    head = ended.stdout.splitlines()[:3]
    assert head[0].startswith("ping-pong, closed loop")
    for line, protocol in zip(head[1:], ("tcp", "udp"), strict=True):
        assert line.startswith(f"{protocol}: ") and "; response p50 " in line
    assert "cannot" not in ended.stderr


def test_the_readmes_commands_work_on_a_fresh_debian():
    if os.environ.get("LATPROF_CHROOT") != "1":
        pytest.skip("makes a Debian of its own: set LATPROF_CHROOT=1")
    check(CHECK, "bookworm")
