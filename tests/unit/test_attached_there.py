"""`--with ssh:HOST`: which hosts it takes, and what ssh and a shell there are given."""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_agent.cli.host_option import ssh_hosts
from latprof_agent.errors import UsageError
from latprof_agent.probes.filter import Word
from latprof_agent.workload.attached_there import (
    LOCAL_KINDS,
    SshHost,
    check_kinds,
    command_there,
)
from latprof_process import COMMAND


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("ssh:a", [("a", "")]),
        ("ssh:a, root@b:22", [("a", ""), ("root@b", "22")]),
        ("ssh:me@[2001:db8::7]:2207", [("me@2001:db8::7", "2207")]),
        ("ssh:192.0.2.7:65535", [("192.0.2.7", "65535")]),
    ],
)
def test_hosts_are_taken_as_ssh_is_given_them(text, hosts):
    assert list(ssh_hosts(text)) == hosts


@pytest.mark.parametrize(
    "text",
    [
        *("a", "ssh:", "ssh:a,", "ssh:-oProxyCommand=id", "ssh:-l", "ssh:root@-l"),
        *("ssh:-l@a", "ssh:@a", "ssh:a:0", "ssh:a:65536", "ssh:a b", "ssh:a;id"),
        *(
            "ssh:a$(id)",
            "ssh:a,a",
            "ssh:[fe80::1%$(id)]",
            "ssh://a",
            "rsh:a",
            "ssh:a\nb",
        ),
    ],
)
def test_what_is_no_host_for_ssh_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must"):
        ssh_hosts(text)


@pytest.mark.parametrize("kind", LOCAL_KINDS)
def test_what_means_nothing_elsewhere_is_refused(kind):
    check_kinds([Word("port", "80")])
    with pytest.raises(UsageError, match=f"--{kind}: is of this host, not with --with"):
        check_kinds([Word("port", "80"), Word(kind, "1")])


def programs(folder: Path, user: int) -> dict[str, str]:
    """An environment in which `id` says this user, and `sudo -n` says that it ran."""
    for name, text in (
        ("id", f"echo {user}"),
        ("sudo", '[ "$1" = -n ] || exit 9; shift; printf "sudo\\0"; exec "$@"'),
    ):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}


@given(
    words=st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
        max_size=4,
    ),
    user=st.sampled_from([0, 1000]),
)
@settings(max_examples=50, deadline=None)
def test_a_shell_there_gives_each_word_on_as_it_is(words, user, tmp_path_factory):
    """Asked of a shell: what it hands to the program is what was put in."""
    *ssh, there = SshHost("a", "").words(["printf", "%s\\0", "", *words])
    assert ssh[-2:] == ["--", "a"]
    env = programs(tmp_path_factory.mktemp("programs"), user)
    done = subprocess.run(["sh", "-c", there], env=env, capture_output=True, check=True)
    *found, last = done.stdout.decode().split("\0")
    before = ["sudo"] if user else []
    assert (found, last) == ([*before, "", *words], "")


def test_ssh_asks_nobody_and_goes_where_it_was_sent():
    words = SshHost("root@a", "2207").words(["true"])
    assert words[0] == "ssh"
    assert "BatchMode=yes" in words
    assert words[words.index("-p") + 1] == "2207"


def test_there_the_filter_is_the_same():
    chosen = [Word("port", "80"), Word("comm", "a b"), Word("port", "22", negated=True)]
    words = command_there(chosen, None, 10.0)
    assert words[words.index("--lend-until-eof") + 1] == "10s"
    assert words[-6:] == ["--port", "80", "--comm", "a b", "--not", "port=22"]
    assert command_there([], 0, 1.0)[-2:] == ["--story", "p99.9"]
    assert command_there([], 5000, 1.0)[-2:] == ["--story", "5000ns"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--with", "ssh:a"), "--with: needs --duration"),
        (
            ("--with", "ssh:a", "--duration", "1s", "--no-recording"),
            "--with: needs the recording, not --no-recording",
        ),
        (("--with", "ssh:-a", "--duration", "1s"), "--with must be [USER@]HOST"),
        (("--with", "ssh:a", "--duration", "1s", "--cgroup", "/"), "not with --with"),
    ],
)
def test_wrong_usage_is_one_line(words, said, tmp_path):
    command = [*COMMAND, "run", "attach", "--port", "80", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
