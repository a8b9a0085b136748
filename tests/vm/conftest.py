"""Tests in guests are opted into, and need QEMU and what fetches a kernel."""

import os
import shutil
import subprocess

import pytest
from guest import HERE

KERNELS = os.environ.get("LATPROF_VM_KERNELS", "6.1 6.12").split()
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


@pytest.fixture(scope="module")
def kernels():
    """All of them, for guests that differ."""
    return [ready(series) for series in KERNELS]
