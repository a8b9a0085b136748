"""What the caller names: files, run folders, patterns of them, found and opened."""

from __future__ import annotations

import glob
import gzip
import io
import json
import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from latprof_analysis.calling_user import ROOT
from latprof_analysis.read.result import ReadError

TABLES = ("messages", "round_trips", "exchanges")
HISTOGRAM_TABLE = "histograms"
SWEEP_FILE = "sweep.json"
_MOST_SWEEP_BYTES = 256 << 20  # of thousands of runs
TABLE_FILES = tuple(f"{table}.csv" for table in TABLES)
# Packed where somebody did so to keep a run.
TEXTS = (".csv", ".csv.gz")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Of a line of a text, as other tools print them.
_LONGEST_TEXT_BYTES = 64 << 10
_GZIP = b"\x1f\x8b"
_WIDE = "is UTF-16; save it as UTF-8, or name a CSV's column: --latency-column"
_PACKED = (
    (_GZIP, "is packed by gzip twice; unpack it once"),
    (
        b"\x28\xb5\x2f\xfd",
        "is compressed by zstd; unpack it (a recording: `latprof rebuild` its folder)",
    ),
    (b"PK\x03\x04", "is a zip archive; unpack it"),
    (
        b"\xff\xfe",
        _WIDE,
    ),
    (
        b"\xfe\xff",
        _WIDE,
    ),
)
# Measurements shrink to a tenth, the same row again and again to a hundredth; what
# is made to fill a memory shrinks to a thousandth.
_MOST_TIMES = 200
_ALWAYS_BYTES = 64 << 20
_AT_ONCE = 1 << 20


def text_of(path: Path | str) -> str:
    """Return a path as text: a byte that is no UTF-8 becomes U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")


def is_run_folder(path: Path) -> bool:
    """Whether a folder has any of a run's files."""
    names = [f"{table}{end}" for table in TABLES for end in (*TEXTS, ".parquet")]
    return path.is_dir() and any((path / name).is_file() for name in names)


