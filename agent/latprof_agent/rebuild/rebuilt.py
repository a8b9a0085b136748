"""What rebuilding of any kind says of a recording, and checks of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from latprof_analysis.read.result import ReadError
from latprof_analysis.records.recording import LATER_FIELDS, LATER_RINGS, Recording
from latprof_analysis.version import VERSION

from latprof_agent.errors import LatprofError
from latprof_agent.probes.layout import layout_of

KILLED = "killed"  # the state of a run whose recording has no end, whatever the cause
BREAKS_OFF = (
    "the recording breaks off before its run's end (that was killed, had no room, or "
    "the file is damaged): figures cover the time until then"
)


@dataclass
class Rebuilt:
    """What was made of a recording: where, and its figures."""

    folder: Path
    summary: dict[str, Any]
    is_live: bool = False  # of `watch`: histograms, and a sample


def ephemeral_ports(recording: Recording) -> range:
    """Return the ports that the recorded host handed out to clients."""
    low, high = map(int, recording.header["ephemeral_ports"])
    return range(low, high + 1)


def said_of(recording: Recording, folder: Path) -> dict[str, Any]:
    """What run.json says of the rebuilding, once the recording is read."""
    return {
        "folder": str(folder),
        "rebuilt": {
            "by": VERSION,
            "recorded_by": recording.header["version"],
            "cut_off": recording.cut_off,
        },
    }


def check_fields(recording: Recording) -> None:
    """Raise ReadError where records lack what is asked of them now."""
    had = recording.layout.rings
    missing = [
        f"{ring}.{name}" if ring in had else ring
        for ring, dtype in layout_of().rings.items()
        if ring in had or ring not in LATER_RINGS
        for name in dtype.names or ()
        if (ring not in had or name not in (had[ring].names or ()))
        and (ring, name) not in LATER_FIELDS
    ]
    if missing:
        version = recording.header["version"]
        raise ReadError(
            recording.path,
            f"latprof {version} recorded no {', '.join(dict.fromkeys(missing))}; "
            "rebuild it with that version",
        )


class Named(Protocol):
    """Whatever is of a recording."""

    @property
    def path(self) -> Path:
        """Of the recording."""


@contextmanager
def damage_in_one_line(recording: Named) -> Iterator[None]:
    """Make one line of whatever a recording of somebody else leads to."""
    try:
        yield
    except LatprofError:
        raise
    except (
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
    ) as error:
        why = f"what it holds fits no run ({type(error).__name__}: {error})"
        raise ReadError(recording.path, why) from error
