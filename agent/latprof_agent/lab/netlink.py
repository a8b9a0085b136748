"""pyroute2, imported when a lab is built: it takes longer than `latprof --help`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def connect() -> Iterator[Any]:
    """Give a socket to the namespace of the calling thread.

    What the kernel refuses, and nobody expects, is OSError as of any system call.
    """
    from pyroute2 import IPRoute

    # It warns that it will call codel's parameters otherwise; its version is pinned.
    logging.getLogger("pyroute2.netlink.rtnl.tcmsg").setLevel(logging.ERROR)
    try:
        with IPRoute() as ip:
            yield ip
    except netlink_error() as error:
        raise OSError(error.code, os.strerror(error.code)) from error


def netlink_error() -> Any:
    """Name the exception, for an `except`: its `code` is an errno."""
    from pyroute2.netlink.exceptions import NetlinkError

    return NetlinkError
