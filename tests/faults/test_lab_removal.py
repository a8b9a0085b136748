"""Nothing of a lab is left, however its process ends; and nothing else is touched."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from latprof_agent import netns
from latprof_agent.errors import LatprofError
from latprof_agent.lab.lab import Lab, clean_dead_labs, enter_netns
from latprof_agent.lab.link import LinkSpec
from latprof_agent.lab.registry import Cleaning, namespaces_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")

DEADLINE_S = 20

LINKS = {"veth": LinkSpec(), "emulator": LinkSpec(delay_ns=1000, emulator="always")}

HOLDER = """
import sys
from pathlib import Path
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec
delay_ns = int(sys.argv[2])
hosts = int(sys.argv[3]) if sys.argv[3:] else 2
with Lab(LinkSpec(delay_ns=delay_ns, emulator="always" if delay_ns else "auto"),
         hosts=hosts, registry=Path(sys.argv[1])) as lab:
    stays = ("import ctypes, signal; ctypes.CDLL(None).prctl(1, 0);"
             "print(flush=True); signal.pause()")
    child = lab.start(lab.hosts[0], [sys.executable, "-c", stays], stdout=-1, stderr=-3)
    child.stdout.readline()
    print(lab.a_netns, lab.b_netns, child.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def registry(tmp_path):
    """Keep other runs' labs, and ours from them, apart."""
    yield tmp_path / "registry"
    clean_dead_labs(tmp_path / "registry")


@pytest.fixture
def foreign():
    """A namespace that looks like a lab's and is not."""
    name = f"latprof-{os.urandom(4).hex()}-a"
    netns.create(name)
    yield name
    netns.remove(name)


def exists(name):
    return (netns.NETNS_DIRECTORY / name).exists()


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(holds):
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        os.sched_yield()


def hold_lab(registry, delay_ns=0):
    """A process with a lab and a child in it that ignores its parent's end."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(registry), str(delay_ns)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    a, b, child = process.stdout.readline().split()
    return process, [a, b], int(child)


@pytest.mark.parametrize("delay_ns", [0, 1000], ids=["veth", "emulator"])
def test_of_many_hosts_nothing_is_left_by_the_next_lab(registry, delay_ns):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(registry), str(delay_ns), "7"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    name, child = process.stdout.readline().split()[::2]
    prefix = name.rpartition("-")[0]
    left = lambda: list(netns.NETNS_DIRECTORY.glob(f"{prefix}-*"))  # noqa: E731
    assert len(left()) == 8  # seven, and the middle
    process.kill()
    process.communicate(timeout=DEADLINE_S)
    assert len(left()) == 8
    with Lab(LinkSpec(), registry=registry) as lab:
        # beside the child an emulator may not have seen its parent's end yet
        assert len([name for name in lab.removed if name.startswith(prefix)]) == 8
        assert not left()
        assert not is_running(int(child))


def link_pids(namespaces):
    """The emulators that join these namespaces."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"--a-netns={namespaces[0]}".encode() in words:
            pids.append(int(path.parent.name))
    return pids


@pytest.mark.parametrize("name", ["veth", "emulator"])
def test_nothing_is_left_after_the_block_or_an_exception(registry, foreign, name):
    for fails in (False, True):
        try:
            with Lab(LINKS[name], registry=registry) as lab:
                sleeper = lab.start("a", ["sleep", "1000"])
                pids = [sleeper.pid, *link_pids([lab.a_netns])]
                if fails:
                    raise LatprofError("in the block")
        except LatprofError:
            assert fails
        assert not exists(lab.a_netns)
        assert not exists(lab.b_netns)
        assert not any(is_running(pid) for pid in pids)
        assert list(registry.glob("*.lab")) == []
    assert exists(foreign)


@pytest.mark.parametrize("delay_ns", [0, 1000], ids=["veth", "emulator"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_after_a_signal(registry, number, delay_ns):
    process, namespaces, child = hold_lab(registry, delay_ns)
    pids = [child, *link_pids(namespaces)]
    assert len(pids) == (2 if delay_ns else 1)
    process.send_signal(number)
    process.communicate(timeout=DEADLINE_S)
    assert not any(exists(name) for name in namespaces)
    assert not any(is_running(pid) for pid in pids)
    assert list(registry.glob("*.lab")) == []


@pytest.mark.parametrize("hosts", [2, 20])
@pytest.mark.parametrize("tenths", range(10))
def test_nothing_is_left_after_ctrl_c_while_it_is_built(registry, tenths, hosts):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(registry), "1000", str(hosts)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # From the moment at which the lab's file is there, at ten points of the build.
    wait_until(lambda: list(registry.glob("*.lab")))
    stop_ns = time.monotonic_ns() + tenths * hosts * 5_000_000
    wait_until(lambda: time.monotonic_ns() >= stop_ns)
    names = [
        name
        for path in registry.glob("*.lab")
        for name in namespaces_of(path.stem, hosts)
    ]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)
    assert not any(exists(name) for name in names)
    assert list(registry.glob("*.lab")) == []
    assert link_pids(names or [""]) == []


@pytest.mark.parametrize("delay_ns", [0, 1000], ids=["veth", "emulator"])
def test_the_next_lab_removes_what_a_killed_one_left(registry, foreign, delay_ns):
    process, namespaces, child = hold_lab(registry, delay_ns)
    stranger = subprocess.Popen(
        ["sleep", "1000"],
        preexec_fn=enter_netns(namespaces[0]),  # noqa: PLW1509
    )
    try:
        emulators = link_pids(namespaces)
        process.kill()
        process.communicate(timeout=DEADLINE_S)
        assert all(exists(name) for name in namespaces)
        wait_until(lambda: not any(is_running(pid) for pid in emulators))
        assert is_running(child)
        with Lab(LinkSpec(), registry=registry) as lab:
            assert lab.removed == [f"process {child}", *namespaces]
            assert not any(exists(name) for name in namespaces)
            assert not is_running(child)
            assert is_running(stranger.pid)
            assert exists(foreign)
        assert list(registry.glob("*.lab")) == []
    finally:
        stranger.kill()
        stranger.wait()


def test_cleaning_leaves_labs_that_live_and_what_is_not_a_lab(registry, foreign):
    process, namespaces, _ = hold_lab(registry)
    with Lab(LinkSpec(), registry=registry) as lab:
        assert clean_dead_labs(registry) == Cleaning()
        assert exists(lab.a_netns)
        assert all(exists(name) for name in namespaces)
    process.kill()
    process.communicate(timeout=DEADLINE_S)
    (registry / "notes.lab").write_text(foreign)
    strange = [registry / "notes.lab"]
    done = clean_dead_labs(registry)
    assert set(done.removed) >= set(namespaces)
    assert done.strange == strange
    assert clean_dead_labs(registry) == Cleaning(strange=strange)
    assert exists(foreign)
    assert (registry / "notes.lab").exists()


def test_a_name_that_became_another_namespace_is_left_alone(registry, foreign):
    lab_id = foreign.split("-")[1]
    names = namespaces_of(lab_id)
    another = netns.inode(foreign) + 1
    dead = {
        "namespaces": [{"name": name, "inode": another} for name in names],
        "processes": [{"pid": os.getpid(), "start_ticks": 1}],
        "cgroup": None,
    }
    registry.mkdir(mode=0o700)
    entry = registry / f"{lab_id}.lab"
    entry.write_text(json.dumps(dead))
    assert clean_dead_labs(registry) == Cleaning()
    assert exists(foreign)
    assert not entry.exists()


def test_a_lab_that_died_before_its_first_note_is_known_by_its_name(registry, foreign):
    registry.mkdir(mode=0o700)
    (registry / f"{foreign.split('-')[1]}.lab").write_text("")
    assert clean_dead_labs(registry) == Cleaning(removed=[foreign])
    netns.create(foreign)  # for the fixture to remove


def test_many_labs_at_once_do_not_disturb_each_other(registry):
    held = [hold_lab(registry, delay_ns) for delay_ns in (0, 1000, 0, 1000)]
    names = [name for _, namespaces, _ in held for name in namespaces]
    assert len(set(names)) == 8
    assert all(exists(name) for name in names)
    for process, _, _ in held:
        process.communicate(timeout=DEADLINE_S)  # its input ends, and so does it
        assert process.returncode == 0
    assert not any(exists(name) for name in names)


def test_too_many_namespaces_are_one_line_and_leave_nothing(registry):
    """Here five are allowed, which is the kernel's limit of a user namespace."""
    script = """
    mount -t tmpfs none /run && mkdir /run/netns
    echo 5 > /proc/sys/user/max_net_namespaces
    exec "$@"
    """
    build = (
        "import sys; from pathlib import Path\n"
        "from latprof_agent.lab.lab import Lab\n"
        "from latprof_agent.lab.link import LinkSpec\n"
        "from latprof_agent.errors import LatprofError\n"
        "try:\n"
        "    Lab(LinkSpec(), hosts=9, registry=Path(sys.argv[1])).__enter__()\n"
        "except LatprofError as error: print(error)\n"
        "print(*Path('/run/netns').iterdir(), *Path(sys.argv[1]).glob('*.lab'))"
    )
    words = ("unshare", "--user", "--map-root-user", "--mount", "--net")
    words += ("sh", "-c", script, "sh", sys.executable, "-c", build, str(registry))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    line, left = done.stdout.splitlines()
    assert done.stderr == ""
    assert line.startswith("cannot create network namespace latprof-")
    assert "No space left on device" in line
    assert "max_net_namespaces" in line
    assert left == ""
