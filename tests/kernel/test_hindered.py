"""latprof where something of the host is out of reach: one line, or it measures."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from latprof_agent.privileges import what_forbids_bpf

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "latprof_agent")
BPF = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
UNSHARE = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
CLONE3 = 435
# as docker's own filter: what it does not have is ENOSYS, what it forbids EPERM
DOCKERS = {UNSHARE: errno.EPERM, CLONE3: errno.ENOSYS}
PR_SET_SECCOMP, FILTER = 22, 2
LOAD, EQUALS, RETURN = 0x20, 0x15, 0x06  # of <linux/filter.h>
ERRNO, ALLOW = 0x00050000, 0x7FFF0000  # of <linux/seccomp.h>
WATCH = ("watch", "--once")


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refuse(calls):
    """Make a function that has the kernel refuse system calls, each with its errno."""
    steps = [(LOAD, 0, 0, 0)]
    for number, reason in calls.items():
        steps += [(EQUALS, 0, 1, number), (RETURN, 0, 0, ERRNO | reason)]
    steps.append((RETURN, 0, 0, ALLOW))
    text = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = Program(len(steps), text)
    libc = ctypes.CDLL(None, use_errno=True)

    def start():
        if libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0):
            raise OSError(ctypes.get_errno(), "seccomp")

    return start


def latprof(*words, mounts="true", **options):
    """Run it in a mount namespace of its own, in which something was mounted first."""
    script = f'{mounts} && exec "$@"'
    apart = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    return subprocess.run(
        [*(apart if mounts != "true" else []), *COMMAND, *words],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def only_line(ended, status=1):
    assert ended.returncode == status, ended.stderr
    (line,) = ended.stderr.splitlines()
    return line


@pytest.mark.parametrize("command", [WATCH, ("agent", "--listen=127.0.0.1:0")])
def test_a_filter_that_forbids_bpf_is_named(command):
    line = only_line(latprof(*command, preexec_fn=refuse({BPF: errno.EPERM})))
    assert line.startswith(
        "latprof: cannot load the probes: a filter of system calls (seccomp) refuses "
        "bpf; let it allow bpf and perf_event_open "
    )


@pytest.mark.thorough
def test_dockers_filter_of_who_may_use_bpf_is_enough_to_watch():
    ended = latprof(*WATCH, preexec_fn=refuse(DOCKERS))
    assert ended.returncode == 0, ended.stderr


def test_a_lab_that_a_filter_forbids_is_one_line(tmp_path):
    run = ("run", "--rounds", "1", "--out", str(tmp_path / "run"))
    line = only_line(latprof(*run, preexec_fn=refuse(DOCKERS)))
    assert line.startswith("latprof: cannot create network namespace ")
    assert "and of a filter of system calls (seccomp)" in line


def test_a_filter_that_lets_bpf_through_is_not_blamed():
    assert what_forbids_bpf() is None


def test_a_lockdown_to_confidentiality_is_named(tmp_path):
    lockdown = tmp_path / "lockdown"
    lockdown.write_text("none integrity [confidentiality]\n")
    assert what_forbids_bpf(lockdown) == (
        "the kernel is locked down to confidentiality",
        "boot it with lockdown=integrity, or none",
    )
    lockdown.write_text("none [integrity] confidentiality\n")
    assert what_forbids_bpf(lockdown) is None


def test_types_of_the_kernel_that_are_out_of_sight_are_named():
    line = only_line(latprof(*WATCH, mounts="mount -t tmpfs none /sys/kernel/btf"))
    assert line.startswith("latprof: cannot read the kernel's types: ")
    assert line.endswith("and /sys/kernel/btf/vmlinux where it runs")


@pytest.mark.thorough
def test_neither_tracefs_nor_debugfs_is_needed(tmp_path):
    hide = " && ".join(
        f"mount -t tmpfs none /sys/kernel/{name}" for name in ("tracing", "debug")
    )
    run = ("run", "--protocol", "tcp", "--rounds", "1", "--out", str(tmp_path / "run"))
    ended = latprof(*run, mounts=hide)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.thorough
def test_a_root_that_cannot_be_written_is_no_hindrance_to_watch(tmp_path):
    # but for a checkout's build, which an editable install looks after
    read_only = f"mount --bind {ROOT} {ROOT} && mount -o remount,bind,ro /"
    ended = latprof(*WATCH, mounts=read_only)
    assert ended.returncode == 0, ended.stderr
    line = only_line(latprof("run", mounts=read_only, cwd="/"), 2)
    assert line.startswith("latprof: cannot make run folder ")
    assert line.endswith("/ cannot be written; use --out DIR with another folder")
