"""Which options of `latprof run` go together. To add a rule, add a row here.

Options are by name as in the parsed options; presets read the same rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from typing import NamedTuple

from latprof_agent.cli.lab_options import FOR_LAB, FOR_LINK

FOR_TCP = ("nagle", "congestion")
FOR_UDP = ("datagram", "receive_buffer", "send_way", "receive_way")

# Each has no meaning without the other.
_NEEDS = {
    "train_gap": "train",
    "poisson": "interval",
    "max_acks": "interval",
    "secret_file": "to",
    "responder_bytes": "to",
    "with": "duration",
    "trial": "find_rate",
}
# A mesh has an interval of its own.
_ALWAYS_THERE = {"mesh": ("interval",)}
_OF_THIS_HOST = "is of this host's lab, not with"
_OF_A_LAB = "needs the lab, not"
_NOT_WITH = "not with"


class _Excluded(NamedTuple):
    """Options that one excludes, NAME=VALUE for a value only, and in which words."""

    names: tuple[str, ...]
    words: str = _NOT_WITH


_EXCLUDED_BY = {
    # what is the lab's, or its responder's; of clear letters `latprof echo` knows none
    "to": _Excluded(
        (
            *(name for name in FOR_LINK if name != "congestion"),
            *("server_cpu", "priority", "load", "hosts", "wire=clear"),
        ),
        _OF_THIS_HOST,
    ),
    "no_lab": _Excluded((*FOR_LAB, "server"), _OF_A_LAB),
    # servers that somebody else has started
    **dict.fromkeys(
        ("redis", "endpoint"), _Excluded((*FOR_LINK, "server_cpu"), _OF_A_LAB)
    ),
    "no_recording": _Excluded(("with", "lend_until_eof"), "needs the recording, not"),
    "no_probes": _Excluded(("story",), "needs the probes, not"),
    "train": _Excluded(("max_acks", "load")),
    "duration": _Excluded(("volume",)),
    "find_rate": _Excluded(("volume", "offer", "direction=both")),
}


def contradiction(options: argparse.Namespace) -> str:
    """Say what of the options given does not go together; empty where all does."""
    return next(_contradictions(options), "")


def _contradictions(options: argparse.Namespace) -> Iterator[str]:
    there = _ALWAYS_THERE.get(options.form, ())
    for name, needed in _NEEDS.items():
        has = is_given(options, needed) or needed in there
        if getattr(options, name, None) and not has:
            yield f"{_word(name)}: needs {_word(needed)}"
    for by, excluded in _EXCLUDED_BY.items():
        if is_given(options, by):
            for name in (n for n in excluded.names if is_given(options, n)):
                yield f"{_word(name)}: {excluded.words} {_word(by)}"
    # flows of a load may be of tcp, too
    loads = any(protocol == "tcp" for protocol, *_ in options.load)
    for protocol, other, names in (("udp", "tcp", FOR_TCP), ("tcp", "udp", FOR_UDP)):
        if options.protocol == protocol:
            for name in (n for n in names if is_given(options, n)):
                if not (loads and name == "congestion"):
                    only = f"is for {other}, not for --protocol {protocol}"
                    yield f"{_word(name)}: {only}"


def is_given(options: argparse.Namespace, name: str) -> bool:
    """Whether an option is not as by default; NAME=VALUE: whether it has that value."""
    name, has_value, value = name.partition("=")
    found = getattr(options, name, None)
    if has_value:
        return bool(found == value)
    return bool(found != options.default_of(name))


def excluded_by(given: Collection[str]) -> Iterator[str]:
    """Yield which options make no sense beside these, all as they are called."""
    for by, excluded in _EXCLUDED_BY.items():
        if _word(by) in given:
            yield from (_word(name) for name in excluded.names if "=" not in name)


def _word(name: str) -> str:
    name, has_value, value = name.partition("=")
    return f"--{name.replace('_', '-')}" + (f" {value}" if has_value else "")
