"""The probes' records as numpy dtypes, read from the object's BTF."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from latprof_agent.probes import btf

# an editable install has it in the build folder
OBJECT = Path(str(files("latprof_agent") / "latprof.bpf.o"))


def dtype_of(types: btf.Btf, type_id: int) -> np.dtype[Any]:
    """Translate a BTF type of fixed size into a dtype with the same layout."""
    found = types.resolve(type_id)
    if found.kind == btf.INT:
        return np.dtype(f"<u{found.size_or_type}")
    if found.kind == btf.ARRAY:
        return np.dtype((dtype_of(types, found.element), (found.length,)))
    if found.kind != btf.STRUCT:
        raise ValueError(f"a record must hold integers and arrays, not {found}")
    return np.dtype(
        {
            "names": [member.name for member in found.members],
            "formats": [dtype_of(types, member.type_id) for member in found.members],
            "offsets": [member.offset // 8 for member in found.members],
            "itemsize": found.size_or_type,
        }
    )


@dataclass(frozen=True)
class Layout:
    """What crosses from the probes of one object to user space."""

    rings: dict[str, np.dtype[Any]]
    flags: dict[str, int]
    options: np.dtype[Any]
    counters: dict[str, int]  # name -> offset in struct counters
    lost: dict[str, int]  # ring -> offset in the object's variables

    def count(self, counters: bytes, variables: bytes) -> dict[str, int]:
        """Read what was counted from copies of both areas."""
        places = [(name, counters, at) for name, at in self.counters.items()]
        places += [(f"lost_{r}", variables, at) for r, at in self.lost.items()]
        return {
            name: int.from_bytes(area[at : at + 8], "little")
            for name, area, at in places
        }


@cache
def layout_of(path: Path = OBJECT) -> Layout:
    """Read the layout of an object file."""
    elf = path.read_bytes()
    types = btf.Btf(btf.section(elf, ".BTF"))
    suffix = "_record"
    rings = {}
    for candidate in types.types:
        if candidate.kind == btf.VAR and candidate.name.endswith(suffix):
            pointer = types.resolve(candidate.size_or_type)
            name = candidate.name.removesuffix(suffix)
            rings[name] = dtype_of(types, pointer.size_or_type)
    options = next(
        i
        for i, found in enumerate(types.types)
        if found.kind == btf.STRUCT and found.name == "options"
    )
    return Layout(
        rings=rings,
        flags=dict(types.find(btf.ENUM, "record_flag").enumerators),
        options=dtype_of(types, options),
        counters={
            member.name: member.offset // 8
            for member in types.find(btf.STRUCT, "counters").members
        },
        lost={ring: btf.variable_offset(elf, f"{ring}_lost") for ring in rings},
    )
