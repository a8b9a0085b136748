"""A machine for packaging/latprof to set up, with a small latprof and no network.

The script is the checkout's own. The folders that it writes to are replaced by
empty ones, for the processes that the tests start and for no others. What it
installs comes from an index in a folder, by hash.
"""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from tiny_backend import write_wheel

CHECKOUT = Path(__file__).parents[2]
# Of the set-up, the program's links, pip's cache, and their parents.
REPLACED = ["/opt", "/usr/local/bin", "/usr/local/share"]
REPLACED += ["/var/log", "/var/cache", "/run", "/root", "/usr/local/lib", "/etc"]
DEADLINE_SECONDS = 120
PROGRAM = """\
import json, os, sys, needed

def main():
    if sys.argv[1] == "--version":
        print("latprof", needed.VERSION)
    elif sys.argv[1] == "run":
        umask = os.umask(0)
        print(json.dumps({
            "arguments": sys.argv[2:],
            "environment": dict(os.environ),
            "folder": os.getcwd(),
            "umask": umask,
            # The one of the listing itself is closed by then.
            "descriptors": [int(fd) for fd in os.listdir("/proc/self/fd")
                            if os.path.exists(f"/proc/self/fd/{fd}")],
            "path": sys.path,
        }))
"""


class SmallMachine:
    """Its folders are in `folder`, where they stay from one call to the next."""

    def __init__(self, folder, like=None):
        """Make the machine, with the same installed as on the one that it is like."""
        self.folder = folder
        self.lacks = []  # programs
        if like:
            shutil.copytree(like.folder, folder, symlinks=True, dirs_exist_ok=True)
        self.checkout = folder / "checkout"
        self.index = folder / "index"
        if not like:
            self._write()

    def _write(self):
        self._write_checkout()
        self.publish("tiny-backend", Path(__file__).parent / "tiny_backend.py")
        for lock in ("backend", "build"):
            self.lock(lock, "tiny-backend")
        self.publish_needed("1.0")
        for name in REPLACED:
            self.at(name).mkdir(parents=True)
        subprocess.run(["cp", "-a", "/etc/.", self.at("/etc")], check=True)
        (self.folder / "os-release").write_text("ID=fedora\n")  # no apt

    def _write_checkout(self):
        for name in ("latprof", "packages.sh", "sources.sh"):
            (self.checkout / "packaging").mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / "packaging" / name, self.checkout / "packaging")
        files = {
            "pyproject.toml": "[build-system]\nrequires = ['tiny-backend']\n"
            "build-backend = 'tiny_backend'\n",
            "agent/latprof_agent/__init__.py": "",
            "agent/latprof_agent/cli/__init__.py": PROGRAM,
            "agent/latprof_agent/probes/__init__.py": "",
            "agent/latprof_agent/probes/proof.py": "",
            "analysis/latprof_analysis/__init__.py": "",
            "packaging/latprof.1": "a page\n",
            "packaging/systemd/latprof-agent.service": "the unit\n",
            "packaging/systemd/agent.toml": "# the configuration\n",
        }
        for name, text in files.items():
            path = self.checkout / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def at(self, path):
        """Give the file or folder that stands for `path` of the machine."""
        return self.folder / "root" / str(path).lstrip("/")

    def publish(self, name, module, version="1.0"):
        """Put a wheel of one module into the index."""
        folder = self.index / name
        folder.mkdir(parents=True, exist_ok=True)
        under = name.replace("-", "_")
        files = {f"{under}.py": module.read_text()}
        wheel = write_wheel(folder, under, files, version)
        links = [
            f"<a href='{path.name}'>{path.name}</a>" for path in folder.glob("*.whl")
        ]
        (folder / "index.html").write_text("\n".join(links))
        return wheel

    def publish_needed(self, version):
        """Publish what the program needs, and lock it."""
        module = self.folder / "needed.py"
        module.write_text(f"VERSION = {version!r}\n")
        wheel = self.publish("needed", module, version)
        self.lock("run", "needed", version)
        return wheel

    def lock(self, lock, name, version="1.0"):
        """Name a wheel of the index, by hash, in a file of packaging/lock."""
        (wheel,) = (self.index / name).glob(f"*-{version}-*.whl")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        file = self.checkout / "packaging" / "lock" / f"{lock}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{name}=={version} --hash=sha256:{digest}\n")

    def call(self, *arguments, cwd="/", variables=None, **options):
        """Call packaging/latprof on the machine."""
        return self.run(
            self.checkout / "packaging" / "latprof",
            *arguments,
            cwd=cwd,
            env=self.environment() | (variables or {}),
            **options,
        )

    def run(self, *command, **options):
        """Run a command on the machine; its ways of subprocess.run."""
        mounts = [f"mount --bind {self.at(name)} {name}" for name in REPLACED]
        for program in self.lacks:
            found = Path(shutil.which(program) or "/nowhere").resolve()
            mounts += [f"mount --bind /dev/null {found}"] * found.exists()
        mounts.append(f"mount --bind {self.folder}/os-release /etc/os-release")
        script = " && ".join([*mounts, 'cd "$0"', 'exec "$@"'])
        private = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c"]
        cwd = options.pop("cwd", "/")
        options = {"env": self.environment(), "timeout": DEADLINE_SECONDS} | options
        # The caller's PATH and variables are for the command alone.
        environment = options.pop("env")
        variables = [f"{name}={value}" for name, value in environment.items()]
        return subprocess.run(
            [*private, script, cwd, "/usr/bin/env", "-i", *variables, *command],
            capture_output=True,
            text=True,
            check=False,
            **options,
        )

    def environment(self):
        """Give what a caller has by default: the index, and where programs are."""
        return {"PATH": os.defpath, "PIP_INDEX_URL": self.index.as_uri()}


def seen_by(ended):
    """Give what the program of a `run` saw of its caller."""
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
