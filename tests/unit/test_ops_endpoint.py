"""What is said of an endpoint that ends in the middle of an operation."""

from __future__ import annotations

import socket
import threading

import pytest
from latprof_agent.workload.ops_client import Endpoint

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n"


def ended_after(sent):
    """Return what the client says where an endpoint ends after these bytes."""

    def serve():
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(sent)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listener.getsockname()
        endpoint = Endpoint({"host": host, "port": port})
        with pytest.raises(endpoint.refusals) as raised:
            endpoint.get("key")
        thread.join()
    return endpoint.why(raised.value)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "Remote end closed connection without response"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n", "Response ended prematurely"),
        (
            HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
            "Response ended prematurely",
        ),
        (
            HEAD + b"content-length: 9\r\n\r\nhello",
            "IncompleteRead(5 bytes read, 4 more expected)",
        ),
    ],
    ids=["before a response", "before a chunk", "after a chunk", "in a body"],
)
def test_the_end_of_a_response_is_said_in_its_words(sent, why):
    assert ended_after(sent) == why


def test_an_endpoint_that_refuses_is_said_in_the_systems_words():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    endpoint = Endpoint({"host": host, "port": port})
    with pytest.raises(endpoint.refusals) as raised:
        endpoint.get("key")
    assert endpoint.why(raised.value) == "Connection refused"
