"""Functions by where their code is, in object files and in maps of JITs.

Symbol tables are read by libbcc, in C, and files may be made to break it: this runs in
a process of its own, which has no rights, see `files_helper`.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from bisect import bisect_left
from contextlib import suppress
from functools import cached_property

from latprof_agent.foreign_files import open_regular
from latprof_agent.symbols.elf_symbols import copy_symbols

LIBRARY = "libbcc.so.0"
INDIRECT = 0  # a call whose target is known when it runs only
_MOST_MAP_BYTES = 64 << 20
_LONGEST = 300  # characters of a name
_FUNCTIONS = 1 << 2 | 1 << 10  # STT_FUNC, STT_GNU_IFUNC
_DEBUG_FILES = "/usr/lib/debug/.build-id"
_ENDBR64 = b"\xf3\x0f\x1e\xfa"
_PUSH, _MOVE, _RETURN = b"\x55", b"\x48\x89\xe5", b"\xc3"  # %rbp; %rsp, %rbp
_PROLOGUE_BYTES = 32
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")

# Of its name, or "" where it has none; where it begins; where the call that ends
# at the address goes, None: there is no call before it; whether it has a frame of its
# own there, so that the next one of a stack is who called it; the name of what is
# called there, if that has a frame; where its code begins and ends, as it is asked for:
# 0 and 0 where other code may come to be.
Found = tuple[str, int, int | None, bool, str, int, int]


class _Option(ctypes.Structure):
    """struct bcc_symbol_option."""

    _fields_ = [
        ("use_debug_file", ctypes.c_int),  # no: a file's own words could open anything
        ("check_debug_file_crc", ctypes.c_int),
        ("lazy_symbolize", ctypes.c_int),
        ("use_symbol_type", ctypes.c_uint32),
    ]


_ON_SYMBOL = ctypes.CFUNCTYPE(
    *(ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)
)
_ON_SEGMENT = ctypes.CFUNCTYPE(
    *(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)
)


def call_before(code: bytes, behind: int) -> int | None:
    """Where the call goes that ends at `behind`, whose code ends there, too.

    INDIRECT where a register or memory has it; None: no call, or this machine's
    code is not known.
    """
    if os.uname().machine != "x86_64" or len(code) < 7:
        return None
    if code[-5] == 0xE8:
        return behind + int(struct.unpack("<i", code[-4:])[0])
    for length in (2, 3, 4, 6, 7):
        if code[-length] == 0xFF and _length(code[-length + 1 :]) == length:
            return INDIRECT
    return None


def _length(operand: bytes) -> int:
    """How long `call` is with this operand; 0: it is another instruction."""
    how = operand[0]
    mode, register = how >> 6, how & 7
    if (how >> 3) & 7 != 2:
        return 0
    length = 2
    if mode != 3 and register == 4:
        length += 1
        if mode == 0 and len(operand) > 1 and operand[1] & 7 == 5:
            length += 4
    if mode == 0 and register == 5:
        length += 4
    return length + (0, 1, 4, 0)[mode]


def has_frame(code: bytes, done: int) -> bool:
    """Whether a function has put up its frame where `done` bytes of it are behind.

    `code` is from its beginning to behind that place.
    """
    prologue = code.removeprefix(_ENDBR64)
    skipped = len(code) - len(prologue)
    begun = prologue[: min(done - skipped, _PROLOGUE_BYTES)] if done > skipped else b""
    standing = begun.startswith(_PUSH) and _MOVE in begun
    return standing and code[done : done + 1] != _RETURN


class _Elf:
    """An object file that is open."""

    def __init__(self, bcc: ctypes.CDLL | None, descriptor: int) -> None:
        self._bcc = bcc
        self._descriptor = descriptor
        self._segments: list[tuple[int, int, int]] = []
        self._read_header()

    def _read_header(self) -> None:
        """Segments that are code, and the build ID."""
        self.build_id = ""
        head = os.pread(self._descriptor, 64, 0)
        if head[:6] != b"\x7fELF\x02\x01":  # of 64 bits, little-endian
            return
        at, size, count = struct.unpack("<32xQ14xHH6x", head[:64])[:3]
        table = os.pread(self._descriptor, size * min(count, 256), at)
        for begin in range(0, len(table) - 55, max(size, 56)):
            kind, flags, offset, address, _, length = struct.unpack_from(
                "<IIQQQQ", table, begin
            )
            if kind == 1 and flags & 1:  # PT_LOAD, PF_X
                self._segments.append((offset, length, address))
            elif kind == 4 and not self.build_id:  # PT_NOTE
                notes = os.pread(self._descriptor, min(length, 4096), offset)
                self.build_id = _build_id(notes)

    def address_of(self, offset: int) -> int | None:
        """Where code at an offset is in symbol tables."""
        for begin, length, address in self._segments:
            if begin <= offset < begin + length:
                return address + offset - begin
        return None

    def offset_of(self, address: int) -> int | None:
        for begin, length, first in self._segments:
            if first <= address < first + length:
                return begin + address - first
        return None

    def call_before(self, offset: int) -> int | None:
        """Where the call goes that ends behind an offset, in addresses of symbols."""
        address = self.address_of(offset)
        if address is None or offset < 7:
            return None
        target = call_before(os.pread(self._descriptor, 7, offset - 6), address + 1)
        if target and self._is_stub(target):
            return INDIRECT
        return target

    def has_frame(self, offset: int, begin: int) -> bool:
        """Whether the function that begins at an address has its frame at an offset."""
        first = self.offset_of(begin)
        if first is None or offset < first:
            return False
        code = os.pread(self._descriptor, _PROLOGUE_BYTES + len(_ENDBR64), first)
        if offset < first + len(code):
            return has_frame(code, offset - first)
        at = os.pread(self._descriptor, 1, offset)
        return has_frame(code + at, len(code))

    def stands(self, begin: int) -> bool:
        """Whether the function that begins at an address has a frame once it runs."""
        first = self.offset_of(begin)
        return first is not None and self.has_frame(first + _PROLOGUE_BYTES, begin)

    def _is_stub(self, address: int) -> bool:
        """Whether a function is but a jump to where the linker put another file's."""
        offset = self.offset_of(address)
        if offset is None:
            return False
        code = os.pread(self._descriptor, 7, offset)
        jump = code.removeprefix(_ENDBR64).removeprefix(b"\xf2")
        return jump.startswith(b"\xff\x25")  # jmp *N(%rip)

    @cached_property
    def _symbols(self) -> list[int]:
        """Copies of its symbol tables, and of those of its debug file."""
        found = []
        with suppress(OSError, ValueError):
            found.append(copy_symbols(self._descriptor))
        if len(self.build_id) > 4:
            rest = f"{self.build_id[:2]}/{self.build_id[2:]}.debug"
            with suppress(OSError, ValueError):
                found.append(copy_symbols(open_regular(f"{_DEBUG_FILES}/{rest}")[0]))
        return found

    def names(self, addresses: list[int]) -> dict[int, tuple[str, int, int]]:
        """Names, begins and sizes of the functions that sorted addresses are in."""
        best: dict[int, tuple[tuple[int, int, int, int, bytes], bytes, int]] = {}

        def on_symbol(name: bytes, begin: int, size: int, _: object) -> int:
            at = bisect_left(addresses, begin)
            while at < len(addresses) and addresses[at] < begin + size:
                # the innermost, and of names of the same code the plainest
                bare = len(name) - len(name.lstrip(b"_"))
                order = -begin, size, bare, len(name), name
                if addresses[at] not in best or order < best[addresses[at]][0]:
                    best[addresses[at]] = order, name, begin
                at += 1
            return 0

        option = _Option(0, 0, 0, _FUNCTIONS)
        if self._bcc and addresses:
            for copy in self._symbols:
                self._bcc.bcc_elf_foreach_sym(
                    f"/proc/self/fd/{copy}".encode(),
                    *(_ON_SYMBOL(on_symbol), ctypes.byref(option), None),
                )
        return {
            address: (_demangled(name), begin, order[1])
            for address, (order, name, begin) in best.items()
        }


