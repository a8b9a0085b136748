"""What a process has mapped where: its files, opened so that they outlive it."""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from latprof_agent.story.symbol_helper import call_before

NOWHERE = -1
_MOST_FILES = 256  # that are open at once
_IMAGE = 0xFFFFFFFF  # bits of its number
_CODE_BYTES = 7  # of the longest call


class Place(NamedTuple):
    """Where an address is.

    Attributes
    ----------
    source : int
        Which of `Sources` names it, NOWHERE: none.
    at : int
        What to ask that for: an offset in a file, or an address.
    shown : str
        What to tell where it has no name.
    call : int or None
        Of code that its process made itself: see `call_before`.
    """

    source: int
    at: int
    shown: str
    call: int | None = None


@dataclass
class Source:
    """A file that can name places."""

    descriptor: int
    name: str
    map_bytes: int | None = None  # of a JIT's map; None: it is an object file
    build_id: str = ""


class Sources:
    """Files that can name places: each has one number, open or closed."""

    def __init__(self) -> None:
        self.all: list[Source] = []
        self._known: dict[tuple[int, ...], int] = {}

    def add(self, descriptor: int, name: str, *, is_map: bool = False) -> int:
        """Take a descriptor over, and number its file; NOWHERE: too many are open."""
        told = os.fstat(descriptor)
        key = told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, is_map
        number = self._known.get(key, NOWHERE)
        is_open = number != NOWHERE and self.all[number].descriptor >= 0
        if is_open or sum(one.descriptor >= 0 for one in self.all) >= _MOST_FILES:
            os.close(descriptor)
        elif number == NOWHERE:
            number = self._known[key] = len(self.all)
            self.all.append(Source(descriptor, name, told.st_size if is_map else None))
        else:
            self.all[number].descriptor = descriptor
        return number

    def close(self, number: int) -> None:
        """Close a file; its number stays its own."""
        source = self.all[number]
        if source.descriptor >= 0:
            os.close(source.descriptor)
            source.descriptor = -1


class _Mapping(NamedTuple):
    first: int
    behind: int
    offset: int
    device: str
    inode: int
    path: str

    @property
    def is_made(self) -> bool:
        """Whether its process made what is in it, as JITs do."""
        return not self.inode or self.path.startswith(("/memfd:", "/dev/zero"))


def _mappings(text: str) -> list[_Mapping]:
    """Read those that are code from /proc/PID/maps."""
    found = []
    for line in text.splitlines():
        span, mode, offset, device, inode, *name = line.split(maxsplit=5)
        if "x" in mode:
            first, behind = (int(end, 16) for end in span.split("-"))
            path = name[0] if name else ""
            found.append(
                _Mapping(first, behind, int(offset, 16), device, int(inode), path)
            )
    return sorted(found)


def _stack(text: str) -> tuple[int, int]:
    """From where to where the first thread's stack is."""
    for line in text.splitlines():
        if line.endswith("[stack]"):
            first, behind = line.split(maxsplit=1)[0].split("-")
            return int(first, 16), int(behind, 16)
    return 0, 0


