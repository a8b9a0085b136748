"""The probes' records as numpy dtypes, read from the object's BTF."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from latprof_analysis.records.recording import RecordLayout

from latprof_agent.errors import CaptureError
from latprof_agent.probes import btf

# an editable install has it in the build folder
OBJECT = Path(str(files("latprof_agent") / "latprof.bpf.o"))
OLD_OBJECT = OBJECT.with_name("latprof-old.bpf.o")


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


# What programs saw that others are attached for.
SIGNS = ("udp_sends", "queues_used")
# How many numbers of groups were taken so far, and how often there was none.
GROUPS_TAKEN = ("named_groups", "unnamed_groups")


@dataclass(frozen=True)
class Layout(RecordLayout):
    """What crosses from the probes of one object to user space."""

    flights: dict[str, np.dtype[Any]]  # rings that are written over all the time
    term_kinds: dict[str, int]
    options: np.dtype[Any]
    counters: dict[str, int]  # name -> offset in struct counters
    lost: dict[str, int]  # ring -> offset in the object's variables
    signs: dict[str, int]  # variable that is not 0 -> offset among them
    groups_taken: dict[str, int]  # counter of groups -> offset among them
    long_halves: int  # the offset of that counter among them
    group: np.dtype[Any]
    group_counts: np.dtype[Any]
    group_limit: np.dtype[Any]
    histogram: np.dtype[Any]
    quantities: dict[str, int]
    groupings: dict[str, int]
    roles: dict[str, int]
    drop: np.dtype[Any]
    dropped: np.dtype[Any]
    segments: np.dtype[Any]
    drop_places: dict[str, int]
    device_queue: np.dtype[Any]
    waiting_request: np.dtype[Any]

    def taken_groups(self, variables: bytes) -> tuple[int, ...]:
        """Read GROUPS_TAKEN from a copy of the variables."""
        return tuple(
            int.from_bytes(variables[at : at + 4], "little")
            for at in self.groups_taken.values()
        )

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
    """Read the layout of an object file; raises CaptureError where that is missing."""
    try:
        elf = path.read_bytes()
    except OSError as error:
        raise CaptureError(
            f"cannot read the probes: {path}: {error.strerror}; install latprof again"
        ) from error
    types = btf.Btf(btf.section(elf, ".BTF"))
    rings = _pointed_at(types, "_record")
    return Layout(
        rings=rings,
        flights=_pointed_at(types, "_flight"),
        flags=dict(types.find(btf.ENUM, "record_flag").enumerators),
        term_kinds=dict(types.find(btf.ENUM, "term_kind").enumerators),
        options=_struct(types, "options"),
        counters={
            member.name: member.offset // 8
            for member in types.find(btf.STRUCT, "counters").members
        },
        lost={ring: btf.variable_offset(elf, f"{ring}_lost") for ring in rings},
        signs={sign: btf.variable_offset(elf, sign) for sign in SIGNS},
        groups_taken={n: btf.variable_offset(elf, n) for n in GROUPS_TAKEN},
        long_halves=btf.variable_offset(elf, "long_halves"),
        group=_struct(types, "group"),
        group_counts=_struct(types, "group_counts"),
        group_limit=_struct(types, "group_limit"),
        histogram=_struct(types, "histogram"),
        quantities=_labels(types, "quantity"),
        groupings=_labels(types, "grouping", "BY_"),
        roles=_labels(types, "group_role", "ROLE_"),
        drop=_struct(types, "drop"),
        dropped=_struct(types, "dropped"),
        segments=_struct(types, "segments"),
        drop_places=_labels(types, "drop_place", "DROP_"),
        device_queue=_struct(types, "device_queue"),
        held=_labels(types, "held_by", "HELD_"),
        resent=_labels(types, "resent_by", "RESENT_"),
        waiting_request=_struct(types, "waiting_request"),
        heads=_labels(types, "head_kind", "HEAD_"),
        endings=_labels(types, "ending", "ENDING_"),
    )


def _pointed_at(types: btf.Btf, suffix: str) -> dict[str, np.dtype[Any]]:
    """Records by the name of their ring, from pointers that are named after it."""
    found = {}
    for candidate in types.types:
        if candidate.kind == btf.VAR and candidate.name.endswith(suffix):
            pointer = types.resolve(candidate.size_or_type)
            name = candidate.name.removesuffix(suffix)
            found[name] = dtype_of(types, pointer.size_or_type)
    return found


def _struct(types: btf.Btf, name: str) -> np.dtype[Any]:
    found = next(
        i
        for i, candidate in enumerate(types.types)
        if candidate.kind == btf.STRUCT and candidate.name == name
    )
    return dtype_of(types, found)


def _labels(types: btf.Btf, enum: str, prefix: str = "") -> dict[str, int]:
    """Names as users read them: BY_SERVICE is service."""
    return {
        name.removeprefix(prefix).lower(): value
        for name, value in types.find(btf.ENUM, enum).enumerators
    }
