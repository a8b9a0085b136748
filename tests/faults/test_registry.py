"""What is noted of labs, and that nothing else is ever ended or removed."""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from latprof_agent import netns
from latprof_agent.errors import LabError
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec
from latprof_agent.lab.processes import ProcessId
from latprof_agent.lab.registry import (
    Cleaning,
    Registration,
    clean_dead_labs,
    namespaces_of,
)
from latprof_agent.probes.cgroup import cgroup2_mount

LATPROF = (sys.executable, "-m", "latprof_agent")
ID = "0123abcd"
DEADLINE_SECONDS = 60


@pytest.fixture
def registry(tmp_path):
    """Keep other runs' labs, and ours from them, apart."""
    folder = tmp_path / "registry"
    folder.mkdir(mode=0o700)
    yield folder


@pytest.fixture
def sleeper():
    """A process that is none of a lab's."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


@pytest.fixture
def make_group():
    """Make control groups that are none of latprof's, with a process each."""
    made = []

    def make(name):
        path = cgroup2_mount() / name
        path.mkdir()
        process = subprocess.Popen(["sleep", "1000"])
        (path / "cgroup.procs").write_text(f"{process.pid}")
        made.append((path, process))
        return path, process

    yield make
    for path, process in made:
        process.kill()
        process.wait()
        if path.exists():
            path.rmdir()


def entry_of(**changes):
    """A dead lab's entry, but for these changes."""
    entry = {
        "pid": 4000000,
        "start_ticks": 1,
        "namespaces": [{"name": n, "inode": None} for n in namespaces_of(ID)],
        "processes": [],
        "cgroup": None,
    }
    return json.dumps(entry | changes)


@pytest.fixture
def dead(registry):
    """Another dead lab, that is removed whatever stands beside it; its namespace."""
    lab_id = f"f{secrets.token_hex(4)[1:]}"
    name = namespaces_of(lab_id)[0]
    netns.create(name)
    (registry / f"{lab_id}.lab").write_text("")
    yield name
    if (netns.NETNS_DIRECTORY / name).exists():
        netns.remove(name)


def test_control_groups_of_others_are_left_alone(tmp_path, make_group):
    """Whatever their names; by a clean-up and by the start of a command."""
    names = f"latprof-{secrets.token_hex(4)}", f"latprof-{secrets.token_hex(4)}-mine"
    made = [make_group(name) for name in names]
    run = ("run", "--quiet", "--no-lab", f"--out={tmp_path / 'run'}", "--", "true")
    for words in (("lab", "clean"), run):
        done = subprocess.run([*LATPROF, *words], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        for path, process in made:
            assert path.is_dir()
            assert process.poll() is None


def broken(sleeper):
    """Texts that no Registration writes, of which some name what is not ours."""
    own = ProcessId.of(sleeper.pid)
    row = {"pid": own.pid, "start_ticks": own.start_ticks}
    names = [{"name": n, "inode": None} for n in namespaces_of(ID)]
    rooted = [{"name": "../../x", "inode": None}, *names[1:]]
    others = [{"name": f"latprof-89abcdef-{e}", "inode": None} for e in "abw"]
    return {
        "an empty object": "{}",
        "a list": "[]",
        "null": "null",
        "a number": "1",
        "no JSON": "{'a': ",
        "no text": b"\xff\xfe\0",
        "deep": "[" * 100_000,
        "a long number": "9" * 5000,
        "no namespaces": entry_of(namespaces=[]),
        "namespaces of no names": entry_of(namespaces=[1, 2, 3]),
        "a namespace that is a path": entry_of(namespaces=rooted),
        "another lab's namespaces": entry_of(namespaces=others),
        "an inode that is a text": entry_of(namespaces=[names[0] | {"inode": "1"}] * 3),
        "pid 1": entry_of(processes=[row, {"pid": 1, "start_ticks": 1}]),
        "pid 0": entry_of(processes=[row, {"pid": 0, "start_ticks": 1}]),
        "pid true": entry_of(processes=[row, {"pid": True, "start_ticks": 1}]),
        "a huge pid": entry_of(processes=[row, {"pid": 1 << 40, "start_ticks": 1}]),
        "a pid that is a text": entry_of(processes=[row | {"pid": f"{own.pid}"}]),
        "processes that are a text": entry_of(processes="abc"),
        "a group that is a path": entry_of(cgroup="/", processes=[row]),
        "a group above": entry_of(cgroup="..", processes=[row]),
        "another lab's group": entry_of(cgroup="latprof-89abcdef", processes=[row]),
        "a group that is a list": entry_of(cgroup=["latprof-0123abcd"]),
    }


def test_a_broken_entry_is_left_and_blocks_nothing(registry, dead, sleeper):
    entry = registry / f"{ID}.lab"
    for what, text in broken(sleeper).items():
        entry.write_bytes(text if isinstance(text, bytes) else text.encode())
        assert clean_dead_labs(registry).strange == [entry], what
        assert entry.exists(), what
        assert sleeper.poll() is None, what
    assert not (netns.NETNS_DIRECTORY / dead).exists()
    with Lab(LinkSpec(), registry=registry) as lab:
        assert lab.a_inode
    assert list(registry.glob("*.lab")) == [entry]


def test_a_file_that_is_no_entry_is_left_and_blocks_nothing(registry, dead, sleeper):
    target = registry / "target"
    target.write_text(entry_of())
    (registry / "0123abc0.lab").symlink_to(target)
    os.mkfifo(registry / "0123abc1.lab")
    (registry / "0123abc2.lab").mkdir()
    of_nobody = registry / "0123abc3.lab"
    of_nobody.write_text("")
    os.chown(of_nobody, 65534, 65534)
    (registry / "01234.lab").write_text(entry_of())
    strange = sorted(registry.glob("0*.lab"))

    assert len(strange) == 5
    assert clean_dead_labs(registry) == Cleaning([dead], [], strange)
    assert clean_dead_labs(registry) == Cleaning([], [], strange)


def test_lab_clean_says_what_it_leaves():
    """In a /run of its own, and goes on."""
    script = f"""
    mount -t tmpfs none /run && mkdir -m 700 /run/latprof /run/netns
    echo '{{}}' > /run/latprof/{ID}.lab; : > "/run/latprof/0123abce.lab"
    : > /run/netns/latprof-0123abce-a
    exec "$@"
    """
    words = ("unshare", "--mount", "sh", "-c", script, "sh", *LATPROF, "lab", "clean")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    entry = f"/run/latprof/{ID}.lab"
    left = f"latprof: left as it is: {entry}, it is no entry of latprof's\n"
    assert (done.returncode, done.stderr) == (0, left)
    assert done.stdout == "removed latprof-0123abce-a\n"


def make_symlink(folder):
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")


def make_foreign(folder):
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)