def _build_id(notes: bytes) -> str:
    at = 0
    while at + 12 <= len(notes):
        name, length, kind = struct.unpack_from("<III", notes, at)
        begin = at + 12 + (name + 3 & ~3)
        if kind == 3 and notes[at + 12 : at + 16] == b"GNU\0" and length <= 64:
            return notes[begin : begin + length].hex()
        at = begin + (length + 3 & ~3)
    return ""


def _demangled(name: bytes) -> str:
    """A name as its language writes it: of C++ and Rust."""
    text = name.decode(errors="replace")
    if text.startswith("_Z"):
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL("libstdc++.so.6")
            library.__cxa_demangle.restype = ctypes.c_void_p
            status = ctypes.c_int()
            found = library.__cxa_demangle(name, None, None, ctypes.byref(status))
            if found and status.value == 0:
                text = ctypes.string_at(found).decode(errors="replace")
                text = _RUST_HASH.sub("", text)
    return (
        text
        if len(text) <= _LONGEST
        else text[: _LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}"
    )


def of_elf(
    bcc: ctypes.CDLL | None, descriptor: int, offsets: list[int]
) -> tuple[dict[int, Found], str]:
    """Functions at offsets of an object file, and its build ID."""
    elf = _Elf(bcc, descriptor)
    addresses = {offset: elf.address_of(offset) for offset in offsets}
    known = elf.names(sorted({a for a in addresses.values() if a is not None}))
    found = {}
    for offset, address in addresses.items():
        name, begin, size = known.get(address or 0, ("", 0, 0))
        framed = bool(name) and elf.has_frame(offset, begin)
        first = offset - (address or 0) + begin if name else 0
        call = elf.call_before(offset)
        found[offset] = name, begin, call, framed, "", first, first + size
    return _with_callees(elf, found), elf.build_id


