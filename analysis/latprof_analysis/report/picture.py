"""The picture of the first screen: where each kind's time goes, of all messages.

It is drawn from the document, as the tables of the terminal are, and from no rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from latprof_analysis.report.parts import Chart, Figure
from latprof_analysis.report.sentences import ends_of
from latprof_analysis.report.stage_parts import End, share_bars, share_range
from latprof_analysis.report.words import duration_text, listed, number
from latprof_analysis.stages import part_label, part_order

# More bars than this are no picture; the rest is counted.
_MOST_BARS = 8
_LEAST_SHARE = 5e-4  # less is no pixel
_WITHIN = ("wakeup", "end_to_end")
# Of these parts of a response each is within the first: what is left is drawn.
_INNER = {
    "server": ("server_queue", "server_work"),
    "server_queue": ("server_wakeup",),
    "reply_way": ("reply_pauses",),
}
_WORDS = (
    "send_queue is the wait in the send buffer, qdisc the sojourn in the queueing "
    "discipline, transit the wire and both NICs, receive_stack from the arrival until "
    "it could be read, receive_queue until it was read."
)
_Bars = Mapping[str, tuple[dict[str, float], Mapping[str, Any]]]


def first_picture(document: Mapping[str, Any]) -> Figure | None:
    """Draw a bar for each kind of messages; none where no stage is told.

    Of other programs' traffic with exchanges those of the responses stand above.
    """
    ways, kinds = dict(_ways(document)), dict(_kinds(document))
    groups = {"end to end": kinds}
    if not document.get("round_trips"):
        groups = {"response": ways, **groups}
    drawn = {whole: _most(bars) for whole, bars in groups.items() if bars}
    if not drawn:
        return None
    rows = [
        {"whole": whole, **row}
        for whole, bars in drawn.items()
        for name, told in bars.items()
        for row in _rows(name, *told)
    ]
    data = pd.DataFrame(rows)
    text = _finding(data[data["whole"] == next(iter(drawn))])
    left = sum(len(groups[whole]) - len(bars) for whole, bars in drawn.items())
    more = f" {left} rarer ones are not drawn." if left else ""
    return Figure(
        name="picture",
        title=text,
        caption=f"Shares of all time, and at the right median and p99, of all that "
        f"were counted.{more} {_WORDS}",
        alt=f"Stacked bars of {listed(list(drawn))}. {text}.",
        data=data,
        charts=[
            _chart(whole, bars, data, several=len(drawn) > 1)
            for whole, bars in drawn.items()
        ],
        wide=True,
        main=True,
    )


def _most(bars: _Bars) -> _Bars:
    """Return those of which there are most, in the order in which they stand."""
    by_count = sorted(bars, key=lambda name: -bars[name][1]["n"])[:_MOST_BARS]
    return {name: told for name, told in bars.items() if name in by_count}


def _chart(whole: str, bars: _Bars, data: pd.DataFrame, *, several: bool) -> Chart:
    ends = {name: _end(figures) for name, (_, figures) in bars.items()}
    spec = share_bars(data[data["whole"] == whole], "of", whole, ends)
    only = {"filter": f"datum.whole === '{whole}'"}
    spec = {**spec, "transform": [only, *spec["transform"]]}
    title = "Messages, by stage" if whole == "end to end" else "Responses, by part"
    return Chart({"share": spec}, title if several else "")


def _kinds(
    document: Mapping[str, Any],
) -> Iterator[tuple[str, tuple[dict[str, float], Mapping[str, Any]]]]:
    for kind, figures in (document.get("kinds") or {}).items():
        stages = figures["stages"]
        whole = stages.get("end_to_end") or {}
        shares = {
            name: one["share_of_end_to_end"] or 0
            for name, one in stages.items()
            if name not in _WITHIN
        }
        if whole.get("n") and any(shares.values()):
            yield kind, (shares, whole)


def _ways(
    document: Mapping[str, Any],
) -> Iterator[tuple[str, tuple[dict[str, float], Mapping[str, Any]]]]:
    for name, figures in (document.get("exchanges") or {}).items():
        parts = figures["parts"]
        apart = parts_apart(parts)
        # of a client whose server was not seen the response is all that is known
        if apart and parts.get("response", {}).get("n"):
            yield ends_of(name), (apart, parts["response"])


def parts_apart(parts: Mapping[str, Any]) -> dict[str, float]:
    """Return the shares of a response in parts of which none holds another.

    Examples
    --------
    >>> shares = {"server": 0.75, "server_queue": 0.5, "server_work": 0.25}
    >>> told = {name: {"share_of_response": one} for name, one in shares.items()}
    >>> parts_apart(told | {"server_wakeup": {"share_of_response": 0.125}})
    {'not yet read': 0.375, 'waiting for CPU': 0.125, 'at work': 0.25}
    """
    share = {
        name: one["share_of_response"] or 0.0
        for name, one in parts.items()
        if name != "response"
    }
    left = {
        name: max(0.0, value - sum(share.get(one, 0) for one in _INNER.get(name, ())))
        for name, value in share.items()
    }
    return {
        part_label(name, ""): left[name]
        for name in sorted(left, key=part_order)
        if left[name] >= _LEAST_SHARE
    }


def _rows(
    name: str, shares: Mapping[str, float], whole: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    end, total = 0.0, sum(shares.values())
    for stage, share in shares.items():
        begin, end = end, end + share / total
        yield {
            "group": name,
            "stage": stage,
            "mean_ns": share * whole["mean_ns"] if whole.get("mean_ns") else None,
            "share": share,
            "to_share": end,
            "from_share": begin,
            "n": whole["n"],
        }


def _end(figures: Mapping[str, Any]) -> End:
    p50, p99 = figures.get("p50_ns"), figures.get("p99_ns")
    if p50 is None:
        return End(f"n {number(figures['n'])}", "")
    first = f"p50 {duration_text(p50)}"
    few = f"n {number(figures['n'])}"
    return End(first, few if p99 is None else f"p99 {duration_text(p99)}")


def _finding(data: pd.DataFrame) -> str:
    """Say which stage takes most, of each group or of all of them."""
    largest = data.loc[data.groupby("group", sort=False)["share"].idxmax()]
    if largest["stage"].nunique() == 1:
        share = share_range(largest["share"])
        return f"Where the time goes: {share} is {largest['stage'].iloc[0]}"
    most = largest.head(3).itertuples()
    told = [f"{one.share:.0%} of a {one.group} is {one.stage}" for one in most]
    return f"Where the time goes: {', '.join(told)}"
