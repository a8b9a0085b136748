"""A runtime that answers the CRI's two lists by gRPC, as in api.proto of runtime.v1."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, StreamEnded, WindowUpdated
from h2.exceptions import ProtocolError

PODS = "/runtime.v1.RuntimeService/ListPodSandbox"
CONTAINERS = "/runtime.v1.RuntimeService/ListContainers"


def _varint(n: int) -> bytes:
    found = b""
    while n > 127:
        found, n = found + bytes([n & 127 | 128]), n >> 7
    return found + bytes([n])


def field(number: int, value: bytes | str | int) -> bytes:
    """One field, as protobuf encodes it."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    value = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _map(number: int, of: dict[str, str]) -> bytes:
    return b"".join(field(number, field(1, k) + field(2, v)) for k, v in of.items())


def sandbox(id_, name, namespace, uid, **labels):
    """A PodSandbox, with fields that nobody reads between."""
    metadata = field(1, name) + field(2, uid) + field(3, namespace) + field(4, 1)
    labels = {key.replace("__", "/").replace("_", "-"): v for key, v in labels.items()}
    return (
        field(1, id_)
        + field(2, metadata)
        + field(3, 0)
        + field(4, 1_700_000_000_000_000_000)
        + _map(5, labels)
        + _map(6, {"annotation": "x" * 300})
    )


def container(id_, sandbox_id, name):
    """A Container."""
    image = field(3, field(1, "registry.example/image"))
    metadata = field(3, field(1, name) + field(2, 2))
    ids = field(1, id_) + field(2, sandbox_id)
    return ids + metadata + field(4, image) + field(6, 1) + field(7, 1)


class FakeRuntime:
    """Answers at a socket until the block ends; what it was asked is in `asked`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pods: list[bytes] = []
        self.containers: list[bytes] = []
        self.status = "0"
        self.raw: bytes | None = None  # instead of any answer
        self.asked: list[str] = []
        self.silent = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> FakeRuntime:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.path.unlink()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(
                    target=self._answer, args=(connection,), daemon=True
                ).start()

    def _answer(self, connection: socket.socket) -> None:
        http = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        http.initiate_connection()
        waiting: dict[int, bytes] = {}
        with connection, suppress(OSError, ProtocolError):
            while True:
                if self.raw is not None:
                    connection.sendall(self.raw)
                    return
                connection.sendall(http.data_to_send())
                for event in http.receive_data(connection.recv(65536)):
                    if isinstance(event, RequestReceived):
                        self.asked.append(dict(event.headers)[":path"])
                    if isinstance(event, StreamEnded) and not self.silent:
                        waiting[event.stream_id] = self._begin(http, event.stream_id)
                    if isinstance(event, StreamEnded | WindowUpdated):
                        self._go_on(http, waiting)

    def _begin(self, http: H2Connection, stream: int) -> bytes:
        items = {PODS: self.pods, CONTAINERS: self.containers}[self.asked[-1]]
        message = b"".join(field(1, item) for item in items)
        headers = [(":status", "200"), ("content-type", "application/grpc")]
        if self.status != "0":
            trailers = [("grpc-status", self.status), ("grpc-message", "no such thing")]
            http.send_headers(stream, headers + trailers, end_stream=True)
            return b""
        http.send_headers(stream, headers)
        return b"\0" + len(message).to_bytes(4, "big") + message

    def _go_on(self, http: H2Connection, waiting: dict[int, bytes]) -> None:
        """Send what the windows of the other end leave room for."""
        for stream in list(waiting):
            while room := http.local_flow_control_window(stream):
                size = min(room, http.max_outbound_frame_size)
                part, waiting[stream] = waiting[stream][:size], waiting[stream][size:]
                if not part:
                    break
                http.send_data(stream, part)
            if not waiting[stream]:
                del waiting[stream]
                if self.status == "0":
                    http.send_headers(stream, [("grpc-status", "0")], end_stream=True)
