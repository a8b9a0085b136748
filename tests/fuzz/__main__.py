"""Fuzzes all that reads what others wrote: `python tests/fuzz [SECONDS]`.

Each reader has the same share of the time, and so has each part of the C programs.
What it learns stays in build/fuzz/, where the next run begins. A finding is told with
the file that shows it, which is kept, and ends the run with status 1. It becomes a
test, and then is mended. Status 2: something is missing to fuzz the C programs. Each
run tries other inputs, unless $FUZZ_SEED is a number.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "fuzz"
DATA = HERE.parent / "data"
# The files of a run, one at a time; a file by itself; a CSV with named columns.
READERS = (
    "file",
    "columns",
    "run.json",
    "summary.json",
    *(f"{table}.csv" for table in ("messages", "round_trips", "exchanges")),
    *(f"{table}.parquet" for table in ("messages", "round_trips", "exchanges")),
)
NATIVE = HERE / "native" / "run.sh"  # shares its time out, too
NATIVE_SHARE = 1 / 3
SEED = os.environ.get("FUZZ_SEED", "0")  # 0 is libFuzzer's word for any
LIMITS = ("-timeout=120", "-rss_limit_mb=3000", "-max_len=65536")
TOLD_LINES = 30
CANNOT = 2  # fuzz: something is missing


def main() -> int:
    """Fuzz every target for its share; returns the exit status."""
    if subprocess.run([NATIVE, "check"], check=False).returncode:
        return CANNOT  # it has said why
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 300.0
    native = max(1.0, seconds * NATIVE_SHARE)
    share = (seconds - native) / len(READERS)
    found = [target for target in READERS if not _readers(target, share)]
    ended = subprocess.run([NATIVE, f"{native:.0f}"], check=False).returncode
    if ended not in (0, CANNOT):
        found.append("the C programs")
    if found:
        print(f"fuzz: findings in {', '.join(found)}")
        return 1
    if ended == CANNOT:
        print("fuzz: no finding in the readers; the C programs were not tried")
        return CANNOT
    print("fuzz: no finding")
    return 0


def _readers(target: str, seconds: float) -> bool:
    """Fuzz one target of `readers.py`; whether it found nothing."""
    learnt, seeds, findings = (
        BUILD / kind / target for kind in ("corpus", "seeds", "findings")
    )
    shutil.rmtree(seeds, ignore_errors=True)
    for folder in (learnt, seeds, findings):
        folder.mkdir(parents=True, exist_ok=True)
    _plant(target, seeds)
    one_cpu = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="latprof-fuzz-") as scratch:
        ended = subprocess.run(
            [
                *(sys.executable, HERE / "readers.py", target, *LIMITS),
                *(f"-max_total_time={seconds:.0f}", f"-seed={SEED}"),
                *(f"-artifact_prefix={findings}/", learnt, seeds),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            text=True,
            errors="replace",
            env=os.environ | one_cpu | {"TMPDIR": scratch},
        )
    lines = ended.stdout.splitlines()
    if ended.returncode:
        print(f"fuzz: {target}:", *lines[-TOLD_LINES:], sep="\n  ", flush=True)
        return False
    print(f"fuzz: {target}: {lines[-1]}", flush=True)
    return True


def _plant(target: str, seeds: Path) -> None:
    """Put in a folder what a target begins with."""
    given = [HERE / "seeds" / target, *(HERE / "seeds" / target).glob("*")]
    if target == "file":
        given += DATA.rglob("*")
        given += (HERE / "run").glob("*.csv")
    given.append(HERE / "run" / target)
    if target.endswith(".parquet"):
        _write_parquet(HERE / "run", seeds, target)
    for path in given:
        if path.is_file():
            shutil.copy(path, seeds / f"{path.parent.name}-{path.name}")


def _write_parquet(run: Path, seeds: Path, target: str) -> None:
    """Write a table of the run as Parquet: it is not in git."""
    from latprof_analysis.read.run_folder import write_parquet

    whole = BUILD / "parquet"
    shutil.rmtree(whole, ignore_errors=True)
    shutil.copytree(run, whole)
    write_parquet(whole)
    shutil.copy(whole / target, seeds)


if __name__ == "__main__":
    sys.exit(main())
