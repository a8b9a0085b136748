"""What was lost, and where; how losses follow each other.

Episodes, models, and lengths of runs of losses and of arrivals against both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from latprof_analysis.report.link_counters import egresses, root_qdisc
from latprof_analysis.report.parts import (
    Cell,
    Chart,
    Figure,
    Fold,
    Missing,
    Part,
    Spec,
    Table,
    Text,
)
from latprof_analysis.report.setting import of_each_run
from latprof_analysis.report.vega import (
    SWITCH,
    colour,
    layer,
    lines_apart,
    number_axis,
    tooltip,
    written,
)
from latprof_analysis.report.words import listed, number, slug
from latprof_analysis.stats.quantiles import share_interval
from latprof_analysis.text import percent

_Place = tuple[str, int, float | None, str]
# On the first, geometric runs are a straight line.
_SCALES = ("semi-log", "log-log", "linear")
_SEEN = "observed"
_INDEPENDENT = "independent"
_OUTCOMES = {"lost": "lost in a row", "arrived": "arrived between two losses"}


def places_of_loss(document: dict[str, Any]) -> pd.DataFrame:
    """Return every place where something can be lost, with how much was.

    Returns
    -------
    DataFrame
        ``place``, ``lost``, ``of`` (how many came there; NaN if not counted) and
        ``unit``: packets, datagrams, halves, round trips.
    """
    rows: list[_Place] = []
    for protocol, figures in (document.get("round_trips") or {}).items():
        name = f"{protocol} round trips without a reply"
        rows.append((name, figures["lost"], figures["sent"], "round trips"))
    runs = of_each_run(document)
    for run, one in runs.items():
        before = f"{run}: " if len(runs) > 1 else ""
        rows += [(before + place[0], *place[1:]) for place in _of_run(one)]
    return pd.DataFrame(rows, columns=["place", "lost", "of", "unit"])


def _of_run(run: dict[str, Any]) -> Iterator[_Place]:
    for name, count in (run.get("unmatched") or {}).items():
        yield f"half rows: {name.replace('_', ' ')}", count, None, "halves"
    unresolved = (run.get("counters") or {}).get("datagrams_without_address")
    if unresolved:
        yield "no link address of the next hop", unresolved, None, "datagrams"
    dropped = (run.get("counters") or {}).get("datagrams_dropped_at_socket")
    if dropped is not None:
        yield "full socket of the receiver", dropped, None, "datagrams"
    if run.get("unread_at_close") is not None:
        yield "unread at close", run["unread_at_close"], None, "datagrams"
    counters = run.get("link_counters") or {}
    ends: dict[str, Any] = dict(egresses(counters))
    ends |= {f"netem {way}": one for way, one in counters.get("netem", {}).items()}
    for end, figures in ends.items():
        if figures["qdiscs"]:  # its leaves' counts are in the root's
            root = root_qdisc(figures)
            count = root["dropped_packets"]
            came = root["sent_packets"] + count
            yield f"{end}: qdisc {root['kind']}", count, came, "packets"
        device = figures.get("interface") or {}
        for way, name in (("rx", "in"), ("tx", "out")) if device else ():
            count = device[f"{way}_dropped"]
            came = device[f"{way}_packets"] + count
            yield f"{end}: interface, {name}", count, came, "packets"
    for way, figures in counters.get("emulator", {}).items():
        for name, count in figures.items():
            if name.startswith("dropped_"):
                place = f"emulator {way}, {name.removeprefix('dropped_')}"
                yield place, count, figures["packets_in"], "packets"


def loss_parts(document: dict[str, Any]) -> list[Part]:
    """Show what was lost by place, and what of our own records was."""
    places = places_of_loss(document)
    some = places[places["lost"] > 0]
    none = "No place of loss was counted in these files."
    if len(places):
        none = f"Nothing was lost at any of the {len(places)} places that were counted."
    parts: list[Part] = [Text(none, quiet=True)]
    if len(some):
        parts = [_figure(some), _table(some)]
    # where latprof itself lost records, messages lack stamps, or rows
    runs = of_each_run(document)
    for run, one in runs.items():
        lost = one.get("lost_records")
        if lost is None:
            continue
        names = [f"{number(n)} of {k.replace('_', ' ')}" for k, n in lost.items() if n]
        before = f"{run}: of" if len(runs) > 1 else "Of"
        text = f"{before} latprof's own records {', '.join(names) or 'none'} were lost"
        drained = number(one.get("records") or 0)
        parts.append(Text(f"{text}; {drained} were drained.", quiet=not names))
    return parts


def _table(places: pd.DataFrame) -> Table:
    rows: list[list[str | Cell]] = []
    for row in places.itertuples():
        came, share = "not counted", Cell("not told", "how many came is not counted")
        if pd.notna(row.of):
            came = f"{number(row.of)} {row.unit}"
        if pd.notna(row.of) and not 0 <= row.lost <= row.of:
            share = Cell("not told", "what was lost is no part of what came")
        elif pd.notna(row.of) and row.of:
            low, high = share_interval(int(row.lost), int(row.of))
            interval = f"{100 * low:.2g} to {100 * high:.2g}%"
            share = Cell(_percent(row.lost / row.of), interval)
        rows.append([str(row.place), number(row.lost), came, share])
    note = (
        "95% intervals by Clopper and Pearson, for losses that do not depend on each "
        "other; those that come in bursts tell less."
    )
    columns = ["place", "lost", "of", "share"]
    return Table("Where something was lost", columns, rows, note)


def _figure(some: pd.DataFrame) -> Figure:
    most = some.loc[some["lost"].idxmax()]
    text = f"most at {most['place']}, {number(most['lost'])} {most['unit']}"
    axis = number_axis("lost", labelExpr="datum.value % 1 ? '' : datum.label")
    encoding = {
        "y": {
            "field": "place",
            "type": "nominal",
            "sort": list(some["place"]),
            "title": None,
            "axis": {"labelLimit": 190},
        },
        "x": {"field": "lost", **axis, "scale": {"zero": True}},
        "tooltip": tooltip({"place": "place", "lost": "lost", "of": "of"}),
    }
    bars = layer("bar", encoding, color=colour("mark-2"))
    return Figure(
        name="loss-by-place",
        title=f"Lost: {text}",
        caption="What one place dropped may be counted again where it was missed: a "
        "lost packet is also a round trip without a reply.",
        alt=f"Bars of what was lost by place; {text}.",
        data=some,
        charts=[Chart({"linear": {"height": 28 * len(some), **bars}})],
    )


def run_rows(loss: Mapping[str, Any]) -> pd.DataFrame:
    """Return how many runs are at least how long: as seen, and by models.

    Returns
    -------
    DataFrame
        ``outcome``: lost or arrived; ``model``: observed, the chosen one, and
        independent; ``packets``; ``share`` of the runs that are at least so long;
        ``low`` and ``high`` of what was observed; ``n`` runs.
    """
    best = loss["model"]["best"]
    rows = []
    for outcome, seen in loss["runs"].items():
        for name in dict.fromkeys((_SEEN, best, _INDEPENDENT)):
            for row in seen["lengths"]:
                observed = name == _SEEN
                share = row["share" if observed else name]
                ends = (row["low"], row["high"]) if observed else (None, None)
                rows.append((outcome, name, row["packets"], share, *ends, seen["n"]))
    columns = ["outcome", "model", "packets", "share", "low", "high", "n"]
    return pd.DataFrame(rows, columns=columns)


def loss_run_parts(name: str, loss: Mapping[str, Any]) -> list[Part]:
    """Draw the run lengths of a group that has a model; `loss` as of `losses`."""
    data, best = run_rows(loss), str(loss["model"]["best"])
    # how good a fit is does not show in a single length
    several = data.groupby("outcome")["packets"].nunique() > 1
    outcomes = [one for one in _OUTCOMES if several.get(one, False)]
    if not outcomes:
        text = f"{name}: all runs of loss have the same length, so none is drawn."
        return [Text(text, quiet=True)]
    models = list(dict.fromkeys((best, _INDEPENDENT)))
    # what models have below that was not to be seen
    least = (data.groupby("outcome")["low"].min() / 2).to_dict()
    counts = {one: loss["runs"][one]["n"] for one in outcomes}
    figure = Figure(
        name=f"loss-runs-{slug(name)}",
        title=f"{name}: how long runs are, seen and by the {best} model",
        caption="Share of runs that are at least so long; points with their 95% "
        "interval (Clopper and Pearson, thinned) are what was seen, lines what a model "
        f"has: {listed(models)}. What arrived before the first loss and after the last "
        "is no run.",
        alt=f"Run lengths of {name}, lost and arrived, against the models "
        f"{listed(models)}.",
        data=data[data["outcome"].isin(outcomes)].reset_index(drop=True),
        charts=[
            Chart(
                {scale: _spec(one, models, least[one], scale) for scale in _SCALES},
                f"{_OUTCOMES[one]}: n {number(counts[one])} runs",
            )
            for one in outcomes
        ],
    )
    return [figure]


def _spec(outcome: str, models: list[str], least: float, scale: str) -> Spec:
    across, up = SWITCH[scale]
    whole = "datum.value % 1 ? '' : format(datum.value, ',')"
    x = {"field": "packets", **number_axis(_OUTCOMES[outcome], across, labelExpr=whole)}
    share_format = "~%" if up == "linear" else ".3~%"
    y = number_axis("share of runs at least so long", up, format=share_format)
    y["scale"] |= {"domainMin": least if up == "log" else 0}
    texts = written(
        seen="format(datum.share, '.4~%')",
        range="isValid(datum.low) ? format(datum.low, '.3~%') + ' to ' + "
        "format(datum.high, '.3~%') : 'a model'",
    )
    kept = {"filter": f"datum.outcome === '{outcome}' && datum.share > 0"}
    layers = _run_layers(models, x, y)
    return {"height": 240, "transform": [kept, *texts], "layer": layers}


def _run_layers(models: list[str], x: Spec, y: Spec) -> list[Spec]:
    n = len(models)
    hues, dashes = [colour("mark-2"), colour("muted")], [[1, 0], [6, 4]]
    apart = lines_apart("model", models, hues[:n], dashes[:n])
    shares = {"x": x, "y": {"field": "share", **y}}
    ends = {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}}
    titles = {"packets": "at least, in a row", "seen": "share of runs"}
    hover = tooltip({**titles, "range": "95% interval", "n": "runs"})
    is_seen, is_model = (f"datum.model {sign} '{_SEEN}'" for sign in ("===", "!=="))
    points = layer(
        "point",
        shares | {"tooltip": hover},
        is_seen,
        filled=True,
        size=40,
        opacity=1,
        color=colour("mark"),
    )
    return [
        layer("line", shares | apart, is_model, strokeWidth=2, clip=True),
        layer("rule", ends, is_seen, color=colour("mark"), strokeWidth=1.2),
        points,
    ]


def loss_groups(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what is known of the order of losses, by what was lost."""
    return {
        f"{name} {what.replace('_', ' ')}": figures["loss"]
        for what in ("round_trips", "messages")
        for name, figures in (document.get(what) or {}).items()
        if figures.get("loss")
    }


