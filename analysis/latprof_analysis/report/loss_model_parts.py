"""How losses follow each other: episodes, models, and run lengths against both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latprof_analysis.report.loss_run_figures import loss_run_parts
from latprof_analysis.report.parts import Cell, Fold, Missing, Part, Table, Text
from latprof_analysis.report.words import number
from latprof_analysis.text import percent


def loss_groups(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what is told of the order of losses, by what was lost.

    Examples
    --------
    >>> list(loss_groups({"round_trips": {"udp": {"loss": {"share": {}}}}}))
    ['udp round trips']
    """
    trips = {
        f"{protocol} round trips": figures.get("loss")
        for protocol, figures in (document.get("round_trips") or {}).items()
    }
    messages = {
        f"{kind} messages": figures.get("loss")
        for kind, figures in (document.get("messages") or {}).items()
    }
    return {name: loss for name, loss in (trips | messages).items() if loss}


def loss_model_parts(groups: Mapping[str, dict[str, Any]]) -> list[Part]:
    """Tell how losses of each group follow each other; the first group is open."""
    parts: list[Part] = []
    quiet = [_without(name, loss) for name, loss in groups.items() if not _lost(loss)]
    with_losses = {name: loss for name, loss in groups.items() if _lost(loss)}
    for i, (name, loss) in enumerate(with_losses.items()):
        told = _of_group(name, loss)
        parts += [Fold(f"{name}: how losses follow each other", told)] if i else told
    return [*parts, *quiet]


def _lost(loss: Mapping[str, Any]) -> int:
    return int(loss["share"].get("lost") or 0)


def _without(name: str, loss: Mapping[str, Any]) -> Text:
    share = loss["share"]
    if "n" not in share:
        return Text(f"{name}: loss not told: {share['reason']}.", quiet=True)
    return Text(
        f"{name}: none of {number(share['n'])} was lost; up to "
        f"{100 * share['high']:.2g}% may be (95%, for losses that do not depend on "
        "each other).",
        quiet=True,
    )


def _of_group(name: str, loss: Mapping[str, Any]) -> list[Part]:
    choice = loss["model"]
    parts: list[Part] = [_episodes(name, loss)]
    if not choice.get("best"):
        parts.append(Missing(f"{name}: model of losses", str(choice["reason"])))
        return parts
    return [*parts, _models(name, choice), *loss_run_parts(name, loss)]


def _episodes(name: str, loss: Mapping[str, Any]) -> Table:
    note = (
        "95% interval by Wilson, of as many independent ones as these are worth; "
        "distances count what was sent."
    )
    title = f"{name}: losses in the order of sending"
    rows = [*_share_rows(loss["share"]), *_episode_rows(loss["episodes"])]
    return Table(title, ["what", "value"], rows, note, numeric=False)


def _share_rows(share: Mapping[str, Any]) -> list[list[str | Cell]]:
    n = f"n {number(share['n'])}"
    if share["low"] is None:
        interval = f"{share['reason']}, {n}"
    else:
        interval = f"{percent_of(share['low'])} to {percent_of(share['high'])}, {n}"
    lost = Cell(f"{number(share['lost'])}: {percent_of(share['value'])}", interval)
    rows: list[list[str | Cell]] = [["lost", lost]]
    if share["n_effective"] is not None:
        worth = f"{number(share['n_effective'])} independent ones"
        why = "as bursts tell less; of this is the interval"
        rows.append(["sent, worth", Cell(worth, why)])
    return rows


def _episode_rows(found: Mapping[str, Any]) -> list[list[str | Cell]]:
    count = number(found["count"])
    apart, near = found["median_distance"], found["noticeable_rate_99"]
    distance = Cell(
        "not told" if apart is None else f"{apart:,.4g} sent",
        "RFC 3357: from one loss to the next, 1 if in a row",
    )
    noticeable = Cell(
        "not told" if near is None else percent(near),
        "RFC 3357: of losses, those at most 99 behind another",
    )
    mean = Cell(f"{found['mean_length']:.3g} in a row", f"n {count}")
    return [
        ["episodes of loss", Cell(count, "RFC 3357: loss periods")],
        ["length of an episode, mean", mean],
        ["length of an episode, longest", f"{number(found['longest'])} in a row"],
        ["loss distance, median", distance],
        ["noticeable rate, delta 99", noticeable],
    ]


def percent_of(share: float) -> str:
    """Write a share that may be small with three digits.

    Examples
    --------
    >>> percent_of(0.000123), percent_of(0.5)
    ('0.0123%', '50%')
    """
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
                f"{percent_of(model['loss_good'])}, {percent_of(model['loss_bad'])}",
                percent_of(model["loss_share"]),
                Cell(f"{model['bic']:.1f}", f"parameters: {model['parameters']}"),
            ]
        )
    used = ""
    if choice["n_used"] < choice["n"]:
        used = f" Fitted to the first {number(choice['n_used'])} of them."
    note = (
        "p: chance to go from the good state to the bad one, r: back, for each one "
        "that is sent, with 95% intervals where the states are seen (Jeffreys); of "
        f"independent losses there are no states.{used} BIC: of least is chosen; n "
        f"{number(choice['n_used'])}."
    )
    title = f"{name}: {choice['best']} losses, {choice['reason']}"
    columns = ["model", "p", "r", "stay in bad", "lost in good, bad", "lost", "BIC"]
    return Table(title, columns, rows, note)


def _rate(rate: Mapping[str, Any] | None) -> str | Cell:
    if rate is None:
        return "-"
    if rate["low"] is None:
        return Cell(f"{rate['value']:.3g}", "no interval")
    return Cell(f"{rate['value']:.3g}", f"{rate['low']:.3g} to {rate['high']:.3g}")
