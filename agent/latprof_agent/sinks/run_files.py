"""The run folder: what a run leaves, readable also when it is killed.

All files are made anew in the folder's own descriptor, and used by theirs: whatever
is put in the place of a name while the run goes on is neither read nor written.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from latprof_analysis.calling_user import User, calling_user
from latprof_analysis.records import exchange_rows, message_rows
from latprof_analysis.records.recording import NAME as RECORDING
from latprof_analysis.write.trusted_folder import give
from latprof_analysis.write.whole_file import replacing

from latprof_agent import _rows
from latprof_agent.errors import LatprofError, StoreError, remedy
from latprof_agent.sinks import round_trip_rows
from latprof_agent.sinks.run_place import OPTION, make_run_folder, restore_latest
from latprof_agent.sinks.sink import TakenBack
from latprof_agent.sinks.taken_back import Removed, remove

# Of what is in no exchange: requests without an answer, handshakes.
OTHER_TURNS = "other_turns"
# What a run has, by their columns.
TABLES = {
    "messages": message_rows.COLUMNS,
    "round_trips": round_trip_rows.COLUMNS,
    "exchanges": exchange_rows.COLUMNS,
    OTHER_TURNS: exchange_rows.COLUMNS,
}
# For run.json and summary.json, where the tables fill the disk.
RESERVED_BYTES = 1 << 18
# Of files: stories name functions of others' programs.
TABLE_MODE, NAMES_MODE = 0o644, 0o640
# Errors of the generator where its log cannot grow.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Unwritten(NamedTuple):
    table: str
    columns: list[Any]
    length: int


class RunFolder:
    """A new folder with the tables, run.json and summary.json.

    Raises UsageError where the folder exists or cannot be made, StoreError where
    a document cannot be written later (a full disk). Where a table cannot, `failure`
    says so, and its rows wait for `finish_tables`. What was written stays.
    """

    def __init__(
        self,
        path: Path | None,
        name: str = "",
        user: User | None = None,
        tables: Mapping[str, tuple[str, ...]] = TABLES,
        option: str = OPTION,
    ) -> None:
        """Make `path`, or else one in runs/ of this name, or of date and time.

        It and all in it is given to `user`, by default the calling one;
        `option` is the one that names the folder.
        """
        self._user = user or calling_user()
        made = make_run_folder(path, name, self._user, option)
        self.path, self._folder, self._latest = made
        self._failed: StoreError | None = None
        self._unwritten: list[_Unwritten] = []
        self._logs: list[int] = []
        self._tables: dict[str, int] = {}
        self._recording: int | None = None
        try:
            for table, columns in tables.items():
                self._open_table(table, columns)
            os.posix_fallocate(self._nameless(), 0, RESERVED_BYTES)
        except OSError as error:
            self.remove()
            why = os.strerror(error.errno or 0).lower()
            what = remedy(error.errno, f"use {option} DIR with another folder")
            raise StoreError(f"cannot write {self.path}: {why}; {what}") from error

    @property
    def failure(self) -> StoreError | None:
        """Why no more rows are written: no room, or a file has no name any more."""
        self._failed = self._failed or self._removed()
        return self._failed

    def remove(self) -> None:
        """Remove a folder without results; instead of `close`."""
        self.discard()
        self.close()

    def discard(self) -> None:
        """Leave no folder, nor a link to it; before `close`."""
        tables = (f"{table}.csv" for table in self._tables)
        for name in (*tables, RECORDING, "run.json", "summary.json", "stories.json"):
            with suppress(OSError):
                os.unlink(name, dir_fd=self._folder)
        with suppress(OSError):  # somebody has put something else there
            if os.path.samestat(self.path.lstat(), os.fstat(self._folder)):
                self.path.rmdir()
                restore_latest(self.path, self._latest, self._user)

    def _new(self, name: str, flags: int, mode: int = TABLE_MODE) -> int:
        flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, mode, dir_fd=self._folder)
        give(descriptor, self._user)
        return descriptor

    def _open_table(self, table: str, columns: tuple[str, ...]) -> None:
        line = (",".join(columns) + "\n").encode()
        descriptor = self._new(f"{table}.csv", os.O_RDWR | os.O_APPEND)
        self._tables[table] = descriptor
        if os.write(descriptor, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def add_messages(self, rows: message_rows.Messages) -> None:
        """Append rows to messages.csv."""
        self._append(_Unwritten("messages", rows.columns(), len(rows)))

    def add_exchanges(self, rows: exchange_rows.ExchangeRows) -> None:
        """Append rows to exchanges.csv, or to other_turns.csv."""
        table = "exchanges" if rows.are_exchanges else OTHER_TURNS
        self._append(_Unwritten(table, rows.columns(), len(rows)))

    def add_round_trips(self, rows: round_trip_rows.RoundTrips) -> None:
        """Append rows to round_trips.csv."""
        self._append(_Unwritten("round_trips", rows.columns(), len(rows)))

    def add_histograms(self, rows: message_rows.Rows) -> None:
        """Append rows to histograms.csv, where the folder has one."""
        self._append(_Unwritten("histograms", rows.columns(), len(rows)))

    def _append(self, rows: _Unwritten) -> None:
        if not rows.length:
            return
        descriptor = self._tables[rows.table]
        if not self.failure:
            end = os.fstat(descriptor).st_size
            try:
                _rows.write(descriptor, rows.columns, rows.length)
                return
            except OSError as error:
                self._failed = self._cannot_write(f"{rows.table}.csv", error)
                os.ftruncate(descriptor, end)
        self._unwritten.append(rows)

    @property
    def recording(self) -> int | None:
        """The descriptor of the recording, which is written at its end; None: none."""
        return self._recording

    def open_recording(self, mode: int = TABLE_MODE) -> Callable[[bytes], None]:
        """Make the file of the recording, and give what writes to its end."""
        try:
            self._recording = self._new(RECORDING, os.O_RDWR | os.O_APPEND, mode)
        except OSError as error:
            raise self._cannot_write(RECORDING, error) from error
        return self._record

    def _record(self, data: bytes) -> None:
        """Write all of it or, from then on, nothing; then `failure` says why."""
        if self.failure or self._recording is None:
            return
        end = os.fstat(self._recording).st_size
        try:
            while data:
                data = data[os.write(self._recording, data) :]
        except OSError as error:
            self._failed = self._cannot_write(RECORDING, error)
            os.ftruncate(self._recording, end)

    def take_back(self, conversations: Sequence[TakenBack]) -> list[Removed]:
        """Remove exchanges of conversations that turned out to have none."""
        return list(remove(self._tables["exchanges"], conversations))

    def read_exchanges(self) -> Iterator[Any]:
        """Read exchanges.csv and other_turns.csv as they are now, batch by batch."""
        from latprof_analysis.read.schema import EXCHANGES
        from latprof_analysis.read.table import TableReader

        for table in ("exchanges", OTHER_TURNS):
            own = Path(f"/proc/self/fd/{self._tables[table]}")
            yield from TableReader(own, EXCHANGES, threads=False)

    def free_logs(self) -> None:
        """Give back the room of the logs, which were read, and of what was reserved."""
        for log in self._logs:
            os.ftruncate(log, 0)

    def finish_tables(self) -> None:
        """Write what had found no room, as far as it goes now."""
        full = set()
        for rows in self._unwritten:
            if rows.table not in full and not self._write_whole_lines(rows):
                full.add(rows.table)
        self._unwritten.clear()

    def _write_whole_lines(self, rows: _Unwritten) -> bool:
        descriptor = self._tables[rows.table]
        end = os.fstat(descriptor).st_size
        try:
            _rows.write(descriptor, rows.columns, rows.length)
        except OSError:
            more = os.pread(descriptor, os.fstat(descriptor).st_size - end, end)
            os.ftruncate(descriptor, end + more.rfind(b"\n") + 1)
            return False
        return True

    def write_json(
        self, name: str, document: dict[str, Any], mode: int = 0o644
    ) -> None:
        """Write a document whole or not at all; `mode` as far as the umask lets."""
        self.write_text(name, json.dumps(document, indent=2) + "\n", mode)

    def write_text(self, name: str, text: str, mode: int = 0o644) -> None:
        """Write a file whole or not at all."""
        with self.whole_file(name, mode) as file:
            file.write(text.encode())

    def write_rows(
        self, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
    ) -> None:
        """Write a table of a workload's own as CSV; None is blank."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        self.write_text(name, text.getvalue())

    def copy(self, name: str, source: BinaryIO) -> None:
        """Write a file that has what another one has."""
        with self.whole_file(name) as file:
            shutil.copyfileobj(source, file)

    def write_parquet(self) -> None:
        """Write the tables as Parquet, too."""
        from latprof_analysis.read.parquet import convert
        from latprof_analysis.read.run_folder import SCHEMAS

        schemas = SCHEMAS | {OTHER_TURNS: SCHEMAS["exchanges"]}
        for table, descriptor in self._tables.items():
            with self.whole_file(f"{table}.parquet") as file:
                convert(Path(f"/proc/self/fd/{descriptor}"), file, schemas[table])

    @contextmanager
    def whole_file(self, name: str, mode: int = 0o644) -> Iterator[BinaryIO]:
        """Give a file that has its name only when it is whole."""
        try:
            with replacing(name, self._folder, self._user, mode=mode) as file:
                yield file
        except OSError as error:
            raise self._cannot_write(name, error) from error

    def _cannot_write(self, name: str, error: OSError) -> StoreError:
        return self._removed() or StoreError(
            f"cannot write {self.path / name}: {os.strerror(error.errno or 0).lower()};"
            " what was recorded until now is kept there"
        )

    def _removed(self) -> StoreError | None:
        """Say that a table, or the folder, has no name any more."""
        if not os.fstat(self._folder).st_nlink:
            return StoreError(
                f"cannot write {self.path}: the folder was removed during the run, and "
                "what was recorded with it; run it again"
            )
        for table, descriptor in self._tables.items():
            if not os.fstat(descriptor).st_nlink:
                return StoreError(
                    f"cannot write {self.path / table}.csv: it was removed during the "
                    "run, and its rows with it; the other files are kept"
                )
        return None

    def found(self) -> Path | None:
        """Where the folder is now, which may have been moved; None: removed."""
        own = os.fstat(self._folder)
        if not own.st_nlink:
            return None
        with suppress(OSError):
            if os.path.samestat(self.path.stat(), own):
                return self.path
        return Path(os.readlink(f"/proc/self/fd/{self._folder}"))  # noqa: PTH115

    def new_log(self) -> int:
        """Make a file for a generator's log, which has no name and so ends with us."""
        try:
            return self._nameless()
        except OSError as error:
            raise self._cannot_write("", error) from error

    def _nameless(self) -> int:
        name = f".log.{len(self._logs)}"
        self._logs.append(self._new(name, os.O_RDWR))
        os.unlink(name, dir_fd=self._folder)
        return self._logs[-1]

    def explain(self, error: LatprofError) -> LatprofError:
        """Give the reason of a generator's failure where it is this folder's."""
        for number in _NO_ROOM:
            if f"{os.strerror(number)}; give --output " in str(error):
                return self._cannot_write("", OSError(number, ""))
        return error

    def close(self) -> None:
        """Close all files."""
        recording = [] if self._recording is None else [self._recording]
        files = self._tables.values(), self._logs, recording, [self._folder]
        for descriptor in chain(*files):
            os.close(descriptor)
