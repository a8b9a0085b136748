"""How large the probes' rings are: by default, on large hosts, and when asked for."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from latprof_agent.capture.flight import RING_BYTES
from latprof_agent.capture.rings import STORY_RINGS, bytes_of_ring, large_ring_bytes
from latprof_agent.probes.layout import layout_of

RINGS = layout_of().rings
SEQUENCE_BYTES = 8  # before each record, see bpf/ring.bpf.h
MIB = 1 << 20


def slots_of(record: np.dtype, ring_bytes: int) -> int:
    """Of one CPU: a power of two."""
    slot_bytes = SEQUENCE_BYTES + record.itemsize
    return 1 << (ring_bytes // slot_bytes).bit_length() - 1


def bytes_of(record: np.dtype, ring_bytes: int) -> int:
    """What these slots take."""
    return slots_of(record, ring_bytes) * (SEQUENCE_BYTES + record.itemsize)


def slots(ring: str, large_bytes: int) -> int:
    """Of a ring of one CPU."""
    return slots_of(RINGS[ring], bytes_of_ring(ring, large_bytes))


def memory_bytes(large_bytes: int, rings: Iterable[str] = RINGS) -> int:
    """Of these rings of one CPU."""
    return sum(
        bytes_of(RINGS[ring], bytes_of_ring(ring, large_bytes)) for ring in rings
    )


@pytest.mark.parametrize("ring", RINGS)
def test_a_larger_size_makes_every_ring_larger(ring):
    """What a warning of a full ring says to do helps, whichever ring it was."""
    default = large_ring_bytes(cpus=2)
    assert slots(ring, 2 * default) == 2 * slots(ring, default)
    assert slots(ring, 16 * default) == 16 * slots(ring, default)


@pytest.mark.parametrize("ring", RINGS)
def test_the_smallest_size_leaves_every_ring_room(ring):
    margin = 16  # for interrupts, see bpf/ring.bpf.h
    assert slots(ring, 4096) > margin


def test_flows_and_devices_have_as_many_slots_as_messages():
    assert {slots(ring, large_ring_bytes(2)) for ring in ("flows", "path_devices")} == {
        slots("sent_messages", large_ring_bytes(2))
    }


def test_packets_on_stacked_devices_have_twice_as_many():
    size = large_ring_bytes(2)
    assert slots("lower_transmits", size) == 2 * slots("sent_messages", size)


def test_the_flight_recorder_takes_4_mb_of_each_cpu():
    flights = sum(
        bytes_of(record, RING_BYTES[ring])
        for ring, record in layout_of().flights.items()
    )
    drained = memory_bytes(large_ring_bytes(2), STORY_RINGS)
    assert round((flights + drained) / 1e6, 2) == 4.01


def test_the_memory_is_what_is_said_of_it():
    assert round(memory_bytes(large_ring_bytes(2)) / 1e6, 1) == 16.0
    for cpus in (1, 8, 32, 33, 64, 256):
        assert cpus * memory_bytes(large_ring_bytes(cpus)) < 700 * MIB
