"""What a document says, in sentences: the set-up, and the exchanges of each way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from latprof_analysis.report.bulk_text import bulk_text
from latprof_analysis.report.mesh_text import mesh_sentence
from latprof_analysis.report.response_parts import OF_SLOWEST, shares_sentence
from latprof_analysis.stages import SUMMANDS, UNTIL_PAUSE
from latprof_analysis.study.ways import other_hosts
from latprof_analysis.text import (
    counted,
    duration,
    given_bytes,
    given_duration,
    given_rate,
    printable,
)

_TITLE_WIDTH = 60  # of the command in it


def setup_sentence(summary: Mapping[str, Any]) -> str:
    """Say in one sentence what was run over what."""
    workload, known = summary["workload"], summary["known"]
    if workload.get("attached"):
        return attached_sentence(workload)
    what = " ".join(workload["command"]) or own_text(workload)
    what = what or _plan_text(workload["plan"])
    if workload.get("user") not in (None, "root"):
        what += f", as {workload['user']}"
    if not known:
        hosts = other_hosts(workload)
        return f"{what}, with the {hosts}" if hosts else f"{what}, without a lab"
    link = given_rate(known["rate_bps"]) if known["rate_bps"] else "no rate limit"
    link += _queue_text(known)
    loss = f", {100 * known['loss']:g}% of packets lost" if known["loss"] else ""
    plan = workload["plan"] or {}
    # a run.json from elsewhere may not have it
    settings = summary["lab"].get("settings") or {}
    congestion = plan.get("congestion") or settings.get("congestion_control")
    return (
        f"{what}; {known['kind']} {link}, "
        f"{given_duration(known['delay_ns'])} each way{loss}, "
        f"MTU {known['mtu_bytes']}" + (f", {congestion}" if congestion else "")
    )


def _queue_text(known: Mapping[str, Any]) -> str:
    """Name the qdiscs at the ends of a link, as far as they were asked for."""
    qdisc = known.get("qdisc") or ""
    if known.get("leaf"):
        qdisc += f" above {known['leaf']}"
    if known.get("rate_is_token_bucket"):
        qdisc += f", burst {known['burst_bytes']} bytes"
    return f" ({qdisc})" if qdisc else ""


def first_names(names: Sequence[str], most: int = 4) -> str:
    """Name the first of some, and how many there are more.

    Examples
    --------
    >>> first_names(["a", "b", "c"], 2), first_names(["a", "b"], 2)
    ('a, b and 1 more', 'a, b')
    """
    more = f" and {len(names) - most} more" if names[most:] else ""
    return f"{', '.join(names[:most])}{more}"


def run_name(folder: str, run: Mapping[str, Any]) -> str:
    """Name a run by its own name, and by its folder where that is another."""
    name = run["name"] or folder
    return name if name == folder else f"{name} ({folder})"


def setup_title(summary: Mapping[str, Any]) -> str:
    """Say in a few words what was run over what: a title."""
    workload, known = summary["workload"], summary["known"]
    what = printable(" ".join(workload["command"]), _TITLE_WIDTH)
    if workload.get("attached"):
        what = attached_sentence(workload)
    elif own_text(workload):
        what = own_text(workload)
    elif not what:
        interval = workload["plan"]["interval_ns"]
        every = f" every {given_duration(interval)}" if interval else ""
        what = f"ping-pong{every}"
    if not known:
        return what
    link = [
        given_rate(known["rate_bps"]) if known["rate_bps"] else "without a rate",
        given_duration(known["delay_ns"]) if known["delay_ns"] else "",
        f"{100 * known['loss']:g}% loss" if known["loss"] else "",
    ]
    return f"{what} over {known['kind']} {', '.join(filter(None, link))}"


def attached_sentence(workload: Mapping[str, Any]) -> str:
    """Say to what was attached, and for how long, which a killed run does not say."""
    seconds = sum(run.get("seconds", 0) for run in workload["runs"])
    how_long = f" for {given_duration(1e9 * seconds)}" if seconds else ""
    return f"attached to {workload['attached']['to']}{how_long}"


def own_text(workload: Mapping[str, Any]) -> str:
    """Say what a workload of latprof's own does; nothing of a ping-pong."""
    if workload.get("ops"):
        return ops_text(workload["ops"])
    if workload.get("bulk"):
        return bulk_text(workload["bulk"])
    return mesh_sentence(workload["mesh"]) if workload.get("mesh") else ""


