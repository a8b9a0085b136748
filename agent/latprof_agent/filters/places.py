"""What the words of a filter name on this host: found, or one line that says why not.

Readers raise `ArgumentTypeError` ("must be <what>, got <text>") for what nothing can
be called, and FilterError for what is not there.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pwd
import re
import socket
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from latprof_analysis.kernel_names import name_of

from latprof_agent import netns
from latprof_agent.containers.container import Container
from latprof_agent.containers.control_groups import container_of, place_of_group
from latprof_agent.containers.runtime import list_containers
from latprof_agent.errors import (
    ContainerError,
    FilterError,
    LabError,
    UsageError,
    remedy,
)
from latprof_agent.kernel_text import lines_of
from latprof_agent.probes.cgroup import widest_mount
from latprof_agent.process_table import PROC, comm_of, stat_fields

HOST_PID_NAMESPACE = 0xEFFFFFFC  # its inode number, the same in every kernel
PF_KTHREAD = 0x00200000
NS_GET_NSTYPE = 0xB703
CLONE_NEWNET = 0x40000000
HEX = re.compile(r"[0-9a-f]{1,64}")
MOST_LISTED = 5


def nearest(name: str, known: set[str] | list[str], otherwise: str) -> str:
    """Say what was meant, or what to do."""
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}" if near else otherwise


def find_pid(text: str) -> int:
    """A process that is there, and may have sockets."""
    if not re.fullmatch(r"[1-9]\d{0,6}", text):
        raise argparse.ArgumentTypeError(f"must be a process's number, got {text!r}")
    if (PROC / "self/ns/pid").stat().st_ino != HOST_PID_NAMESPACE:
        raise UsageError(
            "latprof runs in a pid namespace of its own, where processes have other "
            "numbers; use --comm, --cgroup or --port"
        )
    pid = int(text)
    owner = owner_of(pid)
    if not owner:
        raise FilterError(f"there is no process with pid {pid}; `pidof NAME` tells one")
    if owner != pid:
        raise FilterError(f"{pid} is a thread of process {owner}; use --pid {owner}")
    if is_kernel_thread(pid):
        raise FilterError(
            f"pid {pid} is a thread of the kernel ({comm_of(pid)}), which has no "
            "sockets of its own; use --port"
        )
    return pid


def owner_of(thread: int) -> int:
    """The process that has this thread; 0 there is no such thread."""
    with suppress(OSError):
        for line in lines_of(PROC / str(thread) / "status"):
            if line.startswith(b"Tgid:"):
                return int(line.split()[1])
    return 0


def is_kernel_thread(pid: int) -> bool:
    """Whether it is the kernel's own."""
    fields = stat_fields(pid)
    return bool(fields and int(fields[6]) & PF_KTHREAD)


def find_uid(text: str) -> int:
    """A user's number, by number or name."""
    if re.fullmatch(r"\d{1,10}", text) and int(text) < 1 << 32:
        return int(text)
    try:
        return pwd.getpwnam(text).pw_uid
    except KeyError:
        names = [user.pw_name for user in pwd.getpwall()]
        hint = nearest(text, names, "`getent passwd` lists all")
    raise FilterError(f"there is no user {text!r}; {hint}")


def find_cgroup(text: str) -> tuple[Path, ...]:
    """Find a control group by its path, or as systemd and docker write it."""
    mount = _cgroup_mount()
    for path in (Path(text), mount / text.lstrip("/")):
        found = path.resolve()
        if found.is_relative_to(mount) and found.is_dir():
            return (found,)
    groups = [str(p.relative_to(mount)) for p in _groups(mount)]
    hint = nearest(text.lstrip("/"), groups, "systemd-cgls lists all")
    raise FilterError(f"there is no cgroup {text} below {mount}; {hint}")


def find_container(text: str) -> tuple[Path, ...]:
    """The control groups of a container, by the start of its id, or by its name."""
    mount = _cgroup_mount()
    found: dict[str, list[Path]] = {}
    known: set[str] = set()
    for path in _groups(mount):
        if name := container_of(path.name):
            known.add(name)
            if name == text or (HEX.fullmatch(text) and name.startswith(text)):
                found.setdefault(name, []).append(path)
    if text in found:  # whatever else begins with it
        return tuple(found[text])
    if not found:
        hint = nearest(text, known, "`docker ps`, `podman ps` or `crictl ps` lists all")
        raise FilterError(f"no container {text} has a cgroup below {mount}; {hint}")
    if len(found) > 1:
        listed = ", ".join(name[:12] for name in sorted(found)[:MOST_LISTED])
        more = f" and {n} more" if (n := len(found) - MOST_LISTED) > 0 else ""
        raise FilterError(
            f"{len(found)} containers begin with {text}: {listed}{more}; use more of "
            "the id"
        )
    return tuple(next(iter(found.values())))


