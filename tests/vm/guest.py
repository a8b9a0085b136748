"""Boot a stock kernel in QEMU and keep what the guest leaves behind."""

import csv
import json
import os
import shlex
import statistics
import subprocess
from pathlib import Path
from typing import Any

from other_machine import INSTALLED, machine_of

HERE = Path(__file__).parent
VENV = Path(os.environ.get("LATPROF_VENV", INSTALLED))

# Files are written to the guest's memory first: small writes to a share are slow.
PROLOGUE = """
step() {
    local name=$1; shift
    latprof "$@" >$name.out 2>$name.err; echo $? >$name.status
}
python=%(python)s # that has latprof
latprof() { $python -m latprof_agent "$@"; }
mkdir /dev/shm/out && cd /dev/shm/out
trap 'cp -r /dev/shm/out/. %(share)s' EXIT
"""

# Two namespaces that a cable joins.
TWO_ENDS = """
ip netns add a && ip netns add b
ip link add v netns a type veth peer name v netns b
for end in a b; do ip -n $end link set lo up; ip -n $end link set v up; done
ip -n a address add 10.0.0.1/24 dev v
ip -n b address add 10.0.0.2/24 dev v
"""


class Guest:
    """What a guest left behind."""

    def __init__(self, folder: Path):
        self.folder = folder

    def json(self, step: str) -> dict[str, Any]:
        return dict(json.loads(self.output(step)))

    def output(self, step: str) -> str:
        status = int((self.folder / f"{step}.status").read_text())
        assert status == 0, (self.folder / f"{step}.err").read_text()
        return (self.folder / f"{step}.out").read_text()

    def rows(self, step: str, name: str = "messages.csv") -> list[dict[str, str]]:
        self.output(step)
        with (self.folder / step / name).open(newline="") as file:
            return list(csv.DictReader(file))

    def round_trip_ns(self, step: str) -> float:
        rows = self.rows(step, "round_trips.csv")
        return statistics.median(int(row["rtt_ns"]) for row in rows)


def boot(
    kernel: str,
    mode: str,
    script: str,
    folder: Path,
    nics: str = "",
    systemd: str = "",
    **more: str,
) -> Guest:
    """Run a script in a guest; `nics` and others as vmrun.sh's variables."""
    settings = {
        "VMRUN_SYSTEMD": systemd,
        "VMRUN_NICS": nics,
        "VMRUN_SHARE": str(folder),
        "VMRUN_MODE": mode,
        "VMRUN_LOG": str(folder / "console"),
        "VMRUN_TIMEOUT": "1800",  # a minute by itself; other tests run beside it
        **{f"VMRUN_{name.upper()}": value for name, value in more.items()},
    }
    other = machine_of(kernel)
    venv = INSTALLED if other else VENV
    prologue = PROLOGUE % {"python": venv / "bin" / "python3", "share": folder}
    if (path := os.environ.get("PYTHONPATH")) and not other:
        prologue = f"export PYTHONPATH={shlex.quote(path)}\n" + prologue
    dies_with_us = "setpriv", "--pdeathsig", "TERM"
    ended = subprocess.run(
        [*dies_with_us, HERE / "vmrun.sh", kernel, prologue + script],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Guest(folder)
