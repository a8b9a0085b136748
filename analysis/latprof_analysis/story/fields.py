"""Fields of the flight recorder's records: texts, and flags that older ones lack."""

from __future__ import annotations

from typing import Any

# enum task_flag in bpf/records.h
TASK_TIMED, TASK_THROTTLED = 1, 2
# Of who came: how the scheduler ranks it, 0 where that is not known, else the higher
# the sooner it runs.
TASK_RANK = 12
REAL_TIME = 12
TASK_BY_LIMIT = 16


def field_text(field: Any) -> str:
    """Return what is before the first NUL; bytes that are no UTF-8 are replaced."""
    return bytes(field).partition(b"\0")[0].decode(errors="replace")


def has_flag(record: Any, field: str, flag: int) -> bool:
    """Whether a record has a flag; older recordings have no such field."""
    return flags_of(record, field, flag) != 0


def flags_of(record: Any, field: str, mask: int) -> int:
    """Return some of a record's flags; older recordings have no such field."""
    return int(record[field]) & mask if field in record.dtype.names else 0
