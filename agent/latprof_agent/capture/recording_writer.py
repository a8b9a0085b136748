"""The recording: what crossed from the kernel to a run, written as it came.

An Arrow IPC stream, packed by zstandard. A row is one step of the recorder: a column
for each ring, whose records are a list of structs, and columns for what else the step
took in, from the clocks to the load generator's log. Field metadata has units; that of
the schema is the header. Every row is flushed, so that a run that is killed leaves
all steps but its last. `latprof_analysis.records.recording` reads it, and any Arrow
library.
"""

from __future__ import annotations

import hmac
import io
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import nanoarrow as na
import numpy as np
import zstandard
from latprof_analysis.records.arrays import Batch
from latprof_analysis.records.recording import (
    CLOCKS,
    DRAINED,
    FORMAT,
    HEADER,
    LOG,
    LOGGED,
    NOTES,
    PERIODS,
    SIDE_COLUMNS,
    SOURCES,
    WORDS,
    Log,
    Step,
    unit_of,
)
from latprof_analysis.version import VERSION
from nanoarrow.ipc import StreamWriter
from numpy.typing import NDArray

from latprof_agent.capture.clock_sources import read_clock_sources
from latprof_agent.capture.clocks import read_clocks
from latprof_agent.capture.recorded_flights import QUEUES, numbered
from latprof_agent.probes.catalogue import Capability
from latprof_agent.probes.layout import Layout

# A record of 72 bytes takes 110 ns, and becomes 10 to 20 (tests/bench recording).
LEVEL = -3
CLOCKS_EACH_NS = 1_000_000_000
# What ends a stream of Arrow, packed by itself.
STREAM_END = zstandard.ZstdCompressor().compress(b"\xff\xff\xff\xff\0\0\0\0")
NO_PERIODS = np.empty((0, 2), "i8")

_TYPES = {
    "u1": na.uint8,
    "u2": na.uint16,
    "u4": na.uint32,
    "u8": na.uint64,
    "i8": na.int64,
}
_WHOLE = {"nullable": False}


