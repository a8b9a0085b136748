"""What a runtime of Kubernetes says by the CRI: its pods and containers.

Two calls of gRPC, ListPodSandbox and ListContainers of runtime.v1.RuntimeService, on
one connection of HTTP/2 over the runtime's socket. Nothing else is ever asked, and no
argument is sent. Numbers are those of the fields in k8s.io/cri-api, runtime/v1.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import Any

from latprof_analysis.extras import how_to_add

from latprof_agent.containers.container import Container, workload_of_pod
from latprof_agent.containers.protobuf_fields import (
    fields_of,
    first_of,
    map_of,
    text,
)
from latprof_agent.errors import ContainerError

MOST_BYTES = 16 << 20  # of an answer
_SERVICE = "/runtime.v1.RuntimeService"
_PREFIX = struct.Struct(">?I")  # of a message: is it compressed, its length
_READ_BYTES = 1 << 16
_MOST_WINDOW = (1 << 31) - 1 - 65535
_UNIMPLEMENTED = "12"  # of grpc-status


def containers_by_cri(connection: socket.socket) -> list[Container]:
    """List all containers, and pods' sandboxes as containers without a name.

    Raises ContainerError where the runtime refuses, OSError where it does not answer,
    ValueError for an answer that is none.
    """
    calls = _Calls(connection)
    pods = calls.call("ListPodSandbox")
    return _read(pods, calls.call("ListContainers"))


def _read(pods: bytes, containers: bytes) -> list[Container]:
    """Read ListPodSandboxResponse and ListContainersResponse."""
    found = {}
    for number, sandbox in fields_of(pods):
        if number == 1:
            fields = first_of(sandbox)
            made = first_of(fields.get(2, b""))
            labels = map_of(sandbox, 5)
            found[text(fields, 1)] = Container(
                text(fields, 1),
                namespace=text(made, 3),
                pod=text(made, 1),
                pod_uid=text(made, 2),
                workload=workload_of_pod(text(made, 1), labels),
            )
    listed = dict(found)
    for number, container in fields_of(containers):
        if number == 1:
            fields = first_of(container)
            own = found.get(text(fields, 2), Container(""))
            name = text(first_of(fields.get(3, b"")), 1)
            listed[text(fields, 1)] = own._replace(id=text(fields, 1), name=name)
    return list(listed.values())


class _Calls:
    """Calls without arguments, one after the other on one connection."""

    def __init__(self, connection: socket.socket) -> None:
        try:
            from h2.config import H2Configuration
            from h2.connection import H2Connection
        except ImportError as error:
            raise ContainerError(
                f"names of pods need h2, which is not installed; {how_to_add('pods')}"
            ) from error
        self._socket = connection
        self._http = H2Connection(H2Configuration(header_encoding="utf-8"))
        self._http.initiate_connection()
        self._http.increment_flow_control_window(_MOST_WINDOW)

    def call(self, method: str) -> bytes:
        """Return the message of the answer."""
        stream = self._http.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", f"{_SERVICE}/{method}"),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        ]
        self._http.send_headers(stream, headers)
        self._http.send_data(stream, _PREFIX.pack(False, 0), end_stream=True)
        return _message(*self._answer(), method)

    def _answer(self) -> tuple[bytes, dict[str, str]]:
        """Return the body and all headers, those behind it included."""
        from h2.exceptions import ProtocolError

        body, headers, ended = bytearray(), dict[str, str](), False
        while not ended:
            self._socket.sendall(self._http.data_to_send())
            came = self._socket.recv(_READ_BYTES)
            if not came:
                raise ConnectionResetError("it ended the connection")
            try:
                for event in self._http.receive_data(came):
                    ended |= self._take(event, body, headers)
            except ProtocolError as error:
                raise ValueError(f"it does not speak HTTP/2 ({error})") from error
            if len(body) > MOST_BYTES:
                raise ValueError(f"its list is larger than {MOST_BYTES >> 20} MB")
        self._socket.sendall(self._http.data_to_send())
        return bytes(body), headers

    def _take(self, event: Any, body: bytearray, headers: dict[str, str]) -> bool:
        """Add what came; whether it was the end."""
        from h2 import events

        if isinstance(event, events.DataReceived):
            body += event.data or b""
            self._http.acknowledge_received_data(
                event.flow_controlled_length or 0, event.stream_id or 0
            )
        if isinstance(event, events.ResponseReceived | events.TrailersReceived):
            headers |= _texts(event.headers or ())
        if isinstance(event, events.StreamReset | events.ConnectionTerminated):
            raise ConnectionResetError("it broke the call off")
        return isinstance(event, events.StreamEnded)


def _texts(headers: Iterable[Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in headers}


def _message(body: bytes, headers: dict[str, str], method: str) -> bytes:
    """Take the message out of an answer of gRPC."""
    status = headers.get("grpc-status", "")
    if status == _UNIMPLEMENTED:
        raise ContainerError("it has no CRI (runtime.v1)")
    if status != "0":
        why = headers.get("grpc-message") or headers.get(":status", "no status")
        raise ContainerError(f"it refuses {method}: {why}")
    if len(body) < _PREFIX.size:
        raise ValueError("it answers without a message")
    is_compressed, length = _PREFIX.unpack_from(body)
    message = body[_PREFIX.size :]
    if is_compressed or length != len(message):
        raise ValueError("its answer is not one plain message")
    return message