def ops_text(plan: Mapping[str, Any]) -> str:
    """Say what is done on which stores."""
    ops, stores = ", ".join(plan["ops"]), ", ".join(plan["backends"])
    return f"{ops} on {stores}, {plan['rounds']} times each"


def _plan_text(plan: Mapping[str, Any]) -> str:
    if plan["interval_ns"]:
        gaps = "exponential gaps of" if plan.get("poisson") else "every"
        loop = f"open loop, {gaps} {given_duration(plan['interval_ns'])}"
    else:
        loop = "closed loop"
    texts = ["ping-pong", loop]
    if plan["reply_bytes"] is not None:
        texts.append(f"replies of {plan['reply_bytes']} bytes")
    sender, responder = plan.get("client_cpu"), plan.get("server_cpu")
    if sender is not None and sender == responder:
        return ", ".join([*texts, f"CPU {sender}"])
    ends = (("sender", sender), ("responder", responder))
    texts += [f"{end} on CPU {cpu}" for end, cpu in ends if cpu is not None]
    return ", ".join(texts)


_IN_SENTENCE = ("p50", "p99")
_OTHER_END = {"response": "", "server": " (the client's end was not seen)"}


def exchange_sentences(document: Mapping[str, Any], most: int = 6) -> list[str]:
    """Say in a sentence for each way how long it took, and where the longest was.

    Those of most exchanges first; of more than `most` how many there are.
    """
    ways = ways_of(document)
    sentences = [exchange_sentence(*way) for way in ways[:most]]
    rest = ways[most:]
    if rest:
        n = sum(figures["exchanges"] for _, figures in rest)
        sentences.append(f"and {len(rest)} more, {counted(n, 'exchange')}")
    return sentences


def exchange_sentence(name: str, figures: Mapping[str, Any]) -> str:
    """Say how long the exchanges of one way took, and where the slowest was.

    The way has protocol and ends as its name: "tcp curl -> nginx:80".
    """
    begin = f"{ends_of(name)}, {counted(figures['exchanges'], 'exchange')}"
    parts = figures["parts"]
    whole = next((part for part in _OTHER_END if part in parts), None)
    if whole is None:
        return f"{begin}: none of them timed"
    of = parts[whole]
    texts = [
        f"{p} {duration(of[f'{p}_ns'])}"
        for p in _IN_SENTENCE
        if of.get(f"{p}_ns") is not None
    ]
    texts.append(f"max {duration(of['max_ns'])}")
    slowest = figures["slowest"]
    where = _where(slowest) if slowest and whole == "response" else ""
    until = _until_pause(parts) if figures.get("paused") else ""
    # of one the sentence has said it
    shares = _shares(figures) if whole == "response" and of.get("n", 0) > 1 else ""
    said = f"{begin}: {whole} {', '.join(texts)}{where}{_OTHER_END[whole]}"
    return f"{said}{shares}{until}"


def _shares(figures: Mapping[str, Any]) -> str:
    """Say which parts took most of all time, and of that of the slowest 1%."""
    count, parts = figures.get("slowest_responses"), figures["parts"]
    of = {"all time": shares_sentence(parts)}
    if count:
        of[f"the slowest 1% ({count:,})"] = shares_sentence(parts, OF_SLOWEST)
    return "".join(f"; of {whose} {shares}" for whose, shares in of.items() if shares)


def _until_pause(parts: Mapping[str, Any]) -> str:
    """Say how long it took without what came after a pause of the server."""
    of = parts[UNTIL_PAUSE]
    p50 = f"p50 {duration(of['p50_ns'])}, " if of.get("p50_ns") is not None else ""
    return f"; until the reply's first pause {p50}max {duration(of['max_ns'])}"


