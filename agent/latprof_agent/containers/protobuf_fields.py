"""Fields of a message of protobuf, by number: enough to read lists of a runtime."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_MOST_VARINT_BYTES = 10


def fields_of(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Give number and value of each field that has bytes; the others are passed over.

    Raises ValueError where this is no message.
    """
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind, length = tag & 7, _FIXED.get(tag & 7, 0)
        if kind == _VARINT:
            _, at = _varint(message, at)
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif not length:
            raise ValueError(f"a field has the unknown type {kind}")
        if at + length > len(message):
            raise ValueError("it ends within a field")
        if kind == _BYTES:
            yield tag >> 3, message[at : at + length]
        at += length


def first_of(message: bytes) -> dict[int, bytes]:
    """Give fields by number; of what is repeated the last, as protobuf wants it."""
    return dict(fields_of(message))


def map_of(message: bytes, number: int) -> dict[str, str]:
    """Give the field that is a map of strings."""
    pairs = (first_of(value) for n, value in fields_of(message) if n == number)
    return {text(pair, 1): text(pair, 2) for pair in pairs}


def text(fields: dict[int, bytes], number: int) -> str:
    """Give a string, empty where there is none."""
    return fields.get(number, b"").decode("utf-8", "replace")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for n, byte in enumerate(message[at : at + _MOST_VARINT_BYTES]):
        value |= (byte & 127) << 7 * n
        if byte < 128:
            return value, at + n + 1
    raise ValueError("it ends within a number")
