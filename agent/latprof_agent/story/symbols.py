"""Names of functions by their addresses, found while their processes live.

The kernel's are those of /proc/kallsyms. A program's come from bcc where that is
installed (python3-bpfcc): it reads symbol tables, debug links and the maps that JITs
write, also of containers. Without it an address is told as its file and offset.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from latprof_agent.monitor.kernel_functions import KernelFunctions

_DIST_PACKAGES = "/usr/lib/python3/dist-packages"  # of apt's python3-bpfcc
_UNKNOWN = "?"
_PERF_MAP = re.compile(rb"/perf-\d+\.map$")
_PATIENCE_SECONDS = 10.0  # a program of gigabytes


def _bcc() -> Any:
    """The module, of this Python or the system's; None: not installed."""
    with suppress(ImportError):
        import bcc

        return bcc
    if not os.path.isdir(f"{_DIST_PACKAGES}/bcc"):  # noqa: PTH112
        return None
    sys.path.append(_DIST_PACKAGES)
    try:
        import bcc

        return bcc
    except (ImportError, OSError, AttributeError):
        return None
    finally:
        sys.path.remove(_DIST_PACKAGES)


class _Maps:
    """What files a process has mapped where, as /proc/PID/maps said."""

    def __init__(self, text: str) -> None:
        self._parts = []
        for line in text.splitlines():
            span, mode, offset, _, _, *name = line.split(maxsplit=5)
            if "x" in mode:
                first, behind = (int(end, 16) for end in span.split("-"))
                path = name[0] if name else "[anonymous]"
                self._parts.append((first, behind, int(offset, 16), path))
        self._parts.sort()
        self._firsts = [part[0] for part in self._parts]

    def place(self, address: int) -> str:
        """Name the file and the offset in it."""
        at = bisect_right(self._firsts, address) - 1
        if at < 0 or address >= self._parts[at][1]:
            return _UNKNOWN
        first, _, offset, path = self._parts[at]
        return f"{path.rpartition('/')[2]}+{address - first + offset:#x}"


class Symbols:
    """Looks names up in a thread of its own, as a large program takes seconds."""

    def __init__(self) -> None:
        self.source = "none needed"  # or bcc, or file and offset
        self._names: dict[tuple[int, int], str] = {}
        self._kernel = KernelFunctions()
        self._caches: dict[int, Any] = {}
        self._queue: SimpleQueue[tuple[int, list[int], str] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._asked = self._answered = 0

    def note(self, samples: np.ndarray, pids: set[int]) -> None:
        """Look up all addresses in samples of these processes."""
        for pid in pids:
            mine = samples[samples["pid"] == pid]
            places = np.arange(mine["user"].shape[1]) < mine["user_frames"][:, None]
            addresses = np.unique(mine["user"][places]).tolist()
            new = [a for a in addresses if (pid, a) not in self._names]
            if not new:
                continue
            with suppress(OSError):
                text = Path(f"/proc/{pid}/maps").read_text(errors="replace")
                self._put(pid, new, text)

    def _put(self, pid: int, addresses: list[int], maps: str) -> None:
        if not self._thread:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()
        self._asked += 1
        self._queue.put((pid, addresses, maps))

    def _work(self) -> None:
        bcc = _bcc()
        self.source = "file and offset" if bcc is None else "bcc"
        while asked := self._queue.get():
            pid, addresses, text = asked
            maps = _Maps(text)
            for address in addresses:
                named = self._bcc_name(bcc, pid, address) if bcc else ""
                self._names[pid, address] = named or maps.place(address)
            self._answered += 1

    def _bcc_name(self, bcc: Any, pid: int, address: int) -> str:
        if pid not in self._caches:
            self._caches[pid] = bcc.SymbolCache(pid)
        name, _, module = self._caches[pid].resolve(address, True)
        # anybody may write a perf map into /tmp, and bcc asks it for what it lacks
        if not name or not module or _PERF_MAP.search(module):
            return ""
        return str(name.decode(errors="replace"))

    @property
    def settled(self) -> bool:
        """Whether all that was noted is looked up."""
        return self._asked == self._answered

    def finish(self) -> None:
        """Wait until all that was noted is looked up, but not for ever."""
        if self._thread:
            self._queue.put(None)
            self._thread.join(_PATIENCE_SECONDS)
            self._thread = None

    def user(self, pid: int, address: int) -> str:
        """Name an address of a process."""
        return self._names.get((pid, address), _UNKNOWN)

    def kernel(self, addresses: list[int]) -> dict[int, str]:
        """Name addresses of the kernel."""
        return self._kernel.names(addresses)