def loss_model_parts(groups: Mapping[str, dict[str, Any]]) -> list[Part]:
    """Say how losses of each group follow each other; the first group is open."""
    parts: list[Part] = []
    none, missing = [], []
    for name, loss in groups.items():
        share = loss["share"]
        if share.get("lost"):
            drawn = _of_group(name, loss)
            folded = [Fold(f"{name}: how losses follow each other", drawn)]
            parts += folded if parts else drawn
        elif "n" in share:
            upto = f"{100 * share['high']:.2g}%"
            none.append(f"{name}: none of {number(share['n'])} was lost; up to {upto}")
        else:
            missing.append(Missing(f"{name}: loss", share["reason"]))
    if none:
        sure = "may be lost (95%, for losses that do not depend on each other)"
        parts.append(Text(f"{'; '.join(none)} {sure}.", quiet=True))
    return [*parts, *missing]


def _of_group(name: str, loss: Mapping[str, Any]) -> list[Part]:
    choice = loss["model"]
    episodes = Table(
        f"{name}: losses in the order of sending",
        ["what", "value"],
        [*_episode_rows(loss["share"], loss["episodes"])],
        "95% interval by Wilson, of as many independent ones as these are worth; "
        "distances count what was sent.",
        numeric=False,
    )
    if not choice.get("best"):
        reason = str(choice["reason"])
        return [episodes, Missing(f"{name}: model of losses", reason)]
    return [episodes, _models(name, choice), *loss_run_parts(name, loss)]


