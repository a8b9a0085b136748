"""What other users have mapped and left lying about harms neither latprof nor others.

Each process is of a user that nobody is, in a folder of its own.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from fuse import fuse_flags, wait_for_mount
from latprof_agent.symbols.elf_symbols import MOST_BYTES
from latprof_agent.symbols.symbols import Symbols
from named_functions import (
    compiled_in,
    jit_map,
    name_of,
    names_of,
    running,
    sample_of,
)
from recording import wait_until

HERE = Path(__file__).parent
NOBODY = 65534
USER = 61_000 + secrets.randbelow(100)  # below systemd's own
GIB = 1 << 30
MEMORY = Path("/sys/fs/cgroup/memory")
_IN_OPEN, _IN_NONBLOCK = 0x20, os.O_NONBLOCK


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled_in(tmp_path_factory.mktemp("named"))


@pytest.fixture
def home():
    """A folder that is the user's, where everybody may look."""
    folder = Path(tempfile.mkdtemp(prefix="latprof-hostile-"))
    folder.chmod(0o755)
    os.chown(folder, USER, USER)
    yield folder
    shutil.rmtree(folder)


def copied(program, home, name="program", mode=0o755, user=USER):
    """The program as a file of the user's."""
    copy = os.path.join(os.fsencode(home), os.fsencode(name))  # noqa: PTH118
    shutil.copy(program, copy)
    os.chown(copy, user, user)
    os.chmod(copy, mode)  # noqa: PTH101
    return copy


@contextmanager
def of_user(*command, user=USER):
    """A process of the user's, as `running` gives it."""
    with running(*command, user=user, group=user, extra_groups=[]) as found:
        yield found


@pytest.mark.parametrize("end", ["\f", "\r", "\v", "\x1c", "\u2028", "\x85"])
def test_a_file_whose_name_ends_lines_is_a_file_like_others(program, home, end):
    hostile = copied(program, home, f"one{end}7f00-7fff r-xp 0 0:0 1 two")
    with of_user(hostile) as (process, at), running(program) as (other, its):
        stacks = names_of(
            sample_of(process.pid, at["main"]), sample_of(other.pid, its["main"])
        )
    assert stacks == [("main",), ("main",)]


def test_what_only_its_user_may_read_is_named_and_what_he_may_not_is_not(program, home):
    own = copied(program, home, "own", 0o700)
    with of_user(own) as (process, at):
        assert name_of(sample_of(process.pid, at["main"])) == "main"
    roots = copied(program, home, "roots", 0o711, user=0)
    with of_user(roots) as (process, at):
        assert name_of(sample_of(process.pid, at["main"])).startswith("roots+0x")


NAME = """
import sys
import numpy as np
sys.path[:0] = {path!r}
from named_functions import name_of, sample_of
print(name_of(sample_of(int(sys.argv[1]), int(sys.argv[2]))))
"""


@contextmanager
def memory_group():
    """A control group that counts what its processes take."""
    if not (MEMORY / "memory.max_usage_in_bytes").exists():
        pytest.skip("needs the memory controller of cgroup v1")
    group = MEMORY / f"latprof-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "all have ended")
        group.rmdir()


def offset_of_main(program):
    listed = subprocess.check_output(["nm", program], text=True).splitlines()
    return next(int(w[0], 16) for w in map(str.split, listed) if w[-1] == "main")


def _huge(path, how):
    """Make a program's file 3 GiB of nothing, which its tables may claim to need."""
    data = bytearray(Path(os.fsdecode(path)).read_bytes())
    sections, count = struct.unpack_from("<Q", data, 40)[0], data[60]
    for at in range(sections, sections + 64 * count, 64):
        kind = struct.unpack_from("<I", data, at + 4)[0]
        if (kind in (2, 11) and how == "symbols") or (kind == 3 and how == "names"):
            struct.pack_into("<Q", data, at + 32, 3 * GIB - 24 * len(data))
    with open(path, "r+b") as file:  # noqa: PTH123
        file.write(data)
        file.truncate(3 * GIB)


