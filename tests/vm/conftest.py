"""Tests in guests are opted into, and need QEMU and what fetches a kernel."""

import os
import shutil
import subprocess

import pytest
from guest import HERE
from other_machine import machine_of, put_latprof

EVERY = os.environ.get("LATPROF_VM_KERNELS", "6.1 6.12").split()
RECORDS_ONLY = ("5.10",)  # cannot count, and says so
NO_FENTRY = ("arm64:6.1",)  # nor the tracepoints that do without it
KERNELS = [series for series in EVERY if series not in NO_FENTRY]
COUNTING = [series for series in KERNELS if series not in RECORDS_ONLY]
PROGRAMS = (
    *("apt-get", "busybox", "cpio", "depmod", "dmsetup"),
    *("qemu-system-x86_64", "wg", "xz", "zstd"),
)
FOR_ARM64 = ("aarch64-linux-gnu-gcc", "debootstrap", "qemu-system-aarch64")


def ready(series):
    """Have that kernel fetched; skip where none may be booted."""
    if os.environ.get("LATPROF_VM") != "1":
        pytest.skip("boots other kernels: set LATPROF_VM=1")
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    machine = machine_of(series)
    wanted = PROGRAMS + (FOR_ARM64 if machine else ())
    if missing := [name for name in wanted if not shutil.which(name, path=path)]:
        pytest.skip(f"needs {', '.join(missing)}")
    fetched = subprocess.run(
        [HERE / "vmfetch.sh", series],
        capture_output=True,
        text=True,
        check=False,
    )
    assert fetched.returncode == 0, fetched.stderr
    if machine:
        put_latprof(machine)
    return series


@pytest.fixture(scope="module", params=COUNTING)
def kernel(request):
    return ready(request.param)


@pytest.fixture(scope="module", params=[s for s in KERNELS if machine_of(s)])
def arm64_kernel(request):
    return ready(request.param)


@pytest.fixture(scope="module", params=EVERY)
def any_kernel(request):
    return ready(request.param)


@pytest.fixture(scope="module", params=KERNELS)
def recording_kernel(request):
    return ready(request.param)


@pytest.fixture(scope="module", params=[s for s in EVERY if s in NO_FENTRY])
def kernel_without_fentry(request):
    return ready(request.param)


@pytest.fixture(scope="module")
def kernels():
    """All of this machine that count, for guests that differ."""
    own = [series for series in COUNTING if not machine_of(series)]
    return [ready(s) for s in own] or pytest.skip("no kernel of this machine is asked")
