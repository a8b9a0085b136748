"""Tests in guests are opted into, and need QEMU and what fetches a kernel."""

import os
import shutil
import subprocess

import pytest
from guest import HERE

EVERY = os.environ.get("LATPROF_VM_KERNELS", "6.1 6.12").split()
TOO_OLD = ("5.10",)  # lack what all programs are built with, and say so
KERNELS = [series for series in EVERY if series not in TOO_OLD]
PROGRAMS = (
    *("apt-get", "busybox", "cpio", "depmod", "dmsetup"),
    *("qemu-system-x86_64", "wg", "xz", "zstd"),
)


def ready(series):
    """Have that kernel fetched; skip where none may be booted."""
    if os.environ.get("LATPROF_VM") != "1":
        pytest.skip("boots other kernels: set LATPROF_VM=1")
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    if missing := [name for name in PROGRAMS if not shutil.which(name, path=path)]:
        pytest.skip(f"needs {', '.join(missing)}")
    fetched = subprocess.run(
        [HERE / "vmfetch.sh", series],
        capture_output=True,
        text=True,
        check=False,
    )
    assert fetched.returncode == 0, fetched.stderr
    return series


@pytest.fixture(scope="module", params=KERNELS)
def kernel(request):
    return ready(request.param)


@pytest.fixture(scope="module", params=EVERY)
def any_kernel(request):
    return ready(request.param)


@pytest.fixture(scope="module", params=[s for s in EVERY if s in TOO_OLD])
def old_kernel(request):
    return ready(request.param)


@pytest.fixture(scope="module")
def kernels():
    """All that are measured on, for guests that differ."""
    return [ready(series) for series in KERNELS]
