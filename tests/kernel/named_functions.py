"""A program that says where its functions are, and what latprof calls them."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from latprof_agent.probes.layout import layout_of
from latprof_agent.symbols.symbols import Symbols

SAMPLE = layout_of().flights["samples"]
SOURCE = Path(__file__).with_name("named_functions.c")


def compiled_in(folder):
    found = folder / "named_functions"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer"]
    subprocess.run(["gcc", *flags, SOURCE, "-o", found], check=True)
    return found


@contextmanager
def running(*command, **how):
    """A process of it, and where its functions are."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **how) as process:
        try:
            lines = [process.stdout.readline().split() for _ in range(5)]
            yield process, {name: int(at) for name, at in lines}
        finally:
            process.kill()


def image_of(pid):
    """As /proc/PID/stat tells it, in field 28."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[25]) >> 4 & 0xFFFFFFFF


def sample_of(pid, *user, image=None):
    """A stack, its innermost frame first."""
    row = np.zeros(1, SAMPLE)
    row["pid"], row["t_ns"] = pid, time.monotonic_ns()
    row["image"] = image_of(pid) if image is None else image
    row["user_frames"] = len(user)
    row["user"][0, : len(user)] = user
    return row


def names_of(*samples):
    """What is told of stacks, the innermost function last."""
    found = Symbols()
    for sample in samples:
        found.note(sample, set(sample["pid"].tolist()))
    found.finish()
    return [found.stack(sample[0]) for sample in samples]


def name_of(sample):
    return names_of(sample)[0][-1]


@contextmanager
def jit_map(pid, text, mode=0o644, user=None):
    """The map of a process, as its JIT writes it."""
    path = Path(f"/tmp/perf-{pid}.map")
    with path.open("x") as file:
        try:
            file.write(text)
            file.flush()
            path.chmod(mode)
            if user is not None:
                os.chown(path, user, user)
            yield path
        finally:
            path.unlink()
