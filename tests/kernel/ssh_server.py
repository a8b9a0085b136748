"""A host that ssh leads to: sshd in a namespace, with its own keys and configuration.

Nobody's own keys, known hosts or configuration are read: `ssh` is a script that names
others, first in the PATH of whoever is to use it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from elsewhere import at
from latprof_agent.lab.lab import Lab
from recording import wait_until

PORT = 2207
SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")

_SERVER = """\
Port {port}
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/client_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
SetEnv PATH={folder}/there:/usr/bin:/bin:/usr/sbin TMPDIR={folder}/tmp
"""
_CLIENT = """\
IdentityFile {folder}/client_key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
"""


class SshServer(NamedTuple):
    """The server's process; `place` is what --with is given behind ssh:."""

    process: subprocess.Popen[bytes]
    place: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Of who is to reach it."""
        return os.environ | {"PATH": f"{self.folder}/here:{os.environ['PATH']}"}

    @property
    def left(self) -> list[Path]:
        """Files that whoever was there has left."""
        return list((self.folder / "tmp").iterdir())


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _make_keys(folder: Path) -> None:
    for name in ("host_key", "client_key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
        subprocess.run(words, check=True)


@contextmanager
def ssh_server(lab: Lab, end: str, folder: Path) -> Iterator[SshServer]:
    """One at an end of a lab; skips where sshd is not installed."""
    if not SSHD:
        pytest.skip("needs sshd: install openssh-server")
    folder.mkdir()
    (folder / "tmp").mkdir()
    address = lab.address_of(end)
    _make_keys(folder)
    key = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"[{address}]:{PORT} {key}")
    (folder / "sshd_config").write_text(
        _SERVER.format(port=PORT, address=address, folder=folder)
    )
    (folder / "ssh_config").write_text(_CLIENT.format(folder=folder))
    ssh = shutil.which("ssh")
    _script(folder / "here" / "ssh", f'exec {ssh} -F {folder}/ssh_config "$@"')
    run = f'exec {sys.executable} -m latprof_agent "$@"'
    _script(folder / "there" / "latprof", run)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's own, for its children
    words = [*at(lab, end), SSHD, "-D", "-e", "-f", folder / "sshd_config"]
    process = subprocess.Popen(words, stderr=(folder / "log").open("wb"))
    try:
        wait_until(lambda: "listening" in (folder / "log").read_text(), "sshd")
        yield SshServer(process, f"root@{address}:{PORT}", folder)
    finally:
        process.kill()
        process.wait()
