"""Exchanges for people: a sentence for each way, then where the response went.

The document is that of `latprof run` or of `latprof analyze`; nothing is computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from latprof_analysis.exchange_parts import part_label
from latprof_analysis.show import durations, plain_table, show_line, shown
from latprof_analysis.text import duration, percent

MOST_SENTENCES = 6
MOST_TABLES = 3
_IN_SENTENCE = ("p50", "p99")
_OTHER_END = {"response": "", "server": " (the client's end was not seen)"}


def show_exchanges(document: dict[str, Any], console: Console) -> None:
    """Show the sentences, then the tables."""
    for sentence in exchange_sentences(document):
        show_line(console, sentence, "bold")
    show_exchange_tables(document, console)


def exchange_sentences(
    document: dict[str, Any], most: int = MOST_SENTENCES
) -> list[str]:
    """Say in a sentence for each way how long it took, and where the longest was.

    Those of most exchanges first; of more than `most` how many there are.
    """
    ways = _ways(document)
    told = [exchange_sentence(*way) for way in ways[:most]]
    rest = ways[most:]
    if rest:
        n = sum(figures["exchanges"] for _, figures in rest)
        told.append(f"and {len(rest)} more, {_exchanges(n)}")
    return told


def exchange_sentence(name: str, figures: dict[str, Any]) -> str:
    """Say how long the exchanges of one way took, and where the slowest was.

    Parameters
    ----------
    name : str
        Protocol and way: "tcp redis-benchmark -> redis-server:7777".
    figures : dict
        Of that way, in ``exchanges`` of a summary document.

    Examples
    --------
    >>> response = {"n": 2, "p50_ns": None, "p99_ns": None, "max_ns": 201_000_000}
    >>> slowest = {"request_way_ns": 200_000, "server_ns": 200_500_000,
    ...            "reply_way_ns": 300_000, "server_comm": "redis", "server_pid": 812}
    >>> exchange_sentence("udp dig -> dns:53", {"exchanges": 2,
    ...     "parts": {"response": response}, "slowest": slowest}).split(": ")[1]
    'response max 201 ms, of which 200.5 ms in redis (pid 812)'
    """
    begin = f"{ends_of(name)}, {_exchanges(figures['exchanges'])}"
    parts = figures["parts"]
    whole = next((part for part in _OTHER_END if part in parts), None)
    if whole is None:
        return f"{begin}: none of them timed"
    of = parts[whole]
    told = [
        f"{p} {duration(of[f'{p}_ns'])}"
        for p in _IN_SENTENCE
        if of.get(f"{p}_ns") is not None
    ]
    told.append(f"max {duration(of['max_ns'])}")
    slowest = figures["slowest"]
    where = _where(slowest) if slowest and whole == "response" else ""
    return f"{begin}: {whole} {', '.join(told)}{where}{_OTHER_END[whole]}"


def _where(row: dict[str, Any]) -> str:
    """Say which part of the slowest exchange was the largest."""
    if row.get("pipelined"):
        return ", answered before its request was whole"
    pauses = row.get("reply_pauses_ns") or 0
    times = {
        "server": (row.get("server_ns") or 0) + pauses,
        "request_way": row.get("request_way_ns") or 0,
        "reply_way": (row.get("reply_way_ns") or 0) - pauses,
    }
    most = max(times, key=lambda part: times[part])
    if times[most] <= 0:
        return ", its parts not known"
    again = " (sent again)" if row.get("retransmits") else ""
    places = {
        "server": f"{_also_before(row)}{_server(row)}{_idle(row)}",
        "request_way": f"the request's way{again}",
        "reply_way": f"the reply's way{again}",
    }
    return f", of which {duration(times[most], 4)} in {places[most]}"


def _also_before(row: dict[str, Any]) -> str:
    """Name the request's way where nobody saw when it ended."""
    begun = row.get("request_sent_ns") is not None
    return (
        "the request's way and " if begun and row.get("request_way_ns") is None else ""
    )


