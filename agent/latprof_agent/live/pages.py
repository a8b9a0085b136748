"""The pages as lines of text, exactly as many as there is room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from textwrap import wrap
from time import localtime, strftime

from latprof_analysis.report.sentences import capability_sentence
from latprof_analysis.report.story_lines import story_lines
from latprof_analysis.study.incomplete import LEAST_SHARE
from latprof_analysis.text import (
    NOT_ENOUGH,
    counts,
    duration,
    given_duration,
    percent,
    plural,
    printable,
    rate,
    short_duration,
    short_number,
    short_percent,
)
from rich.text import Text

from latprof_agent.live.chosen import HELP, Chosen, Page, quantities_of, row_of
from latprof_agent.live.columns import (
    HOLDS,
    OF_RANGES,
    UNKNOWN,
    Column,
    estimated,
    fitting,
    held,
    quantile_text,
    with_whole_losses,
)
from latprof_agent.live.figures import NAMES
from latprof_agent.live.glyphs import Glyphs
from latprof_agent.live.heat import heat_lines
from latprof_agent.live.names import (
    drop_name,
    group_name,
    is_of_ranges,
    quantity_name,
    stage_name,
)
from latprof_agent.live.rows import Row
from latprof_agent.live.shown import (
    Shown,
    Watched,
    Window,
    all_measured,
    slow_group,
)
from latprof_agent.monitor.totals import (
    SERVER_TIME,
    Counted,
    Exemplar,
    Fit,
    Own,
    Quantity,
    Totals,
)

_TITLE, _DIM, _LOUD = "bold", "dim", "yellow"
_CHOSEN = "reverse"
_STAGE_WIDTH = 15
_MOST_MESSAGE = 3  # lines
_LONG_WAIT_SECONDS = 1.0
_UNCOUNTED = (
    "the first of connections of TLS, whose request came with the handshake (0-RTT) or "
    "may have come with a client's certificate"
)
# Counters of what has a line of its own.
_SEGMENTED, _MULTIPATH = "segmented_sends", "multipath_sockets"
_RECEIVED = (Counted.RECEIVED_MESSAGES, Counted.RECEIVED_RANGES)
_KEYS = "? help  enter open  e slow ones  / filter  g group  s sort  p pause  q quit"


_ALL = 0.95  # of which it is not said that some is missing


def page(
    shown: Shown, chosen: Chosen, watched: Watched, size: tuple[int, int], g: Glyphs
) -> list[Text]:
    """Return the lines of the page that was chosen."""
    width, height = size
    foot = _foot(shown, chosen, width)
    room = max(1, height - 1 - len(foot))
    body = _BODIES[chosen.page](shown, chosen, width, room, g)[:room]
    body += [Text()] * (room - len(body))
    return [_title(shown, chosen, watched, width, g), *body, *foot][:height]


def block(window: Window, rows: list[Row], width: int, g: Glyphs) -> list[Text]:
    """Return one interval as lines that stand for themselves: all groups."""
    own, watched = window.interval.own, window.watched
    columns = fitting(width - 1, with_whole_losses(rows))
    head = f"{_clock(window)}  {_span(own)}  {_subject(watched)}"
    return [
        Text(printable(head), _TITLE),
        *_headers(columns, g),
        *(_cells(row, columns, g) for row in rows),
        *([] if rows else [Text(f" {_nothing(own)}", _DIM)]),
        *(
            Text(f" {printable(line)}")
            for story in window.interval.stories.values()
            for line in story_lines(story)
        ),
        Text(f" {own_sentence(own)}", _DIM),
        *(Text(f" {text}", _LOUD) for text in _without_stories(window.interval)),
        *(Text(f" {text}", _LOUD) for text in _unanswered(window)),
        *(Text(f" {text}", _LOUD) for text in _not_measured(window)),
        *(Text(f" {text}", _DIM) for text in _missing(window.interval)),
        Text(),
    ]


def _without_stories(totals: Totals) -> list[str]:
    """Say that what was slow while nothing was measured has no story."""
    if totals.story_counts is None or all_measured(totals.own):
        return []
    return [
        f"stories are of {_share(totals.own.coverage_ratio)} of the time, in which all "
        "was measured: a filter, or --max-overhead none, leaves less out"
    ]


def _missing(totals: Totals) -> list[str]:
    """Say what this kernel does not offer."""
    return [
        printable(capability_sentence(each))
        for each in totals.capabilities
        if each["state"] == "unavailable"
    ]


def _nothing(own: Own) -> str:
    if not all_measured(own):
        return "nothing was measured in this interval; see --max-overhead"
    return "nothing was sent or received"


def _clock(window: Window) -> str:
    return strftime("%H:%M:%S", localtime(window.interval.unix_seconds))


def _span(own: Own) -> str:
    return given_duration(1e9 * own.seconds, 2)


def _subject(watched: Watched) -> str:
    only = f"  filter {watched.filter}" if watched.filter else ""
    return f"by {', '.join(watched.grouping.by)}{only}"


def _title(
    shown: Shown, chosen: Chosen, watched: Watched, width: int, g: Glyphs
) -> Text:
    words = ["latprof watch", "PAUSED" if chosen.paused else ""]
    if shown.window:
        span = _span(shown.own(chosen))
        words += [_clock(shown.window), f"all of {span}" if chosen.whole else span]
        words.append(plural(len(shown.rows(chosen)), "group"))
    sort = f"sorted by {chosen.sort}" if chosen.sort != "hurt" else ""
    words += [_subject(watched), sort]
    return Text(g.cut(printable("  ".join(filter(None, words))), width), _TITLE)


def _foot(shown: Shown, chosen: Chosen, width: int) -> list[Text]:
    """Return the last lines: our own cost; what to type, what was typed, a message."""
    own = own_sentence(shown.own(chosen)) if shown.window else "measuring begins"
    beside: list[str] = []
    if shown.window:
        beside = [*_unanswered(shown.window), *_not_measured(shown.window)]
    last = [Text(_KEYS, _DIM)]
    if chosen.prompt:
        last = [Text(f"{chosen.prompt.value}{printable(chosen.typed)}_", _TITLE)]
    elif chosen.message:
        lines = wrap(printable(chosen.message), width)
        last = [Text(line, _LOUD) for line in lines[:_MOST_MESSAGE]]
    return [Text(own, _DIM), *(Text(text, _LOUD) for text in beside), *last]


def _unanswered(window: Window) -> list[str]:
    """Say which requests have no answer, and what is in no exchange at all."""
    found, totals = [], window.interval
    counted = sum((of.counted for of in totals.groups.values()), Counter[Counted]())
    old = {
        group: one
        for group, one in (totals.waiting or {}).items()
        if one.oldest_seconds >= _LONG_WAIT_SECONDS
    }
    if old:
        most = max(old, key=lambda group: old[group].oldest_seconds)
        count = plural(sum(one.count for one in old.values()), "request")
        waited = given_duration(1e9 * old[most].oldest_seconds, 2)
        found.append(
            f"without an answer so far: {count}, the oldest for {waited} "
            f"({group_name(most)})"
        )
    if n := round(counted[Counted.UNANSWERED]):
        about = "" if all_measured(totals.own) else "about "
        requests = f"{about}{plural(n, 'request')}"
        found.append(f"without an answer: {requests}, given up or cut off")
    if apart := counted[Counted.NO_TURNS]:
        share = percent(apart / max(apart, counted[Counted.SENT_MESSAGES]))
        found.append(
            f"in no exchange: {share} of the messages sent, since on their connections "
            "both ends talk at once"
        )
    if n := round(counted[Counted.UNCOUNTED]):
        found.append(f"up to {plural(n, 'exchange')} not counted: {_UNCOUNTED}")
    return found


def _not_measured(window: Window) -> list[str]:
    """Say what passed beside the messages and is in no figure, with its share."""
    own, found = window.interval.own, []
    packets = own.unmatched.get(_SEGMENTED, 0)
    sent = sum(
        totals.counted[Counted.SENT_MESSAGES]
        for totals in window.interval.groups.values()
    )
    measured = sent * (own.coverage_ratio or 0)  # what was counted, before scaling
    share = packets / (packets + measured) if packets else 0.0
    if share > LEAST_SHARE:
        found.append(f"{short_number(packets)} packets of UDP_SEGMENT (GSO)")
        found[-1] += f", {short_percent(share)}% of what was sent"
    # each is counted once, when it is met
    if sockets := window.now.own.unmatched.get(_MULTIPATH, 0):
        found.append(f"{plural(sockets, 'socket')} of MPTCP")
    return [f"not measured: {text}" for text in found]


def own_sentence(own: Own) -> str:
    """Say what the measuring cost, and what it missed."""
    lost = sum(own.lost_records.values())
    beside = (_SEGMENTED, _MULTIPATH)
    unmatched = sum(n for cause, n in own.unmatched.items() if cause not in beside)
    parts = (
        f"own: probes {_share(own.probes_cpu_share)}, "
        f"agent {_share(own.agent_cpu_share)}, "
        f"{own.agent_rss_bytes / 1e6:.0f} MB",
        f"{short_number(lost)} records lost" if lost else "",
        f"measured {_share(own.coverage_ratio)}",
        f"full: {own.groups.named} groups, new ones are other's"
        if own.groups.is_full
        else "",
        f"{short_number(unmatched)} unmatched" if unmatched else "",
    )
    return "; ".join(filter(None, parts))


def _share(share: float | None) -> str:
    return NOT_ENOUGH if share is None else f"{short_percent(share)}%"


def _headers(columns: list[Column], g: Glyphs) -> list[Text]:
    names = " ".join(c.laid(c.title, g) for c in columns)
    units = " ".join(c.laid(c.unit, g) for c in columns)
    return [Text(f" {names}", _DIM), Text(f" {units}", _DIM)]


def _cells(row: Row, columns: list[Column], g: Glyphs) -> Text:
    line = Text(" ")
    for i, column in enumerate(columns):
        line.append(" " if i else "")
        line.append(
            column.laid(column.cell(row, g), g), _LOUD if column.loud(row) else ""
        )
    return line


def _table(
    shown: Shown, chosen: Chosen, width: int, room: int, g: Glyphs
) -> list[Text]:
    rows, columns = shown.rows(chosen), fitting(width - 1)
    lines = _headers(columns, g)
    if not rows:
        waiting = "the first interval is being measured"
        if shown.window:
            waiting = _nothing(shown.own(chosen))
        return [*lines, Text(f" {waiting}", _DIM)]
    here = next((i for i, row in enumerate(rows) if row.group == chosen.group), -1)
    first, count = _window_of(len(rows), here, room - len(lines))
    for i, row in enumerate(rows[first : first + count], first):
        line = _cells(row, columns, g)
        if i == here:
            line = Text(">" + line.plain[1:], _CHOSEN)
        lines.append(line)
    return lines


def _window_of(n: int, here: int, room: int) -> tuple[int, int]:
    """Return the first that is shown and how many, so that `here` is among them."""
    room = max(1, room)
    return max(0, min(here - room // 2, n - room)), room


def _group(
    shown: Shown, chosen: Chosen, width: int, room: int, g: Glyphs
) -> list[Text]:
    row = row_of(chosen, shown.rows(chosen))
    if chosen.group is None:
        return []
    full = f" {group_name(chosen.group)}  {chosen.group.cgroup}".rstrip()
    lines = [Text(g.cut(printable(full), width), _TITLE)]
    if row:
        lines += [Text(g.cut(text, width)) for text in _group_sentences(row)]
    if shown.window:
        missing = _missing(shown.window.interval)
        lines += [Text(g.cut(f" {text}", width), _DIM) for text in missing]
    figures = _figure_lines(row, chosen, max(3, room // 2 - len(lines)), g)
    lines += figures
    there = quantities_of(row)
    quantity = chosen.quantity or (there[0] if there else None)
    if quantity:
        heat = shown.history.heat(chosen.group, quantity, max(1, width - 9))
        left = room - len(lines) - 1
        lines.append(Text(f" {quantity_name(quantity)} over time", _TITLE))
        lines += heat_lines(heat, list(shown.history.seconds), left, g)
    return lines


def _group_sentences(row: Row) -> Iterable[str]:
    """Say how much there was, and what was lost where."""
    yield (
        f" sent {_per_second(row, Counted.SENT_MESSAGES)}/s, "
        f"{_bits(row, Counted.SENT_BYTES)}; "
        f"received {_per_second(row, *_RECEIVED)}/s, "
        f"{_bits(row, Counted.RECEIVED_BYTES)}; "
        f"{_per_second(row, Counted.EXCHANGES)} exchanges/s"
    )
    if row.totals.counted[Counted.UNANSWERED]:
        yield f" {_per_second(row, Counted.UNANSWERED)}/s requests without an answer"
    if row.totals.counted[Counted.NO_TURNS]:
        yield (
            f" {_per_second(row, Counted.NO_TURNS)}/s messages in no exchange: on "
            "their connections both ends talk at once"
        )
    if row.totals.counted[Counted.UNCOUNTED]:
        rate = _per_second(row, Counted.UNCOUNTED)
        yield f" up to {rate}/s exchanges not counted: {_UNCOUNTED}"
    yield from _server_time(row)
    for drop, packets in row.totals.drops.most_common(3):
        yield f" dropped: {plural(packets, 'packet')}, {drop_name(drop)}"
    if (more := len(row.totals.drops) - 3) > 0:
        yield f" dropped: at {plural(more, 'other place')}, too"
    again = counts(dict(row.totals.retransmits))
    late = counts(dict(row.totals.arrivals))
    if again or late:
        parts = (
            f"sent again: {again}" if again else "",
            f"arrived: {late}" if late else "",
        )
        yield f" {'; '.join(filter(None, parts))}"
    for quantity, fit in row.fits.items():
        yield f" {_fit_sentence(quantity, fit)}"


def _server_time(row: Row) -> Iterable[str]:
    """Say what the server's threads did in its time, and of how much that is known."""
    run, wait, rest = (row.totals.counted[state] for state in SERVER_TIME)
    known = run + wait + rest
    if not known:
        return
    on, wants, off = (percent(part / known) for part in (run, wait, rest))
    text = f" server time: {on} on a CPU, {wants} waiting for one"
    text += f", {off} not yet read or asleep"
    figure = row.figures.get(Quantity.SERVER)
    whole = figure.mean_ns * figure.count if figure and figure.mean_ns else 0
    is_all = not whole or known > _ALL * whole
    yield text if is_all else f"{text} (known of {percent(known / whole)} of it)"


