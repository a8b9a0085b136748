"""The user on whose behalf root works: whoever typed sudo, doas or pkexec."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass

ROOT = 0
_MOST = 2**32 - 2  # the number above stands for "leave it as it is"


@dataclass(frozen=True)
class User:
    """A user, who need not be in passwd: then `name` is the number."""

    uid: int
    gid: int
    name: str = ""
    home: str = "/"
    shell: str = "/bin/sh"


def calling_user(environment: Mapping[str, str] = os.environ) -> User:
    """Return who started this: whoever typed sudo, doas or pkexec, else ourselves.

    Only root looks at the environment, which these programs write; what is no
    user's number or name there is none of theirs and does not count.
    """
    if os.geteuid() != ROOT:
        return _user(os.getuid(), os.getgid())
    if (uid := _number(environment.get("SUDO_UID", ""))) is not None:
        return _user(uid, _number(environment.get("SUDO_GID", "")))
    if found := _named(environment.get("DOAS_USER", "")):
        return found
    if (uid := _number(environment.get("PKEXEC_UID", ""))) is not None:
        return _user(uid, None)
    return _user(os.getuid(), os.getgid())


def find_user(text: str) -> User:
    """Find a user by name or number; raises KeyError where there is no such name."""
    number = _number(text)
    found = _named(text) or (None if number is None else _user(number, None))
    if not found:
        raise KeyError(text)
    return found


def _number(text: str) -> int | None:
    """Read an id; None: the text is none."""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST))):
        return None
    number = int(text)
    return number if number <= _MOST else None


def _named(name: str) -> User | None:
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: holds a null or a surrogate
        return None
    return _of_entry(entry, None)


def _user(uid: int, gid: int | None) -> User:
    """A user by number; in the group of the same number where no other is known."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return User(uid, uid if gid is None else gid, str(uid))
    return _of_entry(entry, gid)


def _of_entry(entry: pwd.struct_passwd, gid: int | None) -> User:
    return User(
        uid=entry.pw_uid,
        gid=entry.pw_gid if gid is None else gid,
        name=entry.pw_name,
        home=entry.pw_dir or "/",
        shell=entry.pw_shell or "/bin/sh",
    )
