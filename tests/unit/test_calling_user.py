"""Who started a program of root's, as sudo, doas and pkexec tell it."""

from __future__ import annotations

import os
import pwd

import pytest
from latprof_analysis import calling_user
from latprof_analysis.calling_user import User, find_user

NOBODY = pwd.getpwnam("nobody")
UNKNOWN = 4_294_000_000  # in no passwd
OURSELVES = (os.getuid(), os.getgid())


@pytest.fixture(autouse=True)
def root(monkeypatch):
    """As if root asked."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.parametrize(
    ("environment", "ids"),
    [
        ({}, OURSELVES),
        ({"SUDO_UID": f"{NOBODY.pw_uid}", "SUDO_GID": "77"}, (NOBODY.pw_uid, 77)),
        ({"SUDO_UID": f"{NOBODY.pw_uid}"}, (NOBODY.pw_uid, NOBODY.pw_gid)),
        ({"SUDO_UID": "0", "SUDO_GID": "0"}, (0, 0)),
        ({"SUDO_UID": f"{UNKNOWN}", "SUDO_GID": "77"}, (UNKNOWN, 77)),
        ({"SUDO_UID": f"{UNKNOWN}"}, (UNKNOWN, UNKNOWN)),
        ({"SUDO_UID": f"{UNKNOWN}", "SUDO_GID": "x"}, (UNKNOWN, UNKNOWN)),
        ({"DOAS_USER": "nobody"}, (NOBODY.pw_uid, NOBODY.pw_gid)),
        ({"DOAS_USER": "no such user"}, OURSELVES),
        ({"DOAS_USER": "no\0user"}, OURSELVES),
        ({"PKEXEC_UID": f"{NOBODY.pw_uid}"}, (NOBODY.pw_uid, NOBODY.pw_gid)),
    ],
)
def test_it_is_whoever_typed_sudo_doas_or_pkexec(environment, ids):
    user = calling_user.calling_user(environment)
    assert (user.uid, user.gid) == ids


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1 ", "1.0", "²", "4294967295", "9" * 5000, "root"]
)
def test_what_is_no_number_of_a_user_does_not_count(text):
    user = calling_user.calling_user({"SUDO_UID": text, "SUDO_GID": "1"})
    assert (user.uid, user.gid) == OURSELVES


def test_only_root_is_told_by_the_environment(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    user = calling_user.calling_user({"SUDO_UID": f"{UNKNOWN}"})
    assert (user.uid, user.gid) == OURSELVES


def test_a_user_without_an_entry_has_a_name_and_a_home_all_the_same():
    user = calling_user.calling_user({"SUDO_UID": f"{UNKNOWN}"})
    assert user == User(UNKNOWN, UNKNOWN, f"{UNKNOWN}", "/", "/bin/sh")


def test_a_user_is_found_by_name_and_by_number():
    assert find_user("nobody") == find_user(f"{NOBODY.pw_uid}")
    assert find_user("nobody").home == NOBODY.pw_dir
    assert find_user(f"{UNKNOWN}").uid == UNKNOWN
    for text in ("no such user", "-1", ""):
        with pytest.raises(KeyError):
            find_user(text)
