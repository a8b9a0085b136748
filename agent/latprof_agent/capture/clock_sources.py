"""What disciplines this host's clock, where something does: chrony, and PTP clocks.

`clocks.read_clocks` has the kernel's own word, which both of them set or leave alone.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from latprof_analysis.text import NS_PER_SECOND

from latprof_agent.capture.clocks import narrowest_reading
from latprof_agent.errors import LatprofError
from latprof_agent.executables import find_executable

CHRONYD = Path("/run/chrony/chronyd.sock")
PTP = Path("/sys/class/ptp")
_PATIENCE_SECONDS = 1.0
# Fields of `chronyc -c tracking`, as chronyc(1) has them; those in seconds are kept in
# nanoseconds, by the names that its report has.
_SECONDS = {
    "system_time_ns": 4,
    "last_offset_ns": 5,
    "rms_offset_ns": 6,
    "root_delay_ns": 10,
    "root_dispersion_ns": 11,
}
_FIELDS = 14


def read_clock_sources(chronyd: Path = CHRONYD, ptp: Path = PTP) -> dict[str, Any]:
    """Return `chrony`, None where it does not run, and `ptp`, a list of clocks."""
    return {
        "monotonic_ns": time.monotonic_ns(),
        "chrony": _chrony(chronyd),
        "ptp": [_ptp_clock(path) for path in sorted(ptp.glob("ptp*"))],
    }


def _chrony(chronyd: Path) -> dict[str, Any] | None:
    """Ask chronyd what it says of the system's clock.

    The error of that is at most |system_time| + root_dispersion + root_delay / 2, as
    chronyc(1) has it.
    """
    if not chronyd.exists():
        return None
    try:
        chronyc = str(find_executable("chronyc"))
        words = [chronyc, "-h", str(chronyd), "-n", "-c", "tracking"]
        asked = subprocess.run(
            words, capture_output=True, timeout=_PATIENCE_SECONDS, check=True, text=True
        )
        found = asked.stdout.strip().split(",")
        if len(found) != _FIELDS:
            raise ValueError(f"{len(found)} fields")
        seconds = {
            n: round(float(found[i]) * NS_PER_SECOND) for n, i in _SECONDS.items()
        }
        return {
            "reference": found[1] or found[0],
            "stratum": int(found[2]),
            "frequency_ppb": round(float(found[7]) * 1000),
            "skew_ppb": round(float(found[9]) * 1000),
            "leap": found[13],
            **seconds,
        }
    except LatprofError:
        return {"unknown": "there is no chronyc"}
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return {"unknown": str(error)}


def _ptp_clock(path: Path) -> dict[str, Any]:
    """Read a PTP hardware clock beside CLOCK_MONOTONIC; see `read_clocks`."""
    found: dict[str, Any] = {"device": path.name, "name": "", "interfaces": []}
    with suppress(OSError):
        found["name"] = (path / "clock_name").read_text().strip()
        found["interfaces"] = sorted(p.name for p in (path / "device/net").iterdir())
    try:
        descriptor = os.open(f"/dev/{path.name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return found | {"unknown": os.strerror(error.errno or 0)}
    try:
        clock = (~descriptor << 3) | 3  # FD_TO_CLOCKID of clock_gettime(2)
        width_ns, begin_ns, (time_ns,) = narrowest_reading(clock)
    except OSError as error:
        return found | {"unknown": os.strerror(error.errno or 0)}
    finally:
        os.close(descriptor)
    middle_ns = begin_ns + width_ns // 2
    return found | {"monotonic_ns": middle_ns, "time_ns": time_ns, "width_ns": width_ns}
