"""Stories of slow messages whose cause is known: a program's own, or another one's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from free_ports import free_port
from latprof_analysis.read.stories import took_ns as took_of
from latprof_process import Latprof, run
from other_load import other_load
from told_stories import check_parts, first_parts, of_messages, told_of

pytestmark = pytest.mark.timed

MS = 1_000_000
SLOW_MS, EVERY, TIMES = 20, 3, 20
SOURCE = Path(__file__).with_name("slow_reader.c")
LAST_CPU = max(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The reader, and the same as somebody else's program."""
    folder = tmp_path_factory.mktemp("programs")
    reader = folder / "slow_reader"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer"]
    command = ["gcc", *flags, SOURCE, "-o", reader, "-lpthread"]
    subprocess.run(command, check=True)
    shutil.copy(reader, folder / "backup")
    subprocess.run(["strip", "-o", folder / "stripped", reader], check=True)
    return folder


def slow_reader(programs, how, name="slow_reader"):
    return programs / name, how, EVERY * TIMES, EVERY, SLOW_MS


@pytest.mark.parametrize("beside", [nullcontext, other_load], ids=["alone", "beside"])
@pytest.mark.parametrize(
    ("how", "kind", "what"),
    [
        ("busy", "busy", "count_the_stars"),
        ("lock", "asleep", "for a lock (mutex)"),
        ("sleep", "asleep", "on a timer (clock_nanosleep)"),
        ("page", "asleep", "for a page (page fault; handle_userfault)"),
        ("crowd", "asleep", "for a lock (mutex)"),
        ("stop", "asleep", "stopped (by a signal, a tracer or a freezer)"),
    ],
)
def test_a_reader_that_is_slow_for_one_reason_is_told_by_it(
    programs, tmp_path, how, kind, what, beside
):
    with beside():
        document, out = told_of(tmp_path / "run", *slow_reader(programs, how))
    parts = first_parts(document)
    right = [p for p in parts if p["kind"] == kind and p["what"].startswith(what)]
    assert len(right) >= TIMES - 1, parts
    # as the reader has it: its own times are what was told, but for its way to recv()
    lines = [line.split() for line in out.splitlines() if line[:1].isdecimal()]
    own_ns = np.array(lines, "i8")
    assert own_ns.shape == (TIMES, 2)
    took_ns = np.median(own_ns[:, 1] - own_ns[:, 0])
    assert np.median([p["time_ns"] for p in right]) <= took_ns + MS
    assert np.median([p["time_ns"] for p in right]) > 0.9 * SLOW_MS * MS


def test_of_a_program_without_symbols_file_and_offset_are_told(programs, tmp_path):
    document, _ = told_of(tmp_path / "run", *slow_reader(programs, "busy", "stripped"))
    right = [p for p in first_parts(document) if p["kind"] == "busy"]
    assert len(right) >= TIMES - 1
    assert {p["what"].partition("+")[0] for p in right} == {"stripped"}


