"""pyroute2, imported when a lab is built: it takes longer than `latprof --help`."""

from __future__ import annotations

from typing import Any


def connect() -> Any:
    """Open a socket to the namespace of the calling thread."""
    from pyroute2 import IPRoute

    return IPRoute()


def netlink_error() -> Any:
    """Name the exception, for an `except`: its `code` is an errno."""
    from pyroute2.netlink.exceptions import NetlinkError

    return NetlinkError
