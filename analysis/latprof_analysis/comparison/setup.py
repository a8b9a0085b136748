"""What differs in how two sides were measured, since it may explain the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from latprof_analysis.comparison.sides import Side

# What run.json says of the setup; the rest are results.
_OF_RUN = ("host", "kernel", "machine", "clock", "state")
_OF_WORKLOAD = ("plan", "command", "server_command", "attached")
_OF_LAB = ("known", "settings")
_OF_PROTOCOL = ("loop", "congestion", "mss_bytes", "path_mtu_bytes", "cpu")
_MOST_SHOWN = 200


@dataclass(frozen=True)
class SetupDifference:
    """A setting that differs; several values where it does within a side."""

    key: str
    baseline: str
    other: str

    def as_dict(self) -> dict[str, str]:
        """Return the fields for JSON."""
        return dict(vars(self))


def setup_differences(baseline: Side, other: Side) -> list[SetupDifference]:
    """Return what run.json says differently of two sides.

    Examples
    --------
    >>> a, b = (Side(name, (name,), documents={name: {"run": {"kernel": name}}})
    ...         for name in ("6.1", "6.18"))
    >>> setup_differences(a, b)
    [SetupDifference(key='kernel', baseline='6.1', other='6.18')]
    """
    if not baseline.documents or not other.documents:
        return []
    settings_a, settings_b = _settings(baseline), _settings(other)
    return [
        SetupDifference(key, _shown(settings_a, key), _shown(settings_b, key))
        for key in dict.fromkeys((*settings_a, *settings_b))
        if settings_a.get(key) != settings_b.get(key)
    ]


def is_mixed_loop(differences: list[SetupDifference]) -> bool:
    """Whether one side sent in a closed loop, the other at fixed times."""
    return any(
        found.key == "plan.interval_ns" and "0" in (found.baseline, found.other)
        for found in differences
    )


def _shown(settings: dict[str, set[str]], key: str) -> str:
    text = ", ".join(sorted(settings.get(key, {"not told"})))
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


def _settings(side: Side) -> dict[str, set[str]]:
    """Return each setting with the values that it has in the runs of a side."""
    found: dict[str, set[str]] = {}
    for documents in side.documents.values():
        for key, value in _of_document(documents.get("run", {})):
            found.setdefault(key, set()).add(value)
    return found


def _of_document(run: Any) -> Iterator[tuple[str, str]]:
    yield from _picked(run, _OF_RUN, "")
    yield from _picked(_part(run, "workload"), _OF_WORKLOAD, "")
    for protocol in _listed(_part(run, "workload"), "runs"):
        prefix = f"{protocol.get('protocol', 'run')}."
        yield from _picked(protocol, _OF_PROTOCOL, prefix)
    yield from _picked(_part(run, "lab"), _OF_LAB, "lab.")
    for capability in _listed(run, "capabilities"):
        state = f"{capability.get('state')} from {capability.get('source')}"
        yield f"capability {capability.get('quantity')}", state


def _part(document: Any, key: str) -> Any:
    return document.get(key) if isinstance(document, dict) else None


def _listed(document: Any, key: str) -> list[dict[str, Any]]:
    found = _part(document, key)
    entries = found if isinstance(found, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]


def _picked(
    document: Any, keys: tuple[str, ...], prefix: str
) -> Iterator[tuple[str, str]]:
    for key in keys:
        if isinstance(document, dict) and key in document:
            yield from _flat(prefix + key, document[key])


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}", inner)
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        yield key, text or "none"
