"""What a process has mapped where, and the files that can name it.

Of a process that anybody may have made: this runs in a process of its own, see
`files_helper`.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from latprof_agent.foreign_files import Rights, fields_of, place_of, reopen
from latprof_agent.kernel_text import split_lines
from latprof_agent.symbols.symbol_tables import call_before

NOWHERE = -1
_IMAGE = 0xFFFFFFFF  # bits of its number
_CODE_BYTES = 7  # of the longest call
_MOST_TEXT_BYTES = 4 << 20  # of a file of /proc: 40,000 mappings
_MADE = (b"/memfd:", b"/dev/zero")


def image_of(start_stack: int) -> int:
    """Return the number that a sample has of a program, as in bpf/records.h."""
    return start_stack >> 4 & _IMAGE


class Place(NamedTuple):
    """Where an address is.

    Attributes
    ----------
    source : int
        Number of the file that names it, NOWHERE: none.
    at : int
        What to ask that for: an offset in a file, or an address.
    shown : str
        What to show where it has no name.
    call : int or None
        Of code that its process made itself: see `call_before`.
    first, behind : int
        From which address to which is mapped what is here.
    """

    source: int
    at: int
    shown: str
    call: int | None = None
    first: int = 0
    behind: int = 0


class Opened(NamedTuple):
    """A file that can name places, and was opened."""

    descriptor: int
    key: list[int]  # device, inode, size, time of change, whether it is a JIT's map
    map_bytes: int | None  # of a JIT's map; None: it is an object file


class _Candidate(NamedTuple):
    place: int  # see `place_of`
    is_mapped: bool  # not only of the same path


class _Mapping(NamedTuple):
    first: int
    behind: int
    offset: int
    device: bytes
    inode: int
    path: bytes

    @property
    def is_made(self) -> bool:
        """Whether its process made what is in it, as JITs do."""
        return not self.inode or self.path.startswith(_MADE)

    @property
    def name(self) -> str:
        """The last part of its path; what the kernel says of a deleted one stays."""
        return self.path.rpartition(b"/")[2].decode(errors="backslashreplace")


def _mappings(text: bytes) -> list[_Mapping]:
    """Read those that are code from /proc/PID/maps."""
    found = []
    for line in split_lines(text):
        span, mode, offset, device, inode, *path = line.split(maxsplit=5)
        if b"x" in mode:
            first, behind = (int(end, 16) for end in span.split(b"-"))
            found.append(
                _Mapping(
                    *(first, behind, int(offset, 16), device, int(inode)),
                    path[0] if path else b"",
                )
            )
    return sorted(found)


def _stack(text: bytes) -> tuple[int, int]:
    """From where to where the first thread's stack is."""
    for line in split_lines(text):
        if line.endswith(b" [stack]"):
            first, behind = line.split(maxsplit=1)[0].split(b"-")
            return int(first, 16), int(behind, 16)
    return 0, 0


