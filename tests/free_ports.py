"""Ports for servers of the tests that run side by side."""

from __future__ import annotations

import random
import socket

# Below those that the kernel hands out: a client of another test takes none of them.
FIRST, LAST = 10_000, 32_767
LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A port that nothing has, of TCP and of UDP."""
    while True:
        port = random.randint(FIRST, LAST)
        with (
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        ):
            try:
                stream.bind((LOOPBACK, port))
                datagrams.bind((LOOPBACK, port))
            except OSError:
                continue
        return port
