"""Read a recording: the steps of a run, with the records that each took in.

The format is in `latprof_agent.capture.recording_writer`, which writes it. A recording
may be somebody else's, so that nothing of it is believed: types are those of its Arrow
schema, and what does not fit is a `ReadError`.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.read.paths import opened_as_is
from latprof_analysis.read.result import ReadError

NAME = "recording.arrows.zst"
FORMAT = 1
# Names of columns beside those of the rings, and of the schema's metadata.
HEADER, DRAINED = "latprof", "drained_ns"
LOG, LOGGED, NOTES = "log", "logged", "notes"
PERIODS, CLOCKS = "cost_periods", "clocks"
SOURCES = "clock_sources"  # in the header, and in a note at the end
# What is no ring, laid out like one.
SIDE_COLUMNS = {
    # while the probes' own cost was measured; the end of the last may be yet to come
    PERIODS: np.dtype([("from_ns", "<i8"), ("until_ns", "<i8")]),
    # all clocks of the host at once: CLOCK_MONOTONIC was read `width_ns` apart before
    # and after the others; the kernel's own bound of the error of REALTIME, as NTP has
    # it, and 1 where it takes the clock for synchronised
    CLOCKS: np.dtype(
        [
            *((name, "<i8") for name in ("monotonic_ns", "realtime_ns", "tai_ns")),
            *((name, "<i8") for name in ("width_ns", "largest_error_ns")),
            *((name, "<i8") for name in ("estimated_error_ns", "frequency_ppb")),
            ("synchronised", "<i8"),
        ]
    ),
    # of each entry of `log`: which source of the run, and which of its logs
    LOGGED: np.dtype([("source", "<u4"), ("log", "<u4")]),
}
_UNITS = ("ns", "us", "jiffies", "bytes", "ppb")
Log = tuple[int, int, bytes]  # of which source, which of its logs, what was new
_INTEGERS = ("u1", "u2", "u4", "u8", "i8")
_MOST_KEPT_BYTES = 1 << 16  # of a schema; ours has 20 kB


@dataclass(frozen=True)
class RecordLayout:
    """How records are laid out, by the ring that they came from; what numbers mean."""

    rings: dict[str, np.dtype[Any]]
    flags: dict[str, int]
    heads: dict[str, int]  # what the first bytes of a message are
    endings: dict[str, int]  # how a connection ended
    held: dict[str, int]  # what held a socket's bytes back
    resent: dict[str, int]  # why a segment was sent again


# Fields that recordings of before lack: a flag says which records have them.
LATER_FIELDS = frozenset({("sent_messages", "run"), ("sent_messages", "waited")})
# Rings that they lack as a whole: no row is made of these.
LATER_RINGS = frozenset({"acknowledgements"})
# Of the header's layout: what numbers in records mean, by name.
WORDS = tuple(field.name for field in fields(RecordLayout) if field.name != "rings")


def unit_of(field: str) -> str:
    """Give the unit that a field's name ends with, "" if it has none.

    >>> unit_of("send_ns"), unit_of("flow")
    ('ns', '')
    """
    last = field.rpartition("_")[2]
    return last if last in _UNITS else ""


@dataclass(frozen=True)
class Step:
    """One step of a run; all records from before `drained_ns` are here.

    It is None where nothing was joined.
    """

    drained_ns: int | None
    rings: dict[str, NDArray[Any]]
    beside: dict[str, NDArray[Any]]  # by name in SIDE_COLUMNS
    logs: list[Log]
    notes: list[dict[str, Any]]


class Recording:
    """A recording, opened; `steps` reads it once, from the first to the last.

    It is read from `file`, where that is given, whatever stands at `path`.

    Attributes
    ----------
    header : dict
        Host, kernel, versions, filters, capabilities and layout.
    layout : RecordLayout
        Of the records.
    path : Path
        Where it is.
    cut_off : bool
        Once it is read: it ends within a step, as of a run that was killed.
    """

    def __init__(
        self,
        path: Path,
        file: IO[bytes] | io.RawIOBase | None = None,
        *,
        unpacked: bytes | None = None,
    ) -> None:
        """Open it; or what came from `path`, where it is `unpacked` already."""
        import pyarrow as pa

        self.path = path
        self.cut_off = False
        self._file: Any = file
        try:
            if unpacked is not None:
                stream = self._file = pa.BufferReader(unpacked)
                self._size = len(unpacked)
            else:
                self._file = file or opened_as_is(path)
                self._size = os.fstat(self._file.fileno()).st_size
                stream = pa.CompressedInputStream(self._file, "zstd")
            self._reader = pa.ipc.open_stream(stream)
            schema = self._reader.schema
            self.header = _header(path, schema.metadata or {})
            self._columns = _columns_of(schema)
            self.layout = _layout(self._columns, self.header["layout"])
        except ReadError:
            raise
        except _damages() as error:
            raise ReadError(path, f"it is no recording: {_line(error)}") from error

    def share(self) -> float:
        """How much of it was read."""
        return float(self._file.tell() / self._size)

    def steps(
        self,
        rings: Collection[str] | None = None,
        *,
        since_ns: int = 0,
        always: Collection[str] = (),
    ) -> Iterator[Step]:
        """Give all steps that are whole; see `cut_off`.

        Of these rings, where some are given: the others are not read, and not there.
        Those drained before `since_ns`, of CLOCK_MONOTONIC, come with their notes and
        the rings `always` alone: to pass them takes a sixth of the time.
        """
        import pyarrow as pa

        wanted = self._columns
        if rings is not None:
            wanted = {n: t for n, t in wanted.items() if n in {*rings, *SIDE_COLUMNS}}
        while True:
            try:
                batch = self._reader.read_next_batch()
            except StopIteration:
                return
            except (pa.ArrowException, OSError, MemoryError):
                self.cut_off = True
                return
            try:
                batch.validate(full=True)
                steps = list(self._steps_of(batch, wanted, since_ns, always))
            except _damages() as error:
                raise ReadError(self.path, f"it is damaged: {_line(error)}") from error
            yield from steps

    def _steps_of(
        self,
        batch: Any,
        wanted: Collection[str],
        since_ns: int,
        always: Collection[str],
    ) -> Iterator[Step]:
        for row in range(batch.num_rows):
            one = batch.slice(row, 1)
            drained_ns = one.column(DRAINED)[0].as_py()
            passed = (drained_ns or 0) < since_ns
            names = always if passed else wanted
            found = {n: _records(one.column(n), self._columns[n]) for n in names}
            beside = {n: found.pop(n) for n in SIDE_COLUMNS if n in found}
            logged = beside.get(LOGGED, np.zeros(0, SIDE_COLUMNS[LOGGED]))
            data = [] if passed else one.column(LOG)[0].as_py() or []
            yield Step(
                drained_ns,
                found,
                beside,
                [
                    (source, log, text)
                    for (source, log), text in zip(logged.tolist(), data, strict=True)
                ],
                [json.loads(text) for text in one.column(NOTES)[0].as_py() or []],
            )


def _header(path: Path, metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    header = json.loads(metadata[HEADER.encode()])
    if not isinstance(header, dict) or not isinstance(header.get("format"), int):
        raise ValueError("its header has no format")
    if header["format"] > FORMAT:
        raise ReadError(
            path,
            f"it has format {header['format']}, and this latprof reads {FORMAT}: use "
            f"latprof {header.get('version', 'of a later version')}",
        )
    return header


def _layout(
    columns: Mapping[str, np.dtype[Any]], words: Mapping[str, Any]
) -> RecordLayout:
    """Check that all words are numbers."""
    rings = {name: t for name, t in columns.items() if name not in SIDE_COLUMNS}
    named = {
        word: {str(name): int(number) for name, number in words[word].items()}
        for word in WORDS
    }
    return RecordLayout(rings, **named)


def _damages() -> tuple[type[Exception], ...]:
    """What reading somebody else's bytes may raise, beside `ReadError`."""
    import pyarrow as pa

    of_python = OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError
    return pa.ArrowException, *of_python


