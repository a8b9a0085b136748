"""Permanent neighbours of an interface, all of them in one message to the kernel.

A lab of 32 hosts has 1984, and pyroute2, which sends one and waits for its answer,
took most of the time in which the lab was built.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence

_RTM_NEWNEIGH = 28
_REQUEST, _ACK, _REPLACE, _CREATE = 0x1, 0x4, 0x100, 0x400
_NLMSG_ERROR = 2
_NDA_DST, _NDA_LLADDR = 1, 2
_NUD_PERMANENT = 0x80
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_NEIGHBOUR = struct.Struct("=BxxxiHBB")  # ndmsg: family, index, state, flags, type
_ERROR = struct.Struct("=i")  # nlmsgerr: minus an errno, or 0
_MOST_BYTES = 65536


def _attribute(kind: int, value: bytes) -> bytes:
    text = struct.pack("=HH", 4 + len(value), kind) + value
    return text.ljust(-(-len(text) // 4) * 4, b"\0")


def _request(index: int, address: str, mac: str, sequence: int, flags: int) -> bytes:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    body = _NEIGHBOUR.pack(family, index, _NUD_PERMANENT, 0, 0)
    body += _attribute(_NDA_DST, socket.inet_pton(family, address))
    body += _attribute(_NDA_LLADDR, bytes.fromhex(mac.replace(":", "")))
    length = _HEADER.size + len(body)
    flags |= _REQUEST | _REPLACE | _CREATE
    return _HEADER.pack(length, _RTM_NEWNEIGH, flags, sequence, 0) + body


def set_neighbours(index: int, neighbours: Sequence[tuple[str, str]]) -> None:
    """Give an interface of the calling thread's namespace who has which address.

    Each is an address and the MAC that it is reached by. Raises OSError with what
    the kernel says of the first that it refuses.
    """
    if not neighbours:
        return
    last = len(neighbours) - 1
    requests = b"".join(
        # the kernel answers what it refuses, and the last
        _request(index, *pair, sequence, _ACK if sequence == last else 0)
        for sequence, pair in enumerate(neighbours)
    )
    how = socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE
    with socket.socket(*how) as sock:
        sock.bind((0, 0))
        sock.send(requests)
        sequence = -1
        while sequence != last:
            answer = sock.recv(_MOST_BYTES)
            _, kind, _, sequence, _ = _HEADER.unpack_from(answer)
            (number,) = _ERROR.unpack_from(answer, _HEADER.size)
            if kind == _NLMSG_ERROR and number:
                raise OSError(-number, os.strerror(-number))