def find_pod(text: str, runtime: Path | None = None) -> tuple[Path, ...]:
    """The control groups of a pod that is there, by its name or uid."""
    groups = _groups_of_pods()
    if text in groups:
        return tuple(groups[text])
    there = _pods_there(groups, runtime)
    called = {uid: p for uid, p in there.items() if text in (p.pod, _full_name(p))}
    if not called:
        known = [name for p in there.values() for name in (p.pod, _full_name(p))]
        hint = nearest(text, known, "`crictl pods` lists all")
        raise FilterError(f"there is no pod {text} here; {hint}")
    if len(called) > 1:
        listed = ", ".join(sorted(map(_full_name, called.values()))[:MOST_LISTED])
        raise FilterError(
            f"{len(called)} pods are called {text}: {listed}; use NAMESPACE/NAME, or "
            "the uid"
        )
    return tuple(groups[next(iter(called))])


def find_namespace(text: str, runtime: Path | None = None) -> tuple[Path, ...]:
    """The control groups of the pods of a namespace that are there."""
    groups = _groups_of_pods()
    there = _pods_there(groups, runtime)
    found = [uid for uid, pod in there.items() if pod.namespace == text]
    if not found:
        known = {pod.namespace for pod in there.values()}
        hint = nearest(text, known, "`crictl pods` lists all")
        raise FilterError(f"no pod of the namespace {text} is here; {hint}")
    return tuple(path for uid in found for path in groups[uid])


def _full_name(pod: Container) -> str:
    return f"{pod.namespace}/{pod.pod}"


def _groups_of_pods() -> dict[str, list[Path]]:
    """The control groups of pods by uid, without those of their containers."""
    found: dict[str, list[Path]] = {}
    for path in _groups(_cgroup_mount()):
        if uid := place_of_group(path.name).pod_uid:
            found.setdefault(uid, []).append(path)
    return found


def _pods_there(
    groups: dict[str, list[Path]], runtime: Path | None
) -> dict[str, Container]:
    """What the runtime knows of them, by uid."""
    try:
        listed = list_containers(runtime)
    except ContainerError as error:
        raise FilterError(f"{error}; a pod's uid needs no runtime") from error
    return {pod.pod_uid: pod for pod in listed if pod.pod_uid in groups}


def _cgroup_mount() -> Path:
    if mount := widest_mount():
        return mount
    raise FilterError("cgroup v2 is not mounted; use --pid, --comm or --port")


def _groups(mount: Path) -> list[Path]:
    return [Path(place) for place, _, _ in os.walk(mount)][1:]


def find_netns(text: str) -> tuple[Path, ...]:
    """A network namespace by name, path, or a process that is in it."""
    if "/" in text:
        path = Path(text)
    elif (named := netns.NETNS_DIRECTORY / text).exists() or not text.isdecimal():
        path = named
    else:
        path = PROC / str(find_pid(text)) / "ns/net"
    try:
        with path.open("rb") as opened:
            if fcntl.ioctl(opened, NS_GET_NSTYPE) == CLONE_NEWNET:
                return (path,)
    except FileNotFoundError as error:
        names = [p.name for p in netns.NETNS_DIRECTORY.glob("*")]
        hint = nearest(text, names, "`ip netns` lists those that have a name")
        raise FilterError(f"there is no network namespace {text}; {hint}") from error
    except PermissionError as error:
        todo = remedy(error.errno, "")
        raise FilterError(f"cannot look at {path}: {error.strerror}; {todo}") from error
    except OSError:  # no namespace at all
        pass
    raise FilterError(f"{path} is no network namespace; `lsns -t net` lists all")


def inode_of(path: Path) -> int:
    """What the kernel calls a namespace or a control group; 0: it is gone."""
    with suppress(OSError):
        return path.stat().st_ino
    return 0


def inode_now(path: Path, before: int) -> int:
    """The same later; `before` where we may not look any more.

    A process that has ended stays so, whoever gets its number.
    """
    if not before and path.is_relative_to(PROC):
        return 0
    try:
        return path.stat().st_ino
    except PermissionError:
        return before
    except OSError:
        return 0


def find_interface(text: str) -> str:
    """An interface that is in some namespace now."""
    if not re.fullmatch(r"[^\s/:]{1,15}", text):
        raise argparse.ArgumentTypeError(
            f"must be the name of an interface, got {text!r}"
        )
    known = _interfaces()
    if text in known:
        return text
    hint = nearest(text, known, "`ip link` lists those of a namespace")
    raise FilterError(f"no namespace has an interface {text}; {hint}")


def _interfaces() -> set[str]:
    """Names in all namespaces that have a process or a name."""
    found: set[str] = set()
    for path in netns.every():
        with suppress(OSError, LabError):
            if path.is_relative_to(PROC):  # without a right to enter it
                lines = lines_of(path.parent.parent / "net/dev")[2:]
                found.update(name_of(line.split(b":")[0].strip(b" ")) for line in lines)
            else:
                names = netns.run_in(path, socket.if_nameindex)
                found.update(name for _, name in names)
    return found