@pytest.mark.parametrize("how", ["nothing", "symbols", "names"])
def test_a_sparse_file_takes_no_memory(program, home, how):
    hostile = copied(program, home, "sparse", 0o711)
    _huge(hostile, how)
    with memory_group() as group, of_user(hostile) as (process, at):

        def enter():
            (group / "cgroup.procs").write_text(str(os.getpid()))

        code = NAME.format(path=[str(HERE), str(HERE.parent)])
        words = [sys.executable, "-c", code, str(process.pid), str(at["main"])]
        said = subprocess.run(
            words, preexec_fn=enter, stdout=subprocess.PIPE, check=True, text=True
        ).stdout.strip()
        peak = int((group / "memory.max_usage_in_bytes").read_text())
    offset = f"sparse+{offset_of_main(program):#x}"
    assert said == ("main" if how == "nothing" else offset)
    # numpy, bcc with LLVM, and symbols twice: of all that a tenth is the file's
    assert peak < 256 * 2**20 + 2 * MOST_BYTES


LEASE = """
import fcntl, mmap, os, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
opened = os.open(sys.argv[1], os.O_RDWR)
code = mmap.mmap(opened, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
fcntl.fcntl(opened, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print(flush=True)
signal.pause()
"""


def test_a_lease_is_not_waited_for(program, home):
    leased = os.fsdecode(copied(program, home, "leased"))
    wait = int(Path("/proc/sys/fs/lease-break-time").read_text())
    assert wait > 20, "the kernel's own limit must be longer than the test's"
    words = [sys.executable, "-c", LEASE, leased]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, user=USER, group=USER, extra_groups=[]
    ) as process:
        try:
            assert process.stdout.readline() == b"\n"
            maps = Path(f"/proc/{process.pid}/maps").read_text().split("\n")
            (line,) = (line for line in maps if line.endswith(leased))
            address = int(line.split("-")[0], 16) + 0x20
            began = time.monotonic()
            shown = name_of(sample_of(process.pid, address))
            took = time.monotonic() - began
        finally:
            process.kill()
    assert shown == "leased+0x20"
    assert took < wait / 2


class Opens:
    """Counts opens of a file, as inotify has them."""

    def __init__(self, path):
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(_IN_NONBLOCK)
        watch = self._libc.inotify_add_watch(
            self._descriptor, os.fsencode(path), _IN_OPEN
        )
        assert watch >= 0, os.strerror(ctypes.get_errno())

    def end(self):
        try:
            return len(os.read(self._descriptor, 4096)) // 16
        except BlockingIOError:
            return 0
        finally:
            os.close(self._descriptor)


def test_a_map_that_is_no_file_is_never_opened(program, home):
    copy = copied(program, home)
    with of_user(copy) as (process, at):
        map_ = Path(f"/tmp/perf-{process.pid}.map")
        os.mkfifo(map_, 0o644)
        try:
            os.chown(map_, USER, USER)
            opens = Opens(map_)
            shown = name_of(sample_of(process.pid, at["made"]))
            assert shown.startswith("[JIT]+")
            assert opens.end() == 0
        finally:
            map_.unlink()


def test_opens_of_a_map_are_seen_by_this_test(program, home):
    copy = copied(program, home)
    with of_user(copy) as (process, at):
        lines = f"{at['made']:x} 1000 innocent\n"
        with jit_map(process.pid, lines, user=USER) as path:
            opens = Opens(path)
            assert name_of(sample_of(process.pid, at["made"])) == "innocent"
            assert opens.end() == 1


