"""Perfetto's trace format, as far as a trace of stories needs it.

A trace is protobuf messages of four kinds one after another. Field numbers are those
of perfetto_trace.proto, by which the tests read again what is written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MONOTONIC = 3  # of builtin_clock.proto
# Of a process' or thread's times: all from one writer.
_SEQUENCE = 1
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
UNIT_NS, UNIT_COUNT, UNIT_BYTES = 1, 2, 3
IN_ORDER_OF_RANK = 3

Field = tuple[int, "int | str | bytes"]


def field(number: int, value: int | str | bytes) -> bytes:
    """Encode a field: a whole number as a varint, others by their length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def message(*fields: Field | None) -> bytes:
    """Encode a message; None stands for a field that it has not."""
    return b"".join(field(*one) for one in fields if one is not None)


def clock_packet(at_ns: int) -> bytes:
    """Say that this clock is CLOCK_MONOTONIC, and that the timeline is in it."""
    clock = message((1, MONOTONIC), (2, at_ns))
    return _packet((6, message((1, clock), (2, MONOTONIC))))


def track_packet(
    uuid: int,
    name: str = "",
    *,
    parent: int = 0,
    rank: int | None = None,
    process: tuple[int, str] | None = None,
    thread: tuple[int, int, str] | None = None,
    unit: int = 0,
) -> bytes:
    """Describe a track, by which of the others it stands.

    Parameters
    ----------
    process : pid and name
    thread : pid, thread and name
    unit : of a counter; 0: it is none
    """
    fields: list[Field | None] = [
        (1, uuid),
        (5, parent) if parent else None,
        (2, name) if name else None,
        (11, IN_ORDER_OF_RANK),
        None if rank is None else (12, rank),
    ]
    if process:
        fields.append((3, message((1, process[0]), (6, process[1]))))
    if thread:
        pid, number, called = thread
        fields.append((4, message((1, pid), (2, number), (5, called))))
    if unit:
        fields.append((8, message((3, unit))))
    return _packet((60, message(*fields)))


def event_packet(
    at_ns: int,
    kind: int,
    track: int,
    name: str = "",
    *,
    flow: int = 0,
    other_flow: int = 0,
    value: int | None = None,
    notes: Mapping[str, int | str] | None = None,
) -> bytes:
    """Encode what happens on a track.

    Parameters
    ----------
    at_ns : int
        CLOCK_MONOTONIC.
    kind : BEGIN, END, INSTANT or COUNTER
    flow, other_flow : int
        An arrow leads to it from what had this number before it.
    value : int
        Of a counter.
    """
    fields: list[Field | None] = [
        (9, kind),
        (11, track),
        (23, name) if name else None,
        None if value is None else (30, value),
        *((4, _note(key, text)) for key, text in (notes or {}).items()),
    ]
    event = message(*fields)
    for number in filter(None, (flow, other_flow)):
        event += _varint(47 << 3 | 1) + number.to_bytes(8, "little")
    return _packet((11, event), at_ns=at_ns)


def whole_trace(packets: Iterable[bytes]) -> bytes:
    """Put packets together."""
    return b"".join(field(1, packet) for packet in packets)


def _packet(*fields: Field, at_ns: int | None = None) -> bytes:
    when: list[Field] = [] if at_ns is None else [(8, at_ns), (58, MONOTONIC)]
    return message(*when, (10, _SEQUENCE), *fields)


def _note(name: str, value: int | str) -> bytes:
    return message((10, name), (4 if isinstance(value, int) else 6, value))


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # a negative one has ten bytes
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
