"""What gzip packed, unpacked while it is read; no more of it than a file can hold."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from pathlib import Path
from typing import BinaryIO

from latprof_analysis.read.result import ReadError

MAGIC = b"\x1f\x8b"
# Measurements shrink to a tenth, the same row again and again to a hundredth; what
# is made to fill a memory shrinks to a thousandth.
_MOST_TIMES = 200
_ALWAYS_BYTES = 64 << 20
_AT_ONCE = 1 << 20


class _Unpacked(io.RawIOBase):
    """The bytes that a packed file holds; where it is damaged, a `ReadError`."""

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


def unpacked(path: Path, packed: BinaryIO) -> io.BufferedReader:
    """Return what a file packed by gzip holds, to be read and sought in.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "any.gz"
    >>> _ = path.write_bytes(gzip.compress(b"size,ms"))
    >>> with unpacked(path, path.open("rb")) as file:
    ...     file.seek(-2, os.SEEK_END), file.read()
    (5, b'ms')
    """
    return io.BufferedReader(_Unpacked(path, packed), _AT_ONCE)
