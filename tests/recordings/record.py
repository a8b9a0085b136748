"""Record all scenarios again, as root: `python tests/recordings/record.py [NAME ...]`.

Those of talk.py are on loopback, of paths.py between namespaces, of causes.py and
chains.py slow for a cause that is known, and so of servers.py (which needs gcc, Go,
Node and a JDK). Each becomes NAME.arrows.zst, and NAME.json with what is known of it
beside latprof. To be done where a probe changes what it records, or a field is new.
With --kernel 6.1 the programs run under another kernel (tests/vm), for a folder of its
name: other hooks are used there. How long a response took is not kept, as a guest is
slow.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from causes import CAUSES, LIMIT, LIMITS
from chains import CHAINS
from paths import NEED_NETEM, PATHS
from servers import SERVERS
from talk import TALKS

HERE = Path(__file__).parent
IN_GUEST = """
export PYTHONPATH=%(path)s
%(python)s %(program)s --into /dev/shm/recorded %(names)s
cp -r /dev/shm/recorded %(share)s/
"""
RECORDING = "recording.arrows.zst"
LATPROF = (sys.executable, "-m", "latprof_agent")
PROGRAMS = {
    name: program
    for program, names in {
        "talk.py": TALKS,
        "paths.py": PATHS,
        "causes.py": CAUSES,
        "chains.py": CHAINS,
        "servers.py": SERVERS,
    }.items()
    for name in names
}
# What needs a fast machine: to be on a CPU for little between two waits, to see at once
# that others have it, or a packet that comes within 0.2 ms; and who has used up its
# share waits so only since 6.6 (EEVDF).
NOT_IN_GUESTS = (
    *("interpreted-reader", "asking-ten-times", "limited-reader", "outweighed-reader"),
    *("answered-through-a-queue", "full-window-of-a-sleeper"),
)
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


def record(name: str, into: Path) -> None:
    """Run it once, and keep its recording and what is known of it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = [*OWN.get(name, ()), "--quiet", "--json", f"--out={out}"]
        program = PROGRAMS.get(name)
        if name in CAUSES | CHAINS | SERVERS:
            words.append(f"--story={LIMITS.get(name, LIMIT)}")
        if program:
            # by names that say nothing of where this stands
            words += ["--no-lab", "--", "python3", program, name]
        ran = subprocess.run(
            [*LATPROF, "run", *words],
            check=False,
            capture_output=True,
            text=True,
            cwd=HERE,
        )
        if ran.returncode:
            sys.exit(f"{name}: {ran.stderr}")
        known = _said(ran.stderr) if program else _asked_for(ran.stdout)
        recording = (out / RECORDING).read_bytes()
    (into / f"{name}.arrows.zst").write_bytes(recording)
    (into / f"{name}.json").write_text(json.dumps(known, indent=1) + "\n")
    print(name, len(recording), known, flush=True)


def record_in_guest(kernel: str, names: list[str]) -> None:
    """Record programs under another kernel."""
    machine, into = HERE.parent / "vm", HERE / kernel
    into.mkdir(exist_ok=True)
    subprocess.run([machine / "vmfetch.sh", kernel], check=True)
    with tempfile.TemporaryDirectory() as share:
        words = {
            "path": os.environ.get("PYTHONPATH", ""),
            "python": sys.executable,
            "program": __file__,
            "share": share,
        }
        quoted = {name: shlex.quote(str(word)) for name, word in words.items()}
        script = IN_GUEST % {**quoted, "names": shlex.join(names)}
        settings = {"VMRUN_SHARE": share, "VMRUN_TIMEOUT": "900"}
        subprocess.run(
            [machine / "vmrun.sh", kernel, script],
            check=True,
            env=os.environ | settings,
        )
        for path in (Path(share) / "recorded").iterdir():
            shutil.copy(path, into / path.name)
    for path in into.glob("*.json"):
        known = json.loads(path.read_text())
        known.pop("response_ms", None)
        path.write_text(json.dumps(known, indent=1) + "\n")


def _said(stderr: str) -> dict:
    lines = [line for line in stderr.splitlines() if line.startswith("{")]
    return json.loads(lines[-1])


def _asked_for(stdout: str) -> dict:
    """What the generator's clients counted themselves."""
    trips = json.loads(stdout)["round_trips"]
    return {"round_trips": {protocol: trips[protocol]["sent"] for protocol in trips}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="all, if none is given"
    )
    parser.add_argument("--kernel", metavar="SERIES", help="such as 6.1 or 6.12")
    parser.add_argument("--into", type=Path, default=HERE, metavar="FOLDER")
    options = parser.parse_args()
    if options.kernel:
        here = {*NOT_IN_GUESTS, *SERVERS}
        names = [name for name in PROGRAMS if name not in here]
        record_in_guest(options.kernel, options.names or names)
    else:
        options.into.mkdir(exist_ok=True)
        here = [name for name in (*OWN, *PROGRAMS) if name not in NEED_NETEM]
        for wanted in options.names or here:
            record(wanted, options.into)