def _with_callees(elf: _Elf, found: dict[int, Found]) -> dict[int, Found]:
    """Name what is called, where the code says it."""
    targets = sorted({one[2] for one in found.values() if one[2]})
    if not targets:
        return found
    names = {
        target: name
        for target, (name, begin, _) in elf.names(targets).items()
        if begin == target and elf.stands(target)
    }
    return {
        at: (*one[:4], names.get(one[2] or 0, ""), *one[5:])
        for at, one in found.items()
    }


def of_map(descriptor: int, size: int, addresses: list[int]) -> dict[int, Found]:
    """Functions at addresses, of a map that a JIT wrote: "begin size name" in hex.

    The first `size` bytes of it, as more came later. It is written on and on, and what
    was thrown away stays in it: where lines name an address differently none is taken.
    """
    wanted = sorted(addresses)
    found: dict[int, Found] = {}
    left = min(size, _MOST_MAP_BYTES)
    with os.fdopen(os.dup(descriptor), "rb") as lines:
        lines.seek(0)
        while line := lines.readline(left):
            left -= len(line)
            words = line.split(maxsplit=2)
            try:
                begin, length = int(words[0], 16), int(words[1], 16)
                name = words[2].decode(errors="replace").rstrip("\n")[:_LONGEST]
            except (IndexError, ValueError):
                continue
            at = bisect_left(wanted, begin)
            while at < len(wanted) and wanted[at] < begin + length:
                same = wanted[at] not in found or found[wanted[at]][0] == name
                # functions in a JIT's map have frames
                named = name if same else ""
                found[wanted[at]] = named, begin, None, True, "", 0, 0
                at += 1
    return found
