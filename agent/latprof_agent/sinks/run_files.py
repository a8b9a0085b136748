"""The run folder: what a run leaves, readable also when it is killed."""

from __future__ import annotations

import errno
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from latprof_agent import _rows
from latprof_agent.errors import LatprofError, StoreError, UsageError
from latprof_agent.join import exchange_rows, message_rows
from latprof_agent.sinks import round_trip_rows

DEFAULT_PARENT = Path("runs")
LATEST = "latest"  # a link beside the run folders, to the newest


class RunFolder:
    """A new folder with the tables, run.json and summary.json.

    Raises UsageError where the folder exists or cannot be made, StoreError where
    it cannot be written later (a full disk); what was written stays.
    """

    def __init__(self, path: Path | None, name: str = "") -> None:
        """Make `path`, or else one in runs/ of this name, or of date and time."""
        self.path = _create(path, name)
        if self.path.absolute().parent == DEFAULT_PARENT.absolute():
            _link_latest(self.path)
        self.failed: StoreError | None = None
        self._messages = self._open_csv("messages.csv", message_rows.COLUMNS)
        self._round_trips = self._open_csv("round_trips.csv", round_trip_rows.COLUMNS)
        self._exchanges = self._open_csv("exchanges.csv", exchange_rows.COLUMNS)

    def _open_csv(self, name: str, columns: tuple[str, ...]) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        line = (",".join(columns) + "\n").encode()
        try:
            descriptor = os.open(self.path / name, flags, 0o644)
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._cannot_write(name, error) from error
        return descriptor

    def add_messages(self, rows: message_rows.Messages) -> None:
        """Append rows to messages.csv."""
        self._append(self._messages, "messages.csv", rows.columns(), len(rows))

    def add_exchanges(self, rows: exchange_rows.ExchangeRows) -> None:
        """Append rows to exchanges.csv."""
        self._append(self._exchanges, "exchanges.csv", rows.columns(), len(rows))

    def add_round_trips(self, rows: round_trip_rows.RoundTrips) -> None:
        """Append rows to round_trips.csv."""
        self._append(self._round_trips, "round_trips.csv", rows.columns(), len(rows))

    def _append(self, descriptor: int, name: str, columns: list[Any], n: int) -> None:
        if not n or self.failed:
            return
        end = os.fstat(descriptor).st_size
        try:
            _rows.write(descriptor, columns, n)
        except OSError as error:
            os.ftruncate(descriptor, _last_line_end(self.path / name, end))
            self.failed = self._cannot_write(name, error)
            raise self.failed from error

    def write_json(self, name: str, document: dict[str, Any]) -> None:
        """Write a document whole or not at all."""
        partial = self.path / f".{name}.partial"
        try:
            partial.write_text(json.dumps(document, indent=2) + "\n")
            partial.rename(self.path / name)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise self._cannot_write(name, error) from error

    def write_parquet(self) -> None:
        """Write the tables as Parquet, too."""
        from latprof_analysis.readers.parquet_writing import write_parquet

        try:
            write_parquet(self.path)
        except OSError as error:
            raise self._cannot_write("*.parquet", error) from error

    def _cannot_write(self, name: str, error: OSError) -> StoreError:
        return StoreError(
            f"cannot write {self.path / name}: {os.strerror(error.errno or 0).lower()};"
            " what was recorded until now is kept there"
        )

    def log_path(self, protocol: str) -> Path:
        """Where the generator logs; read while it runs, then removed."""
        return self.path / f".{protocol}.log"

    def explain(self, error: LatprofError) -> LatprofError:
        """Give the reason of a generator's failure where it is this folder's."""
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return (
            self._cannot_write("", full) if str(full.strerror) in str(error) else error
        )

    def remove_logs(self) -> None:
        """Remove the generator's logs."""
        for log in self.path.glob(".*.log"):
            log.unlink()

    def close(self) -> None:
        """Close the files; nothing but them stays."""
        for descriptor in (self._messages, self._exchanges, self._round_trips):
            os.close(descriptor)
        self.remove_logs()


def _last_line_end(path: Path, begin: int) -> int:
    """Where the last whole line ends, at `begin` or behind it."""
    with path.open("rb") as file:
        file.seek(begin)
        return begin + file.read().rfind(b"\n") + 1


def check_free(path: Path | None) -> None:
    """Raise UsageError where no run folder could be made, before anything is done."""
    if path and os.path.lexists(path):
        raise _exists(path)
    wanted = path or DEFAULT_PARENT / "DATE-TIME"
    above = next(p for p in wanted.absolute().parents if os.path.lexists(p))
    if not above.is_dir():
        raise _cannot_make(wanted, f"{above} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise _cannot_make(wanted, f"{above} cannot be written")


def _exists(path: Path) -> UsageError:
    return UsageError(f"--out: {path} exists already; name another folder")


def _cannot_make(path: Path, why: str) -> UsageError:
    return UsageError(
        f"cannot make run folder {path}: {why}; use --out DIR with another folder"
    )


def _create(path: Path | None, name: str) -> Path:
    stem = DEFAULT_PARENT / (name or time.strftime("%Y%m%d-%H%M%S"))
    paths = [path] if path else [stem, *(Path(f"{stem}-{n}") for n in range(2, 1000))]
    for one in paths:
        try:
            one.mkdir(parents=True)
            return one
        except FileExistsError:
            continue
        except OSError as error:
            why = os.strerror(error.errno or 0).lower()
            raise _cannot_make(one, why) from error
    raise _exists(paths[-1])


def _link_latest(folder: Path) -> None:
    """Let `latest` lead to the folder; where it cannot, the run goes on without.

    What stands there and is no link is somebody else's.
    """
    link, made = folder.with_name(LATEST), folder.with_name(f".{LATEST}.{os.getpid()}")
    if os.path.lexists(link) and not link.is_symlink():
        return
    with suppress(OSError):
        made.symlink_to(folder.name)
        try:
            made.replace(link)
        finally:
            made.unlink(missing_ok=True)
