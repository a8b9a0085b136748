"""Traffic that nobody laid out: sizes and pauses by chance."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
from latprof_agent.lab.lab import Lab
from recording import DEADLINE_SECONDS, socket_in

CONNECTIONS = 4
PAUSE_SECONDS = 0.012  # mean of the sender's thinking: a third of 100 Mbit/s then


def log_normal(rng: np.random.Generator, n: int) -> list[int]:
    """Sizes from 64 B to 1 MB."""
    return np.clip(rng.lognormal(np.log(3000), 1.8, n), 64, 1e6).astype(int).tolist()


def same_size(_rng: np.random.Generator, n: int) -> list[int]:
    """1000 bytes each."""
    return [1000] * n


def _send(client: socket.socket, sizes: list[int], seed: int) -> None:
    """Send messages with pauses, and wait until all was read."""
    rng = np.random.default_rng(seed)
    for size in sizes:
        client.sendall(bytes(size))
        time.sleep(rng.exponential(PAUSE_SECONDS))  # the traffic's own
    client.shutdown(socket.SHUT_WR)
    client.recv(1)


def _read(server: socket.socket) -> None:
    while server.recv(1 << 20):
        continue


def natural_traffic(
    lab: Lab,
    messages: int,
    sizes: Callable[[np.random.Generator, int], list[int]] = log_normal,
) -> None:
    """Send so many messages from a to one port of b, and return when all were read."""
    rng = np.random.default_rng(1)
    shares = np.array_split(np.array(sizes(rng, messages)), CONNECTIONS)
    with ExitStack() as stack:
        listener = stack.enter_context(socket_in(lab.b_netns))
        listener.bind((lab.b_address, 0))
        listener.listen()
        threads = []
        for seed, share in enumerate(shares):
            client = stack.enter_context(socket_in(lab.a_netns))
            client.connect(listener.getsockname())
            client.settimeout(DEADLINE_SECONDS)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server = stack.enter_context(listener.accept()[0])
            send = threading.Thread(target=_send, args=(client, share.tolist(), seed))

            def read(server: socket.socket = server) -> None:
                with server:
                    _read(server)

            threads += [send, threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
