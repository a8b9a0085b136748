"""Which format a scraper asks for, and families in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from latprof_agent.service.metrics import protobuf, text
from latprof_agent.service.metrics.families import Family


@dataclass(frozen=True)
class Format:
    """One that we write."""

    content_type: str
    write: Callable[[Iterable[Family]], bytes]
    dense: bool = False  # to compress it takes longer than it is worth


def _of_text(form: text.TextFormat) -> Format:
    return Format(form.content_type, lambda families: text.write(families, form))


PLAIN = _of_text(text.PLAIN)
OPEN_METRICS = _of_text(text.OPEN_METRICS)
PROTOBUF = Format(protobuf.CONTENT_TYPE, protobuf.write, dense=True)
_PROTOBUF_PARAMETERS = {
    "proto": "io.prometheus.client.MetricFamily",
    "encoding": "delimited",
}


def chosen(accept: str) -> Format:
    """Choose by the header Accept: what is wanted most of what we write, or plain text.

    Examples
    --------
    >>> chosen("text/plain;q=0.5,application/openmetrics-text;q=0.7") is OPEN_METRICS
    True
    >>> chosen("") is chosen("*/*") is chosen("application/json") is PLAIN
    True
    """
    wanted = [(weight, _known(kind, rest)) for kind, rest, weight in _entries(accept)]
    known = [(weight, form) for weight, form in wanted if form and weight > 0]
    return max(known, key=lambda entry: entry[0], default=(0.0, PLAIN))[1]


def _entries(accept: str) -> Iterable[tuple[str, dict[str, str], float]]:
    for entry in accept.split(","):
        kind, *rest = (part.strip() for part in entry.split(";"))
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        try:
            weight = float(parameters.get("q", "1"))
        except ValueError:
            weight = 0.0
        yield kind.lower(), parameters, weight


def _known(kind: str, parameters: dict[str, str]) -> Format | None:
    if kind == "application/vnd.google.protobuf":
        ours = _PROTOBUF_PARAMETERS.items() <= parameters.items()
        return PROTOBUF if ours else None
    plain = kind in ("text/plain", "text/*", "*/*")
    if kind == "application/openmetrics-text":
        return OPEN_METRICS
    return PLAIN if plain else None
