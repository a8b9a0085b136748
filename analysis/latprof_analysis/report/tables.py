"""A summary document for people: stages, round trips, the link, exchanges.

The document is that of `latprof run` or of `latprof analyze`; nothing is computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from latprof_analysis.stages import part_label
from latprof_analysis.study.likely_cause import likely_cause, stage_times
from latprof_analysis.study.setup import known_transit_ns
from latprof_analysis.text import (
    NOT_ENOUGH,
    duration,
    given_duration,
    given_rate,
    percent,
    plural,
    printable,
    rate,
    with_interval,
)

COLUMNS = ("p50", "p90", "p99", "p99.9", "max")
FIRST_WIDTH = len("transit+receive_stack")
FEW = "-: too few for that percentile (p90 needs 100, p99 1000, p99.9 10000)"
_TITLE_WIDTH = 60  # of the command in it
PART_OF = {"wakeup": "  of which wakeup"}


def shown(text: str, style: str = "") -> Text:
    """Make a text that neither markup nor control characters in it can change."""
    return Text(printable(text), style=style)


def show_line(console: Console, text: str, style: str = "") -> None:
    """Print a line, after an empty one if it begins with a line feed."""
    if text.startswith("\n"):
        console.print()
    console.print(shown(text.removeprefix("\n"), style))


def _begun(console: Console, title: str) -> Table:
    """Print a title, and begin the table below it."""
    show_line(console, f"\n{title}", "bold")
    return Table(box=None, padding=(0, 0, 0, 1), header_style="dim")


def titled_table(console: Console, title: str, first: str, *columns: str) -> Table:
    """Begin a table whose columns are as wide as those of the tables around it."""
    table = _begun(console, title)
    table.add_column(first, overflow="fold", min_width=FIRST_WIDTH)
    for column in columns:
        width = 7 if column in COLUMNS else 6
        table.add_column(column, justify="right", no_wrap=True, min_width=width)
    return table


def plain_table(
    console: Console, title: str, left: Sequence[str], right: Sequence[str] = ()
) -> Table:
    """Begin a table of columns with texts, then with figures."""
    table = _begun(console, title)
    for column in left:
        table.add_column(column, overflow="fold")
    for column in right:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def durations(figures: dict[str, Any], names: Sequence[str] = COLUMNS) -> list[str]:
    """Write the figures that have these names, each in ns."""
    return [duration(figures[f"{name}_ns"]) for name in names]


def show_stages(kind: str, figures: dict[str, Any], console: Console) -> None:
    """Show the stages of one kind of message."""
    n, whole = figures["messages"], figures["complete"]
    seen = "all" if whole == n else f"{whole} of {n}"
    title = f"{kind}: {plural(n, 'message')}, {seen} seen from end to end"
    if figures["stages"]:
        table = titled_table(console, title, "stage", *COLUMNS, "share", "n")
        for stage, values in figures["stages"].items():
            table.add_row(
                shown(PART_OF.get(stage, stage)),
                *durations(values),
                percent(values["share_of_end_to_end"]),
                str(values["n"]),
                style="bold" if stage == "end_to_end" else "",
            )
        console.print(table)
    else:
        show_line(console, f"\n{title}", "bold")
    _show_halves(figures.get("halves"), console)
    again = figures["retransmits"]
    packets = f"packets: {figures['packets']}"
    if kind.startswith("tcp"):
        packets += f", segments sent again: {again}"
        packets += f" (in {figures['resent']} messages)" if again else ""
    show_line(console, f" {packets}", "yellow" if again else "dim")
    _show_left_out(figures, "message", console)


def _show_halves(halves: dict[str, Any] | None, console: Console) -> None:
    """Show the stages of messages of which one end was seen."""
    if not halves or not halves["stages"]:
        return
    title = f"of {plural(halves['messages'], 'message')} seen at one end only"
    table = titled_table(console, title, "stage", *COLUMNS, "n")
    for stage, values in halves["stages"].items():
        name = shown(PART_OF.get(stage, stage))
        table.add_row(name, *durations(values), str(values["n"]))
    console.print(table)


def show_round_trips(protocol: str, figures: dict[str, Any], console: Console) -> None:
    """Show one protocol's round trips by size, their load and loss."""
    start = "intended time" if figures["open_loop"] else "request sent"
    title = f"{protocol} round trips: response time, {start} to reply read"
    table = titled_table(console, title, "size", *COLUMNS, "n")
    for size, values in figures["sizes"].items():
        table.add_row(f"{size} B", *durations(values), str(values["n"]))
    rtt = figures["rtt"]
    table.add_row("all sizes", *durations(rtt), str(rtt["n"]), style="bold")
    console.print(table)
    show_line(console, f" {_load(figures)}", "dim")
    lost, sent = figures["lost"], figures["sent"]
    text = f" lost: {lost} of {sent} ({percent(figures['loss_ratio'])})"
    corrupt = figures.get("corrupt")  # the generator's own, not in the rows
    text += "" if corrupt is None else f", corrupt: {corrupt}"
    show_line(console, text, "yellow" if lost or corrupt else "dim")
    _show_left_out(figures, "round trip", console)


