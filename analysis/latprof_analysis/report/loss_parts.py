"""What was lost, and where."""

from __future__ import annotations

from typing import Any

import pandas as pd

from latprof_analysis.quantiles import share_interval
from latprof_analysis.report.marks import number_axis, tooltip
from latprof_analysis.report.parts import (
    Cell,
    Chart,
    Figure,
    Fold,
    Part,
    Spec,
    Table,
    Text,
)
from latprof_analysis.report.setting import of_each_run
from latprof_analysis.report.theme import colour
from latprof_analysis.report.words import number
from latprof_analysis.text import plural

_Place = tuple[str, int, float | None, str]
_COLUMNS = ["place", "lost", "of", "unit"]


def places_of_loss(document: dict[str, Any]) -> pd.DataFrame:
    """Return every place where something can be lost, with how much was.

    Returns
    -------
    DataFrame
        ``place``, ``lost``, ``of`` (how many came there; NaN if not counted) and
        ``unit``: packets, datagrams, messages, round trips.

    Examples
    --------
    >>> found = places_of_loss({"round_trips": {"udp": {"sent": 9, "lost": 2}}})
    >>> found.to_numpy().tolist()
    [['udp round trips without a reply', 2, 9, 'round trips']]
    """
    rows: list[_Place] = []
    for protocol, figures in (document.get("round_trips") or {}).items():
        name = f"{protocol} round trips without a reply"
        rows.append((name, figures["lost"], figures["sent"], "round trips"))
    runs = of_each_run(document)
    for run, told in runs.items():
        before = f"{run}: " if len(runs) > 1 else ""
        rows += [(before + place[0], *place[1:]) for place in _of_run(told)]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _of_run(told: dict[str, Any]) -> list[_Place]:
    rows: list[_Place] = []
    for name, count in (told.get("unmatched") or {}).items():
        rows.append((f"half rows: {name.replace('_', ' ')}", count, None, "halves"))
    dropped = (told.get("counters") or {}).get("datagrams_dropped_at_socket")
    if dropped is not None:
        rows.append(("full socket of the receiver", dropped, None, "datagrams"))
    unread = told.get("unread_at_close")
    if unread is not None:
        rows.append(("unread at close", unread, None, "datagrams"))
    counters = told.get("link_counters") or {}
    rows += _interfaces(counters)
    for way, figures in (counters.get("emulator") or {}).items():
        for name, count in figures.items():
            if name.startswith("dropped_"):
                place = f"emulator {way}, {name.removeprefix('dropped_')}"
                rows.append((place, count, figures["packets_in"], "packets"))
    return rows


def _interfaces(counters: dict[str, Any]) -> list[_Place]:
    rows: list[_Place] = []
    ends: dict[str, Any] = {end: counters[end] for end in "ab" if end in counters}
    ends |= {f"netem {way}": one for way, one in (counters.get("netem") or {}).items()}
    for end, figures in ends.items():
        for qdisc in figures.get("qdiscs", ()):
            count = qdisc["dropped_packets"]
            came = qdisc["sent_packets"] + count
            rows.append((f"{end}: qdisc {qdisc['kind']}", count, came, "packets"))
        device = figures.get("interface") or {}
        for way, name in (("rx", "in"), ("tx", "out")) if device else ():
            count = device[f"{way}_dropped"]
            came = device[f"{way}_packets"] + count
            rows.append((f"{end}: interface, {name}", count, came, "packets"))
    return rows


def loss_parts(document: dict[str, Any]) -> list[Part]:
    """Tell what was lost by place, and what of our own records was."""
    places = places_of_loss(document)
    some, none = places[places["lost"] > 0], places[places["lost"] == 0]
    parts: list[Part] = []
    if len(some):
        parts += [_figure(some), _table("Where something was lost", some)]
    elif len(none):
        parts.append(Text(f"Nothing was lost at any of the {len(none)} places."))
    else:
        parts.append(Text("No place of loss was counted in these files."))
    if len(none):
        title = f"{plural(len(none), 'place')} where nothing was lost"
        parts.append(Fold(title, [_table("Nothing lost", none)]))
    return [*parts, *_own_records(document)]


def _own_records(document: dict[str, Any]) -> list[Part]:
    """Tell what latprof itself lost: then messages lack stamps, or rows."""
    runs = of_each_run(document)
    parts: list[Part] = []
    for run, told in runs.items():
        lost = told.get("lost_records")
        if lost is None:
            continue
        names = [f"{number(n)} of {k.replace('_', ' ')}" for k, n in lost.items() if n]
        before = f"{run}: of" if len(runs) > 1 else "Of"
        text = f"{before} latprof's own records {', '.join(names) or 'none'} were lost"
        drained = number(told.get("records") or 0)
        parts.append(Text(f"{text}; {drained} were drained.", quiet=not names))
    return parts


def _table(title: str, places: pd.DataFrame) -> Table:
    rows: list[list[str | Cell]] = []
    for row in places.itertuples():
        of = f"{number(row.of)} {row.unit}" if pd.notna(row.of) else "not counted"
        rows.append([str(row.place), number(row.lost), of, _share(row)])
    note = (
        "95% intervals by Clopper and Pearson, for losses that do not depend on each "
        "other; those that come in bursts tell less."
    )
    return Table(title, ["place", "lost", "of", "share"], rows, note)


def _share(row: Any) -> Cell:
    if pd.isna(row.of) or not row.of:
        return Cell("not told", "how many came is not counted")
    low, high = share_interval(int(row.lost), int(row.of))
    interval = f"{100 * low:.2g} to {100 * high:.2g}%"
    return Cell(f"{100 * row.lost / row.of:.3g}%", interval)


def _figure(some: pd.DataFrame) -> Figure:
    most = some.loc[some["lost"].idxmax()]
    text = f"most at {most['place']}, {number(most['lost'])} {most['unit']}"
    spec: Spec = {
        "height": 28 * len(some),
        "mark": {"type": "bar", "color": colour("mark-2")},
        "encoding": {
            "y": {
                "field": "place",
                "type": "nominal",
                "sort": list(some["place"]),
                "title": None,
                "axis": {"labelLimit": 190},
            },
            "x": {
                "field": "lost",
                **number_axis(
                    "lost: packets, datagrams or round trips",
                    labelExpr="datum.value % 1 ? '' : datum.label",
                ),
                "scale": {"zero": True},
            },
            "tooltip": tooltip({"place": "place", "lost": "lost", "of": "of"}),
        },
    }
    return Figure(
        name="loss-by-place",
        title=f"Lost: {text}",
        caption="What one place dropped may be counted again where it was missed: a "
        "lost packet is also a round trip without a reply.",
        alt=f"Bars of what was lost by place; {text}.",
        data=some,
        charts=[Chart({"linear": spec})],
        wide=True,
    )