@pytest.mark.parametrize(
    "make",
    [
        make_symlink,
        make_foreign,
        lambda folder: folder.symlink_to("/nosuch"),
        lambda folder: folder.write_text(""),
        lambda folder: (folder.mkdir(), folder.chmod(0o755)),
        lambda folder: (folder.mkdir(), folder.chmod(0o770)),
    ],
    ids=["symlink", "nobody's", "dangling", "file", "readable", "group's"],
)
def test_a_folder_that_others_may_have_made_is_refused(tmp_path, make):
    folder = tmp_path / "registry"
    make(folder)
    for work in (clean_dead_labs, lambda folder: Registration(ID, folder)):
        with pytest.raises(LabError, match=f"cannot register a lab in {folder}: .*; "):
            work(folder)


def test_an_entry_stays_until_all_of_it_is_gone(registry):
    """Here a second mount keeps a name from being removed."""
    lab_id = secrets.token_hex(4)
    names = namespaces_of(lab_id)
    noted = []
    for name in names[:2]:
        noted.append({"name": name, "inode": netns.create(name)})
    noted.append({"name": names[2], "inode": None})
    dead = {"namespaces": noted, "processes": [], "cgroup": None}
    entry = registry / f"{lab_id}.lab"
    entry.write_text(json.dumps(dead))
    twice = netns.NETNS_DIRECTORY / names[0]
    subprocess.run(["mount", "--bind", twice, twice], check=True)

    done = clean_dead_labs(registry)
    assert done.removed == [names[1]]
    assert [why.partition(": ")[0] for why in done.kept] == [
        f"cannot remove network namespace {names[0]}"
    ]
    assert entry.exists()
    assert clean_dead_labs(registry) == Cleaning(removed=[names[0]])
    assert not entry.exists()
    assert not twice.exists()


HOLDER = """
import sys, signal
from pathlib import Path
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec
with Lab(LinkSpec(), registry=Path(sys.argv[1])) as lab:
    print(lab.a_netns, lab.b_netns, flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("propagation", ["private", "slave", "shared"])
def test_what_died_in_a_mount_namespace_of_its_own_is_removed(registry, propagation):
    """Also where that lives on: then its names are gone from it, too."""
    # the shell stays in it until its input ends
    words = ("unshare", "--mount", f"--propagation={propagation}")
    words += ("sh", "-c", '"$@" & cat', "sh", sys.executable, "-c", HOLDER, registry)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes) as shell:
        names = shell.stdout.readline().split()
        (entry,) = registry.glob("*.lab")
        owner = json.loads(entry.read_text())["pid"]
        died = os.pidfd_open(owner)
        signal.pidfd_send_signal(died, signal.SIGKILL)
        assert select.select([died], [], [], DEADLINE_SECONDS)[0]
        os.close(died)
        done = clean_dead_labs(registry)
        inner = Path(f"/proc/{shell.pid}/root/run/netns")
        there = [name for name in names if (inner / name).exists()]
        shell.communicate(timeout=DEADLINE_SECONDS)
    assert done == Cleaning(removed=names)
    assert there == []
    assert not any((netns.NETNS_DIRECTORY / name).exists() for name in names)
    assert not entry.exists()
