"""Records as numpy dtypes, read from BTF: against C's own layout."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from latprof_agent.probes import btf
from latprof_agent.probes.layout import dtype_of, layout_of


@pytest.mark.parametrize("ring", sorted(layout_of().rings | layout_of().flights))
def test_a_record_has_no_hidden_padding(ring):
    dtype = (layout_of().rings | layout_of().flights)[ring]
    assert sum(dtype[name].itemsize for name in dtype.names) == dtype.itemsize


def test_every_ring_has_a_counter_of_what_it_lost():
    layout = layout_of()
    assert set(layout.lost) == set(layout.rings)
    for places in (layout.lost, layout.counters):
        assert len(set(places.values())) == len(places)


def area_of(places: dict[str, int], first: int) -> bytes:
    """Memory with numbers from `first` at these offsets, in their order."""
    data = bytearray(max(places.values()) + 8)
    for number, at in enumerate(places.values(), first):
        data[at : at + 8] = number.to_bytes(8, "little")
    return bytes(data)


def test_counters_and_what_rings_lost_are_read_from_their_offsets():
    layout = layout_of()
    counters, variables = area_of(layout.counters, 1), area_of(layout.lost, 1001)
    names = [*layout.counters, *(f"lost_{ring}" for ring in layout.lost)]
    numbers = [*range(1, len(layout.counters) + 1)]
    numbers += range(1001, len(layout.lost) + 1001)
    expected = dict(zip(names, numbers, strict=True))
    assert layout.count(counters, variables) == expected


def test_a_dtype_is_laid_out_as_the_compiler_lays_out_the_struct(tmp_path):
    source = tmp_path / "record.c"
    source.write_text(
        "struct inner { unsigned short a, b; };\n"
        "typedef unsigned int number;\n"
        "struct record { unsigned long long first; volatile number second;\n"
        "  unsigned char third[6]; unsigned short fourth; };\n"
        "struct record record;\n"
    )
    built = tmp_path / "record.o"
    subprocess.run(
        ["clang", "-target", "bpf", "-g", "-O2", "-c", source, "-o", built],
        check=True,
    )
    types = btf.Btf(btf.section(built.read_bytes(), ".BTF"))
    place = next(i for i, t in enumerate(types.types) if t.name == "record")
    # the compiler's own words: offsets 0, 8, 12, 18, size 24 with its padding
    assert dtype_of(types, place) == np.dtype(
        {
            "names": ["first", "second", "third", "fourth"],
            "formats": ["<u8", "<u4", ("u1", (6,)), "<u2"],
            "offsets": [0, 8, 12, 18],
            "itemsize": 24,
        }
    )


def test_what_is_no_object_file_is_refused():
    with pytest.raises(ValueError, match="64-bit little-endian ELF"):
        btf.section(b"\x7fELF\x01\x01", ".BTF")
    with pytest.raises(ValueError, match="must be BTF"):
        btf.Btf(bytes(64))
