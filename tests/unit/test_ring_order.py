"""On arm64 a record is whole before its sequence says so: what clang makes of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

BPF = Path(__file__).parents[2] / "bpf"
HALF = """
#include "half.bpf.h"

SEC("tp_btf/tcp_probe")
int on_event(void *context)
{
	struct sent_message half = {};

	sent_half(&half);
	return 0;
}
"""
# What a BPF assembler text holds of it: `*(u64 *)(r6 + 8) = r1`
STORE = re.compile(r"^\*\(u\d+ \*\)\(r[0-9] \+ \d+\) = ")
EXCHANGE = re.compile(r"^(r\d) = xchg_64\(r\d \+ 0, \1\)$")
ADDITION = re.compile(r"^(r\d) = atomic_fetch_add\(\(u64 \*\)\(r\d \+ 0\), \1\)$")


def compiled(source: str, *words: str | Path) -> str:
    """Compile it for arm64 as bpf/meson.build does; gives what clang wrote.

    The host's <asm/> serves: what differs in it are the numbers of system calls.
    """
    where = subprocess.run(
        ["gcc", "-print-multiarch"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return subprocess.run(
        [
            *("clang", "-g", "-O2", "-mcpu=v3", "-target", "bpf"),
            *("-D__TARGET_ARCH_arm64", f"-I/usr/include/{where}", f"-I{BPF}"),
            *("-x", "c", *words, "-o", "-", "-"),
        ],
        input=source,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.fixture(scope="module")
def instructions() -> list[str]:
    """Give the instructions that write one record, in their order."""
    text = compiled(HALF, "-S").splitlines()
    lines = [line.partition("#")[0].strip() for line in text]
    start = lines.index("on_event:")
    end = next(i for i in range(start, len(lines)) if lines[i].startswith(".Lfunc_end"))
    return lines[start + 1 : end]


def test_all_probes_compile_for_arm64():
    compiled('#include "latprof.bpf.c"', "-fsyntax-only")


def test_the_last_store_of_a_record_is_an_exchange(instructions):
    # which the kernel orders behind all stores before it, unlike an addition
    # without a result and a plain store (Linux, Documentation/atomic_t.txt)
    exchanges = [i for i, line in enumerate(instructions) if EXCHANGE.match(line)]
    assert len(exchanges) == 1
    stores = [i for i, line in enumerate(instructions) if STORE.match(line)]
    assert len(stores) > 8  # the record's words
    assert max(stores) < exchanges[0]


def test_a_slot_is_taken_by_an_addition_with_a_result(instructions):
    # which is ordered, too: the record's words are not stored before it
    (taken,) = (i for i, line in enumerate(instructions) if ADDITION.match(line))
    written = [
        i
        for i, line in enumerate(instructions)
        if STORE.match(line) and "(r10" not in line  # its own stack
    ]
    assert written
    assert min(written) > taken