def _columns_of(schema: Any) -> dict[str, np.dtype[Any]]:
    """Lay out all columns of records."""
    packed = schema.remove_metadata().serialize().to_pybytes()
    if len(packed) > _MOST_KEPT_BYTES:
        return _laid_out(packed)
    return dict(_laid_out_before(packed))


def _laid_out(packed: bytes) -> dict[str, np.dtype[Any]]:
    import pyarrow as pa

    return {
        field.name: _dtype_of(field.type)
        for field in pa.ipc.read_schema(pa.py_buffer(packed))
        if field.name not in (DRAINED, LOG, NOTES)
    }


# Many hosts give recordings that are alike.
_laid_out_before = lru_cache(maxsize=8)(_laid_out)


def _dtype_of(column: Any) -> np.dtype[Any]:
    """Lay out the records of a column: a list of structs."""
    fields: list[Any] = []
    for field in column.value_type:
        width = getattr(field.type, "byte_width", 0)
        element = (field.metadata or {}).get(b"element", b"").decode()
        if element:
            if element not in _INTEGERS or width % int(element[1:]):
                raise ValueError(f"field {field.name} has an unknown layout")
            count = width // int(element[1:])
            fields.append((field.name, f"<{element}", (count,)))
        else:
            fields.append((field.name, _number(field)))
    return np.dtype(fields)


def _number(field: Any) -> str:
    found = np.dtype(field.type.to_pandas_dtype()).str[1:]
    if found not in _INTEGERS:
        raise ValueError(f"field {field.name} is no integer")
    return f"<{found}"


def _records(column: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Copy a row's records from their columns."""
    begin, end = column.offsets.to_numpy()
    records = np.empty(0 if column.null_count else end - begin, dtype)
    if not len(records):  # as most rings in most steps
        return records
    items = column.values.slice(begin, end - begin)
    for name, values in zip(dtype.names or (), items.flatten(), strict=True):
        if dtype[name].subdtype:
            data = np.frombuffer(values.buffers()[1] or b"", "u1")
            width = dtype[name].itemsize
            data = data[values.offset * width :][: len(values) * width]
            records[name] = data.view(dtype[name].base).reshape(records[name].shape)
        else:
            records[name] = values.to_numpy(zero_copy_only=False)
    return records


def _line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
