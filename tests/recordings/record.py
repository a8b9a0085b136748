"""Record all scenarios again, as root: `python tests/recordings/record.py [NAME ...]`.

Each becomes NAME.arrows.zst, and NAME.json with what is known of it beside latprof. To
be done where a probe changes what it records, or a field is new.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from talk import TALKS

HERE = Path(__file__).parent
RECORDING = "recording.arrows.zst"
LATPROF = (sys.executable, "-m", "latprof_agent")
# Of latprof's own messages it is known what was asked for.
OWN = {
    "ping-pong": ("--rounds=20", "--sizes=64,1400"),
    "open-loop-with-losses": (
        "--loss=2%",
        "--interval=2ms",
        "--rounds=150",
        "--sizes=64,1k,8k",
    ),
    "trains": ("--train=8", "--rounds=15", "--sizes=64,1k,8k"),
    "pieces": ("--interval=5ms", "--rounds=40", "--pieces", "--sizes=64,64k"),
    "under-load": ("--load=tcp:2", "--protocol=tcp", "--duration=1", "--sizes=64"),
    "mesh": (
        "mesh",
        "--hosts=3",
        "--tests=1",
        "--interval=50ms",
        "--sizes=64,1k",
    ),
    "stories": ("--story=2ms", "--rounds=30", "--sizes=64k"),
    "stories-of-losses": ("--story=5ms", "--loss=3%", "--rounds=200", "--sizes=2k"),
}


def record(name: str) -> None:
    """Run it once, and keep its recording and what is known of it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = [*OWN.get(name, ()), "--quiet", "--json", f"--out={out}"]
        if name in TALKS:
            # by names that say nothing of where this stands
            words += ["--no-lab", "--", "python3", "talk.py", name]
        ran = subprocess.run(
            [*LATPROF, "run", *words],
            check=True,
            capture_output=True,
            text=True,
            cwd=HERE,
        )
        known = _said(ran.stderr) if name in TALKS else _asked_for(ran.stdout)
        (HERE / f"{name}.arrows.zst").write_bytes((out / RECORDING).read_bytes())
    (HERE / f"{name}.json").write_text(json.dumps(known, indent=1) + "\n")
    print(name, (HERE / f"{name}.arrows.zst").stat().st_size, known)


def _said(stderr: str) -> dict:
    lines = [line for line in stderr.splitlines() if line.startswith("{")]
    return json.loads(lines[-1])


def _asked_for(stdout: str) -> dict:
    """What the generator's clients counted themselves."""
    trips = json.loads(stdout)["round_trips"]
    return {"round_trips": {protocol: trips[protocol]["sent"] for protocol in trips}}


if __name__ == "__main__":
    for wanted in sys.argv[1:] or [*OWN, *TALKS]:
        record(wanted)
