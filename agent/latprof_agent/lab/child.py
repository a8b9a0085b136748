"""Start a program in a namespace, in a control group, as a user; it ends with us."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, AnyStr

from latprof_analysis.calling_user import User

from latprof_agent.errors import WorkloadError, remedy

END_SECONDS = 5.0  # between asking a process to end and ending it
_PR_SET_PDEATHSIG = 1
_OF_CALLERS = ("DOAS_USER", "PKEXEC_UID")
_libc = ctypes.CDLL(None, use_errno=True)

Step = Callable[[], object]


def start(
    command: Sequence[str],
    *steps: Step,
    user: User | None = None,
    env: dict[str, str] | None = None,
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start a program after these steps in its process, then as `user`, if any.

    Steps must call nothing but the kernel: other threads' locks do not count in a
    new process. `options` go to Popen. The program is killed when the thread that
    called this ends. Raises WorkloadError where it cannot be run.
    """
    environment = dict(os.environ if env is None else env)
    if user:
        environment = _environment_of(user, environment)
        steps = (*steps, become(user))
    errors = mmap.mmap(-1, 4)  # shared with the new process

    def begin() -> None:
        try:
            for step in steps:
                step()
        except OSError as error:
            errors[:] = (error.errno or errno.EIO).to_bytes(4, "little")
            raise
        # last: a change of credentials takes it back
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    parent = os.getpid()
    run = partial(subprocess.Popen, env=environment, preexec_fn=begin, **options)
    try:
        return _run_or_shell(run, list(command))
    except (OSError, subprocess.SubprocessError) as error:
        refused = int.from_bytes(errors[:], "little")
        number = refused or getattr(error, "errno", None) or errno.EIO
        why = os.strerror(number)
        what = f"cannot run {command[0]}{f' as {user.name}' if user else ''}: {why}"
        check = "check its name, its mode and PATH"
        if refused:
            check = "the kernel refuses its namespace, control group or user"
        raise WorkloadError(f"{what}; {remedy(number, check)}") from error
    finally:
        errors.close()


def _run_or_shell(
    run: Callable[[list[str]], subprocess.Popen[Any]], command: list[str]
) -> subprocess.Popen[Any]:
    """Run a command, or have the shell run it: a script need not say by whom."""
    try:
        return run(command)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    return run(["/bin/sh", "-c", 'exec "$0" "$@"', *command])


def ask_to_end(process: subprocess.Popen[Any], number: int = signal.SIGTERM) -> None:
    """Signal a process, and let it go on, or it cannot end where it was stopped."""
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)


def last_output(process: subprocess.Popen[AnyStr]) -> tuple[AnyStr, AnyStr]:
    """What a process that was asked to end has said; after a while end it."""
    try:
        return process.communicate(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()


def become(user: User) -> Step:
    """Make a function that turns the calling process, if root's, into the user's."""
    groups = os.getgrouplist(user.name, user.gid)

    def drop() -> None:
        os.setgroups(groups)
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)  # all capabilities go with root

    return drop


def _environment_of(user: User, environment: dict[str, str]) -> dict[str, str]:
    """Make the environment of `sudo -u`, without what names the caller."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith("SUDO_") and name not in _OF_CALLERS
    }
    return kept | {
        "HOME": user.home,
        "LOGNAME": user.name,
        "MAIL": f"/var/mail/{user.name}",
        "SHELL": user.shell,
        "USER": user.name,
    }
