"""COMMAND runs as who asked for it, who may be another than root."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys

import pandas as pd
import pytest
from latprof_agent.lab.processes import ProcessId
from latprof_process import Latprof, run
from recording import wait_until

NOBODY = pwd.getpwnam("nobody")
WITHOUT_ENTRY = 2_000_054_321  # in no passwd
PYTHON = "/usr/bin/python3"  # ours may be in a folder of root's
LAB = {"lab": ("--rate=0", "--delay=0"), "no lab": ("--no-lab",)}

IDENTITY = """\
exec >&2
id -u; id -g; id -G
grep -c '^Cap[IPEA].*:.0000000000000000$' /proc/self/status
echo "$HOME|$USER|$LOGNAME|$SHELL|$MAIL|$(env | grep -c -e ^SUDO_ -e ^DOAS_USER)"
ls -l /proc/self/fd | wc -l
"""


def under_sudo(uid=NOBODY.pw_uid, gid=NOBODY.pw_gid):
    """What sudo would tell latprof."""
    return os.environ | {"SUDO_UID": f"{uid}", "SUDO_GID": f"{gid}", "SUDO_USER": "?"}


def run_command(folder, *words, env=None, where="no lab", **options):
    words = ("run", "--quiet", *LAB[where], f"--out={folder}", *words)
    return run(*words, env=env or under_sudo(), **options)


def user_of(folder):
    return json.loads((folder / "run.json").read_text())["workload"]["user"]


@pytest.mark.parametrize("where", LAB)
def test_under_sudo_a_command_is_of_whoever_typed_it(tmp_path, where):
    before = ("setpriv", "--groups", "0,4,24")  # root's, to be dropped
    script = ("--", "sh", "-c", IDENTITY)
    latprof = run_command(tmp_path / "run", *script, where=where, before=before)

    assert latprof.process.returncode == 0, latprof.err
    uid, gid = NOBODY.pw_uid, NOBODY.pw_gid
    home, shell = NOBODY.pw_dir, NOBODY.pw_shell
    told = f"{home}|nobody|nobody|{shell}|/var/mail/nobody|0"
    # no capability of four sets; 0, 1, 2 and ls's own, and a line of a sum
    wanted = [f"{uid}", f"{gid}", f"{gid}", "4", told, "5"]
    assert latprof.err.splitlines() == wanted
    assert user_of(tmp_path / "run") == "nobody"
    assert "as nobody" in latprof.out


def test_a_user_without_an_entry_in_passwd_will_do(tmp_path):
    env = under_sudo(WITHOUT_ENTRY, 54321)
    latprof = run_command(tmp_path / "run", "--", "sh", "-c", IDENTITY, env=env)

    assert latprof.process.returncode == 0, latprof.err
    name = f"{WITHOUT_ENTRY}"
    told = f"/|{name}|{name}|/bin/sh|/var/mail/{name}|0"
    said = [line for line in latprof.err.splitlines() if "id: " not in line]
    assert said == [name, "54321", "54321", "4", told, "5"]
    assert user_of(tmp_path / "run") == name


@pytest.mark.parametrize(
    ("words", "env", "uid", "name"),
    [
        (("--user=root",), under_sudo(), 0, "root"),
        (("--user=nobody",), dict(os.environ), NOBODY.pw_uid, "nobody"),
        ((f"--user={NOBODY.pw_uid}",), under_sudo(0, 0), NOBODY.pw_uid, "nobody"),
        ((), dict(os.environ), 0, "root"),
        ((), under_sudo("x", "y"), 0, "root"),
    ],
    ids=["keep-root", "another", "by-number", "without-sudo", "not-sudo's"],
)
def test_who_else_it_may_be(tmp_path, words, env, uid, name):
    latprof = run_command(tmp_path / "run", *words, "--", *("id", "-u"), env=env)
    assert latprof.err.splitlines() == [f"{uid}"]
    assert user_of(tmp_path / "run") == name
    assert ("as nobody" in latprof.out) == (name == "nobody")


def test_the_server_is_of_the_same_user(tmp_path):
    server = "sh -c 'id -u >&2; exit 7'"
    words = (f"--server={server}", "--", "true")
    latprof = run_command(tmp_path / "run", *words, where="lab")
    assert latprof.process.returncode == 1
    said, line = latprof.err.splitlines()
    assert said == f"{NOBODY.pw_uid}"
    assert "it ran as nobody, --user root would keep root; see what it said" in line


@pytest.mark.parametrize("user", ["nosuchuser", "", "-1", "4294967295"])
def test_a_user_who_is_none_is_refused(tmp_path, user):
    latprof = run_command(tmp_path / "run", f"--user={user}", "--", "true")
    assert latprof.process.returncode == 2
    (line,) = latprof.err.splitlines()
    assert f"--user: must be a user's name or number, got '{user}'" in line


def test_a_user_without_a_command_is_refused():
    latprof = run("run", "--user=root")
    assert latprof.process.returncode == 2
    assert "--user=root; it is of `latprof run -- COMMAND`" in latprof.err


def test_what_that_user_cannot_run_is_told_before_anything_is_made(tmp_path, reachable):
    program = reachable / "program"
    shutil.copy("/bin/true", program)
    for mode in (0o700, 0o644):
        program.chmod(mode)
        latprof = run_command(tmp_path / "run", "--", str(program))
        assert latprof.process.returncode == 1
        (line,) = latprof.err.splitlines()
        assert line.startswith(
            f"latprof: cannot run {program} as nobody: not found or not executable"
        )
        assert not (tmp_path / "run").exists()
    program.chmod(0o755)
    latprof = run_command(tmp_path / "run", "--", str(program))
    assert latprof.process.returncode == 0, latprof.err


def test_a_command_that_fails_as_the_user_hints_at_root(tmp_path):
    words = ("--", "sh", "-c", "exit 3")
    hint = "; it ran as nobody, --user root would keep root; "
    assert hint in run_command(tmp_path / "a", *words).err
    assert "--user" not in run_command(tmp_path / "b", "--user=root", *words).err


def test_a_script_need_not_say_who_runs_it(tmp_path, reachable):
    script = reachable / "script"
    script.write_text("id -u >&2; echo $1 >&2\n")
    script.chmod(0o755)
    latprof = run_command(tmp_path / "run", "--", str(script), "word")
    assert latprof.err.splitlines() == [f"{NOBODY.pw_uid}", "word"]


# a server on port 80, then a ping without a raw socket, both as the user
SERVER = """\
import socket
listener = socket.create_server(("0.0.0.0", 80))
connection, _ = listener.accept()
connection.sendall(connection.recv(100))
"""
CLIENT = """\
import socket, sys
with socket.create_connection((sys.argv[1], 80)) as connection:
    connection.sendall(bytes(100))
    assert connection.recv(100, socket.MSG_WAITALL) == bytes(100)
