"""Fields of the kernel's structs that the object reads: each is in every kernel of the
matrix, or read only where the kernel has it. Offline, by the kernel's own types.

What a kernel lacks is found by bpftool's matching, which is libbpf's: a reading that
it matches with nothing becomes a call that the verifier refuses, unless a test of the
same field, which the same program makes, has cut it off. Functions that are not
inlined are one program there, so that a test in another of them passes for one.
"""

import os
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from conftest import RECORDS_ONLY
from latprof_agent.probes.layout import OBJECT, OLD_OBJECT
from other_machine import HOME, installed_package, machine_of

PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"

# What is tested by another name than its own.
TESTED_BY = {
    "struct iov_iter.ubuf": "enum iter_type::ITER_UBUF",
    "struct iov_iter___before_6_4.iov": "struct iov_iter.__iov",
    "struct msghdr.msg_iter.__iov": "struct iov_iter.__iov",
    "struct inet_sock___before_5_17.rx_dst_ifindex": "struct sock.sk_rx_dst_ifindex",
}

WANTED = re.compile(
    r"libbpf: prog '(.+?)': relo #(\d+): <(\w+)> \[\d+\] (\S+ [^\s(]+)(?: = \d+)? ?"
)
MISSING = re.compile(r"libbpf: prog '(.+?)': relo #(\d+): no matching targets found")
TESTS = ("field_exists", "enumval_exists", "type_exists", "type_matches")


def lacking(kernel: Path, built: Path) -> dict[str, set[str]]:
    """By program: what it reads without a test, and this kernel does not have."""
    bpftool = shutil.which("bpftool", path=PATH)
    if not bpftool:
        pytest.skip("needs bpftool")
    words = [bpftool, "-d", "gen", "min_core_btf", kernel, os.devnull, built]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    wanted, tested, missing = {}, defaultdict(set), []
    for line in (done.stdout + done.stderr).splitlines():
        if found := MISSING.match(line):
            missing.append(found.groups())
        elif (found := WANTED.match(line)) and found[3] in TESTS:
            tested[found[1]].add(found[4])
        elif found:
            # candidates follow what is wanted, under the same number
            wanted.setdefault((found[1], found[2]), found[4])
    assert wanted, done.stderr[-1000:]
    found = defaultdict(set)
    for program, number in missing:
        field = wanted.get((program, number))
        if field and TESTED_BY.get(field, field) not in tested[program]:
            found[program].add(field)
    return dict(found)


def types_of(kernel):
    """Give a file with a kernel's types."""
    return HOME / "k" / kernel / ("btf" if machine_of(kernel) else "vmlinux")


def test_what_is_read_is_there_or_tested_before(any_kernel):
    machine = machine_of(any_kernel)
    built = OLD_OBJECT if any_kernel in RECORDS_ONLY else OBJECT
    if machine:
        built = installed_package(machine) / built.name
    assert lacking(types_of(any_kernel), built) == {}


SOURCE = """
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
struct sock {
	int sk_no_such_field, sk_nor_this;
} __attribute__((preserve_access_index));
SEC("raw_tp/sys_enter") int reads(void **ctx)
{
	struct sock *sk = ctx[0];
	int found = BPF_CORE_READ(sk, sk_no_such_field);
	if (bpf_core_field_exists(sk->sk_nor_this))
		found += BPF_CORE_READ(sk, sk_nor_this);
	return found;
}
char LICENSE[] SEC("license") = "GPL";
"""


def test_a_field_that_no_kernel_has_is_named(any_kernel, tmp_path):
    source, built = tmp_path / "reads.bpf.c", tmp_path / "reads.bpf.o"
    source.write_text(SOURCE)
    headers = subprocess.check_output(["gcc", "-print-multiarch"], text=True).strip()
    clang = ["clang", "-g", "-O2", "-target", "bpf", f"-I/usr/include/{headers}"]
    subprocess.run([*clang, "-c", source, "-o", built], check=True)
    found = lacking(types_of(any_kernel), built)
    assert found == {"raw_tp/sys_enter": {"struct sock.sk_no_such_field"}}
