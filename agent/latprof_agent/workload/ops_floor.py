"""What the network allows: our own ends with the sizes of redis' requests and replies.

Each operation and size is a ping-pong of its own, since a responder has one size of
replies. Nobody looks anything up, copies it, or reads more than bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from latprof_analysis.read.operations_csv import FIRST, MEASURED, WARMUP
from numpy.typing import NDArray

from latprof_agent.workload.generator import HEADER_BYTES, LARGEST_BYTES
from latprof_agent.workload.generator_log import CORRUPT_FLAG, LOST_FLAG, WARMUP_FLAG
from latprof_agent.workload.measured_time import MeasuredTime

NAME = "FLOOR"
# As the client of redis names its keys, and its commands.
KEY_BYTES = len("latprof:01234567:")
_COMMANDS = {"GET": "GET", "SET": "SET", "EXISTS": "EXISTS", "EVICT": "DEL"}
_REPLIES = {"SET": len("+OK\r\n"), "EXISTS": len(":0\r\n"), "EVICT": len(":0\r\n")}


def _bulk(size: int) -> int:
    """Bytes of a string as redis' protocol has it."""
    return len(f"${size}\r\n") + size + len("\r\n")


def sizes_of(op: str, payload_bytes: int | None) -> tuple[int, int]:
    """Return the bytes of a request and of its reply, as redis' protocol has them.

    At least a header of ours, and at most what our ends send in one message.

    Examples
    --------
    >>> sizes_of("GET", 1000), sizes_of("SET", 1000)
    ((41, 1009), (1050, 18))
    """
    key = KEY_BYTES + len(str(payload_bytes or "none"))
    words = [_bulk(len(_COMMANDS[op])), _bulk(key)]
    words += [_bulk(payload_bytes or 0)] if op == "SET" else []
    request = len(f"*{len(words)}\r\n") + sum(words)
    reply = _bulk(payload_bytes or 0) if op == "GET" else _REPLIES[op]
    most = LARGEST_BYTES["tcp"]
    return (
        min(max(request, HEADER_BYTES), most),
        min(max(reply, HEADER_BYTES), most),
    )


@dataclass
class FloorCell:
    """The records of one ping-pong as operations; `end` where there are no more."""

    op: str
    payload_bytes: int | None
    port: int
    measured: MeasuredTime
    _taken: int = 0
    _warm: int = 0
    _last_ns: int = 0

    def operations(self, records: NDArray[Any]) -> list[dict[str, Any]]:
        """Return those of new records; what had no answer when it ended is none."""
        return [self._operation(r) for r in records if not r["flags"] & LOST_FLAG]

    def end(self) -> None:
        """Whatever else is said on its port is no more of it."""
        if self._taken:
            self.measured.end(self._last_ns + 1)

    def _operation(self, record: Any) -> dict[str, Any]:
        warm = bool(record["flags"] & WARMUP_FLAG)
        phase = FIRST if not self._taken else WARMUP if warm else MEASURED
        number = self._taken - (0 if warm else self._warm)
        self._taken += 1
        self._last_ns = int(record["received_ns"])
        if warm:
            self._warm += 1
            self.measured.begin(int(record["received_ns"]) + 1)
        return {
            "backend": NAME,
            "op": self.op,
            "size": self.payload_bytes,
            "port": self.port,
            "phase": phase,
            "round": number,
            "start_ns": int(record["sent_ns"]),
            "end_ns": int(record["received_ns"]),
            "cpu_ns": None,
            "right": not record["flags"] & CORRUPT_FLAG,
        }
