"""packaging/latprof before it installs anything: what it says and how it ends."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "packaging" / "latprof"
NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def call(*arguments, before=()):
    return subprocess.run(
        [*before, SCRIPT, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def fedora_without_clang(tmp_path):
    """Gives the command that shows such a system to the one that follows it."""
    (tmp_path / "os-release").write_text("ID=fedora\n")
    (tmp_path / "absent").touch()
    # Without /opt, a set-up that goes on by mistake changes nothing here.
    hide = [
        f"mount --bind {tmp_path}/os-release /etc/os-release",
        "mount -t tmpfs -o ro tmpfs /opt",
    ]
    for folder in {Path(name).resolve() for name in ("/usr/local/bin", "/usr/bin")}:
        if (folder / "clang").exists():
            hide.append(f"mount --bind {tmp_path}/absent {folder}/clang")
    script = " && ".join([*hide, 'exec "$@"'])
    private = ["unshare", "--mount", "--propagation", "private"]
    return [*private, "sh", "-c", script, "sh"]


def test_help_names_both_commands():
    shown = call("--help")

    assert shown.returncode == 0
    assert "packaging/latprof run" in shown.stdout
    assert "packaging/latprof test" in shown.stdout
    assert not shown.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "latprof: no command given; see `packaging/latprof --help`\n"),
        (("rnu",), "latprof: no such command: rnu; see `packaging/latprof --help`\n"),
    ],
)
def test_wrong_usage_ends_with_2_and_one_line(arguments, said):
    ended = call(*arguments)

    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", said)


@pytest.mark.parametrize("command", ["run", "test", "install"])
def test_a_user_who_is_not_root_is_told_to_use_sudo(command):
    # Through standard input: nobody may not be able to read the checkout.
    with SCRIPT.open() as script:
        ended = subprocess.run(
            ["bash", "-s", command],
            stdin=script,
            cwd="/",
            user=NOBODY if os.geteuid() == 0 else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("latprof: must be root")
    assert ended.stderr.endswith("run it with sudo\n")


@needs_root
def test_another_distribution_gets_the_list_of_what_to_install(fedora_without_clang):
    ended = call("install", before=fedora_without_clang)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
    assert "`dnf install clang` and try again" in ended.stderr
