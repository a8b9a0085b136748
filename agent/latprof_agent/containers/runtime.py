"""Which containers there are, by the runtime of this host; it is only asked for lists.

Who may write to a runtime's socket is root by it, so it is opened only where it is a
socket of root's, in a folder of root's, and is answered by root.
"""

from __future__ import annotations

import argparse
import os
import socket
import stat
import struct
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from latprof_agent.containers.container import Container
from latprof_agent.errors import ContainerError, remedy
from latprof_agent.foreign_files import ROOT, place_of

ANSWER_SECONDS = 3.0  # of each runtime, for all that it is asked
# containerd's, k3s' and RKE2's, CRI-O's, docker's and podman's
KNOWN = (
    Path("/run/containerd/containerd.sock"),
    Path("/run/k3s/containerd/containerd.sock"),
    Path("/run/crio/crio.sock"),
    Path("/run/docker.sock"),
    Path("/run/podman/podman.sock"),
)
_BY_DOCKER = ("docker.sock", "podman.sock")  # else it speaks the CRI
_SCHEME = "unix://"
_PEER = struct.Struct("=iII")  # struct ucred: pid, uid, gid

List = Callable[[], list[Container]]


def runtime_address(text: str) -> Path:
    """Read unix:///run/containerd/containerd.sock, or the path alone."""
    path = Path(text.removeprefix(_SCHEME))
    if not path.is_absolute() or "\0" in text:
        raise argparse.ArgumentTypeError(
            f"must be like {_SCHEME}{KNOWN[0]}, got {text!r}"
        )
    return path


def list_containers(chosen: Path | None = None) -> list[Container]:
    """Ask the chosen runtime, or all of the known ones that are there.

    Raises ContainerError where none of them answers.
    """
    if chosen:
        return _listed_by(chosen)
    there = [path for path in KNOWN if _is_there(path)]
    if not there:
        raise ContainerError(
            "no runtime of containers is known here: none of "
            f"{', '.join(map(str, KNOWN))}; name its socket with runtime"
        )
    found: list[Container] = []
    refusals = []
    for path in there:
        try:
            found += _listed_by(path)
        except ContainerError as error:
            refusals.append(error)
    if len(refusals) == len(there):
        raise refusals[0]
    return found


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # we may not know
        return False


def _listed_by(path: Path) -> list[Container]:
    # not for each --help
    from latprof_agent.containers.cri import containers_by_cri
    from latprof_agent.containers.docker import containers_by_docker

    try:
        with closing(_connect(path)) as connection:
            if path.name in _BY_DOCKER:
                return containers_by_docker(connection)
            return containers_by_cri(connection)
    except ContainerError as error:
        raise ContainerError(f"cannot ask {path}: {error}") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        todo = remedy(getattr(error, "errno", None), "see whether it is a runtime's")
        raise ContainerError(f"cannot ask {path}: {why}; {todo}") from error


class _Bounded(socket.socket):
    """All that it does is over by a time."""

    until = 0.0

    def _limit(self) -> None:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("it takes too long to answer")
        self.settimeout(left)

    def recv(self, *arguments: int) -> bytes:
        self._limit()
        return super().recv(*arguments)

    def recv_into(self, *arguments: object) -> int:
        self._limit()
        return super().recv_into(*arguments)  # type: ignore[arg-type]

    def sendall(self, *arguments: object) -> None:
        self._limit()
        super().sendall(*arguments)  # type: ignore[arg-type]


def _connect(path: Path) -> socket.socket:
    place = place_of(path)
    connection = _Bounded(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _check(path, os.fstat(place))
        connection.until = time.monotonic() + ANSWER_SECONDS
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(f"/proc/self/fd/{place}")  # what was looked at
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        if (user := _PEER.unpack(peer)[1]) != ROOT:
            raise ContainerError(f"user {user} answers there, not root")
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(place)
    return connection


def _check(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISSOCK(found.st_mode):
        raise ContainerError("it is no socket; name that of a runtime")
    folder = path.parent.stat()
    for what, owned in (("it", found), (f"{path.parent}", folder)):
        if owned.st_uid != ROOT:
            raise ContainerError(f"{what} belongs to user {owned.st_uid}, not to root")
    is_open = folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX
    if is_open:
        raise ContainerError(f"everybody may write to {path.parent}")
