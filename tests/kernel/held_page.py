"""A page that is not there until a test gives it: whoever copies from it waits.

A send call that does so holds its socket's lock meanwhile (userfaultfd(2)).
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import select
import struct
from types import TracebackType

import pytest
from recording import DEADLINE_SECONDS

SYSTEM_CALL = {"x86_64": 323, "aarch64": 282}
UFFD_API, UFFD_WATCH, UFFD_ZERO = 0xC018AA3F, 0xC020AA00, 0xC020AA04
API_VERSION, MISSING_PAGES, EVENT_BYTES = 0xAA, 1, 32


class HeldPage:
    """One page of zeros; while it is held nobody can read it."""

    def __init__(self) -> None:
        """Make it; skips where the kernel does not let us."""
        library = ctypes.CDLL(None, use_errno=True)
        number = SYSTEM_CALL.get(platform.machine(), -1)
        self._faults = library.syscall(number, os.O_CLOEXEC)
        if self._faults < 0:
            pytest.skip(f"needs userfaultfd: {os.strerror(ctypes.get_errno())}")
        self.memory = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self._range = address, mmap.PAGESIZE
        self._ask(UFFD_API, "QQQ", API_VERSION, 0, 0)
        self._ask(UFFD_WATCH, "QQQQ", *self._range, MISSING_PAGES, 0)

    def _ask(self, request: int, form: str, *words: int) -> None:
        fcntl.ioctl(self._faults, request, bytearray(struct.pack(form, *words)))

    def wait_for_reader(self) -> None:
        """Return once somebody waits for it."""
        assert select.select([self._faults], [], [], DEADLINE_SECONDS)[0]
        os.read(self._faults, EVENT_BYTES)

    def give(self) -> None:
        """Let it be read."""
        self._ask(UFFD_ZERO, "QQQQ", *self._range, 0, 0)

    def __enter__(self) -> HeldPage:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._faults)  # who still waits goes on
