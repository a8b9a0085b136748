"""Containers of a real runtime, each in its own control group and namespaces."""

from __future__ import annotations

import json
import secrets
import subprocess
from contextlib import ExitStack
from pathlib import Path

from latprof_agent.lab.control_group import ControlGroup
from latprof_agent.lab.lab import Lab
from latprof_agent.netns import NETNS_DIRECTORY
from latprof_agent.probes.cgroup import cgroup2_mount

# crun looks for the groups here, and does not know them beside those of version 1
GROUPS_MOUNT = "/sys/fs/cgroup"
RUN = f'mount -t cgroup2 none {GROUPS_MOUNT} && exec crun "$@"'
DONE = "done"


def _configuration(root: Path, group: str, network: Path) -> dict[str, object]:
    """The host's programs, in a root, a group and namespaces of its own."""
    return {
        "ociVersion": "1.0.0",
        "process": {
            "args": ["/bin/sh"],
            "env": ["PATH=/usr/bin:/usr/sbin"],
            "cwd": "/",
            "user": {"uid": 0, "gid": 0},
        },
        "root": {"path": str(root)},
        "mounts": [
            {
                "destination": place,
                "source": place,
                "type": "bind",
                "options": ["rbind", "ro"],
            }
            for place in ("/usr", "/dev")
        ]
        + [{"destination": "/proc", "source": "proc", "type": "proc"}],
        "linux": {
            "cgroupsPath": group,
            "namespaces": [
                {"type": "pid"},
                {"type": "mount"},
                {"type": "network", "path": str(network)},
            ],
        },
    }


class Container:
    """A shell in a container, which does what it is told; `end` removes it."""

    def __init__(self, parent: Path, netns: str, folder: Path) -> None:
        self.id = secrets.token_hex(32)
        self.netns = netns
        group = parent / self.id
        self.cgroup = f"/{group.relative_to(cgroup2_mount() or '/')}"
        bundle = folder / self.id
        root = bundle / "root"
        root.mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (root / name).symlink_to(f"usr/{name}")
        made = _configuration(root, self.cgroup, NETNS_DIRECTORY / netns)
        (bundle / "config.json").write_text(json.dumps(made))
        crun = ["--root", str(folder / "state"), "run", "-b", str(bundle), self.id]
        words = ["unshare", "--mount", "sh", "-c", RUN, "sh", *crun]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, text=True, bufsize=1
        )

    def do(self, command: str) -> str:
        """What a command says; it must succeed."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{command} && echo {DONE} || exit\n")
        said = ""
        for line in self.process.stdout:
            if line == f"{DONE}\n":
                return said
            said += line
        raise AssertionError(f"{command}: {said}")

    def end(self) -> None:
        """It ends with its input, and so do the processes in it."""
        self.process.communicate(timeout=20)


class TwoContainers:
    """One at each end of a lab, in control groups below the same one."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._stack = ExitStack()
        parent = ControlGroup(f"latprof-{secrets.token_hex(4)}")
        self._stack.callback(parent.close)
        self.parent = f"/{parent.path.name}"
        self.both = tuple(
            Container(parent.path, netns, folder)
            for netns in (lab.a_netns, lab.b_netns)
        )
        for container in self.both:
            self._stack.callback(container.end)

    def __enter__(self) -> TwoContainers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
