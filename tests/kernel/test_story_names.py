"""Names of functions in stories: those of their files and JITs, or none at all.

Addresses are those that a program says of itself, and names are checked with nm.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from latprof_agent.symbols import files, files_helper
from latprof_agent.symbols.images import Image
from latprof_agent.symbols.symbol_tables import (
    INDIRECT,
    LIBRARY,
    call_before,
    has_frame,
)
from latprof_agent.symbols.symbols import Symbols
from latprof_process import run
from named_functions import (
    SOURCE,
    compiled_in,
    image_of,
    jit_map,
    name_of,
    names_of,
    running,
    sample_of,
)

NOBODY = 65534


def test_what_names_functions_is_installed():
    ctypes.CDLL(LIBRARY)  # python3-bpfcc brings it


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled_in(tmp_path_factory.mktemp("named"))


def nm(program):
    """What nm says of each function: its offset in the file."""
    words = subprocess.check_output(["nm", program], text=True).splitlines()
    return {
        line.split()[-1]: int(line.split()[0], 16) for line in words if line[0] == "0"
    }


def noted_while_running(process, address):
    """Symbols that know of an address of a process that has ended since."""
    found, sample = Symbols(), sample_of(process.pid, address)
    found.note(sample, {process.pid})
    process.kill()
    process.wait()
    return found, sample


def told(found, sample):
    found.finish()
    return found.stack(sample[0])[-1]


@contextmanager
def forked():
    """A child of this process, which runs no other program."""
    child = os.fork()
    if not child:
        signal.pause()
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_names_of_a_child_that_has_ended_are_those_of_who_forked_it():
    address = ctypes.cast(ctypes.CDLL(None).getppid, ctypes.c_void_p).value
    with forked() as child:
        sample = sample_of(child, address)
    found, of_another = Symbols(), sample.copy()
    of_another["image"] += 1  # it had run another program
    found.note(np.concatenate([sample, of_another]), {child})
    assert "getppid" in told(found, sample)
    assert told(found, of_another) == "?"


def test_a_function_that_was_seen_before_its_process_ended_has_its_name_later(program):
    with running(program) as (process, at):
        seen, address = Symbols(), at["push"]
        seen.note(sample_of(process.pid, address), {process.pid})
        seen.finish()
        # taken before its end, looked at behind it
        later = sample_of(process.pid, address + 1)
        elsewhere = sample_of(process.pid, at["main"])
    process.wait()
    for sample in (later, elsewhere):
        seen.note(sample, {process.pid})
    assert told(seen, later) == "app::queue::push(int)"
    # nothing is known of that function, but where it is
    offset = nm(program)["main"]
    assert told(seen, elsewhere) == f"{program.name}+{offset:#x}"


def test_names_are_those_of_the_file_when_the_process_has_ended(program):
    assert nm(program)["main"] == nm(program)["_ZN3app5queue4pushEi"] + (
        _distance(program)
    )
    with running(program) as (process, at):
        found, sample = noted_while_running(process, at["main"] + 3)
    assert told(found, sample) == "main"


def _distance(program):
    with running(program) as (_, at):
        return at["main"] - at["push"]


def test_a_file_names_what_comes_while_it_is_open(program):
    found = files.Files()
    with running(program) as (process, at):
        image = image_of(process.pid)
        for one, name in (("main", "main"), ("push", "app::queue::push(int)")):
            ((_, place),) = found.look(process.pid, {image: [at[one]]})[image]
            until = time.monotonic() + files.NAME_SECONDS
            named = found.name(place.source, [place.at], until)
            assert named[place.at].name == name
    found.finish()


def test_a_file_that_a_look_may_want_is_not_closed(program, monkeypatch):
    """Names of what came before are found meanwhile."""
    found = Symbols()
    look = found._files.look

    def look_and_name(*asked):
        places = look(*asked)
        found.look_up()
        return places

    with running(program) as (process, at):
        found.note(sample_of(process.pid, at["main"]), {process.pid})
        monkeypatch.setattr(found._files, "look", look_and_name)
        later = sample_of(process.pid, at["push"])
        found.note(later, {process.pid})
    assert told(found, later) == "app::queue::push(int)"


def test_names_of_cpp_and_rust_are_as_their_languages_write_them(program):
    with running(program) as (process, at):
        wanted = [sample_of(process.pid, at[one]) for one in ("push", "rust_read")]
        assert names_of(*wanted) == [("app::queue::push(int)",), ("app::read",)]


def test_a_file_that_was_deleted_is_read_all_the_same(program, tmp_path):
    copy = Path(shutil.copy(program, tmp_path / "gone"))
    with running(copy) as (process, at):
        copy.unlink()
        # another of the same name is not it
        shutil.copy("/bin/true", copy)
        assert name_of(sample_of(process.pid, at["main"])) == "main"


def test_without_a_symbol_file_and_offset_are_told(program, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run(["strip", "-o", bare, program], check=True)
    with running(bare) as (process, at):
        shown = name_of(sample_of(process.pid, at["main"]))
    assert shown == f"bare+{nm(program)['main']:#x}"


def test_behind_a_functions_end_it_is_not_named(program):
    """Between two functions there is room that belongs to neither."""
    end = subprocess.check_output(["nm", "-S", program], text=True)
    size = next(int(w[1], 16) for w in map(str.split, end.splitlines()) if "main" in w)
    with running(program) as (process, at):
        inside = sample_of(process.pid, at["main"] + size - 1)
        behind = sample_of(process.pid, at["main"] + size)
        assert name_of(inside) == "main"
        assert name_of(behind) != "main"


def test_a_stack_of_what_a_process_ran_before_has_no_name(program):
    """A program before its exec, or another process of the same number."""
    with running(program) as (process, at):
        before = sample_of(process.pid, at["main"], image=image_of(os.getpid()))
        assert name_of(before) == "?"


def test_who_may_not_see_the_image_knows_it_by_where_the_stack_is(program, monkeypatch):
    monkeypatch.setattr(Image, "_start_stack", lambda _: 0)
    with running(program) as (process, _):
        image = Image(process.pid)
        assert image.is_of(image_of(process.pid))
        assert not image.is_of(image_of(os.getpid()))


def test_a_name_is_kept_with_the_program_that_ran_then(program):
    """The same process, the same address, and two programs."""
    with running(program, "again") as (process, at):
        found = Symbols()
        now = sample_of(process.pid, at["main"])
        found.note(now, {process.pid})
        found.finish()
        later = now.copy()
        later["t_ns"] = time.monotonic_ns()  # of which nothing was noted
        other = now.copy()
        other["image"] += 1
        told = [found.stack(one[0]) for one in (now, later, other)]
    assert told == [("main",), ("?",), ("?",)]


def test_code_of_a_jit_is_named_by_its_map_and_the_first_that_fits(program):
    with running(program) as (process, at):
        lines = f"{at['made']:x} 40 fast\n{at['made'] + 0x40:x} 40 old\n"
        lines += f"{at['made'] + 0x40:x} 40 new\nnonsense\n{at['made']:x}\n"
        with jit_map(process.pid, lines):
            samples = [sample_of(process.pid, at["made"] + n) for n in (3, 0x42, 0x90)]
            shown = [stack[-1] for stack in names_of(*samples)]
    # of the second there are two names, of the third none
    assert shown[0] == "fast"
    assert shown[1:] == [f"[JIT]+{at['made'] + n:#x}" for n in (0x42, 0x90)]


@pytest.mark.parametrize(
    ("mode", "user"), [(0o666, None), (0o664, None), (0o644, NOBODY)]
)
def test_a_map_that_another_user_could_have_written_names_nothing(program, mode, user):
    with running(program) as (process, at):
        lines = f"{at['made']:x} 1000 innocent\n"
        with jit_map(process.pid, lines, mode, user):
            assert name_of(sample_of(process.pid, at["made"])).startswith("[JIT]+")
        # its own user's is taken
        with jit_map(process.pid, lines):
            assert name_of(sample_of(process.pid, at["made"])) == "innocent"


def test_a_link_is_not_followed_to_a_map(program, tmp_path):
    with running(program) as (process, at):
        real = tmp_path / "map"
        real.write_text(f"{at['made']:x} 1000 innocent\n")
        link = Path(f"/tmp/perf-{process.pid}.map")
        link.symlink_to(real)
        try:
            assert name_of(sample_of(process.pid, at["made"])).startswith("[JIT]+")
        finally:
            link.unlink()


def test_a_map_names_no_code_of_files(program, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run(["strip", "-o", bare, program], check=True)
    with (
        running(bare) as (process, at),
        jit_map(process.pid, "0 ffffffffffffffff innocent\n"),
    ):
        assert name_of(sample_of(process.pid, at["main"])).startswith("bare+")


def test_frames_above_are_told_where_code_calls_the_one_below(program):
    with running(program) as (process, at):
        behind = at["rust_read"] + _behind_call(program, READ, PUSH)
        in_main = at["main"] + _behind_call(program, "main", READ)
        stacks = [
            # push, called by rust_read, called by what has no call there
            sample_of(process.pid, at["push"], behind, at["main"]),
            # rust_read calls push, so that main was not called by it
            sample_of(process.pid, at["main"], behind),
            # it has no frame, so who called it is not known, but for what had one:
            # what main calls there
            sample_of(process.pid, at["puts"], in_main),
            # a jump of the program's own code
            sample_of(process.pid, at["made"] + 64, at["made"] + 21),
        ]
        lines = f"{at['made']:x} 40 outer\n{at['made'] + 64:x} 40 inner\n"
        with jit_map(process.pid, lines):
            assert names_of(*stacks) == [
                ("...", "app::read", "app::queue::push(int)"),
                ("...", "main"),
                ("main", "app::read", "...", "puts"),
                ("outer", "inner"),
            ]


PUSH, READ = "_ZN3app5queue4pushEi", "_ZN3app4read17h0123456789abcdefE"


def _behind_call(program, function, target):
    """Behind which byte of a function its call is, by objdump."""
    command = ["objdump", "-d", "--no-show-raw-insn", program]
    lines = subprocess.check_output(command, text=True).splitlines()
    begin = nm(program)[function]
    at = next(i for i, line in enumerate(lines) if "call" in line and target in line)
    return int(lines[at + 1].split(":")[0], 16) - begin


@pytest.mark.parametrize(
    ("code", "goes"),
    [
        ("90 90 e8 10 00 00 00", 0x1010),
        ("90 90 e8 f0 ff ff ff", 0x0FF0),
        ("90 90 90 90 90 ff d0", INDIRECT),  # call *%rax
        ("90 90 90 90 41 ff d2", INDIRECT),  # call *%r10
        ("90 90 90 90 ff 50 18", INDIRECT),  # call *0x18(%rax)
        ("90 90 90 ff 54 24 08", INDIRECT),  # call *8(%rsp)
        ("90 ff 15 00 10 00 00", INDIRECT),  # call *0x1000(%rip)
        ("ff 14 c5 00 10 00 00", INDIRECT),  # call *0x1000(,%rax,8)
        ("90 90 90 90 90 ff e0", None),  # jmp *%rax
        ("90 90 90 90 90 90 90", None),
        ("ff d0", None),  # too short to tell
    ],
)
def test_calls_are_known_by_their_code(code, goes):
    assert call_before(bytes.fromhex(code), 0x1000) == goes


PROLOGUE = "55 48 89 e5"  # push %rbp; mov %rsp,%rbp


@pytest.mark.parametrize(
    ("code", "done", "stands"),
    [
        (f"{PROLOGUE} 90 90", 4, True),
        (f"f3 0f 1e fa {PROLOGUE} 90", 8, True),  # endbr64
        ("55 31 c0 48 89 e5 90", 6, True),  # xor %eax,%eax
        (f"{PROLOGUE} 90", 1, False),  # not yet
        (f"f3 0f 1e fa {PROLOGUE}", 4, False),
        (f"{PROLOGUE} 5d c3", 5, False),  # not any more
        ("48 83 ec 08 90 90 90", 6, False),  # sub $8,%rsp
        ("55 53 90 90 90 90", 5, False),  # push %rbx: %rbp is but kept
    ],
)
def test_a_frame_stands_once_its_prologue_is_done(code, done, stands):
    assert has_frame(bytes.fromhex(code), done) == stands


def broken(program, path, how):
    """A program with a file that breaks what reads it."""
    data = bytearray(program.read_bytes())
    sections, size, count = *struct.unpack_from("<Q", data, 40), 64, data[60]
    for i in range(count):
        at = sections + i * size
        if struct.unpack_from("<I", data, at + 4)[0] in (2, 11):  # symbol tables
            if how == "entries of no size":
                struct.pack_into("<Q", data, at + 56, 0)
            elif how == "beyond the end":
                struct.pack_into("<QQ", data, at + 24, 1 << 40, 1 << 50)
            elif how == "other text":
                struct.pack_into("<I", data, at + 40, 0xFFFFFF)
    path.write_bytes(data)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("how", ["entries of no size", "beyond the end", "other text"])
def test_a_file_that_breaks_what_reads_it_costs_its_own_names_only(
    program, tmp_path, how
):
    hostile = broken(program, tmp_path / "hostile", how)
    began = time.monotonic()
    with running(hostile) as (process, at), running(program) as (other, its):
        stacks = names_of(
            sample_of(process.pid, at["main"]),
            sample_of(other.pid, its["main"]),
            sample_of(other.pid, its["puts"]),
        )
    assert time.monotonic() - began < 6  # twice what one file may take
    assert stacks[0][-1].startswith("hostile+")
    assert stacks[1][-1] == "main"
    assert "puts" in stacks[2][-1]


@pytest.mark.parametrize(
    "words",
    ["import time; time.sleep(99)", "print('{'); print(1)", "import os; os.abort()"],
)
def test_a_helper_that_hangs_or_breaks_ends_and_nothing_is_named(
    program, tmp_path, monkeypatch, words
):
    script = tmp_path / "helper.py"
    script.write_text(words)
    monkeypatch.setattr(files_helper, "__file__", str(script))
    monkeypatch.setattr(files, "LOOK_SECONDS", 0.3)
    with running(program) as (process, at):
        found, sample = noted_while_running(process, at["main"])
        began = time.monotonic()
        assert told(found, sample) == "?"
    assert time.monotonic() - began < 6


def test_what_only_its_user_may_read_is_named_by_a_helper_without_rights(
    program, tmp_path
):
    secret = Path(shutil.copy(program, tmp_path / "secret"))
    secret.chmod(0o700)
    with running(secret) as (process, at):
        assert name_of(sample_of(process.pid, at["main"])) == "main"


def test_in_another_root_its_own_files_and_maps_name(program, tmp_path):
    """As in a container: its paths lead elsewhere here."""
    root = tmp_path / "root"
    for folder in ("bin", "tmp", "proc"):
        (root / folder).mkdir(parents=True)
    inner = root / "bin" / "inner"
    command = ["gcc", "-O1", "-static", "-fno-omit-frame-pointer", SOURCE, "-o", inner]
    subprocess.run(command, check=True)
    outside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "chroot", root]
    with running(*outside, "/bin/inner") as (process, at):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        pid = int(children.read_text().split()[0])
        (root / "tmp" / "perf-1.map").write_text(f"{at['made']:x} 40 within\n")
        (root / "tmp" / "perf-1.map").chmod(0o644)
        with jit_map(pid, f"{at['made']:x} 40 outside\n"):
            stacks = names_of(
                sample_of(pid, at["main"]),
                sample_of(pid, at["made"]),
                sample_of(pid, at["push"]),
            )
    assert [stack[-1] for stack in stacks] == [
        "main",
        "within",
        "app::queue::push(int)",
    ]


PYTHON_SERVER = """
import socket, sys, time

