"""Guests of another machine: what they run is the wheel of this checkout for it.

Its C parts are built against the Debian that the guest runs on, with Debian's cross
compiler, as packaging/build-wheel does for a release.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
HOME = Path(os.environ.get("VMRUN_HOME", CHECKOUT / "build" / "vm"))
INSTALLED = Path("/opt/latprof")
# What a wheel is made of: packaging/build-wheel.
FILES = ("meson.build", "pyproject.toml", "README.md")
FOLDERS = ("bpf", "agent", "analysis", "packaging")
PYTHON = "3.11"  # of Debian 12
CONFIG = f"home = /usr/bin\nversion = {PYTHON}\n"
# Of Debian's names of machines: the compiler's.
NAMES = {"arm64": "aarch64"}


def machine_of(kernel: str) -> str:
    """Give Debian's name of another machine than this, else nothing."""
    return kernel.partition(":")[0] if ":" in kernel else ""


def compile_c(kernel: str, source: Path, program: Path, *words: str) -> None:
    """Compile C for a kernel's machine."""
    compiler = ["gcc"]
    if machine := machine_of(kernel):
        root = HOME / "root" / machine
        compiler = [f"{NAMES[machine]}-linux-gnu-gcc", f"--sysroot={root}"]
    subprocess.run([*compiler, "-O2", source, "-o", program, *words], check=True)


def installed_package(machine: str) -> Path:
    """Give the folder of the agent's package in that machine's Debian."""
    return _packages(_venv(machine)) / "latprof_agent"


def _venv(machine: str) -> Path:
    return HOME / "root" / machine / INSTALLED.relative_to("/")


def _packages(venv: Path) -> Path:
    return venv / "lib" / f"python{PYTHON}" / "site-packages"


def _state() -> str:
    """Give the digest of what a wheel is made of."""
    digest = hashlib.sha256()
    files = [CHECKOUT / name for name in FILES]
    files += [file for name in FOLDERS for file in (CHECKOUT / name).rglob("*")]
    for file in sorted(files):
        if file.is_file() and file.suffix not in {".so", ".o", ".pyc"}:
            digest.update(f"{file} {file.stat().st_mode}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _called(*words: object, **more: str) -> str:
    ended = subprocess.run(
        list(map(str, words)),
        env=os.environ | more,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.strip()


def _install(wheel: Path, venv: Path) -> None:
    """Make a virtual environment by hand: nothing of that machine runs here."""
    packages = _packages(venv)
    packages.mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / "bin" / "python3").symlink_to("/usr/bin/python3")
    (venv / "pyvenv.cfg").write_text(CONFIG)
    lock = (CHECKOUT / "packaging" / "lock" / "run.txt").read_text()
    constraints = venv / "constraints"
    constraints.write_text("\n".join(re.findall(r"^[\w-]+==\S+", lock, re.M)))
    tags = [f"manylinux_2_{glibc}_aarch64" for glibc in (34, 28, 17)]
    platforms = [f"--platform={tag}" for tag in tags]
    version = [f"--python-version={PYTHON}", "--implementation=cp"]
    version += [f"--abi={abi}" for abi in ("cp311", "abi3", "none")]
    pip = sys.executable, "-Im", "pip", "install", "--quiet", "--no-compile"
    only = "--only-binary=:all:", f"--constraint={constraints}"
    _called(*pip, *only, *version, *platforms, f"--target={packages}", wheel)
    if sys.version_info[:2] == tuple(map(int, PYTHON.split("."))):
        _called(sys.executable, "-m", "compileall", "-q", packages)


def put_latprof(machine: str) -> None:
    """Have this checkout's wheel in that machine's Debian."""
    root = HOME / "root" / machine
    venv, done = _venv(machine), root / "latprof-built-from"
    with (HOME / "lock").open("w") as lock:  # tests run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = _state()
        if done.exists() and done.read_text() == state:
            return
        done.unlink(missing_ok=True)
        shutil.rmtree(venv, ignore_errors=True)
        build = CHECKOUT / "packaging" / "build-wheel"
        words = build, sys.executable, NAMES[machine], HOME / "dist"
        wheel = HOME / "dist" / _called(*words, SYSROOT=str(root))
        _install(wheel, venv)
        done.write_text(state)
