"""Processes that run the same image, by a made /proc."""

from __future__ import annotations

import pytest
from latprof_agent.symbols.images import image_of
from latprof_agent.symbols.relatives import Relatives

SECOND_NS = 1_000_000_000
STACK, OTHER = 0x7FFE12345670, 0x7FFC00000010


@pytest.fixture
def proc(tmp_path):
    return tmp_path


def add(proc, pid, start_stack):
    (proc / str(pid)).mkdir(exist_ok=True)
    fields = ["0"] * 50
    fields[25] = str(start_stack)
    text = " ".join(fields)
    (proc / str(pid) / "stat").write_text(f"{pid} (a) name) {text}\n")


def test_who_runs_the_same_image_is_found(proc):
    add(proc, 7, STACK)
    add(proc, 8, OTHER)
    add(proc, 2, 0)  # a thread of the kernel
    relatives = Relatives(proc)
    assert relatives.of(image_of(STACK), 1) == 7
    assert relatives.of(image_of(OTHER), 1) == 8
    assert relatives.of(image_of(STACK + 16), 1) is None
    assert relatives.of(0, 1) is None


def test_processes_are_looked_at_once_a_second(proc):
    relatives = Relatives(proc)
    assert relatives.of(image_of(STACK), 1) is None
    add(proc, 7, STACK)
    assert relatives.of(image_of(STACK), SECOND_NS // 2) is None
    assert relatives.of(image_of(STACK), SECOND_NS + 1) == 7


def test_one_that_ends_meanwhile_is_none(proc):
    (proc / "9").mkdir()
    assert Relatives(proc).of(image_of(STACK), 1) is None
