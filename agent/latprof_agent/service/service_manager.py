"""What systemd asks of a service: sd_notify(3), without its library."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"


def reloading() -> str:
    """Begin to read the configuration anew; READY ends it."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"


class ServiceManager:
    """Whoever started us as a service, if anyone."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{name[1:]}" if name.startswith("@") else name
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environment.get("WATCHDOG_USEC", "") if ours else ""
        asked = int(microseconds) if microseconds.isdecimal() else 0
        self._watchdog_seconds = asked / 2e6  # twice as often as it is asked for
        self._watched = 0.0

    def notify(self, state: str) -> None:
        """Send it; if it does not listen any more, that is its own doing."""
        if self._socket:
            try:
                self._socket.sendto(state.encode(), self._address)
            except OSError:
                self._socket = None

    def alive(self) -> None:
        """Feed the watchdog, as often as it asks for."""
        now = time.monotonic()
        if self._watchdog_seconds and now > self._watched + self._watchdog_seconds:
            self._watched = now
            self.notify(WATCHDOG)
