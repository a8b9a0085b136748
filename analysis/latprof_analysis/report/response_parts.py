"""Shares of responses: in parts of which none holds another, and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latprof_analysis.stages import INNER_PARTS, UNTIL_PAUSE, part_label, part_order
from latprof_analysis.text import percent

_LEAST_SHARE = 5e-4  # less is no pixel
# Of these parts of a response each is within the first: what is left stands for it.
_INNER = {
    "server": ("server_queue", "server_work"),
    "server_queue": ("server_wakeup",),
    "server_work": ("server_cpu", "server_cpu_wait", "server_sleep"),
    "reply_way": ("reply_pauses", "client_queue"),
    "client_queue": ("client_wakeup",),
}
# In a sentence: parts of so much, until they are most of the time, and not more.
_SAID_SHARE, _MOST_SHARE, _MOST_SAID = 0.1, 0.8, 3
OF_ALL, OF_SLOWEST = "share_of_response", "share_of_slowest"  # of whose time


def parts_shown(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of tables what is within another part, and never was.

    Examples
    --------
    >>> parts = {"reply_way": {"max_ns": 0}, "reply_pauses": {"max_ns": 0}}
    >>> list(parts_shown(parts))
    ['reply_way']
    """
    return {
        name: one
        for name, one in parts.items()
        if name not in INNER_PARTS or one["max_ns"] != 0
    }


def parts_apart(parts: Mapping[str, Any], of: str = OF_ALL) -> dict[str, float]:
    """Return the shares of a response in parts of which none holds another.

    Of the time of all, or `of` the slowest.

    Examples
    --------
    >>> shares = {"server": 0.75, "server_queue": 0.5, "server_work": 0.25}
    >>> parts = {name: {"share_of_response": one} for name, one in shares.items()}
    >>> parts_apart(parts | {"server_wakeup": {"share_of_response": 0.125}})
    {'not yet read': 0.375, 'waiting for CPU': 0.125, 'not yet answered': 0.25}
    """
    share = {
        name: one.get(of) or 0.0
        for name, one in parts.items()
        if name not in ("response", UNTIL_PAUSE)
    }
    left = {
        name: max(0.0, value - sum(share.get(one, 0) for one in _INNER.get(name, ())))
        for name, value in share.items()
    }
    return {
        part_label(name, ""): left[name]
        for name in sorted(left, key=part_order)
        if left[name] >= _LEAST_SHARE
    }


def shares_sentence(parts: Mapping[str, Any], of: str = OF_ALL) -> str:
    """Say which parts took most of the time of responses; "" where none did.

    Examples
    --------
    >>> shares = {"server": 0.7, "server_queue": 0.1, "server_work": 0.6}
    >>> shares |= {"request_way": 0.05, "reply_way": 0.25}
    >>> parts = {name: {"share_of_response": one} for name, one in shares.items()}
    >>> shares_sentence(parts)
    "60.0% not yet answered, 25.0% reply's way"
    """
    found: list[str] = []
    left = _MOST_SHARE
    for label, share in sorted(parts_apart(parts, of).items(), key=lambda one: -one[1]):
        if share < _SAID_SHARE or left <= 0 or len(found) == _MOST_SAID:
            break
        found.append(f"{percent(share)} {label}")
        left -= share
    return ", ".join(found)