MOUNT = """
mount --make-rprivate /
touch /tmp/perf-$$.map
mount --bind "$1" /tmp/perf-$$.map
exec setpriv --reuid "$2" --regid "$2" --clear-groups "$3"
"""


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_what_was_mounted_as_a_map_is_read_with_the_rights_of_its_user(
    program, home, mode
):
    """A tree that a user composed may have any file of root's in it."""
    secret = home / "secret"
    secret.write_text("0 ffffffffffffffff root:x:0:0\n")
    secret.chmod(mode)
    os.chown(secret, 0, 0)
    copy = copied(program, home)
    words = ["unshare", "--mount", "sh", "-euc", MOUNT, "sh", secret, str(USER), copy]
    with running(*words) as (process, at):
        try:
            shown = name_of(sample_of(process.pid, at["made"]))
            assert shown.startswith("[JIT]+")
            secret.chmod(0o644)  # which its user may read
            assert name_of(sample_of(process.pid, at["made"])) == "root:x:0:0"
        finally:
            Path(f"/tmp/perf-{process.pid}.map").unlink()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    flags = fuse_flags()
    built = tmp_path_factory.mktemp("served") / "served_file"
    words = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", HERE / "served_file.c"]
    subprocess.run([*words, "-o", built, *flags], check=True)
    return built


@contextmanager
def served(server, program, folder):
    """The program on a file system of FUSE, and the process of that."""
    folder.mkdir()
    words = [server, program, folder]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for_mount(process, folder / "program")
            yield process, folder / "program"
        finally:
            process.kill()
            process.wait()
            subprocess.run(["umount", "--lazy", folder], check=True)


def helpers():
    """Processes of `files_helper` that are not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if b"files_helper" in words:
            found.append(int(folder.name))
    return {pid for pid in found if pid != os.getpid()}


def rights_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().split("\n")
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    users = {int(user) for user in fields["Uid"].split()}
    return users, int(fields["CapPrm"], 16), fields["NoNewPrivs"]


def rights_of_children():
    """Of helpers, which do what they are asked for."""
    found = helpers()
    with suppress(FileNotFoundError, ProcessLookupError):
        return [rights_of(pid) for pid in found if parent_of(pid) in found]
    return []  # one has ended meanwhile


# USER is another one in each process: workers must collect the same names
@pytest.mark.parametrize(
    ("when", "user"), [("before", USER), ("kept", NOBODY)], ids=["before", "kept"]
)
def test_a_file_system_that_never_answers_costs_its_own_names_only(
    program, server, home, when, user
):
    """Looks, reads and closes wait until it is killed: a signal ends none of them.

    Who waits has the rights of the process, or of nobody.
    """
    before = helpers()
    with (
        served(server, program, home / "mounted") as (owner, hostile),
        of_user(hostile) as (process, at),
        running(program) as (other, its),
    ):
        ours = sample_of(process.pid, at["main"])
        theirs = sample_of(other.pid, its["main"])
        found = Symbols()
        if when == "before":
            owner.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        found.note(ours, {process.pid})
        found.note(theirs, {other.pid})
        owner.send_signal(signal.SIGSTOP)
        found.look_up()
        wait_until(lambda: rights_of_children() == [({user}, 0, "1")], "its rights")
        thread = threading.Thread(target=found.finish)
        thread.start()
        thread.join(30)
        assert not thread.is_alive(), "it is waited for"
        took = time.monotonic() - began
        assert found.stack(theirs[0]) == ("main",)
        offset = f"program+{offset_of_main(program):#x}"
        assert found.stack(ours[0])[-1] == ("?" if when == "before" else offset)
    assert took < 20  # a look and a name in vain, and the end: 2, 3, 2 s
    wait_until(lambda: helpers() <= before, "nothing is left behind")


def test_a_helper_that_was_killed_is_replaced(program):
    found = Symbols()
    with running(program) as (process, at):
        first = sample_of(process.pid, at["main"])
        found.note(first, {process.pid})
        (helper,) = [h for h in helpers() if parent_of(h) == os.getpid()]
        os.kill(helper, signal.SIGKILL)
        wait_until(lambda: helper not in helpers(), "it has ended")
        found.look_up()
        second = sample_of(process.pid, at["main"])
        found.note(second, {process.pid})
        found.finish()
    assert found.stack(second[0]) == ("main",)


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