def _per_second(row: Row, *counted: Counted) -> str:
    return estimated(row.rate(*counted), row.error(*counted))


def _bits(row: Row, counted: Counted) -> str:
    bits, error = 8 * row.rate(counted), row.error(counted)
    if error <= HOLDS or not bits:
        return rate(bits, 3)
    return NOT_ENOUGH if error > UNKNOWN else f"~{rate(held(bits, error), 3)}"


def _fit_sentence(quantity: Quantity, fit: Fit) -> str:
    low, high = rate(8 * fit.bandwidth_low), rate(8 * fit.bandwidth_high)
    return (
        f"{quantity_name(quantity)} by size: "
        f"{rate(8 * fit.bandwidth_bytes_per_second)} [{low}, {high}], fixed delay "
        f"{duration(fit.fixed_delay_ns)}, R2 {fit.r_squared:.3f}, n {fit.messages}"
    )


def _figure_lines(row: Row | None, chosen: Chosen, room: int, g: Glyphs) -> list[Text]:
    head = "".join(f"{name:>8}" for name in NAMES)
    lines = [Text(f" {'':{_STAGE_WIDTH}}{head}{'n':>9}  1us..1s", _DIM)]
    there = quantities_of(row)
    here = there.index(chosen.quantity) if chosen.quantity in there else -1
    first, count = _window_of(len(there), here, room - 1)
    for i, quantity in enumerate(there[first : first + count], first):
        assert row
        figure = row.figures[quantity]
        quantiles = "".join(f"{quantile_text(q):>8}" for q in figure.quantiles_ns)
        name = stage_name(quantity) + (OF_RANGES if is_of_ranges(quantity) else "")
        text = (
            f"{name:{_STAGE_WIDTH}}{quantiles}{figure.n:>9}  {g.sparked(figure.shape)}"
        )
        mark = ">" if i == here else " "
        lines.append(Text(mark + text, _CHOSEN if i == here else ""))
    return lines


