"""The set-up runs as root: nobody else's code does, and nothing but its own is written.

Each test gives packaging/latprof a small latprof to install on a machine whose
folders are replaced; what was run by mistake leaves a mark.
"""

import os
import shutil
import stat
import sys
from pathlib import Path

import pytest
from small_machine import seen_by

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

NOBODY = 65534
SYSTEM = ("/usr/sbin", "/usr/bin")
# What a program may import from the folder that it is started in.
MODULES = {*sys.stdlib_module_names, "sitecustomize", "usercustomize"}
MODULES |= {"pip", "setuptools", "mesonpy", "tiny_backend", "latprof_agent", "needed"}


@pytest.fixture
def marks(tmp_path):
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture
def hostile_modules(tmp_path, marks):
    """A folder of modules that leave a mark when they are imported."""
    folder = tmp_path / "modules"
    folder.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(marks / name)!r}, 'w')\n")
    return folder


@pytest.fixture
def hostile_programs(tmp_path, marks):
    """A folder with a program for each of the system's, which leaves a mark."""
    folder = tmp_path / "programs"
    folder.mkdir()
    names = {path.name for name in SYSTEM for path in Path(name).iterdir()}
    text = f"""#!/bin/sh
: >"{marks}/${{0##*/}}"
PATH={":".join(SYSTEM)} exec "${{0##*/}}" "$@"
"""
    (folder / "program").write_text(text)
    (folder / "program").chmod(0o755)
    for name in names:
        os.link(folder / "program", folder / name)
    return folder


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.thorough
def test_no_file_of_the_callers_folder_runs(machine, marks, hostile_modules):
    ended = machine.call("run", cwd=hostile_modules)

    assert names_in(marks) == []
    assert str(hostile_modules) not in seen_by(ended)["path"]


@pytest.mark.thorough
def test_no_program_of_the_callers_path_runs(machine, marks, hostile_programs):
    path = f"{hostile_programs}:{os.defpath}"

    ended = machine.call("run", variables={"PATH": path})

    assert names_in(marks) == []
    assert seen_by(ended)["environment"]["PATH"] == path


@pytest.mark.thorough
def test_no_variable_of_the_caller_says_what_runs(
    machine, marks, hostile_modules, tmp_path
):
    script = tmp_path / "sourced"
    script.write_text(f': >"{marks}/sourced"\n')
    tar = f"--checkpoint=1 --checkpoint-action=exec='touch {marks}/tar_options'"
    variables = {
        "BASH_ENV": str(script),
        "ENV": str(script),
        "BASH_FUNC_tar%%": f"() {{ touch {marks}/function; command tar $*; }}",
        "CDPATH": str(tmp_path),
        "PYTHONPATH": str(hostile_modules),
        "PYTHONSTARTUP": str(hostile_modules / "sitecustomize.py"),
        "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode"),
        "TAR_OPTIONS": tar,
        "TMPDIR": str(tmp_path / "absent"),
        "XDG_CONFIG_HOME": str(tmp_path),
    }

    ended = machine.call("run", variables=variables)

    assert names_in(marks) == []
    assert str(hostile_modules) not in seen_by(ended)["path"]
    assert not (tmp_path / "bytecode").exists()


@pytest.mark.thorough
def test_pip_is_configured_by_the_machine_alone(machine, tmp_path):
    home = tmp_path / "home"
    (home / ".config" / "pip").mkdir(parents=True)
    (home / ".config" / "pip" / "pip.conf").write_text(
        f"[global]\nno-index = true\ntarget = {tmp_path}/elsewhere\n"
    )
    shutil.copytree(home / ".config" / "pip", home / ".pip")
    variables = {
        "HOME": str(home),
        "PIP_CONFIG_FILE": str(home / ".pip" / "pip.conf"),
        "PIP_TARGET": str(tmp_path / "elsewhere"),
        "PIP_LOG": str(tmp_path / "pip.log"),
    }

    ended = machine.call("install", variables=variables)

    assert ended.returncode == 0, ended.stderr
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "pip.log").exists()


def test_the_program_gets_what_is_its_callers(installed, tmp_path):
    variables = {
        "HOME": "/nowhere",
        "PATH": "/usr/bin:/a/folder of mine",
        "MINE": "a\nb",
        "PIP_TARGET": "/nowhere",
    }
    with (tmp_path / "open").open("w") as file:
        ended = installed.call(
            "run",
            "--rounds",
            "a b",
            cwd=tmp_path,
            variables=variables,
            umask=0o027,
            pass_fds=[file.fileno()],
        )
        descriptors = {0, 1, 2, file.fileno()}

    seen = seen_by(ended)
    assert seen["arguments"] == ["--rounds", "a b"]
    assert variables.items() <= seen["environment"].items()
    assert seen["environment"].keys() <= {*variables, "PIP_INDEX_URL"} | {
        "PWD",  # of every bash
        "OLDPWD",
        "SHLVL",
        "_",
        "LC_CTYPE",  # of every Python without a locale
    }
    assert seen["folder"] == str(tmp_path)
    assert seen["umask"] == 0o027
    assert set(seen["descriptors"]) == descriptors


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_nobody_else_gets_at_the_lock(machine, tmp_path, kind):
    everybodys = machine.at("/run/lock")
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    (tmp_path / "of root").write_text("precious")
    if kind == "link":
        (everybodys / "latprof-setup").symlink_to(tmp_path / "of root")
    else:
        os.mkfifo(everybodys / "latprof-setup")

    ended = machine.call("uninstall", timeout=20)

    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "of root").read_text() == "precious"
    folder = machine.at("/run/latprof").stat()
    assert (folder.st_uid, stat.S_IMODE(folder.st_mode)) == (0, 0o700)


@pytest.mark.parametrize("folder", ["/run/latprof", "/opt/latprof"])
@pytest.mark.parametrize("whose", ["nobody's", "everybody's"])
def test_a_folder_that_others_can_write_to_is_not_used(machine, folder, whose):
    machine.at(folder).mkdir()
    if whose == "nobody's":
        os.chown(machine.at(folder), NOBODY, NOBODY)
    else:
        machine.at(folder).chmod(0o777)

    ended = machine.call("install")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        f"latprof: cannot use {folder}: it is not a folder that only root can write"
        " to; move it away\n"
    )
    assert names_in(machine.at(folder)) == []


def test_the_log_is_a_file_of_its_own(installed, tmp_path):
    (tmp_path / "of root").write_text("precious")
    log = installed.at("/var/log/latprof-setup.log")
    log.unlink()
    log.symlink_to(tmp_path / "of root")
    installed.publish_needed("2.0")

    ended = installed.call("install")

    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "of root").read_text() == "precious"
    assert not log.is_symlink()
    assert "== building latprof" in log.read_text()


@pytest.mark.thorough
def test_nothing_is_left_in_the_checkout(installed):
    def owners():
        return {path: path.stat().st_uid for path in installed.checkout.rglob("*")}

    installed.publish_needed("2.0")
    for path in installed.checkout.rglob("*"):
        os.chown(path, NOBODY, NOBODY)
    before = owners()

    ended = installed.call("install")

    assert ended.returncode == 0, ended.stderr
    assert owners() == before