class RecordingWriter:
    """Takes steps, and writes each whole.

    Parameters
    ----------
    write : callable
        Writes bytes to the end of the file; its OSError reaches whoever gave a step.
    rings : dict of str to dtype
        The layout of the records, as in the probes' object.
    header : dict
        What is known of the host, the kernel and the run before the first step.
    apart : bool
        Each step is packed by itself: the first bytes written, with the header, any
        later ones, and STREAM_END make a whole recording.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        rings: Mapping[str, np.dtype[Any]],
        header: Mapping[str, Any],
        *,
        apart: bool = False,
    ) -> None:
        self._rings = dict(rings) | SIDE_COLUMNS
        self._lists = {name: _list_of(dtype) for name, dtype in self._rings.items()}
        self._texts = na.c_schema(na.list_(na.string(**_WHOLE), **_WHOLE))
        self._logs = na.c_schema(na.list_(na.binary(**_WHOLE), **_WHOLE))
        words = {HEADER: json.dumps({"format": FORMAT, **header})}
        self._schema = na.c_schema(
            na.Schema(
                na.Type.STRUCT,
                fields={
                    DRAINED: na.int64(),
                    **self._lists,
                    LOG: self._logs,
                    NOTES: self._texts,
                },
                metadata=words,
                **_WHOLE,
            )
        )
        # most rings are empty in most steps, and to make an array costs 70 us
        self._empty = {
            name: _records(self._lists[name], np.zeros(0, dtype))
            for name, dtype in self._rings.items()
        }
        self._file = _Packed(write, apart=apart)
        # of the library's callbacks none may run Python: what is raised there, as by a
        # second Ctrl-C, is printed and lost
        self._written = io.BytesIO()
        self._writer = StreamWriter.from_writable(self._written)
        self._notes: list[str] = []
        self._period_ns = 0  # when the last of the periods began
        self._clocks_ns = 0  # when they were read
        self.step(None, {})  # with the header, which is there from now on

    def note(self, **what: Any) -> None:
        """Say what happened before the next step, as a JSON object."""
        self._notes.append(json.dumps(what))

    def step(
        self,
        drained_ns: int | None,
        batch: Batch,
        *,
        periods: NDArray[np.int64] = NO_PERIODS,
        logs: Sequence[Log] = (),
    ) -> None:
        """Write one row; `drained_ns` is None where nothing was to be joined."""
        clocks = self._clocks()
        beside = {PERIODS: self._changed(periods)}
        beside |= {} if clocks is None else {CLOCKS: clocks}
        self._write(drained_ns, {**batch, **beside}, logs)

    def copy(self, step: Step) -> None:
        """Write a step as it was read of another recording, with its notes."""
        for note in step.notes:
            self.note(**note)
        self._write(step.drained_ns, step.rings | step.beside, step.logs)

    def _write(
        self,
        drained_ns: int | None,
        found: Mapping[str, NDArray[Any]],
        logs: Sequence[Log],
    ) -> None:
        logged = np.array([log[:2] for log in logs], SIDE_COLUMNS[LOGGED])
        columns = [_one(drained_ns)]
        for name in self._rings:
            records = logged if name == LOGGED else found.get(name)
            if records is None or not len(records):
                columns.append(self._empty[name])
            else:
                columns.append(_records(self._lists[name], records))
        columns.append(_strings(self._logs, [data for *_, data in logs]))
        columns.append(_strings(self._texts, [text.encode() for text in self._notes]))
        row = na.c_array_from_buffers(self._schema, 1, [None], children=columns)
        self._writer.write_array(row)
        self._pack()
        self._file.flush()
        self._notes.clear()

    def _pack(self) -> None:
        self._file.write(self._written.getvalue())
        self._written.seek(0)
        self._written.truncate()

    def _changed(self, periods: NDArray[np.int64]) -> NDArray[Any]:
        """Those that are new, and the last one before, whose end may be known now."""
        fresh = periods[periods[:, 0] >= self._period_ns]
        self._period_ns = int(periods[:, 0].max(initial=self._period_ns))
        found = np.zeros(len(fresh), SIDE_COLUMNS[PERIODS])
        found["from_ns"], found["until_ns"] = fresh.T
        return found

    def _clocks(self) -> NDArray[Any] | None:
        """Read all clocks, once a second."""
        if time.monotonic_ns() - self._clocks_ns < CLOCKS_EACH_NS:
            return None
        found = read_clocks()
        self._clocks_ns = int(found["monotonic_ns"][0])
        return found

    def end(self, sources: Mapping[str, Any] | None = None, **what: Any) -> None:
        """Say what the run says in the end, and what its clock was set by; close.

        `sources` are those of the clock, where others have read them.
        """
        self.note(**what)
        self.note(**{SOURCES: sources or read_clock_sources()})
        self.step(None, {})
        self.close()

    def close(self) -> None:
        """End the stream; no step may follow."""
        self._writer.close()
        self._pack()
        self._file.close()


class _Packed:
    """A file that packs what is written to it."""

    def __init__(self, write: Callable[[bytes], object], *, apart: bool) -> None:
        self._write = write
        self._apart = apart
        self._packer = _packer()

    def write(self, data: bytes) -> None:
        self._pass_on(self._packer.compress(data))

    def flush(self) -> None:
        if self._apart:
            self.close()
            self._packer = _packer()
        else:
            self._pass_on(self._packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))

    def close(self) -> None:
        self._pass_on(self._packer.flush())

    def _pass_on(self, packed: bytes) -> None:
        if packed:
            self._write(packed)


def _packer() -> Any:
    return zstandard.ZstdCompressor(level=LEVEL).compressobj()


def rings_of(layout: Layout, *, stories: bool) -> dict[str, np.dtype[Any]]:
    """Lay out what a run records; with stories what CPUs did, too."""
    if not stories:
        return layout.rings
    return layout.rings | layout.flights | {QUEUES: numbered(layout.device_queue)}


def recording_header(
    layout: Layout,
    capabilities: Sequence[Capability],
    ephemeral: range,
    **run: Any,
) -> dict[str, Any]:
    """Describe this host, its kernel and clocks, and what is recorded.

    `ephemeral` are clients' ports; `run` is what the run itself knows.
    """
    uname = platform.uname()
    return {
        "version": VERSION,
        "host": {"name": uname.node, "machine": _machine(), "boot": _boot()},
        "kernel": uname.release,
        "architecture": uname.machine,
        "clock": "CLOCK_MONOTONIC",
        "begun_unix_ns": time.time_ns(),
        SOURCES: read_clock_sources(),
        "capabilities": [capability.as_dict() for capability in capabilities],
        "layout": {name: getattr(layout, name) for name in WORDS},
        "ephemeral_ports": [ephemeral.start, ephemeral[-1]],
        **run,
    }


def _machine() -> str | None:
    """Name this host without giving machine-id(5) away, as its page asks for."""
    with suppress(OSError):
        number = Path("/etc/machine-id").read_bytes().strip()
        return hmac.new(number, b"latprof recording", "sha256").hexdigest()[:32]
    return None


def _boot() -> str | None:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None


def _field(name: str, dtype: np.dtype[Any]) -> na.Schema:
    """Describe a field of records: its type, unit, and of arrays their elements."""
    metadata = {"unit": unit} if (unit := unit_of(name)) else {}
    if dtype.subdtype is None:
        return na.Schema(
            _TYPES[dtype.str[1:]]().type, metadata=metadata or None, **_WHOLE
        )
    metadata["element"] = dtype.subdtype[0].str[1:]
    return na.Schema(
        na.Type.FIXED_SIZE_BINARY,
        byte_width=dtype.itemsize,
        metadata=metadata,
        **_WHOLE,
    )


def _list_of(dtype: np.dtype[Any]) -> Any:
    names = dtype.names or ()
    fields = {name: _field(name, dtype[name]) for name in names}
    return na.c_schema(na.list_(na.struct(fields, **_WHOLE), **_WHOLE))


def _one(value: int | None) -> Any:
    return na.c_array([value], na.int64())


def _records(schema: Any, records: NDArray[Any]) -> Any:
    """Make a list of one entry, whose items are the records, field by field."""
    struct = schema.child(0)
    fields = []
    for number, name in enumerate(records.dtype.names or ()):
        column = np.ascontiguousarray(records[name])
        values = column.view("u1").ravel() if column.ndim > 1 else column
        field = struct.child(number)
        fields.append(na.c_array_from_buffers(field, len(records), [None, values]))
    items = na.c_array_from_buffers(struct, len(records), [None], children=fields)
    return _list(schema, len(records), items)


def _strings(schema: Any, texts: Sequence[bytes]) -> Any:
    ends = np.cumsum([0, *map(len, texts)], dtype="i4")
    data = b"".join(texts)
    items = na.c_array_from_buffers(schema.child(0), len(texts), [None, ends, data])
    return _list(schema, len(texts), items)


def _list(schema: Any, length: int, items: Any) -> Any:
    bounds = np.array([0, length], "i4")
    return na.c_array_from_buffers(schema, 1, [None, bounds], children=[items])
