"""Calls on sockets that Python does not offer, for the tests."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

IORING_OP_SEND, IORING_OP_RECV, IORING_OP_SEND_ZC = 26, 27, 47


class _IoVector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    """struct msghdr of 64-bit machines."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint),
        ("vector", ctypes.POINTER(_IoVector)),
        ("vector_length", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    """struct mmsghdr."""

    _fields_ = (("header", _Header), ("transferred", ctypes.c_uint))


def _messages(buffers: list[ctypes.Array[ctypes.c_char]]) -> ctypes.Array[_Message]:
    messages = (_Message * len(buffers))()
    for message, buffer in zip(messages, buffers, strict=True):
        vector = _IoVector(ctypes.addressof(buffer), len(buffer))
        message.header.vector = ctypes.pointer(vector)  # keeps it alive, too
        message.header.vector_length = 1
    return messages


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def receive_nowhere(sock: socket.socket) -> None:
    """Take a datagram into memory that is not there: it is gone, the call fails."""
    _checked(_libc.recv(sock.fileno(), ctypes.c_void_p(1), 1, 0))


def sendmmsg(sock: socket.socket, payloads: list[bytes]) -> int:
    """Send several messages with one call; returns how many were sent."""
    messages = _messages([ctypes.create_string_buffer(p, len(p)) for p in payloads])
    return _checked(_libc.sendmmsg(sock.fileno(), messages, len(payloads), 0))


def recvmmsg(sock: socket.socket, count: int, room_bytes: int) -> list[bytes]:
    """Receive up to `count` messages with one call, after waiting for the first."""
    buffers = [ctypes.create_string_buffer(room_bytes) for _ in range(count)]
    messages = _messages(buffers)
    received = _checked(
        _libc.recvmmsg(sock.fileno(), messages, count, 0x10000, None)  # WAITFORONE
    )
    return [
        buffer.raw[: message.transferred]
        for message, buffer in zip(messages[:received], buffers, strict=False)
    ]


class Uring:
    """One io_uring operation at a time, by a C function built here."""

    def __init__(self, folder: Path) -> None:
        """Build the shared object in `folder`."""
        source = Path(__file__).with_name("uring_call.c")
        built = folder / "uring_call.so"
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
        subprocess.run(["gcc", *flags, "-o", built, source], check=True)
        self._call = ctypes.CDLL(str(built)).uring_call

    def _do(self, opcode: int, sock: socket.socket, area: object, size: int) -> int:
        result = int(self._call(opcode, sock.fileno(), area, size, 0))
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return result

    def send(self, sock: socket.socket, payload: bytes) -> int:
        """IORING_OP_SEND."""
        return self._do(IORING_OP_SEND, sock, payload, len(payload))

    def send_zero_copy(self, sock: socket.socket, payload: bytes) -> int:
        """IORING_OP_SEND_ZC; `payload` must live until it was received."""
        return self._do(IORING_OP_SEND_ZC, sock, payload, len(payload))

    def recv(self, sock: socket.socket, room_bytes: int) -> bytes:
        """IORING_OP_RECV."""
        buffer = ctypes.create_string_buffer(room_bytes)
        return buffer.raw[: self._do(IORING_OP_RECV, sock, buffer, room_bytes)]