def _show_left_out(figures: dict[str, Any], what: str, console: Console) -> None:
    if figures["left_out"]:
        text = f" {plural(figures['left_out'], what)} met the measuring of our own cost"
        show_line(console, f"{text}, and are not in the percentiles", "dim")


def _load(figures: dict[str, Any]) -> str:
    achieved, offered = figures["achieved_per_second"], figures["offered_per_second"]
    text = f"load: {achieved:.4g}/s" if achieved else "load: too few to tell"
    if not offered:
        return f"{text}, each after the reply to the one before (closed loop)"
    late = figures["lateness"]
    return (
        f"{text} of {offered:.4g}/s offered; sender late by "
        f"{duration(late['p50_ns'])} p50, {duration(late['p99_ns'])} p99, "
        f"{duration(late['max_ns'])} max"
    )


def show_link(summary: dict[str, Any], console: Console) -> None:
    """Show what was found of the link, beside what is known of it."""
    known = summary["known"] or {}
    fits = {p: r["fit"] for p, r in summary["round_trips"].items() if r["fit"]}
    one_way = {n: v for n, v in summary["one_way"].items() if v["known_ns"]}
    if not fits and not one_way:
        return
    show_line(console, "\nthe link: measured [95% interval] beside known", "bold")
    table = Table(box=None, padding=(0, 0, 0, 1), header_style="dim")
    for column in ("figure", "measured", "known"):
        table.add_column(column, no_wrap=True)
    for protocol, fit in fits.items():
        _add_fit(table, protocol, fit, known)
    for name, smallest in one_way.items():
        low = smallest["transit_p10_ns"]
        measured = f"{duration(smallest['transit_min_ns'], 4)} min"
        measured += f", {duration(low, 4)} p10" if low else ""
        figure = f"transit of {smallest['size_bytes']} B, {name}"
        table.add_row(figure, measured, duration(smallest["known_ns"], 4))
    console.print(table)
    for protocol, fit in fits.items():
        _show_fit_notes(protocol, fit, console)


def _add_fit(
    table: Table, protocol: str, fit: dict[str, Any], known: dict[str, Any]
) -> None:
    bandwidth = with_interval(fit["bandwidth_bits_per_second"], rate)
    table.add_row(
        f"bandwidth, {protocol}",
        bandwidth if fit["bandwidth_bits_per_second"] else "refused, see below",
        given_rate(known.get("rate_bps")),
    )
    if fit["fixed_delay_seconds"]:
        delay = known.get("delay_ns")
        table.add_row(
            f"fixed delay of a round trip, {protocol}",
            with_interval(fit["fixed_delay_seconds"], duration, 1e9),
            f"{given_duration(2 * delay)} + hosts" if delay else NOT_ENOUGH,
        )


def _show_fit_notes(protocol: str, fit: dict[str, Any], console: Console) -> None:
    reply = fit["reply_mode"]
    mode = "full echo" if reply == "echo" else f"replies of {reply} bytes"
    text = f" {protocol}: D = aS + b over {fit['sizes']} sizes, {fit['rounds']} "
    text += f"rounds; {mode}, so bandwidth = {fit['factor']} / a"
    show_line(console, text, "dim")
    for caveat in fit["caveats"]:
        show_line(console, f" {protocol}: {caveat}", "dim")


def slowest_cause(row: dict[str, Any], lab: dict[str, Any] | None = None) -> str:
    """Say why the slowest message was slow, which it was, and whose."""
    known_ns = known_transit_ns(row["protocol"], row["size_bytes"] or 0, lab)
    ends = " to ".join(_process(row, end) for end in ("sender", "reader"))
    return (
        f"slowest message, {duration(row['end_to_end_ns'])}: "
        f"{likely_cause(row, known_ns)}; {_message(row)}, {ends}"
    )


def _message(row: dict[str, Any]) -> str:
    """Name a message by its number and size, as far as they are told."""
    number = "" if row["sequence"] is None else f" {row['sequence']}"
    size = row["size_bytes"]
    told = "a size that is not told" if size is None else f"{size} bytes"
    return f"{row['protocol']} {row['kind']}{number} of {told}"