def _episode_rows(
    share: Mapping[str, Any], found: Mapping[str, Any]
) -> Iterator[list[str | Cell]]:
    if share["low"] is None:
        interval = str(share["reason"])
    else:
        interval = f"{_percent(share['low'])} to {_percent(share['high'])}"
    lost = f"{number(share['lost'])}: {_percent(share['value'])}"
    yield ["lost", Cell(lost, f"{interval}, n {number(share['n'])}")]
    if share["n_effective"] is not None:
        worth = f"{number(share['n_effective'])} independent ones"
        why = "as bursts tell less; of this is the interval"
        yield ["sent, worth", Cell(worth, why)]
    count, apart, near = (
        found[name] for name in ("count", "median_distance", "noticeable_rate_99")
    )
    yield ["episodes of loss", Cell(number(count), "RFC 3357: loss periods")]
    mean = f"{found['mean_length']:.3g} in a row"
    yield ["length of an episode, mean", Cell(mean, f"n {number(count)}")]
    longest = f"{number(found['longest'])} in a row"
    yield ["length of an episode, longest", longest]
    distance = "not told" if apart is None else f"{apart:,.4g} sent"
    why = "RFC 3357: from one loss to the next, 1 if in a row"
    yield ["loss distance, median", Cell(distance, why)]
    noticeable = "not told" if near is None else percent(near)
    why = "RFC 3357: of losses, those at most 99 behind another"
    yield ["noticeable rate, delta 99", Cell(noticeable, why)]