def _exemplars(
    shown: Shown, chosen: Chosen, width: int, room: int, g: Glyphs
) -> list[Text]:
    group, found = slow_group(chosen), shown.slow(chosen)
    of = f" of {group_name(group)}" if group else ""
    lines = [
        Text(
            g.cut(f" {plural(len(found), 'slow one')}{of}, newest first", width), _TITLE
        )
    ]
    if not found:
        than = "its group's p99.9, or than the time that --story gives"
        lines.append(Text(f" none yet: what is slower than {than}", _DIM))
    now_ns = shown.window.interval.t_ns if shown.window else 0
    here = found.index(chosen.exemplar) if chosen.exemplar in found else 0
    first, count = _window_of(len(found), here, (room - 1) // 2)
    for i, exemplar in enumerate(found[first : first + count], first):
        head, stages = exemplar_lines(exemplar, now_ns)
        stages += "; enter tells why" if shown.story_of(exemplar) else ""
        if i == here:
            lines.append(Text(">" + g.cut(head, width)[1:], _CHOSEN))
        else:
            lines.append(Text(g.cut(head, width)))
        lines.append(Text(g.cut(stages, width), _DIM))
    return lines


def _story(
    shown: Shown, chosen: Chosen, width: int, room: int, g: Glyphs
) -> list[Text]:
    """Say why the slow one that was chosen was slow."""
    if not chosen.exemplar or not shown.window:
        return []
    now_ns = shown.window.interval.t_ns
    head, stages = exemplar_lines(chosen.exemplar, now_ns)
    story = shown.story_of(chosen.exemplar)
    found = list(story_lines(story)) if story else [_no_story(shown.window, chosen)]
    lines = [
        part
        for line in found
        for part in wrap(
            printable(line),
            width - 1,
            initial_indent=" ",
            subsequent_indent="       ",
            drop_whitespace=False,
        )
    ]
    first = min(chosen.offset, max(0, len(lines) - (room - 3)))
    return [
        Text(g.cut(head, width), _TITLE),
        Text(g.cut(stages, width), _DIM),
        Text(),
        *(Text(g.cut(line, width)) for line in lines[first : first + room - 3]),
    ]


def _no_story(window: Window, chosen: Chosen) -> str:
    """Say why there is none."""
    if window.now.story_counts is None:
        return "why is told where `latprof watch` has --story"
    if chosen.exemplar and chosen.exemplar.quantity == Quantity.RESPONSE:
        return "why is told at the server, if it is on this host: nothing here waited"
    if why := _without_stories(window.now):
        return f"no story: {why[0]}"
    return "no story: it is told in 2 s, if CPUs' flight recorders held it still"


def exemplar_lines(exemplar: Exemplar, now_ns: int) -> tuple[str, str]:
    """Say what was slow, and in which stages; the second line is indented."""
    ago = given_duration(max(0, now_ns - exemplar.t_ns), 2)
    process = f", {exemplar.process}" if exemplar.process else ""
    stages = sorted(exemplar.stages.items(), key=lambda item: -item[1])
    spent = ", ".join(f"{name} {duration(ns)}" for name, ns in stages if ns)
    first = (
        f" {short_duration(exemplar.duration_ns)} {quantity_name(exemplar.quantity)}, "
        f"{ago} ago, {group_name(exemplar.group)}, {exemplar.size_bytes} B{process}"
    )
    return printable(first), printable(f"   {spent or 'its stages are not known'}")


def _help(
    _shown: Shown, chosen: Chosen, width: int, room: int, g: Glyphs
) -> list[Text]:
    keys = [f" {keys:17}{what}" for keys, what in HELP]
    lines = [*keys, *(f" {line}" for line in LEGEND)]
    first = min(chosen.offset, max(0, len(lines) - room))
    return [Text(g.cut(line, width)) for line in lines[first : first + room]]


LEGEND = (
    "hurt: seconds lost a second: time beyond the median of what took 8 times that",
    "  or more, where that is most; 0.2 s for a timeout or a packet gone for good",
    "worst: where that was most, with its p99; 90: or 50: p90 or p50, of few values",
    "exchange: response time at a client, server time at a server, p50/p99",
    "net RTT: no server's time in it; s: both ends' stamps, h: handshake, f: floor",
    "lost: packets dropped, and where most; else retransmitted segments",
    "exch, msgs, bit: exchanges, messages sent, bits both ways, each a second",
    "send_queue, qdisc: until the last byte went to the device, and to its driver",
    "receive_stack, receive_queue: until it could be read, and until it was read",
    "wakeup: of receive_queue, the reader's wait for a CPU",
    "transit, end_to_end: driver to arrival, and send to read; of a sample",
    "own: shares of one CPU, memory; which share of the time was measured;",
    "  unmatched: of the sample, seen at one end only; and counted without its ends",
    f"-: too few for that percentile; {OF_RANGES}: of readable ranges, not messages",
    "~: a part of the time was measured, and the figure scaled; digits that hold,",
    "  - if its error is over a half. n is what was measured: p50 needs 5, p90 100,",
    "  p99 1,000, p99.9 10,000, so that 10 values are beyond it",
    "full: no room for new groups; see groups in agent/LIVE.md",
    "bars: below 1 us, then eight times longer with each character; heights are log",
)

_BODIES: dict[Page, Callable[[Shown, Chosen, int, int, Glyphs], list[Text]]] = {
    Page.TABLE: _table,
    Page.GROUP: _group,
    Page.EXEMPLARS: _exemplars,
    Page.STORY: _story,
    Page.HELP: _help,
}