def _server(row: dict[str, Any]) -> str:
    pid = row.get("server_pid")
    name = row.get("server_comm") or "the server"
    return name if pid is None else f"{name} (pid {pid})"


def _idle(row: dict[str, Any]) -> str:
    """Say if the server had not begun for most of its time."""
    half = ((row.get("server_ns") or 0) + (row.get("reply_pauses_ns") or 0)) / 2
    if (row.get("server_wakeup_ns") or 0) > half:
        return ", waiting for a CPU"
    return ", not yet read" if (row.get("server_queue_ns") or 0) > half else ""


def show_exchange_tables(
    document: dict[str, Any], console: Console, most: int = MOST_TABLES
) -> None:
    """Show the parts of the response, a table for each of the first ways."""
    ways = _ways(document)
    for name, figures in ways[:most]:
        _show_parts(name, figures, console)
    if len(ways) > most == MOST_TABLES:
        left = len(ways) - most
        show_line(console, f" {left} more ways: --json has their parts, too", "dim")
    _show_no_exchange(document.get("no_exchange") or {}, console)


def _show_parts(name: str, figures: dict[str, Any], console: Console) -> None:
    parts = figures["parts"]
    if not parts:
        return
    columns = _columns(parts)
    title = f"{ends_of(name)}: {_exchanges(figures['exchanges'])}"
    table = plain_table(console, title, ("part",), (*columns, "share", "n"))
    for part, values in parts.items():
        table.add_row(
            shown(part_label(part)),
            *durations(values, columns),
            percent(values["share_of_response"]),
            str(values["n"]),
            style="bold" if part == "response" else "",
        )
    console.print(table)
    for note in exchange_notes(figures):
        show_line(console, f" {note}", "dim")


def _columns(parts: dict[str, Any]) -> list[str]:
    """Choose the percentiles that any of the parts has."""
    high = "p95" if all("p95_ns" in values for values in parts.values()) else "p90"
    told = [
        name
        for name in ("p50", high, "p99")
        if any(values[f"{name}_ns"] is not None for values in parts.values())
    ]
    return [*told, "max"]


def exchange_notes(figures: dict[str, Any]) -> Iterator[str]:
    """Say what a reader of the figures of a way should know of them."""
    n = figures["exchanges"]
    if figures["requests"] > n:
        each = figures["requests"] / n
        yield (
            f"exchanges of several requests: {each:.3g} in one on average, "
            f"{figures['requests']:,} in all, counted by sends"
        )
    if figures["pipelined"]:
        yield (
            f"pipelined: {figures['pipelined']:,} of {n:,} were answered before the "
            "request was whole: no parts"
        )
    if figures["retransmits"]:
        yield f"segments sent again: {figures['retransmits']:,}"
    if figures["left_out"]:
        told = _exchanges(figures["left_out"])
        yield f"{told} met the measuring of our own cost: in no percentile"


def _show_no_exchange(ways: dict[str, dict[str, int]], console: Console) -> None:
    causes: Counter[str] = Counter()
    for found in ways.values():
        causes.update(found)
    told = ", ".join(f"{n:,} {cause}" for cause, n in causes.items() if n)
    if told:
        show_line(console, f" messages of no exchange: {told}", "dim")


def _ways(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found = (document.get("exchanges") or {}).items()
    return sorted(found, key=lambda way: -way[1]["exchanges"])


def ends_of(name: str) -> str:
    """Return the name of a way: its ends, and the protocol where it is not TCP.

    Examples
    --------
    >>> ends_of("tcp a -> b:80"), ends_of("udp a -> b:53")
    ('a -> b:80', 'a -> b:53 (udp)')
    """
    protocol, _, ends = name.partition(" ")
    return ends if protocol == "tcp" else f"{ends} ({protocol})"


def _exchanges(n: int) -> str:
    return f"{n:,} exchange{'' if n == 1 else 's'}"
