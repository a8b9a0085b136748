"""`latprof watch` on real traffic: what it counts is what was sent."""

from __future__ import annotations

import json
import signal
import socket
import threading
from functools import reduce

import pytest
from latprof_process import Latprof

EXCHANGES = 500
REQUEST, REPLY = b"q" * 100, b"r" * 300


def answer(listening):
    server, _ = listening.accept()
    with server:
        while server.recv(len(REQUEST), socket.MSG_WAITALL):
            server.sendall(REPLY)


def exchange(port, count):
    with socket.create_connection(("127.0.0.1", port)) as client:
        for _ in range(count):
            client.sendall(REQUEST)
            client.recv(len(REPLY), socket.MSG_WAITALL)


@pytest.mark.thorough
def test_all_documents_together_have_every_message_and_exchange():
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    threading.Thread(target=answer, args=(listening,), daemon=True).start()
    options = ("--json", "--interval", "500ms", "--max-overhead", "none")
    watch = Latprof("watch", *options)
    try:
        documents = [json.loads(watch.process.stdout.readline())]  # it measures
        exchange(port, EXCHANGES)
        documents.append(json.loads(watch.process.stdout.readline()))
        watch.signal(signal.SIGINT)
        assert watch.finish() == 0, watch.err
    finally:
        listening.close()
        watch.process.kill()
    documents += map(json.loads, watch.out.splitlines())
    assert watch.err.startswith("watched ")
    assert watch.left() == []

    def total(role, *keys):
        name = f"tcp {role} {port}"
        groups = [g for d in documents for g in d["groups"] if g["name"] == name]
        return sum(reduce(dict.__getitem__, keys, group) for group in groups)

    for role, size in (("client", len(REQUEST)), ("server", len(REPLY))):
        assert total(role, "messages") == EXCHANGES
        assert total(role, "bytes") == EXCHANGES * size
        assert total(role, "exchanges", "exchanges") == EXCHANGES