def _where(row: Mapping[str, Any]) -> str:
    """Say which part of the slowest exchange was the largest."""
    if row.get("pipelined"):
        return ", answered before its request was whole"
    pauses = row.get("reply_pauses_ns") or 0
    unread = row.get("client_queue_ns") or 0
    times = {
        "server": (row.get("server_ns") or 0) + pauses,
        "request_way": row.get("request_way_ns") or 0,
        "reply_way": (row.get("reply_way_ns") or 0) - pauses - unread,
        "client": unread,
    }
    most = max(times, key=lambda part: times[part])
    # what is not known may be larger
    known = all(row.get(f"{part}_ns") is not None for part in SUMMANDS)
    is_most = known or 2 * times[most] > (row.get("response_ns") or 0)
    if times[most] <= 0 or not is_most:
        return ", its parts not known"
    again = " (sent again)" if row.get("retransmits") else ""
    places = {
        "server": _in_server(row, times["server"]),
        "request_way": f"the request's way{again}",
        "reply_way": f"the reply's way{again}",
        "client": _in_client(row, unread),
    }
    return f", of which {duration(times[most])} in {places[most]}"


def _in_client(row: Mapping[str, Any], ns: float) -> str:
    waits = (row.get("client_wakeup_ns") or 0) > ns / 2
    did = "waiting for a CPU" if waits else "not yet read"
    return f"{_end_of(row, 'client')}, {did}"


def _end_of(row: Mapping[str, Any], end: str) -> str:
    """Name one end's process."""
    name = row.get(f"{end}_comm") or f"the {end}"
    pid = row.get(f"{end}_pid")
    return name if pid is None else f"{name} (pid {pid})"


# What a server did mostly, the narrower first.
_SERVER_DID = {
    "server_wakeup": "waiting for a CPU",
    "server_queue": "not yet read",
    "server_cpu": "on a CPU",
    "server_cpu_wait": "waiting for a CPU",
    "server_sleep": "asleep",
}


def _in_server(row: Mapping[str, Any], ns: float) -> str:
    """Name the server, what is in its time besides, and what it waited for mostly."""
    # nobody may have seen when the request's way ended
    begun = row.get("request_sent_ns") is not None
    way_too = begun and row.get("request_way_ns") is None
    text = _end_of(row, "server")
    if way_too:
        text = f"the request's way and {text}"
    for part, words in _SERVER_DID.items():
        if (row.get(f"{part}_ns") or 0) > ns / 2:
            return f"{text}, {words}"
    return text


def exchange_notes(figures: Mapping[str, Any]) -> Iterator[str]:
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
    if figures.get("unsplit"):
        yield (
            f"of {figures['unsplit']:,} of {n:,} replies the beginning is not known "
            "(session tickets of TLS may precede it): no server's part"
        )
    if figures["retransmits"]:
        yield f"retransmitted segments: {figures['retransmits']:,}"
    if figures.get("paused"):
        yield (
            f"{figures['paused']:,} of {n:,} replies paused for 100 ms or longer, with "
            "nothing on its way: what came later may be no part of them"
        )


_AT_ONCE = (
    "on their connections both ends talk at once ({}): which bytes answer which cannot "
    "be known; each message's stages are"
)
# By cause, what users look for who miss exchanges.
_MISSED = {
    "both sides talked at once": _AT_ONCE.format("a window of requests"),
    "HTTP/2: both sides talk at once": _AT_ONCE.format("HTTP/2"),
    "QUIC: both sides talk at once": _AT_ONCE.format(
        "QUIC, by its handshake, or by UDP port 443 alone"
    ),
    "TLS 0-RTT: sent with the handshake": "the requests came with the handshake of TLS "
    "(0-RTT), and what the server says of that looks like their replies",
}


def no_exchange_sentences(document: Mapping[str, Any]) -> Iterator[str]:
    """Say what share is in no exchange that may have asked for one, and why; and what
    had no answer.
    """
    for before, run in _said_by_runs(document):
        messages, sizes = _counted_apart(run)
        ways = [figures for _, figures in ways_of(document)]
        whole = sum(one["requests"] + one["replies"] for one in ways)
        whole_bytes = sum(one["request_bytes"] + one["reply_bytes"] for one in ways)
        for cause, why in _MISSED.items():
            if not messages[cause]:
                continue
            share = messages[cause] / (whole + messages.total())
            size = sizes[cause] / max(1, whole_bytes + sizes.total())
            known = " and ".join(_known_of_overlapped(run, cause))
            yield (
                f"{before}not in exchanges: {_percent(share)} of the messages, "
                f"{_percent(size)} of the bytes, since {why}"
                + (f"; since then {known}" if known else "")
            )
        for sentence in _unanswered_sentences(run.get("unanswered") or {}):
            yield before + sentence