class Image:
    """The program that a process runs now; raises OSError where it may not be read.

    What its files are is asked of the process as /proc opened it, so that another one
    of the same number is never taken for it.
    """

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._folder = os.open(proc / str(pid), os.O_RDONLY | os.O_DIRECTORY)
        status = self._text("status")
        self.rights = Rights.of(status)
        self._fields = fields_of(status)
        self._number = self._start_stack()
        text = self._text("maps")
        self._mappings = _mappings(text)
        self._firsts = [mapping.first for mapping in self._mappings]
        self._stack = _stack(text)
        # what names places, found but not opened; None: the map of its JIT
        self._wanted: dict[_Mapping | None, int] = {}
        self._found: list[tuple[_Mapping | None, list[_Candidate]]] = []

    def is_of(self, number: int) -> bool:
        """Whether it is the `image` of a sample, as bpf/records.h has it.

        Who may not see the number may see between which addresses it is: that another
        program's is there is one chance in 500,000.
        """
        if self._number:
            return number == self._number
        first, behind = (end >> 4 for end in self._stack)
        return (number - first) & _IMAGE < behind - first

    def stays(self) -> bool:
        """Whether it has run no other program, with other rights, meanwhile."""
        if Rights.of(self._text("status")) != self.rights:
            return False
        if self._number:
            return self._start_stack() == self._number
        return _stack(self._text("maps"))[1] == self._stack[1]  # it grows down

    def _text(self, name: str) -> bytes:
        descriptor = os.open(name, os.O_RDONLY, dir_fd=self._folder)
        with os.fdopen(descriptor, "rb") as file:
            found = file.read(_MOST_TEXT_BYTES)
        return found[: found.rfind(b"\n") + 1]  # whole lines

    def _start_stack(self) -> int:
        """0: we may not see it."""
        fields = self._text("stat").rpartition(b")")[2].split()
        return image_of(int(fields[25]))

    def place(self, address: int) -> Place | None:
        """Find where an address is; `source` counts what `open_files` opens."""
        at = bisect_right(self._firsts, address) - 1
        if at < 0 or address >= self._mappings[at].behind:
            return None
        mapping = self._mappings[at]
        if not mapping.path.startswith(b"/") or mapping.is_made:
            return self._made(mapping, address)
        offset = address - mapping.first + mapping.offset
        shown = f"{mapping.name}+{offset:#x}"
        span = mapping.first, mapping.behind
        return Place(self._want(mapping), offset, shown, None, *span)

    def _made(self, mapping: _Mapping, address: int) -> Place:
        span = mapping.first, mapping.behind
        if mapping.path.startswith(b"[v"):  # vdso, vsyscall
            offset = address - mapping.first
            shown = f"{mapping.path.decode()}+{offset:#x}"
            return Place(NOWHERE, offset, shown, None, *span)
        shown = f"[JIT]+{address:#x}"
        return Place(self._want(None), address, shown, self._call(address), *span)

    @cached_property
    def _memory(self) -> int:
        return os.open("mem", os.O_RDONLY, dir_fd=self._folder)

    def _call(self, address: int) -> int | None:
        """See the code of the process itself: nothing keeps it when it has ended."""
        try:
            code = os.pread(self._memory, _CODE_BYTES, address + 1 - _CODE_BYTES)
        except (OSError, OverflowError):
            return None
        return call_before(code, address + 1)

    def _want(self, mapping: _Mapping | None) -> int:
        if mapping not in self._wanted:
            self._wanted[mapping] = len(self._found)
            self._found.append((mapping, self._find(mapping)))
        return self._wanted[mapping]

    def _find(self, mapping: _Mapping | None) -> list[_Candidate]:
        """Where it may be: what is mapped, if it was deleted, too, then its path.

        To find it needs our rights, to open it those of the process.
        """
        names = [(b"root", False)]
        if mapping:
            span = b"map_files/%x-%x" % (mapping.first, mapping.behind)
            # the latter where we may not follow the former
            names = [(span, True), (b"root" + mapping.path, False)]
        found = []
        for name, is_mapped in names:
            with suppress(OSError):
                place = place_of(os.fsdecode(name), self._folder)
                found.append(_Candidate(place, is_mapped))
        return found

    def open_files(self) -> list[Opened | None]:
        """Open them in the order in which they were wanted; None: it may not be."""
        return [
            self._open_mapped(mapping, places) if mapping else self._open_map(places)
            for mapping, places in self._found
        ]

    def _open_mapped(
        self, mapping: _Mapping, candidates: list[_Candidate]
    ) -> Opened | None:
        """Open what is mapped, and not what a path names now."""
        device = os.makedev(*(int(part, 16) for part in mapping.device.split(b":")))
        for place, is_mapped in candidates:
            with suppress(OSError):
                status = os.fstat(place)
                # of some file systems what is mapped has another device than its maps
                is_it = is_mapped or status.st_dev == device
                if is_it and status.st_ino == mapping.inode:
                    descriptor, status = reopen(place)
                    return _opened(descriptor, status)
        return None

    def _open_map(self, roots: list[_Candidate]) -> Opened | None:
        """Open the map that a JIT writes of its code, if nobody else could have.

        Of the process' own /tmp; no link may lead out of its root. None where its
        rights are not those of who started it, who may have made what is there.
        """
        starter, *_, user = self._fields[b"Uid"].split()
        if starter != user:
            return None
        name = f"perf-{int(self._fields[b'NSpid'].split()[-1])}.map"
        with suppress(OSError, IndexError):
            folder = place_of("tmp", roots[0].place, follow=False)
            descriptor, status = reopen(place_of(name, folder, follow=False))
            others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if status.st_uid in (0, self.rights.user) and not others_write:
                return _opened(descriptor, status, is_map=True)
        return None


def _opened(descriptor: int, status: os.stat_result, *, is_map: bool = False) -> Opened:
    key = [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, is_map]
    return Opened(descriptor, key, status.st_size if is_map else None)


def look(
    request: dict[str, Any], proc: Path = Path("/proc")
) -> tuple[dict[str, list[Any]], list[Opened | None]]:
    """Find where addresses of a process are, and open what names them with its rights.

    `request` has its `pid`, and `images`: by number the addresses. Returns by number
    [address, *Place] or [address, None] of those images that it runs, and the files
    that places count. We have the rights of the process from then on.
    """
    image = Image(request["pid"], proc)
    places = {
        number: [[address, image.place(address)] for address in addresses]
        for number, addresses in request["images"].items()
        if image.is_of(int(number))
    }
    if not places or not image.stays():
        return {}, []
    image.rights.take()
    return places, image.open_files()
