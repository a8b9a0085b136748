"""Fields of the flight recorder's records: texts, and flags that older ones lack."""

from __future__ import annotations

from typing import Any

TASK_TIMED, TASK_THROTTLED = 1, 2  # enum task_flag in bpf/records.h


def field_text(field: Any) -> str:
    """Return what is before the first NUL; bytes that are no UTF-8 are replaced."""
    return bytes(field).partition(b"\0")[0].decode(errors="replace")


def has_flag(record: Any, field: str, flag: int) -> bool:
    """Whether a record has a flag; older recordings have no such field."""
    return field in record.dtype.names and bool(record[field] & flag)
