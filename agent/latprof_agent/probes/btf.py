"""BPF Type Format: the types that an object file was compiled with.

Layout of the format: kernel documentation, Documentation/bpf/btf.rst.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

INT, PTR, ARRAY, STRUCT, UNION, ENUM = 1, 2, 3, 4, 5, 6
TYPEDEF, VOLATILE, CONST, RESTRICT = 8, 9, 10, 11
FUNC_PROTO, VAR, DATASEC, DECL_TAG, ENUM64 = 13, 14, 15, 17, 19
MODIFIERS = (TYPEDEF, VOLATILE, CONST, RESTRICT)

BTF_MAGIC = 0xEB9F
HEADER = struct.Struct("<HBBIIIII")
TYPE = struct.Struct("<III")
MEMBER = struct.Struct("<III")
ENUMERATOR = struct.Struct("<Ii")
ELF_SECTION = struct.Struct("<IIQQQQIIQQ")
ELF_SYMBOL = struct.Struct("<IBBHQQ")


class Member(NamedTuple):
    """A member of a struct (offset in bits) or a variable of a section (bytes)."""

    name: str
    type_id: int
    offset: int


@dataclass(frozen=True)
class Type:
    """One type: what of it applies depends on `kind`."""

    kind: int
    name: str
    size_or_type: int
    members: tuple[Member, ...] = ()
    enumerators: tuple[tuple[str, int], ...] = ()
    element: int = 0
    length: int = 0


def section(elf: bytes, wanted: str) -> bytes:
    """Return the bytes of one section of a 64-bit little-endian ELF file."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("object must be a 64-bit little-endian ELF file")
    (offset,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [ELF_SECTION.unpack_from(elf, offset + i * size) for i in range(count)]
    names = headers[names_index][4]
    for header in headers:
        if _text(elf, names + header[0]) == wanted:
            return elf[header[4] : header[4] + header[5]]
    raise ValueError(f"object must have a section {wanted}")


def variable_offset(elf: bytes, variable: str) -> int:
    """Offset of a variable in its section (the BTF gets it only when loaded)."""
    symbols, names = section(elf, ".symtab"), section(elf, ".strtab")
    for name, _, _, _, value, _ in ELF_SYMBOL.iter_unpack(symbols):
        if _text(names, name) == variable:
            return int(value)
    raise KeyError(variable)


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()


class Btf:
    """The types of one object, by number and by name."""

    def __init__(self, data: bytes) -> None:
        header = HEADER.unpack_from(data)
        if header[0] != BTF_MAGIC:
            raise ValueError("data must be BTF of this machine's byte order")
        _, _, _, length, types, types_size, names, names_size = header
        self._names = data[length + names : length + names + names_size]
        self.types = [Type(0, "void", 0)]
        at, stop = length + types, length + types + types_size
        while at < stop:
            at = self._read(data, at)

    def _name(self, offset: int) -> str:
        return _text(self._names, offset)

    def _read(self, data: bytes, at: int) -> int:
        name, info, size_or_type = TYPE.unpack_from(data, at)
        at += TYPE.size
        kind, count = info >> 24 & 0x1F, info & 0xFFFF
        found = Type(kind, self._name(name), size_or_type)
        if kind in (STRUCT, UNION, DATASEC):
            raw = [MEMBER.unpack_from(data, at + 12 * i) for i in range(count)]
            members = tuple(
                Member("", a, b) if kind == DATASEC else Member(self._name(a), b, c)
                for a, b, c in raw
            )
            found = Type(kind, found.name, size_or_type, members=members)
            at += 12 * count
        elif kind == ENUM:
            pairs = [ENUMERATOR.unpack_from(data, at + 8 * i) for i in range(count)]
            labels = tuple((self._name(text), value) for text, value in pairs)
            found = Type(kind, found.name, size_or_type, enumerators=labels)
            at += 8 * count
        elif kind == ARRAY:
            element, _, length = struct.unpack_from("<III", data, at)
            found = Type(kind, "", 0, element=element, length=length)
            at += 12
        else:
            at += {INT: 4, VAR: 4, DECL_TAG: 4, FUNC_PROTO: 8 * count}.get(kind, 0)
            at += 12 * count if kind == ENUM64 else 0
        self.types.append(found)
        return at

    def resolve(self, type_id: int) -> Type:
        """Follow typedefs and qualifiers to the type that they name."""
        found = self.types[type_id]
        while found.kind in MODIFIERS:
            found = self.types[found.size_or_type]
        return found

    def find(self, kind: int, name: str) -> Type:
        """Return the type with this kind and name."""
        for candidate in self.types:
            if candidate.kind == kind and candidate.name == name:
                return candidate
        raise KeyError(name)