def _known_of_overlapped(run: Mapping[str, Any], cause: str) -> Iterator[str]:
    """Say what is known where it is not known which bytes answer which."""
    least_ns = (run.get("least_responses_ns") or {}).get(cause)
    if least_ns is not None:
        yield f"no response took less than {duration(least_ns)}"
    mean = (run.get("in_flight_bytes") or {}).get(cause)
    if mean is not None:
        yield f"{given_bytes(mean)} were sent and not yet read at a time, on average"


def other_turns_sentences(document: Mapping[str, Any]) -> Iterator[str]:
    """Say what else is in no exchange: handshakes of TLS, and messages by cause."""
    for before, run in _said_by_runs(document):
        for name, took in (run.get("handshakes") or {}).items():
            if took["n"]:
                yield (
                    f"{before}TLS handshakes, {ends_of(name)}: {took['n']:,}, p50 "
                    f"{duration(took['p50_ns'])}, max {duration(took['max_ns'])}; "
                    "they are in no exchange"
                )
        messages, _ = _counted_apart(run)
        rest = {c: n for c, n in messages.items() if n and c not in _MISSED}
        if found := ", ".join(f"{n:,} {cause}" for cause, n in rest.items()):
            yield f"{before}other messages of no exchange: {found}"


def _said_by_runs(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Give what each run says of itself, and its name where there are several."""
    runs = document.get("runs") or {"": document}
    for name, run in runs.items():
        yield f"{name}: " if len(runs) > 1 else "", run


def _counted_apart(run: Mapping[str, Any]) -> tuple[Counter[str], Counter[str]]:
    """Return messages and bytes of no exchange, by cause."""
    found = []
    for name in ("no_exchange", "no_exchange_bytes"):
        causes: Counter[str] = Counter()
        for of_way in (run.get(name) or {}).values():
            causes.update(of_way)
        found.append(causes)
    return found[0], found[1]


def _unanswered_sentences(found: Mapping[str, Any]) -> Iterator[str]:
    """Say how many requests had no answer, what ended the waiting, and when."""
    for name, waits in found.items():
        outcomes = ", ".join(f"{n:,} {why}" for why, n in waits["outcomes"].items())
        waited = waits["waited"]
        longest = f"; the longest waited {duration(waited['max_ns'])}" * bool(
            waited["n"]
        )
        yield (
            f"without an answer, {ends_of(name)}: "
            f"{counted(waits['count'], 'request')} ({outcomes}){longest}"
        )


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def ways_of(document: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the ways of exchanges by name, those of most exchanges first."""
    found = (document.get("exchanges") or {}).items()
    return sorted(found, key=lambda way: -way[1]["exchanges"])


def ends_of(name: str) -> str:
    """Return the name of a way: its ends, and the protocol where it is not TCP."""
    protocol, _, ends = name.partition(" ")
    return ends if protocol == "tcp" else f"{ends} ({protocol})"


def capability_sentence(found: Mapping[str, Any]) -> str:
    """Say in one line what is offered of a quantity, as its `as_dict` gives it."""
    why = "; ".join(filter(None, (found["reason"], found["remedy"])))
    return f"{found['state']}: {found['quantity']}: {why}"


SMALLEST_STEP = 0.01  # of the median: smaller ones are counted


def step_ns(change: Mapping[str, Any]) -> float:
    """Return by how much a change raised or lowered the level."""
    return float(change["after"]["value"]) - float(change["before"]["value"])


def large_changes(
    levels: Mapping[str, Any], median_ns: float | None
) -> list[dict[str, Any]]:
    """Return the changes of level that are of any size beside the median.

    Examples
    --------
    >>> rise = {"before": {"value": 0.0}, "after": {"value": 5.0}}
    >>> [len(large_changes({"changes": [rise]}, median)) for median in (100, 1000)]
    [1, 0]
    """
    least = SMALLEST_STEP * (median_ns or 0)
    return [one for one in levels.get("changes", ()) if abs(step_ns(one)) >= least]


def levels_alike(levels: Mapping[str, Any]) -> bool:
    """Whether neighbours are so alike that busy periods of a queue look like changes.

    Examples
    --------
    >>> levels_alike({"inflation": 1.2}), levels_alike({"inflation": 9.0})
    (False, True)
    """
    # variance of a mean, by dependence, over that of independent values
    return float(levels.get("inflation", 1.0)) > 2
