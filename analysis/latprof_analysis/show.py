"""Tables of a summary document for people: stages, round trips, the link.

The document is that of `latprof run` or of `latprof analyze`; nothing is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from latprof_analysis.likely_cause import likely_cause, stage_times
from latprof_analysis.run_setup import known_transit_ns
from latprof_analysis.text import (
    NOT_ENOUGH,
    duration,
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
        rate(known.get("rate_bps")),
    )
    if fit["fixed_delay_seconds"]:
        delay = known.get("delay_ns")
        table.add_row(
            f"fixed delay of a round trip, {protocol}",
            with_interval(fit["fixed_delay_seconds"], duration, 1e9),
            f"{duration(2 * delay)} + hosts" if delay else NOT_ENOUGH,
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
    link = rate(known["rate_bps"]) if known["rate_bps"] else "no rate limit"
    bucket = f" ({known['qdisc']}, burst {known['burst_bytes']} bytes)"
    link += bucket if known.get("rate_is_token_bucket") else ""
    loss = f", {100 * known['loss']:g}% of packets lost" if known["loss"] else ""
    plan = summary["workload"]["plan"]
    # a run.json from elsewhere may not tell it
    settings = summary["lab"].get("settings") or {}
    congestion = (plan and plan.get("congestion")) or settings.get("congestion_control")
    return (
        f"{what}; lab link: {known['kind']}, {link}, "
        f"{duration(known['delay_ns'])} each way{loss}, "
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
        what = f"ping-pong every {duration(interval)}" if interval else "ping-pong"
    if not known:
        return what
    link = [
        rate(known["rate_bps"]) if known["rate_bps"] else "without a rate",
        duration(known["delay_ns"]) if known["delay_ns"] else "",
        f"{100 * known['loss']:g}% loss" if known["loss"] else "",
    ]
    return f"{what} over {known['kind']} {', '.join(filter(None, link))}"


def attached_sentence(workload: dict[str, Any]) -> str:
    """Say to what was attached, and for how long."""
    seconds = sum(run.get("seconds", 0) for run in workload["runs"])
    return f"attached to {workload['attached']['to']} for {duration(1e9 * seconds)}"


def _plan_text(plan: dict[str, Any]) -> str:
    if plan["interval_ns"]:
        gaps = "exponential gaps of" if plan.get("poisson") else "every"
        loop = f"open loop, {gaps} {duration(plan['interval_ns'])}"
    else:
        loop = "closed loop"
    reply = plan["reply_bytes"]
    echo = "full echo" if reply is None else f"replies of {reply} bytes"
    ends = {"sender": plan.get("client_cpu"), "responder": plan.get("server_cpu")}
    where = ", ".join(f"{end} on CPU {n}" for end, n in ends.items() if n is not None)
    return f"ping-pong, {loop}, {echo}" + (f", {where}" if where else "")