class Image:
    """The program that a process runs now; raises OSError where it may not be read.

    What its files are is asked of the process as /proc opened it, so that another one
    of the same number is never taken for it.
    """

    def __init__(self, pid: int, sources: Sources, proc: Path = Path("/proc")) -> None:
        self._sources = sources
        self._folder = os.open(proc / str(pid), os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._number = self._start_stack()
            text = self._text("maps")
        except BaseException:
            self.close()
            raise
        self._mappings = _mappings(text)
        self._firsts = [mapping.first for mapping in self._mappings]
        self._stack = _stack(text)
        self._opened: dict[_Mapping | None, int] = {}

    def close(self) -> None:
        """Let go of the process."""
        os.close(self._folder)

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
        """Whether it has run no other program meanwhile."""
        if self._number:
            return self._start_stack() == self._number
        return _stack(self._text("maps"))[1] == self._stack[1]  # it grows down

    def _text(self, name: str) -> str:
        descriptor = os.open(name, os.O_RDONLY, dir_fd=self._folder)
        with os.fdopen(descriptor, errors="replace") as file:
            return file.read()

    def _start_stack(self) -> int:
        """0: we may not see it."""
        fields = self._text("stat").rpartition(")")[2].split()
        return int(fields[25]) >> 4 & _IMAGE

    def place(self, address: int) -> Place | None:
        """Tell where an address is, and open the file that can name it."""
        at = bisect_right(self._firsts, address) - 1
        if at < 0 or address >= self._mappings[at].behind:
            return None
        mapping = self._mappings[at]
        if not mapping.path.startswith("/") or mapping.is_made:
            return self._made(mapping, address)
        offset = address - mapping.first + mapping.offset
        shown = f"{_file_name(mapping.path)}+{offset:#x}"
        return Place(self._open(mapping), offset, shown)

    def _made(self, mapping: _Mapping, address: int) -> Place:
        if mapping.path.startswith("[v"):  # vdso, vsyscall
            offset = address - mapping.first
            return Place(NOWHERE, offset, f"{mapping.path}+{offset:#x}")
        if None not in self._opened:
            self._opened[None] = self._open_map()
        source = self._opened[None]
        return Place(source, address, f"[JIT]+{address:#x}", self._call(address))

    def _call(self, address: int) -> int | None:
        """See the code of the process itself: nothing keeps it when it has ended."""
        try:
            memory = os.open("mem", os.O_RDONLY, dir_fd=self._folder)
        except OSError:
            return None
        try:
            begin = address + 1 - _CODE_BYTES
            return call_before(os.pread(memory, _CODE_BYTES, begin), address + 1)
        except (OSError, OverflowError):
            return None
        finally:
            os.close(memory)

    def _open(self, mapping: _Mapping) -> int:
        if mapping not in self._opened:
            self._opened[mapping] = NOWHERE
            with suppress(OSError):
                descriptor = self._descriptor(mapping)
                name = _file_name(mapping.path)
                self._opened[mapping] = self._sources.add(descriptor, name)
        return self._opened[mapping]

    def _descriptor(self, mapping: _Mapping) -> int:
        """Open what is mapped, if it was deleted, too, and not what a path names now.

        Not before it is seen to be a file: to open a device may do something.
        """
        device = os.makedev(*(int(part, 16) for part in mapping.device.split(":")))
        span = f"map_files/{mapping.first:x}-{mapping.behind:x}"
        rooted = f"root{mapping.path}"  # where we may not follow the former
        for path, devices in ((span, None), (rooted, device)):
            try:
                found = os.open(path, os.O_PATH, dir_fd=self._folder)
            except OSError:
                continue
            try:
                told = os.fstat(found)
                # of some file systems the former has another device than its maps
                same = told.st_ino == mapping.inode and told.st_dev == (
                    devices or told.st_dev
                )
                if same and stat.S_ISREG(told.st_mode):
                    return os.open(f"/proc/self/fd/{found}", os.O_RDONLY)
            finally:
                os.close(found)
        raise FileNotFoundError(mapping.path)

    def _open_map(self) -> int:
        """Open the map that a JIT writes of its code, if nobody else could have."""
        try:
            status = dict(
                line.split(":", 1) for line in self._text("status").splitlines()
            )
            pid, user = status["NSpid"].split()[-1], int(status["Uid"].split()[1])
            name = f"perf-{pid}.map"
            descriptor = self._in_its_tmp(name)
        except (OSError, KeyError, ValueError):
            return NOWHERE
        told = os.fstat(descriptor)
        others_write = told.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISREG(told.st_mode) and told.st_uid in (0, user) and not others_write:
            return self._sources.add(descriptor, name, is_map=True)
        os.close(descriptor)
        return NOWHERE

    def _in_its_tmp(self, name: str) -> int:
        """Open a file of the process' own /tmp; no link may lead out of its root."""
        how = os.O_PATH | os.O_DIRECTORY
        root = os.open("root", how, dir_fd=self._folder)
        try:
            folder = os.open("tmp", how | os.O_NOFOLLOW, dir_fd=root)
        finally:
            os.close(root)
        try:
            how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
            return os.open(name, how, dir_fd=folder)
        finally:
            os.close(folder)


def _file_name(path: str) -> str:
    """The last part of a path; what the kernel says of a deleted one stays."""
    return path.rpartition("/")[2]
