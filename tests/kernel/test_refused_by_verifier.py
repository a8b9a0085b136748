"""What the verifier refuses has the verifier's own last words as its reason.

The programs have a store in assembler at an address on the stack that its size does
not divide: no compiler makes another of it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from latprof_agent import _drain
from latprof_agent.capture import capture
from latprof_agent.cli import probes
from latprof_agent.errors import CaptureError
from latprof_agent.probes import proof, trial
from latprof_agent.probes.catalogue import capabilities
from latprof_agent.probes.filter import Filter

BPF = Path(__file__).parents[2] / "bpf"
MISALIGNED = 'asm volatile("r1 = 0; *(u64 *)(r10 - 12) = r1" ::: "r1", "memory");'
SAID = re.compile(r"misaligned stack access off 0\+0\+-12 size 8( \(\S+:\d+\))?")
STEPS = 1000  # which make the verifier's log longer than what is kept of it
LONG = f"""
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("raw_tp/sys_enter")
int on_event(void *context)
{{
	asm volatile("r0 = 0; .rept {STEPS}; r0 += 1; .endr" ::: "r0");
	{MISALIGNED}
	return 0;
}}
char gpl[] SEC("license") = "GPL";
"""


def compile_object(source: Path, to: Path) -> Path:
    machine = subprocess.run(
        ["gcc", "-print-multiarch"], capture_output=True, text=True, check=True
    ).stdout.strip()
    arch = "arm64" if machine.startswith("aarch64") else "x86"
    subprocess.run(
        [
            *("clang", "-g", "-O2", "-mcpu=v3", "-target", "bpf"),
            *(f"-D__TARGET_ARCH_{arch}", f"-I/usr/include/{machine}"),
            *("-c", source, "-o", to),
        ],
        check=True,
    )
    return to


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory) -> Path:
    """Build the probes with one that the verifier refuses: on_xmit."""
    folder = tmp_path_factory.mktemp("spoiled")
    shutil.copytree(BPF, folder / "bpf")
    source = folder / "bpf" / "qdisc.bpf.c"
    head = "int BPF_PROG(on_xmit, const struct sk_buff *skb)\n{\n"
    text = source.read_text()
    assert text.count(head) == 1
    source.write_text(text.replace(head, f"{head}\t{MISALIGNED}\n"))
    return compile_object(folder / "bpf" / "latprof.bpf.c", folder / "latprof.bpf.o")


@pytest.fixture
def with_spoiled(spoiled, monkeypatch):
    monkeypatch.setattr(trial, "OBJECT", spoiled)


def assert_names_xmit(text: str) -> None:
    before, _, why = text.partition("the kernel's verifier refuses on_xmit: ")
    assert before in ("", "cannot follow messages: xmit: ")
    assert SAID.match(why), text


def test_of_a_long_log_the_end_is_kept(tmp_path):
    source = tmp_path / "long.bpf.c"
    source.write_text(LONG)
    drain = _drain.Drain(str(compile_object(source, tmp_path / "long.bpf.o")))
    drain.enable("on_event")
    with pytest.raises(OSError) as refused:
        drain.load()
    drain.close()
    found = trial.refusal_in(refused.value)
    assert SAID.fullmatch(found.why), found
    assert found.program == "on_event"
    steps = re.findall(r"^(\d+): ", found.verifier_log, re.MULTILINE)
    assert int(steps[-1]) > STEPS > len(steps) > 0


def test_a_probe_is_unavailable_for_the_verifiers_reason(with_spoiled, capsys):
    assert probes.run(Namespace(json=True)) == 0
    found = {c["quantity"]: c for c in json.loads(capsys.readouterr().out)}
    assert found["xmit"]["state"] == "unavailable"
    assert_names_xmit(found["xmit"]["reason"])
    assert SAID.search(found["xmit"]["verifier_log"])
    assert "clang" in found["xmit"]["remedy"]
    assert not found["ready"]["verifier_log"]


def test_a_recording_without_it_fails_for_the_verifiers_reason(with_spoiled):
    with pytest.raises(CaptureError) as refused:
        capture.open_capture(Filter(protocols=("tcp",)), capabilities(("tcp",)))
    assert_names_xmit(str(refused.value))


def test_the_proof_of_the_set_up_fails_with_the_verifiers_log(with_spoiled, capfd):
    assert proof.main() == 1
    said = capfd.readouterr()
    assert said.out.count("\n") == 1
    assert_names_xmit(said.out)
    assert SAID.search(said.err)


def test_a_missing_right_is_no_failure_of_the_build():
    without = ["setpriv", "--bounding-set=-bpf,-sys_admin,-perfmon"]
    proved = [sys.executable, "-Im", "latprof_agent.probes.proof"]
    ended = subprocess.run(
        [*without, *proved], capture_output=True, text=True, check=True
    )
    assert ended.stdout.startswith("cannot follow messages: ")
    assert "permitted" in ended.stdout
    assert ended.stdout.count("\n") == 1


def test_what_was_built_here_is_proved(capfd):
    assert proof.main() == 0
    assert capfd.readouterr().out == ""
