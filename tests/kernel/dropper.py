"""Drop chosen packets on a lab's veth by a tc program of the tests' own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from latprof_agent.lab.lab import Lab

SOURCE = Path(__file__).parent / "dropper.bpf.c"


def run_at(lab: Lab, end: str, *command: str, text: str | None = None) -> str:
    """Run a program at an end of the lab, which reads `text`; return what it says."""
    child = lab.start(
        end,
        [*command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said, _ = child.communicate(text, timeout=20)
    assert child.returncode == 0, f"{' '.join(command)}: {said}"
    return str(said)


def run_tc(lab: Lab, end: str, *arguments: str) -> str:
    """Run tc at an end of the lab and return what it says."""
    return run_at(lab, end, "tc", *arguments)


def attach_dropper(
    lab: Lab, end: str, hook: str, folder: Path, dropped: Iterable[int] = ()
) -> None:
    """Drop what the lab's kernel sends unasked, and these packets with payload.

    `hook` is "egress", before the qdisc, or "ingress", before IP. Packets that
    carry TCP or UDP payload are counted from 1.
    """
    program = folder / f"dropper-{end}-{hook}.o"
    cases = " ".join(f"case {n}:" for n in dropped) or "case 0:"
    machine = subprocess.run(
        ["gcc", "-print-multiarch"], capture_output=True, text=True, check=True
    ).stdout.strip()
    subprocess.run(
        [
            *("clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3"),
            *(f"-DDROPPED={cases}", f"-I/usr/include/{machine}"),
            *("-c", str(SOURCE), "-o", str(program)),
        ],
        check=True,
    )
    device = lab.interface
    run_tc(lab, end, *f"qdisc replace dev {device} clsact".split())
    run_tc(
        lab,
        end,
        *f"filter add dev {device} {hook} bpf da obj {program} sec tc".split(),
    )
