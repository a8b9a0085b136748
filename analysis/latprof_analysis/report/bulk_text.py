"""Bulk transfers: throughput and loss by channels, and where datagrams died.

Of the section `bulk` of a run's summary.json, or of what `analyze` makes of its folder.
Without pandas, as the overview.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from latprof_analysis.report.parts import Part, Table, Text
from latprof_analysis.study.bulk import (
    BETWEEN,
    SOCKET,
    joined_balances,
    named_directions,
    of_run,
)
from latprof_analysis.text import (
    NOT_ENOUGH,
    NS_PER_SECOND,
    given_duration,
    given_rate,
    percent,
    plural,
    rate,
)

_Figures = Mapping[str, Any]
_DIGITS = 3
NOTE = "payload only; maximum of a slot; client: who began, server: who answered"
_LONGEST, _MOST = "longest_loss_run", "longest_loss_run_at_most"
_COUNTS = ("loss_runs", _LONGEST, "reordered", "duplicates")
_TOTAL = ("sent", "received")
_PROGRAMS, _OF_ENDS = ("client", "server"), ("average", "maximum")
_TITLE = "Throughput and loss"
_OWN = "of these no data"
_NOWHERE = "no counter on the way tells where"


def bulk_text(plan: _Figures) -> str:
    """Say in a few words what was transferred."""
    channels = ", ".join(map(str, plan["channels"]))
    how = f"at {given_rate(plan['offer_bps'])}" if plan["offer_bps"] else "at full rate"
    if plan["find_rate"] is not None:
        how = f"highest rate with {_small(plan['find_rate'])} lost or less"
    protocols = " and ".join(plan["protocols"])
    several = "" if channels == "1" else "s"
    return (
        f"bulk {plan['direction']} over {protocols}, {channels} channel{several}, {how}"
    )


def _rows(document: _Figures) -> Iterator[tuple[str, _Figures, _Figures]]:
    """Yield a name, the part and the figures of each direction of each part."""
    parts = (document.get("bulk") or {}).get("parts", ())
    for name, part, _, figures in named_directions(parts):
        yield name, part, figures


def bulk_sentences(document: _Figures) -> list[str]:
    """Say where most datagrams died, and which rate a search found."""
    parts = [part for part in document["bulk"]["parts"] if part["balance"]]
    sent, died = _dropped([part["balance"] for part in parts])
    found = [_search_sentence(one) for one in document["bulk"]["searches"]]
    if not parts:
        return found
    lost = sent - sum(part["balance"]["received"] for part in parts)
    if not lost:
        return [*found, f"udp: none of {sent:,} datagrams lost"]
    text = f"udp: {lost:,} of {sent:,} datagrams lost ({percent(lost / sent)})"
    unexplained = sum(part["balance"]["unexplained"] or 0 for part in parts)
    if set(died) == {SOCKET} and not unexplained:
        return [*found, f"{text}, {_in_buffers(parts)}"]
    places = [f"{n:,} {_where(place)}" for place, n in died.items()]
    if not places:
        return [*found, f"{text}, {_NOWHERE}"]
    places += [f"{unexplained:,} unexplained"] if unexplained else []
    return [*found, f"{text}: {', '.join(places)}"]


def _where(place: str) -> str:
    return place if place == BETWEEN else f"at {place}"


def _dropped(balances: Sequence[_Figures]) -> tuple[int, dict[str, int]]:
    """Return how many were sent, and by place how many packets died, most first."""
    died: dict[str, int] = {}
    for balance in balances:
        for place in balance["places"]:
            if place["packets"]:
                name = place["place"]
                died[name] = died.get(name, 0) + place["packets"]
    sent = sum(balance["sent"] for balance in balances)
    return sent, dict(sorted(died.items(), key=lambda item: -item[1]))


def _in_buffers(parts: Sequence[_Figures]) -> str:
    ends = [figures for part in parts for figures in part["directions"].values()]
    granted = {end["receive_buffer_bytes"] for end in ends} - {None}
    size = f" of {max(granted):,} bytes" if granted else ""
    return (
        f"all of them in the receivers' socket buffers{size}, none on the network: "
        "their readers were too slow; give a larger --receive-buffer or a lower --offer"
    )


def _search_sentence(search: _Figures) -> str:
    name = f"udp, {plural(search['channels'], 'channel')}{of_run(search)}"
    trials = plural(len(search["trials"]), "trial")
    trials += f" of {_seconds(search['trial_seconds'])}"
    little = f"with {_small(search['most_loss'])} lost or less"
    found = f"{rate(search['rate_bps'])} of payload"
    confirmed = _confirmed(search["confirmation"])
    above = "as fast as it goes"
    if search["failed_bps"] is not None:
        above = f"at {rate(search['failed_bps'])} {_failed(search)}"
    if not search["rate_bps"]:
        none = f"no rate that was tried came through {little} ({trials})"
        return f"{name}: {none}; {above}"
    if not _ended(search):
        least = f"at least {found} {little}, the search did not end ({trials})"
        return f"{name}: {least}, {confirmed}; {above}"
    highest = f"{found} is the highest rate {little}"
    exact = f"{trials}, to {_small(search['resolution'])}"
    return f"{name}: {highest} ({exact}), {confirmed}; {above}"


def _failed(search: _Figures) -> str:
    """Say what went wrong at the lowest rate that failed."""
    if where := ", ".join(map(_where, search["bound"])):
        return f"datagrams died {where}"
    if search["held_back"]:
        return "the sender was held back"
    return "they came slower than sent"


def _ended(search: _Figures) -> bool:
    """Whether what failed is as close to what passed as the search was to come."""
    tried = (trial for trial in search["trials"] if trial["passed"])
    passed = max((one["offered_bps"] or one["sent_bps"] for one in tried), default=0.0)
    failed = search["failed_bps"]
    return failed is None or failed - passed <= search["resolution"] * failed


def _confirmed(last: _Figures | None) -> str:
    """Say if the rate that was found stood a longer trial."""
    if not last:
        return "not confirmed by a longer one"
    text = f"{_small(last['loss'])} lost in {_seconds(last['seconds'])}"
    if last["passed"]:
        return f"confirmed: {text}"
    received = f"{rate(last['received_bps'])} of {rate(last['sent_bps'])} received"
    return f"NOT confirmed: {text}, {received}; try a longer --trial"


def _small(share: float) -> str:
    """Write a share that may be far below a percent."""
    return f"{100 * share:.3g}%"


def _seconds(seconds: float) -> str:
    return given_duration(NS_PER_SECOND * seconds)


def bulk_parts(document: _Figures) -> Iterator[Part]:
    """Lay out throughput, places of loss, and what does not add up."""
    rows = list(_rows(document))
    if rows:
        yield _throughput(rows)
        yield from _places(document["bulk"]["parts"])
    searches = (document.get("bulk") or {}).get("searches", ())
    yield from map(_trials, searches)
    yield from bulk_remarks(document)


def bulk_page_parts(document: _Figures) -> Iterator[Part]:
    """Lay out the same for a page, where columns have one title."""
    for part in bulk_parts(document):
        shown = part
        if isinstance(part, Table) and part.heads:
            columns = [*part.columns]
            columns[1:5] = [f"{end} {name}" for end in _PROGRAMS for name in _OF_ENDS]
            shown = replace(part, title=_TITLE, columns=columns, heads=(), narrow=())
        yield shown


def _throughput(rows: Sequence[tuple[str, _Figures, _Figures]]) -> Table:
    wide, narrow = [], []
    for name, _, figures in rows:
        ends = [
            rate(figures[end][column], _DIGITS)
            for end in _PROGRAMS
            for column in ("average_bps", "max_bps")
        ]
        counts = [_count(figures[name]) for name in _COUNTS]
        if (figures.get(_MOST) or 0) > (figures[_LONGEST] or 0):
            counts[_COUNTS.index(_LONGEST)] = f"at least {figures[_LONGEST]}"
        resent = _count(figures["retransmits"])
        udp = name.startswith("udp")
        loss = percent(figures["loss"]) if udp else NOT_ENOUGH
        few = [name, *ends, loss]
        narrow.append([*few, resent if not udp else NOT_ENOUGH])
        shown = counts if udp else [NOT_ENOUGH] * len(counts)
        wide.append([*few, *shown, NOT_ENOUGH if udp else resent])
    columns = ["channels", *(_OF_ENDS * len(_PROGRAMS)), "loss"]
    heads = [(end, len(_OF_ENDS)) for end in _PROGRAMS]
    return Table(
        "",
        [*columns, "loss runs", "longest", "reordered", "duplicates", "resent"],
        wide,
        NOTE,
        heads=[[*heads, ("", 6)]],
        narrow=[
            Table("", [*columns, "resent"], narrow, NOTE, heads=[[*heads, ("", 2)]]),
            Table(
                "",
                ["channels", "client", "server", "loss"],
                [[row[0], row[1], row[3], row[5]] for row in narrow],
                NOTE,
            ),
        ],
    )


def _count(value: int | None) -> str:
    return NOT_ENOUGH if value is None else f"{value}"


def _places(parts: Sequence[_Figures]) -> Iterator[Table]:
    """Lay out where datagrams died, each by its own counter."""
    joined = joined_balances(parts)
    balances = list(joined.values())
    if not any(b["sent"] != b["received"] for b in balances):
        return
    _, died = _dropped(balances)
    own = any(balance["session_packets"] for balance in balances)
    known = any(balance["unexplained"] is not None for balance in balances)
    head = ["datagrams", *_TOTAL, *died, *([_OWN] if own else [])]
    columns = [[*head, *(["unexplained"] if known else [])]]
    for channels, balance in joined.items():
        at = {place["place"]: place["packets"] for place in balance["places"]}
        column = [f"udp {channels}", *(str(balance[name]) for name in _TOTAL)]
        column += [str(at.get(place, 0)) for place in died]
        column += [str(-balance["session_packets"])] if own else []
        columns.append([*column, *([_count(balance["unexplained"])] if known else [])])
    titles, *rows = zip(*columns, strict=True)
    rest = "+ unexplained" if known else f"and the rest {BETWEEN}"
    note = f"sent = received + dropped at each place, by its own counter, {rest}"
    note += "; of all runs together" if any("run" in part for part in parts) else ""
    yield Table("where they died", titles, rows, note)


def _trials(search: _Figures) -> Table:
    last = search["confirmation"]
    rows = [
        _trial_row(trial) for trial in (*search["trials"], *([last] if last else []))
    ]
    note = "the last one confirms the rate that was found" if last else ""
    title = f"trials with {plural(search['channels'], 'channel')}{of_run(search)}"
    columns = ["offered", "time", "sent", "received", "loss", "passed"]
    return Table(title, columns, rows, note)


def _trial_row(trial: _Figures) -> list[str]:
    return [
        rate(trial["offered_bps"]) if trial["offered_bps"] else "max",
        _seconds(trial["seconds"]),
        rate(trial["sent_bps"]),
        rate(trial["received_bps"]),
        _small(trial["loss"]),
        "yes" if trial["passed"] else "no",
    ]


def bulk_remarks(document: _Figures) -> Iterator[Part]:
    """Say what must be known to trust the tables."""
    for name, part, figures in _rows(document):
        if figures["sent"] is None or figures["received"] is None:
            yield Text(f"note: {name}: an end did not tell what it counted", quiet=True)
        elif part["stopped"]:
            yield Text(f"note: {name}: ended before it was over", quiet=True)
    parts = (document.get("bulk") or {}).get("parts", ())
    yield from _between_hosts(parts, document.get("workload") or {})
    for part in parts:
        if part["balance"] and (n := part["balance"]["unexplained"]):
            why = "no counter on the way tells of them"
            if n < 0:
                why = "the counters on the way tell of more than were lost"
            name = f"udp {part['channels']}{of_run(part)}"
            text = f"warning: {name}: {n} datagrams unexplained: {why}"
            yield Text(text, tone="warning")


def _between_hosts(parts: Sequence[_Figures], workload: _Figures) -> Iterator[Part]:
    """Say what was lost where there is no counter of this host's, and which are."""
    plan = workload.get("bulk") or {}
    if not plan.get("to") or not any(part["balance"] for part in parts):
        return
    balances = [part["balance"] for part in parts if part["balance"]]
    places = [place for one in balances for place in one["places"]]
    lost = sum(place["packets"] for place in places if place["place"] == BETWEEN)
    here = any(place["place"] not in (SOCKET, BETWEEN) for place in places)
    least = "at least " if here else ""
    yield Text(
        f"note: lost between the hosts: {least}{plural(lost, 'datagram')} (from "
        f"{plan['device']} here to the socket on {plan['to']}, or back: no counter "
        "there is this host's)",
        quiet=True,
    )
    if here:
        text = "note: what this host dropped is of all its programs, the session's own"
        yield Text(f"{text} connection too", quiet=True)


def slot_text(document: _Figures) -> str:
    """Say how long the slots are in which throughput was counted."""
    slots = {figures["slots"]["slot_ns"] for _, _, figures in _rows(document)}
    return given_duration(max(slots, default=0))