def _percent(share: float) -> str:
    """Write a share that may be small with three digits: 0.0123%, 50%."""
    return f"{100 * share:.3g}%"


def _models(name: str, choice: Mapping[str, Any]) -> Table:
    rows: list[list[str | Cell]] = []
    for model in choice["models"]:
        chosen = model["name"] == choice["best"]
        stay = model["mean_bad_packets"]
        rows.append(
            [
                Cell(model["name"], "chosen" if chosen else ""),
                _rate(model["p"]),
                _rate(model["r"]),
                "-" if stay is None else f"{stay:.3g} sent",
                f"{_percent(model['loss_good'])}, {_percent(model['loss_bad'])}",
                _percent(model["loss_share"]),
                Cell(f"{model['bic']:.1f}", f"parameters: {model['parameters']}"),
            ]
        )
    n = number(choice["n_used"])
    part = choice["n_used"] < choice["n"]
    used = f" Fitted to the first {n} of them." if part else ""
    return Table(
        f"{name}: {choice['best']} losses, {choice['reason']}",
        ["model", "p", "r", "stay in bad", "lost in good, bad", "lost", "BIC"],
        rows,
        "p: chance to go from the good state to the bad one, r: back, for each one "
        "that is sent, with 95% intervals where the states are seen (Jeffreys); of "
        f"independent losses there are no states.{used} BIC: of least is chosen; n "
        f"{n}.",
    )


def _rate(rate: Mapping[str, Any] | None) -> str | Cell:
    if rate is None:
        return "-"
    if rate["low"] is None:
        return Cell(f"{rate['value']:.3g}", "no interval")
    return Cell(f"{rate['value']:.3g}", f"{rate['low']:.3g} to {rate['high']:.3g}")