def swept_folders(path: Path) -> list[Path]:
    """Return the folders of a sweep's combinations as `latprof run --sweep` had them.

    Empty where the folder is none of a sweep, or each run is a folder of its own.
    """
    try:
        with opened(path / SWEEP_FILE) as file:
            folders = json.loads(file.read(_MOST_SWEEP_BYTES))["folders"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    names = folders if isinstance(folders, list) else []
    # a name is of a folder in this one, and of no other
    here = [path / name for name in names if isinstance(name, str) and _is_name(name)]
    return [folder for folder in here if folder.is_dir()]


def _is_name(text: str) -> bool:
    return text not in ("", ".", "..") and not {"/", "\0"} & set(text)


def expand(paths: Path | str | Iterable[Path | str]) -> list[Path]:
    """Return what paths, folders of run folders and patterns name, each once.

    A link to a folder, as ``runs/latest`` is, stands for that folder: it has the
    folder's name, and beside it in a pattern is not read again.
    """
    given = [paths] if isinstance(paths, Path | str) else list(paths)
    found = [behind_link(path) for name in given for path in _expand_one(str(name))]
    if not found:
        raise ValueError("paths must name at least one file or folder")
    once: dict[Path, Path] = {}
    for path in found:
        once.setdefault(path.resolve(), path)
    return list(once.values())


def behind_link(path: Path) -> Path:
    """Return the folder that a link leads to, and anything else as it is."""
    linked = path.is_symlink() and path.is_dir()
    return path.parent / path.readlink() if linked else path


def _expand_one(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir() and not is_run_folder(path):
        above = swept_folders(path) or [path]
        return [run for folder in above for run in _runs_in(folder)] or [path]
    if path.exists() or not glob.has_magic(name):
        return [path]
    matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207
    if not matches:
        raise ReadError(name, "no file or folder matches the pattern")
    return [Path(match) for match in matches]


def _runs_in(folder: Path) -> list[Path]:
    return sorted(inner for inner in folder.iterdir() if is_run_folder(inner))


def opened(path: Path) -> BinaryIO:
    """Open a file to read; the reason in one line where that fails.

    What is no file on a disk is refused, since it may never end, or never begin: a
    FIFO, a device, a socket, and files that the kernel makes up, of 0 bytes. What
    gzip packed is unpacked on the way; what must be unpacked first is refused. So is,
    for root, what the links of other users lead to, unless it is theirs.
    """
    file = opened_as_is(path)
    try:
        start = start_of(file)
        if start.startswith(_GZIP):
            file = io.BufferedReader(_Unpacked(path, file), _AT_ONCE)
            start = file.peek(4)
        if not start:
            raise ReadError(path, "it is empty")
        for magic, why in _PACKED:
            if start.startswith(magic):
                raise ReadError(path, f"it {why}")
    except ReadError:
        file.close()
        raise
    return file


def start_of(file: io.BufferedReader) -> bytes:
    """Look at the first bytes of a file, of which there may be none.

    Of 0 bytes are those that the kernel makes up: a look may wait for ever.
    """
    return file.peek(4) if os.fstat(file.fileno()).st_size else b""


def opened_as_is(path: Path) -> io.BufferedReader:
    """Open a file as `opened` does, whatever is in it."""
    try:
        file = open(path, "rb", opener=_open_regular)  # noqa: SIM115
    except OSError as error:
        raise ReadError(path, (error.strerror or str(error)).lower()) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ReadError(path, "it is no regular file")
    return file


def _open_regular(name: str, flags: int) -> int:
    """Open a file of which it is known what it is: to open a device may do something.

    Without waiting for whoever holds a lease on it.
    """
    flags |= os.O_NONBLOCK
    if sys.platform != "linux":  # which alone has descriptors of what is not opened
        return os.open(name, flags)
    found = _found(Path(name))
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise ReadError(name, "it is no regular file")
        return os.open(f"/proc/self/fd/{found}", flags)
    finally:
        os.close(found)


def _found(path: Path) -> int:
    """Return a descriptor of what a name leads to, which is not opened by that."""
    folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        name = path.name or "."
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        if not stat.S_ISLNK(os.fstat(found).st_mode):
            return found
        os.close(found)
        found = os.open(name, os.O_PATH | os.O_CLOEXEC, dir_fd=folder)
        owner = os.fstat(folder).st_uid
        if os.geteuid() == ROOT != owner != os.fstat(found).st_uid:
            os.close(found)
            raise ReadError(
                path,
                "it is a link to a file that does not belong to whose folder this is; "
                "name that file itself",
            )
        return found
    finally:
        os.close(folder)


class _Unpacked(io.RawIOBase):
    """The bytes that gzip packed, no more of them than a measurement can hold.

    Where the packed file is damaged, a `ReadError`.
    """

    def __init__(self, path: Path, packed: BinaryIO) -> None:
        self._path = path
        self._packed = packed
        self._gzip = gzip.GzipFile(fileobj=packed, mode="rb")
        size = os.fstat(packed.fileno()).st_size
        self._most = max(_ALWAYS_BYTES, _MOST_TIMES * size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._packed.fileno()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._gzip.read(len(buffer))
        except EOFError as error:
            raise ReadError(self._path, "its gzip data break off") from error
        except (OSError, zlib.error) as error:
            why = f"its gzip data are damaged: {error}"
            raise ReadError(self._path, why) from error
        if self._gzip.tell() > self._most:
            times = f"more than {_MOST_TIMES} times its size"
            raise ReadError(
                self._path,
                f"it unpacks to {times}, as no measurement does; unpack it and look",
            )
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            rest = memoryview(bytearray(_AT_ONCE))
            while self.readinto(rest):
                pass
        if whence != os.SEEK_SET:
            offset += self._gzip.tell()
        return self._gzip.seek(offset)

    def close(self) -> None:
        self._packed.close()
        super().close()


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Give the lines of a text, counted from 1; of one without end its beginning."""
    line = 0
    with opened(path) as file:
        while text := file.readline(_LONGEST_TEXT_BYTES):
            line += 1
            yield line, text
            while text and not text.endswith(b"\n"):
                text = file.readline(_AT_ONCE)
