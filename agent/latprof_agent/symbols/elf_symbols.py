"""The symbol tables of an object file as a file of their own, in memory.

What reads symbol tables (libelf, in C) trusts sizes that the file names: of a sparse
file those of gigabytes. It gets this copy instead, of sections that were looked at and
are within a bound. Sections keep their numbers, as they name each other by them; what
is not copied is empty.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

MOST_BYTES = 64 << 20  # of the symbols of a file
_MOST_SECTIONS = 0xFFFF
_HEADER = struct.Struct("<16s2HI3QI6H")
_SECTION = struct.Struct("<2I4Q2I2Q")
_OF_64_BITS = b"\x7fELF\x02\x01"  # and little-endian
_SYMBOLS = (2, 11)  # SHT_SYMTAB, SHT_DYNSYM
_STRINGS = 3  # SHT_STRTAB
_SYMBOL_BYTES = 24
_PACKED = b".gnu_debugdata"  # symbols that some distributions leave in their files
_COPIED_BYTES = 1 << 20  # at once
_LONGEST = len(_PACKED) + 1


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


_EMPTY = _Section(*[0] * 10)


def copy_symbols(descriptor: int) -> int:
    """Return a descriptor of a copy in memory, which may be opened by /proc/self/fd.

    Raises ValueError where it is no such file, or its symbols take more than
    MOST_BYTES; OSError where it cannot be read.
    """
    head = os.pread(descriptor, _HEADER.size, 0)
    if not head.startswith(_OF_64_BITS) or len(head) < _HEADER.size:
        raise ValueError("it is no object file of 64 bits")
    fields = list(_HEADER.unpack(head))
    sections = _sections(descriptor, fields[6], fields[11], fields[12])
    wanted = _wanted(descriptor, sections, fields[13])
    if sum(sections[number].size for number in wanted) > MOST_BYTES:
        raise ValueError(f"its symbols take more than {MOST_BYTES} bytes")
    fields[5], fields[6], fields[10] = 0, _HEADER.size, 0  # no segments
    return _write(descriptor, fields, sections, sorted(wanted))


def _sections(descriptor: int, at: int, size: int, count: int) -> list[_Section]:
    if size != _SECTION.size or at >= 1 << 63:
        return []
    table = os.pread(descriptor, size * min(count, _MOST_SECTIONS), at)
    whole = len(table) - len(table) % size
    return [_Section(*fields) for fields in _SECTION.iter_unpack(table[:whole])]


def _wanted(descriptor: int, sections: list[_Section], names: int) -> set[int]:
    """Numbers of symbol tables, of what they name their symbols by, of packed ones."""
    found = set()
    for number, section in enumerate(sections):
        if section.kind in _SYMBOLS and section.entry == _SYMBOL_BYTES:
            text = sections[section.link] if section.link < len(sections) else _EMPTY
            if text.kind == _STRINGS:
                found |= {number, section.link}
        elif section.kind == 1 and names < len(sections):
            at = sections[names].offset + section.name
            if at < 1 << 63 and os.pread(descriptor, _LONGEST, at) == _PACKED + b"\0":
                found |= {number, names}
    return found


def _write(
    descriptor: int, fields: list[int], sections: list[_Section], wanted: list[int]
) -> int:
    copy = os.memfd_create("latprof-symbols")
    end = _HEADER.size + _SECTION.size * len(sections)
    table = [_EMPTY] * len(sections)
    for number in wanted:
        section = sections[number]
        end = -(-end // 16) * 16
        size = _copy(descriptor, section.offset, copy, end, section.size)
        table[number] = section._replace(offset=end, size=size, flags=0)
        end += size
    os.pwrite(copy, _HEADER.pack(*fields), 0)
    os.pwrite(copy, b"".join(_SECTION.pack(*one) for one in table), _HEADER.size)
    return copy


def _copy(source: int, begin: int, target: int, at: int, size: int) -> int:
    """Copy what is there of so many bytes, and return how many that were."""
    done = 0
    while done < size and begin + done < 1 << 63:
        part = os.pread(source, min(size - done, _COPIED_BYTES), begin + done)
        if not part:
            break
        done += os.pwrite(target, part, at + done)
    return done