@pytest.fixture
def debug_file(programs):
    """Symbols of the reader where packages of a distribution put them."""
    words = ["readelf", "--notes", programs / "stripped"]
    notes = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
    (build_id,) = re.findall(r"Build ID: ([0-9a-f]+)", notes)
    folder = Path("/usr/lib/debug/.build-id", build_id[:2])
    made = [f for f in (folder, *folder.parents) if not f.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{build_id[2:]}.debug"
    words = ["objcopy", "--only-keep-debug", programs / "slow_reader", file]
    try:
        subprocess.run(words, check=True)
        yield
    finally:
        file.unlink(missing_ok=True)
        for one in made:  # unless somebody else has put something there
            with suppress(OSError):
                one.rmdir()


@pytest.mark.usefixtures("debug_file")
def test_of_a_stripped_program_a_debug_file_has_the_names(programs, tmp_path):
    document, _ = told_of(tmp_path / "run", *slow_reader(programs, "busy", "stripped"))
    right = [p for p in first_parts(document) if p["kind"] == "busy"]
    assert len(right) >= TIMES - 1
    assert {p["what"] for p in right} == {"count_the_stars"}


@contextmanager
def hog(programs):
    """A program of higher priority that takes a CPU now and then."""
    first = ["chrt", "-f", "50", "taskset", "-c", str(LAST_CPU)]
    words = ["hog", str(SLOW_MS), str(3 * SLOW_MS)]
    with subprocess.Popen([*first, programs / "backup", *words]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_who_had_the_cpu_is_named(programs, tmp_path):
    command = [*slow_reader(programs, "none")]
    command[-3] = 600  # messages, each 2 ms
    with hog(programs) as process:
        document, _ = told_of(tmp_path / "run", *command, limit="5ms")
    parts = first_parts(document)
    waits = [p for p in parts if p["kind"] == "waiting"]
    assert len(waits) >= 0.95 * len(parts)
    assert len(parts) >= TIMES
    culprits = [p["who"][0] for p in waits]
    named = [one for one in culprits if one["pid"] == process.pid]
    assert len(named) >= 0.95 * len(waits), culprits
    assert {one["comm"] for one in named} == {"backup"}


def test_who_had_the_cpu_before_a_send_call_is_named(programs, tmp_path):
    """As the generator's log tells: a message was due, and its sender had no CPU."""
    out = tmp_path / "run"
    load = ("--interval=1ms", "--duration=4s", "--sizes=64", "--quiet")
    with hog(programs) as process:
        pinned = ("taskset", "-c", str(LAST_CPU))
        latprof = run("run", *load, "--story=10ms", f"--out={out}", before=pinned)
    assert latprof.process.returncode == 0, latprof.err
    stories = json.loads((out / "stories.json").read_text())["stories"]
    parts = [
        story["stages"]["application"]["parts"][0]
        for story in stories
        if 2 * story["stages"]["application"]["time_ns"]
        > story["message"]["end_to_end_ns"]
    ]
    assert len(parts) >= TIMES
    right = [
        p for p in parts if p["kind"] == "waiting" and p["who"][0]["pid"] == process.pid
    ]
    assert len(right) >= 0.95 * len(parts), parts


def test_without_a_time_what_is_above_the_running_p999_is_told(programs, tmp_path):
    out = tmp_path / "run"
    load = ("--rate=0", "--delay=0", "--protocol=tcp", "--sizes=64", "--duration=5s")
    with hog(programs) as process:
        pinned = ("taskset", "-c", str(LAST_CPU))
        words = ("run", *load, "--quiet", "--story", f"--out={out}")
        latprof = run(*words, before=pinned)
    assert latprof.process.returncode == 0, latprof.err
    document = json.loads((out / "stories.json").read_text())
    check_parts(document["stories"])
    assert document["quantile"] == 0.999
    rows = pd.read_csv(out / "messages.csv")
    took_ns = rows.loc[rows["kind"] != "warmup", "end_to_end_ns"].dropna()
    # a bucket of the histogram is 1/128 of an octave wide; the limit follows in steps
    p999_ns = max(took_ns.quantile(0.999), 100_000)
    assert document["limit_ns"] == pytest.approx(p999_ns, rel=0.03)
    # no message is slow because others came later, nor not slow since they had
    assert 0 < document["slow_messages"] <= 0.01 * len(took_ns)
    (slowest_ns, *_) = took_ns.sort_values(ascending=False)
    stories = of_messages(document)
    assert took_of(stories[0]) == slowest_ns
    slow = [s for s in stories if took_of(s) > 0.5 * SLOW_MS * MS]
    parts = first_parts({"stories": slow})
    assert len(parts) >= TIMES
    named = [p for p in parts if p["who"] and p["who"][0]["pid"] == process.pid]
    assert len(named) >= 0.95 * len(parts), parts


def test_without_a_culprit_there_is_no_cause(programs, tmp_path):
    out = tmp_path / "run"
    document, _ = told_of(out, *slow_reader(programs, "none"))
    assert len(pd.read_csv(out / "messages.csv")) >= EVERY * TIMES
    # of a machine that is busy itself the CPU's other tasks may be told, no more
    assert all(part["kind"] == "waiting" for part in first_parts(document))
    assert document["slow_messages"] <= 3
    said = run("story", str(out))
    assert said.process.returncode == 0


def test_redis_that_sleeps_is_told_so(tmp_path):
    if not shutil.which("redis-server"):
        pytest.skip("needs redis-server")
    port = free_port()
    script = (
        f"redis-server --port {port} --save '' --enable-debug-command yes >/dev/null &"
        f" until redis-cli -p {port} ping >/dev/null 2>&1; do :; done;"
        f" redis-benchmark -p {port} -n 200000 -t get -q >/dev/null &"
        f" for i in 1 2 3; do redis-cli -p {port} debug sleep 0.05 >/dev/null; done;"
        f" wait %2; redis-cli -p {port} shutdown nosave"
    )
    document, _ = told_of(tmp_path / "run", "bash", "-c", script, limit="30ms")
    parts = [
        story["stages"]["receive_queue"]["parts"][0]
        for story in document["stories"]
        if story["message"]["reader_comm"] == "redis-server"
    ]
    slept = [p for p in parts if "sleep" in p["what"]]
    assert len(slept) >= 0.95 * len(parts)
    assert len(slept) >= 3
    assert np.median([p["time_ns"] for p in slept]) == pytest.approx(50 * MS, rel=0.2)


def test_it_is_told_in_text_and_as_json(programs, tmp_path):
    out = tmp_path / "run"
    told_of(out, *slow_reader(programs, "lock"))
    text = run("story", str(out), "--slowest=2").out
    assert text.count("which slept for a lock (mutex)") == 2
    found = json.loads(run("story", str(out), "--above=15ms", "--json").out)
    assert len(found["stories"]) >= TIMES - 1
    number = found["stories"][0]["message"]["sequence"]
    one = json.loads(run("story", str(out), f"--message={number}", "--json").out)
    assert [s["message"]["sequence"] for s in one["stories"]] == [number]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("story", "nowhere"), 1, "it is made by `latprof run --story TIME`"),
        (("run", "--story=1us"), 2, "--story must be from 10us to 1h"),
        (("run", "--story=1ms", "--no-probes"), 2, "--story: needs the probes"),
        (("run", "bulk", "--story=1ms"), 2, "--story=1ms; it is of `latprof run`"),
    ],
)
def test_what_cannot_be_is_one_line(words, status, text, tmp_path):
    latprof = Latprof(*words, cwd=tmp_path)
    assert latprof.finish() == status
    (line,) = latprof.err.splitlines()
    assert text in line