def slowest_sentence(row: dict[str, Any], lab: dict[str, Any] | None = None) -> str:
    """Say the same, and where it went, and in which stages its time did."""
    parts = sorted(((ns, name) for name, ns in stage_times(row).items()), reverse=True)
    where = ", ".join(f"{duration(ns)} in {name}" for ns, name in parts[:3])
    spent = f"; {where}" if where else ""
    wakeup, again = row["wakeup_ns"], row["retransmits"]
    slept = f", {duration(wakeup)} of it without a CPU" if wakeup else ""
    lost = f", {plural(again, 'segment')} sent again" if again else ""
    return (
        f"{slowest_cause(row, lab)} at {row['destination_address']} port "
        f"{row['destination_port']}{spent}{slept}{lost}"
    )


def _process(row: dict[str, Any], end: str) -> str:
    name, pid = row[f"{end}_comm"], row[f"{end}_pid"]
    return f"{name or 'unknown'} ({'pid not known' if pid is None else f'pid {pid}'})"


def setup_sentence(summary: dict[str, Any]) -> str:
    """Say in one sentence what was run over what."""
    workload, known = summary["workload"], summary["known"]
    if workload.get("attached"):
        return attached_sentence(workload)
    what = " ".join(workload["command"]) or _plan_text(workload["plan"])
    if workload.get("user") not in (None, "root"):
        what += f", as {workload['user']}"
    if not known:
        return f"{what}, without a lab"
    link = given_rate(known["rate_bps"]) if known["rate_bps"] else "no rate limit"
    bucket = f" ({known['qdisc']}, burst {known['burst_bytes']} bytes)"
    link += bucket if known.get("rate_is_token_bucket") else ""
    loss = f", {100 * known['loss']:g}% of packets lost" if known["loss"] else ""
    plan = summary["workload"]["plan"]
    # a run.json from elsewhere may not tell it
    settings = summary["lab"].get("settings") or {}
    congestion = (plan and plan.get("congestion")) or settings.get("congestion_control")
    return (
        f"{what}; lab link: {known['kind']}, {link}, "
        f"{given_duration(known['delay_ns'])} each way{loss}, "
        f"MTU {known['mtu_bytes']}" + (f", {congestion}" if congestion else "")
    )


def run_name(folder: str, run: dict[str, Any]) -> str:
    """Name a run by its own name, and by its folder where that is another.

    Examples
    --------
    >>> run_name("20261121-222501", {"name": ""}), run_name("a-2", {"name": "a"})
    ('20261121-222501', 'a (a-2)')
    """
    name = run["name"] or folder
    return name if name == folder else f"{name} ({folder})"


def setup_title(summary: dict[str, Any]) -> str:
    """Say in a few words what was run over what: a title.

    Examples
    --------
    >>> known = {"kind": "emulator", "rate_bps": 10**8, "delay_ns": 10**6, "loss": 0.01}
    >>> command = ["redis-benchmark", "-p", "7777"]
    >>> setup_title({"workload": {"command": command}, "known": known})
    'redis-benchmark -p 7777 over emulator 100 Mbit/s, 1 ms, 1% loss'
    """
    workload, known = summary["workload"], summary["known"]
    what = printable(" ".join(workload["command"]), _TITLE_WIDTH)
    if workload.get("attached"):
        what = attached_sentence(workload)
    elif not what:
        interval = workload["plan"]["interval_ns"]
        what = (
            f"ping-pong every {given_duration(interval)}" if interval else "ping-pong"
        )
    if not known:
        return what
    link = [
        given_rate(known["rate_bps"]) if known["rate_bps"] else "without a rate",
        given_duration(known["delay_ns"]) if known["delay_ns"] else "",
        f"{100 * known['loss']:g}% loss" if known["loss"] else "",
    ]
    return f"{what} over {known['kind']} {', '.join(filter(None, link))}"


def attached_sentence(workload: dict[str, Any]) -> str:
    """Say to what was attached, and for how long."""
    seconds = sum(run.get("seconds", 0) for run in workload["runs"])
    return (
        f"attached to {workload['attached']['to']} for {given_duration(1e9 * seconds)}"
    )


def _plan_text(plan: dict[str, Any]) -> str:
    if plan["interval_ns"]:
        gaps = "exponential gaps of" if plan.get("poisson") else "every"
        loop = f"open loop, {gaps} {given_duration(plan['interval_ns'])}"
    else:
        loop = "closed loop"
    reply = plan["reply_bytes"]
    echo = "full echo" if reply is None else f"replies of {reply} bytes"
    ends = {"sender": plan.get("client_cpu"), "responder": plan.get("server_cpu")}
    where = ", ".join(f"{end} on CPU {n}" for end, n in ends.items() if n is not None)
    return f"ping-pong, {loop}, {echo}" + (f", {where}" if where else "")


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
