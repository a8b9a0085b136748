"""Hosts by what their agents gave: checked, since nothing of it is believed.

What an agent says is its own as long as it is the same boot and run: then it has a
number, by which its records are told from others'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from latprof_analysis.read.result import ReadError
from latprof_analysis.records.host_records import stamps_in
from latprof_analysis.records.recording import CLOCKS, WORDS, Recording, Step
from latprof_analysis.records.stream_key import OFFSET_BITS
from latprof_analysis.text import printable

from latprof_agent.live.sample_recording import KIND
from latprof_agent.probes.layout import Layout
from latprof_agent.rebuild.rebuilt import check_fields, damage_in_one_line
from latprof_agent.service.config import Address

MOST_UNPACKED_BYTES = 96 << 20
MOST_RECORDS = 200_000  # of one answer
_PIECE_BYTES = 1 << 20
_LATEST_NS = 1 << 60  # 36 years after a boot
_LARGEST_OFFSET = 1 << OFFSET_BITS
# Rings that have offsets in streams, of messages with no fingerprint.
_OF_STREAMS = frozenset(
    {
        *("sent_messages", "received_ranges"),
        *("early_segments", "retransmits", "acknowledgements"),
    }
)
_MOST_CHARACTERS = 64  # of a host's name


@dataclass(frozen=True)
class Identity:
    """Which host it is, since when."""

    name: str
    machine: str
    boot: str

    @classmethod
    def of(cls, header: dict[str, Any]) -> Identity:
        """Read it; raises LookupError or TypeError."""
        said = header["host"]
        return cls(
            printable(str(said["name"]))[:_MOST_CHARACTERS],
            str(said.get("machine"))[:_MOST_CHARACTERS],
            str(said.get("boot"))[:_MOST_CHARACTERS],
        )


@dataclass(frozen=True)
class Sampled:
    """What one answer held."""

    identity: Identity
    begun_unix_ns: int
    ephemeral: range
    steps: list[Step]

    @property
    def records(self) -> int:
        """How many records there are."""
        return sum(
            len(records) for step in self.steps for records in step.rings.values()
        )


def read_sample(agent: Address, packed: bytes, layout: Layout) -> Sampled:
    """Read a recording that an agent gave; raises ReadError."""
    path = Path(str(agent))
    recording = Recording(path, unpacked=unpacked(path, packed))
    check_fields(recording)
    header = recording.header
    named = _Named(path)
    with damage_in_one_line(named):
        if header.get("kind") != KIND:
            raise ReadError(path, "it gives no sample")
        _check_words(recording, layout)
        low, high = map(int, header["ephemeral_ports"])
        steps = list(_checked(path, recording, layout))
        return Sampled(
            Identity.of(header),
            int(header["begun_unix_ns"]),
            range(low, high + 1),
            steps,
        )


@dataclass(frozen=True)
class _Named:
    path: Path


def unpacked(path: Path, packed: bytes) -> bytes:
    """Unpack frames of zstandard, up to MOST_UNPACKED_BYTES; raises ReadError."""
    parts, size = [], 0
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(
            packed, read_across_frames=True
        )
        while part := reader.read(_PIECE_BYTES):
            parts.append(part)
            size += len(part)
            if size > MOST_UNPACKED_BYTES:
                raise ReadError(path, f"its answer has over {size} bytes, unpacked")
    except zstandard.ZstdError as error:
        raise ReadError(path, "its answer is no recording") from error
    return b"".join(parts)


def _check_words(recording: Recording, layout: Layout) -> None:
    """Refuse an agent to which numbers mean something else than here."""
    for words in WORDS:
        theirs, ours = getattr(recording.layout, words), getattr(layout, words)
        if any(ours.get(name, value) != value for name, value in theirs.items()):
            version = printable(str(recording.header["version"]))[:_MOST_CHARACTERS]
            raise ReadError(
                recording.path,
                f"latprof {version} records other {words} than this one; use one "
                "version for all hosts",
            )
    if recording.header["server_role"] != layout.roles["server"]:
        raise ReadError(recording.path, "it has other roles than this latprof")


def _checked(path: Path, recording: Recording, layout: Layout) -> Iterator[Step]:
    records = 0
    for step in recording.steps():
        records += sum(map(len, step.rings.values()))
        if records > MOST_RECORDS:
            raise ReadError(path, f"its answer has over {MOST_RECORDS} records")
        _check_numbers(path, step)
        yield step
    if recording.cut_off:
        raise ReadError(path, "its answer breaks off")


def _check_numbers(path: Path, step: Step) -> None:
    """Refuse times and offsets that there are not: sums of them would overflow."""
    for records in step.rings.values():
        for name in stamps_in(records.dtype):
            if len(records) and int(records[name].max()) > _LATEST_NS:
                raise ReadError(path, f"it has a time that is none in {name}")
    for name in ("monotonic_ns", "realtime_ns"):
        clocks = step.beside[CLOCKS][name]
        if ((clocks < 0) | (clocks > 2 * _LATEST_NS)).any():  # until the year 2043
            raise ReadError(path, f"it has a time that is none in {name}")
    if step.drained_ns is not None and not 0 <= step.drained_ns < _LATEST_NS:
        raise ReadError(path, "it has a time that is none")
    for ring in _OF_STREAMS & step.rings.keys():  # an older agent has not all
        records = step.rings[ring]
        names = records.dtype.names or ()
        stream = records["key"] == 0 if "key" in names else np.ones(len(records), bool)
        for name in {"start", "end"} & set(names):
            if (records[name][stream] >= _LARGEST_OFFSET).any():
                raise ReadError(path, f"it has an offset that is none in {ring}")