def count_the_stars(until):
    while time.monotonic() < until:
        sum(i * i for i in range(1000))

served = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
served.bind(("127.0.0.1", 0))
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(20):
    for _ in range(2):
        asking.sendto(b"x" * 64, served.getsockname())
    count_the_stars(time.monotonic() + 0.03)
    for _ in range(2):
        served.recv(64)
"""


def test_of_an_interpreter_its_own_functions_are_told(tmp_path):
    """Python before 3.12 has no map of what it runs; what nm knows is all."""
    out = tmp_path / "run"
    words = ("run", "--quiet", "--no-lab", "--user=root", "--story=10ms")
    latprof = run(*words, f"--out={out}", "--", sys.executable, "-c", PYTHON_SERVER)
    assert latprof.process.returncode == 0, latprof.err
    document = json.loads((out / "stories.json").read_text())
    stacks = [
        stack
        for story in document["stories"]
        for part in story["stages"]["receive_queue"]["parts"]
        for stack in part["stacks"]
    ]
    own = {
        name
        for stack in stacks
        for name in stack["frames"]
        if name.startswith(("Py", "_Py"))  # libc may have a debug file
    }
    assert "_PyEval_EvalFrameDefault" in own
    libraries = subprocess.check_output(["ldd", sys.executable], text=True).split()
    files = [sys.executable, *(word for word in libraries if word.startswith("/"))]
    command = ["nm", "--dynamic", "--defined-only", "--format=posix", *files]
    listed = subprocess.check_output(command, text=True).splitlines()
    known = {line.split()[0].partition("@")[0] for line in listed if line}
    assert own <= known
