"""Containers and pods by the paths of their control groups.

Kubernetes has a group for each pod, `kubepods-besteffort-pod<uid>.slice` with systemd
or `pod<uid>` with cgroupfs, and below it one for each container.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# docker and podman, containerd and cri-o under Kubernetes; with cgroupfs as their
# driver it is the id alone. Not those of their helpers, such as libpod-conmon-ID.
_CONTAINER = re.compile(
    r"(?:(?:docker|libpod|cri-containerd|nerdctl|crio|containerd)-)?"
    r"([0-9a-f]{32,64})(?:\.scope)?"
)
# systemd-nspawn's and LXC's have a name
_NAMED_CONTAINERS = (
    re.compile(r"systemd-nspawn@(.+)\.service"),
    re.compile(r"machine-(.+)\.scope"),
    re.compile(r"lxc\.payload\.(.+)"),
)
_HEXADECIMAL = re.compile(r"[0-9a-f]{32,64}")
_SHORT_ID = 12  # digits, as `docker ps` and `crictl ps` show them
# a uid; or of a static pod the hash of its file
_POD = re.compile(
    r"(?:kubepods-)?(?:burstable-|besteffort-)?pod"
    r"([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
)


class Place(NamedTuple):
    """Which pod and container a control group is of; empty: of none."""

    pod_uid: str = ""
    container: str = ""  # its id, or of systemd-nspawn and LXC its name

    @property
    def is_hexadecimal(self) -> bool:
        """Whether the container has an id, which a runtime knows."""
        return bool(_HEXADECIMAL.fullmatch(self.container))


def place_of_group(path: str) -> Place:
    """Find the pod and the innermost container of a control group.

    Examples
    --------
    >>> group = "kubepods-burstable-pod1111aaaa_2222_3333_4444_555566667777.slice"
    >>> place_of_group(f"/kubepods.slice/{group}/cri-containerd-{64 * 'b'}.scope")[0]
    '1111aaaa-2222-3333-4444-555566667777'
    >>> place_of_group("/system.slice/redis.service")
    Place(pod_uid='', container='')
    """
    parts = path.split("/")
    pods = [found[1].replace("_", "-") for found in map(_POD.fullmatch, parts) if found]
    containers = [one for one in map(container_of, parts) if one]
    return Place(*(each[-1] if each else "" for each in (pods, containers)))


def container_of(group: str) -> str:
    """Return which container a control group of this name is of; empty: of none.

    Examples
    --------
    >>> container_of("lxc.payload.web"), container_of("user.slice")
    ('web', '')
    """
    if found := _CONTAINER.fullmatch(group):
        return found[1]
    for named in _NAMED_CONTAINERS:
        if found := named.fullmatch(group):
            # systemd escapes what a unit's name may not have
            return re.sub(
                r"\\x([0-9a-f]{2})", lambda code: chr(int(code[1], 16)), found[1]
            )
    return ""


def short_id(container: str) -> str:
    """Return the start of a container's id as runtimes show it; a name is whole."""
    is_id = _HEXADECIMAL.fullmatch(container)
    return container[:_SHORT_ID] if is_id else container


def short_name(path: str) -> str:
    """Name a control group in few characters: its last part, a container by its id.

    Examples
    --------
    >>> short_name("/system.slice/redis.service")
    'redis.service'
    >>> short_name(f"/kubepods/pod1/{64 * 'c'}"), short_name(f"/{64 * 'c'}/init.scope")
    ('cccccccccccc', 'cccccccccccc/init.scope')
    """
    *above, last = path.rstrip("/").split("/")
    if own := container_of(last):
        return short_id(own)
    within = next(filter(None, map(container_of, reversed(above))), "")
    return f"{short_id(within)}/{last}" if within else last or path
