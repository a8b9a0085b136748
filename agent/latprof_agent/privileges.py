"""From root to another user, with the few capabilities that measuring needs.

A service manager may start us as another user, with these already.

One thing needs all of root's: to switch the kernel's statistics of programs on. A
child does that on demand and nothing else; it ends with us. Another does while we
load: to look for types in the kernel's modules, as libbpf does for what this kernel's
core has not; before libbpf 1.3 it gives up where it may not.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import pwd
import signal
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from latprof_analysis.calling_user import ROOT, User, find_user

from latprof_agent.errors import LatprofError, UsageError
from latprof_agent.kernel_text import lines_of

SERVICE_USER = "latprof"  # where there is one
_SYSTEMDS_OWN = range(61184, 65520)  # users that systemd makes for services and forgets
# Of each of them that is in use a file with a lock: systemd's (core/dynamic-user.c)
# where that runs, else ours.
_SYSTEMD_RUNS = Path("/run/systemd/system")
_SYSTEMDS_LOCKS = Path("/run/systemd/dynamic-uid")
_OUR_LOCKS = Path("/run/latprof/users")

CAP_DAC_OVERRIDE, CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_SYSLOG = 1, 12, 21, 34
CAP_PERFMON, CAP_BPF = 38, 39
_NAMES = {
    CAP_NET_ADMIN: "CAP_NET_ADMIN",
    CAP_PERFMON: "CAP_PERFMON",
    CAP_BPF: "CAP_BPF",
}
NEEDED = (
    *(CAP_BPF, CAP_PERFMON),  # programs of tracepoints,
    CAP_NET_ADMIN,  # of cgroups
)
KEPT = (*NEEDED, CAP_SYSLOG)  # where the kernel's functions are, in /proc/kallsyms
LOADING = (*KEPT, CAP_SYS_ADMIN)

_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_CAPBSET_DROP = 1, 8, 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_CAP_VERSION = 0x20080522  # two words of 32 capabilities
_CAP_LAST = Path("/proc/sys/kernel/cap_last_cap")
_libc = ctypes.CDLL(None, use_errno=True)
_BPF = {"x86_64": 321, "aarch64": 280}  # the system call's number
_NO_COMMAND = 0x7FFFFFFF  # of it


def service_user(
    name: str | None, proc: Path = Path("/proc"), locks: Path | None = None
) -> User:
    """Find whom to run as: the named user, else ours, else one that nobody is.

    What runs as another service's user could be stopped by that service. Who is not
    root stays who he is. A container with a /run of its own does not see our lock: of
    that there is only what /proc shows of its processes.
    """
    if os.geteuid() != ROOT:
        return _ourselves(name)
    try:
        return find_user(name or SERVICE_USER)
    except KeyError:
        if name:
            raise UsageError(
                f"--user: must be a user's name or number, got {name!r}"
            ) from None
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    taken |= {p.stat().st_uid for p in proc.glob("[0-9]*") if p.exists()}
    free = (uid for uid in _SYSTEMDS_OWN if uid not in taken)
    uid = _claim_first(free, locks or _lock_folder())
    return User(uid, uid, str(uid))


def _lock_folder() -> Path:
    return _SYSTEMDS_LOCKS if _SYSTEMD_RUNS.is_dir() else _OUR_LOCKS


def _claim_first(uids: Iterable[int], locks: Path) -> int:
    try:
        locks.parent.mkdir(mode=0o700, exist_ok=True)
        locks.mkdir(mode=0o755, exist_ok=True)  # as systemd makes its own
        uid = next((uid for uid in uids if _claim(locks / str(uid))), None)
    except OSError as error:
        raise LatprofError(
            f"cannot keep a user for the agent alone in {locks}: {error.strerror}; "
            "mount that file system for writing, or use --user NAME"
        ) from error
    if uid is None:
        raise LatprofError(
            f"cannot find a user that nobody is: {_SYSTEMDS_OWN[0]} to "
            f"{_SYSTEMDS_OWN[-1]} are all in use; use --user NAME"
        )
    return uid


def _claim(lock: Path) -> bool:
    """Take a user's lock, unless another process has it.

    The descriptor is never closed: the lock ends with us, however we end.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NOCTTY
    while True:
        descriptor = os.open(lock, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        if os.fstat(descriptor).st_nlink:
            return True
        os.close(descriptor)  # systemd has just removed this file


def _ourselves(name: str | None) -> User:
    user = find_user(str(os.geteuid()))
    if name and name not in (user.name, str(user.uid)):
        raise UsageError(
            f"--user: only root can become {name!r}; leave it out to stay {user.name}"
        )
    return user


def is_of_service(uid: int) -> bool:
    """Whether a user is a number that services have for a while, as ours may."""
    return uid in _SYSTEMDS_OWN


def missing() -> list[str]:
    """Name the capabilities that measuring needs and we do not have."""
    permitted = _permitted()
    return [_NAMES[one] for one in NEEDED if not permitted & 1 << one]


def drop(user: User, kept: Iterable[int] = KEPT) -> None:
    """Become `user`, with these capabilities and no way to others; for good.

    Of the calling thread and those that it starts. May be called again, with fewer.
    """
    if user.uid == ROOT:
        return
    try:
        if os.geteuid() == ROOT:
            _become(user)
        _set_capabilities(_mask(kept) & _permitted())
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    except OSError as error:
        raise LatprofError(
            f"cannot become user {user.name}: {error.strerror}; start as root with "
            "CAP_SETUID, CAP_SETGID and CAP_SETPCAP, or use --user root"
        ) from error


def _become(user: User) -> None:
    """Become `user`, with what is permitted and no way to more."""
    for capability in range(int(_CAP_LAST.read_text()) + 1):
        if capability != CAP_PERFMON:  # see `handed_on`
            _prctl(_PR_CAPBSET_DROP, capability)
    _prctl(_PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)


def _mask(capabilities: Iterable[int]) -> int:
    return sum(1 << capability for capability in capabilities)


def _permitted() -> int:
    for line in lines_of(Path("/proc/thread-self/status")):
        if line.startswith(b"CapPrm:"):
            return int(line.split()[1], 16)
    return 0


def _prctl(option: int, value: int, more: int = 0) -> None:
    if _libc.prctl(option, value, more, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _set_capabilities(mask: int, handed_on: int = 0) -> None:
    """Have these, effective and permitted, and hand some of them on."""
    header = struct.pack("=Ii", _CAP_VERSION, 0)
    words = [*(mask, mask, handed_on)]
    halves = [w & 0xFFFFFFFF for w in words] + [w >> 32 for w in words]
    if _libc.capset(header, struct.pack("=6I", *halves)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def handed_on(capability: int) -> Iterator[None]:
    """Let programs that this thread starts in the block have a capability of ours.

    Root's have all, and who has it not hands none on.
    """
    permitted, wanted = _permitted(), 1 << capability
    if os.geteuid() == ROOT or not permitted & wanted:
        yield
        return
    _set_capabilities(permitted, wanted)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability)
    try:
        yield
    finally:
        _set_capabilities(permitted)  # which takes it out of those handed on, too


def serve_apart(
    user: User, kept: Iterable[int], serve: Callable[[socket.socket], None]
) -> tuple[socket.socket, int]:
    """Start a child that serves the other end of a socket, with these capabilities.

    To be called first, by a process of one thread that holds nothing yet. Returns our
    end, and the child's pid; it ends with us, or when our end is closed.
    """
    ours, its = socket.socketpair()
    pid = os.fork()
    if pid:
        its.close()
        return ours, pid
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.closerange(3, its.fileno())
        os.closerange(its.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        drop(user, kept)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        serve(its)
    finally:
        os._exit(0)


class StatisticsKeeper:
    """A child that switches the kernel's statistics on when it is asked to.

    To be made first, by a process of one thread that holds nothing yet.
    """

    def __init__(self, user: User, switch_on: Callable[[], int]) -> None:
        self._ours, self.pid = serve_apart(
            user, (CAP_SYS_ADMIN,), lambda asked: _keep(asked, switch_on)
        )

    def switch_on(self) -> int:
        """Switch them on until the descriptor is closed; raises OSError."""
        self._ours.send(b"1")
        _, found, _, _ = socket.recv_fds(self._ours, 1, 1)
        if not found:
            raise PermissionError("the kernel refuses its statistics of programs")
        return found[0]

    def close(self) -> None:
        """End the child."""
        self._ours.close()
        os.waitpid(self.pid, 0)


def _keep(asked: socket.socket, switch_on: Callable[[], int]) -> None:
    """Live as the child: until nobody can ask any more."""
    while asked.recv(1):
        try:
            descriptor = switch_on()
        except OSError:
            asked.send(b"0")
            continue
        socket.send_fds(asked, [b"1"], [descriptor])
        os.close(descriptor)


def what_forbids_bpf(
    lockdown: Path = Path("/sys/kernel/security/lockdown"),
    status: Path = Path("/proc/self/status"),
) -> tuple[str, str] | None:
    """Return what refuses bpf to who has the capabilities, and what to do, or None.

    A filter of system calls refuses a command that there is not, too; the kernel does
    not know it.
    """
    with suppress(OSError):
        if "[confidentiality]" in lockdown.read_text():
            return (
                "the kernel is locked down to confidentiality",
                "boot it with lockdown=integrity, or none",
            )
    with suppress(OSError):
        if "\nSeccomp:\t2\n" not in status.read_text() or missing():
            return None
    number = _BPF.get(os.uname().machine)
    if number is None or _libc.syscall(number, _NO_COMMAND, None, 0) != -1:
        return None
    if ctypes.get_errno() == errno.EPERM:
        return (
            "a filter of system calls (seccomp) refuses bpf",
            "let it allow bpf and perf_event_open (containers: seccompProfile, "
            "or --security-opt seccomp=FILE)",
        )
    return None
