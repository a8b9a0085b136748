"""Small servers and clients that know which of their bytes answer which."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import threading
import time
from contextlib import contextmanager


@contextmanager
def listening(serve, kind=socket.SOCK_STREAM):
    """A server at a port, in a thread of its own for each connection."""
    with socket.socket(type=kind) as listener:
        listener.bind(("127.0.0.1", 0))
        threads = []
        if kind == socket.SOCK_STREAM:
            listener.listen(64)

            def accept():
                while True:
                    try:
                        connection, _ = listener.accept()
                    except OSError:
                        return
                    thread = threading.Thread(target=serve, args=(connection,))
                    thread.start()
                    threads.append(thread)
        else:

            def accept():
                serve(listener)

        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        yield listener.getsockname()[1]
        if kind == socket.SOCK_STREAM:
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join()
        for thread in threads:
            thread.join()


def connected(port):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_whole(connection, size):
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        assert more, "the other end has closed"
        found += more
    return found


def make_certificate(folder):
    """The files of a certificate and its key."""
    files = folder / "cert.pem", folder / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=localhost", "-out", files[0], "-keyout", files[1]]
    subprocess.run(words, check=True, capture_output=True)
    return files


def tls_contexts(certificate, version, tickets):
    """Of a server, and of a client that trusts anybody."""
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(*certificate)
    of_server.maximum_version = ssl.TLSVersion[version]
    of_server.num_tickets = tickets
    of_client = ssl.create_default_context()
    of_client.check_hostname, of_client.verify_mode = False, ssl.CERT_NONE
    return of_server, of_client


def tls_server(context, think_seconds):
    """What serves one request of a connection, which is answered with 500 bytes."""

    def serve(raw):
        with context.wrap_socket(raw, server_side=True) as connection:
            connection.recv(4000)
            time.sleep(think_seconds)
            connection.sendall(bytes(500))
            connection.recv(10)

    return serve


def dns(identification, *, answer=False, size=40):
    """A query, or an answer, of so many bytes."""
    flags = 0x8180 if answer else 0x0100
    head = struct.pack(">HHHHHH", identification, flags, 1, int(answer), 0, 0)
    return head + bytes(size - len(head))