ping = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
ping.settimeout(10)
ping.sendto(b"\\x08\\0\\0\\0\\0\\0\\0\\1", (sys.argv[1], 0))
assert ping.recv(100)[0] == 0
"""


def test_in_the_lab_any_user_may_have_any_port_and_ping(tmp_path):
    server = f"{PYTHON} -c '{SERVER}'"
    words = (f"--server={server}", "--", PYTHON, "-c", CLIENT, "{server}")
    latprof = run_command(tmp_path / "run", *words, where="lab")
    assert (latprof.process.returncode, latprof.err) == (0, "")
    rows = pd.read_csv(tmp_path / "run" / "messages.csv")
    assert rows[rows["destination_port"] == 80]["size_bytes"].to_list() == [100]


TALK = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
for _ in range(20):
    client.send(bytes(100))
    server.recv(100, socket.MSG_WAITALL)
"""


def test_its_first_socket_is_seen(tmp_path):
    latprof = run_command(tmp_path / "run", "--", PYTHON, "-c", TALK)
    assert latprof.process.returncode == 0, latprof.err
    rows = pd.read_csv(tmp_path / "run" / "messages.csv")
    assert rows["size_bytes"].to_list() == [100] * 20


@pytest.mark.parametrize("where", LAB)
def test_it_does_not_outlive_a_killed_latprof(tmp_path, where):
    folder = tmp_path / "run"
    words = ("run", "--quiet", *LAB[where], f"--out={folder}", "--", "sleep", "1234")
    latprof = Latprof(*words, env=under_sudo())
    sleeper = ProcessId.of(latprof.wait_for_child("sleep 1234"))
    latprof.signal(signal.SIGKILL)
    latprof.finish()
    wait_until(lambda: ProcessId.of(sleeper.pid) != sleeper, "the command's end")
    clean = (sys.executable, "-m", "latprof_agent", "lab", "clean")
    subprocess.run(clean, check=True, capture_output=True)
    assert latprof.left() == []
