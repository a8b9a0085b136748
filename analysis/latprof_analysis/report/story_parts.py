"""Stories on a page: which causes there were, and of the slowest messages a time line,
what their threads did in it, and flame graphs of their stacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from latprof_analysis.read.stories import took_ns
from latprof_analysis.report.parts import (
    Chart,
    Figure,
    Fold,
    Items,
    Part,
    Section,
    Spec,
    Table,
    Text,
)
from latprof_analysis.report.story_lines import (
    causes,
    conclusion,
    count_line,
    headline,
    recorder_lines,
    shares_of_what,
    story_lines,
)
from latprof_analysis.report.vega import (
    colour,
    duration_axis,
    duration_expr,
    layer,
    named,
    stage_scale,
    tooltip,
    top_legend,
    written,
)
from latprof_analysis.report.words import duration_text, number
from latprof_analysis.stages import STAGES, STAMPS
from latprof_analysis.story.next_hops import RESOLVING
from latprof_analysis.story.sockets import HELD, LOST
from latprof_analysis.story.stacks import DROPPED
from latprof_analysis.text import percent, plural

_MOST = 5  # stories on the page, the first of them open
_MOST_CAUSES = 10
_MOST_DEPTH = 60  # functions of a stack that are drawn: the innermost
_ROW_PIXELS = 18
# A name in less of a flame graph's width cannot be read.
_LEGIBLE_SHARE = 0.03
# What a thread did, and its colour.
_KINDS = {
    "busy": ("on a CPU", "band"),
    "waiting": ("waiting for a CPU", "mark-2"),
    "throttled": ("throttled by a CPU quota", "mark"),
    "interrupts": ("interrupted", "warn"),
    "asleep": ("asleep", "edge"),
    "not recorded": ("not recorded", "grid"),
    "held": ("held in its socket", "warn"),
    RESOLVING: ("waiting for a link address", "warn"),
}
_OF_SOCKETS = (HELD, RESOLVING, LOST)
_SENDERS = ("application", "send_queue")
_KERNEL = " (kernel)"
# Where a function is, and its colours.
_PLACES = {"program": "band", "kernel": "send_queue", "unknown": "grid"}


def story_sections(document: dict[str, Any] | None) -> list[Section]:
    """Lay out the stories of runs; none: no section."""
    if not document:
        return []
    waits = _waits(document["stories"])[:_MOST]
    parts: list[Part] = [Text(f"{_sentence(count_line(document, len(waits)))}.")]
    if waits:
        parts.append(_causes(document))
    for place, wait in enumerate(waits, 1):
        parts_of_story = list(_story(place, wait))
        title = _micro(headline(wait.slowest))
        parts += parts_of_story if place == 1 else [Fold(title, parts_of_story)]
    for line in recorder_lines(document["recorder"]):
        parts.append(Text(f"{_sentence(line)}.", quiet=True))
    return [Section("stories", "Why messages were slow", parts)]


class _Wait(NamedTuple):
    """Messages that waited together, of which the slowest is shown."""

    slowest: dict[str, Any]
    others: int
    stage: str
    pid: int | None
    begin_ns: int
    end_ns: int


def _waits(stories: Sequence[dict[str, Any]]) -> list[_Wait]:
    """Take together what waited in one stage of one process at one time.

    Of two that did, one was there for half of the other's time or more.
    """
    found: list[_Wait] = []
    for story in stories:
        one = _wait(story)
        for i, other in enumerate(found):
            both = min(one.end_ns, other.end_ns) - max(one.begin_ns, other.begin_ns)
            same = one[2:4] == other[2:4]
            if same and 2 * both > one.end_ns - one.begin_ns:
                found[i] = other._replace(others=other.others + 1)
                break
        else:
            found.append(one)
    return found


def _wait(story: dict[str, Any]) -> _Wait:
    """Say when it was in the stage that took longest, as far as its stamps say."""
    message, stages = story["message"], story["stages"]
    stage = max(stages, key=lambda name: stages[name]["time_ns"], default="")
    pid = message["sender_pid" if stage in _SENDERS else "reader_pid"]
    end_ns = message.get("reply_sent_ns") or message.get("read_ns") or 0
    for name in STAGES[::-1] if stage in STAGES else ():
        if name == stage:
            break
        end_ns -= stages.get(name, {}).get("time_ns", 0)
    took_in_it = stages[stage]["time_ns"] if stage else 0
    return _Wait(story, 0, stage, pid, end_ns - took_in_it, end_ns)


def _micro(text: str) -> str:
    """As on a terminal but for micro."""
    return text.replace(" us", " µs")


def _sentence(text: str) -> str:
    return _micro(f"{text[:1].upper()}{text[1:]}")


def _causes(document: dict[str, Any]) -> Table:
    found = causes(document)[:_MOST_CAUSES]
    return Table(
        _micro(f"What took time: {shares_of_what(document)}").replace("+-", "±"),
        ["stage and cause", "share", "time"],
        [[one["cause"], _share(one), duration_text(one["time_ns"])] for one in found],
        "Of each one the time by which it was slow, shared as its whole time is among "
        "its causes.",
    )


def _share(cause: dict[str, Any]) -> str:
    error = cause["share_error"]
    within = f" ± {percent(error)}" if error else ""
    return f"{percent(cause['share'])}{within}"


def _story(place: int, wait: _Wait) -> Iterator[Part]:
    story = wait.slowest
    beside = ""
    if wait.others:
        beside = f" {plural(wait.others, 'other message')} waited there with it."
    yield Text(f"{_micro(headline(story))}.{beside}")
    data = _lanes(story)
    if len(data):
        yield _timeline(place, story, data)
    for graph in _graphs(story):
        yield graph.figure(f"story-{place}-{graph.stage}-{graph.kind}")
    lines = [_micro(line.strip()) for line in list(story_lines(story))[1:]]
    stamps = _stamps(story["message"])
    more: list[Part] = [Items(lines)] if lines else []
    if stamps:
        more.append(stamps)
    if more:
        yield Fold("Its parts and stamps", more)


def _stamps(message: Mapping[str, Any]) -> Table | None:
    """Return when each stamp was, since the first."""
    found = {
        name: message[f"{name}_ns"] for name in STAMPS if message.get(f"{name}_ns")
    }
    if len(found) < 2:
        return None
    first = min(found.values())
    rows = [[name, duration_text(at - first)] for name, at in found.items()]
    return Table("Its stamps", ["stamp", "since the first"], rows)


def _lanes(story: Mapping[str, Any]) -> pd.DataFrame:
    """Return the spans of the time line: stages, and what threads did in them."""
    rows: list[tuple[str, str, str, int, int]] = []
    at_ns = 0
    for stage, of in _in_order(story["stages"]):
        if of["time_ns"]:
            rows.append(("stages", stage, "", at_ns, at_ns + of["time_ns"]))
        thread = "sender's thread" if stage in _SENDERS else "reader's thread"
        for span in of.get("timeline") or ():
            lane = "sender's socket" if span["kind"] in _OF_SOCKETS else thread
            kind, _ = _KINDS.get(span["kind"], (span["kind"], ""))
            cpu = "" if span["cpu"] is None else f"CPU {span['cpu']}"
            what = ", ".join(filter(None, (span["what"], cpu)))
            begin = at_ns + span["from_ns"]
            rows.append((lane, kind, what, begin, begin + span["time_ns"]))
        at_ns += of["time_ns"]
    return pd.DataFrame(rows, columns=["lane", "what", "detail", "from_ns", "to_ns"])


def _in_order(stages: Mapping[str, Any]) -> list[tuple[str, Any]]:
    known = [stage for stage in STAGES if stage in stages]
    return [(one, stages[one]) for one in (*known, *(stages.keys() - set(known)))]


def _timeline(place: int, story: dict[str, Any], data: pd.DataFrame) -> Figure:
    lanes = list(dict.fromkeys(data["lane"]))
    names = list(dict.fromkeys(data["what"]))
    scale = stage_scale(names)
    like = dict(_KINDS.values())
    scale["range"] = [
        colour(like[name]) if name in like else own
        for name, own in zip(names, scale["range"], strict=True)
    ]
    encoding = {
        "x": {"field": "from_ns", **duration_axis("time since its first stamp")},
        "x2": {"field": "to_ns"},
        "y": {"field": "lane", "type": "nominal", "sort": lanes, "title": None},
        "color": named("what", scale, legend=top_legend(names)),
        "tooltip": tooltip(
            {"lane": "of", "what": "what", "detail": "more", "took": "time"}
        ),
    }
    texts = written(took=duration_expr("datum.to_ns - datum.from_ns"))
    bars = layer("bar", encoding, stroke=colour("card"), strokeWidth=0.5)
    text = conclusion(story)
    took = duration_text(took_ns(story))
    return Figure(
        name=f"story-{place}",
        title=f"Where {took} of a message of {_ends(story['message'])} went",
        caption="The stages of one message, one after the other, and below them what "
        "the thread did that sent it or read it, as the scheduler told it, or what "
        "held it in its socket, as TCP decides. Of each the longest 200 spans are "
        "drawn.",
        alt=f"Time line of one message: {text}.",
        data=data,
        charts=[
            Chart({"linear": {"height": 34 * len(lanes), "transform": texts, **bars}})
        ],
        main=place == 1,
    )


def _ends(message: Mapping[str, Any]) -> str:
    names = [message[f"{end}_comm"] or "?" for end in ("sender", "reader")]
    return " to ".join(names)


class _Graph(NamedTuple):
    """Stacks of a stage's parts of one kind, counted or by the time they slept."""

    stage: str
    kind: str
    stacks: Sequence[Mapping[str, Any]]

    def figure(self, name: str) -> Figure:
        unit = _unit(self.stacks)
        data = flame_rows(self.stacks)
        whole = sum(_weight(stack, unit) for stack in self.stacks)
        doing, _ = _KINDS.get(self.kind, (self.kind, ""))
        of = duration_text(whole) if unit == "ns" else plural(whole, "stack")
        title = f"{self.stage}: functions {doing}, {of}"
        wide = of if unit == "ns" else f"{number(whole)} stacks"
        return Figure(
            name=name.replace("_", "-").replace(" ", "-"),
            title=title,
            caption="A flame graph: below what was called stands who called it, as "
            f"wide as the share of {wide} that it is in. Names are in the order of the "
            f"alphabet, not of time. {DROPPED} stands for callers that are not known."
            + (_ASLEEP if unit == "ns" else ""),
            alt=f"Flame graph. {title}.",
            data=data,
            charts=[Chart({"linear": _flame_spec(data, unit)})],
        )


_ASLEEP = (
    " Of a program the innermost function is known, and of a reader's thread who "
    "called it, but where it waits for what comes next; of the kernel the innermost "
    "eight; of shorter sleeps nothing."
)


def _unit(stacks: Sequence[Mapping[str, Any]]) -> str:
    return "samples" if all("samples" in stack for stack in stacks) else "ns"


def _weight(stack: Mapping[str, Any], unit: str) -> int:
    return int(stack.get("samples" if unit == "samples" else "time_ns", 0))


def _graphs(story: Mapping[str, Any]) -> Iterator[_Graph]:
    for stage, of in _in_order(story["stages"]):
        stacks: dict[str, list[Mapping[str, Any]]] = {}
        for part in of["parts"] or ():
            stacks.setdefault(part["kind"], []).extend(part.get("stacks") or ())
        for kind, mine in stacks.items():
            unit = _unit(mine)
            if any(stack["frames"] and _weight(stack, unit) for stack in mine):
                yield _Graph(stage, kind, mine)


def flame_rows(stacks: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the boxes of a flame graph.

    Parameters
    ----------
    stacks : sequence of mapping
        ``frames``, the outermost first, and ``samples``, or else ``time_ns``.

    Returns
    -------
    DataFrame
        ``depth`` from 0, ``name``, ``place``, ``from_samples``, ``to_samples`` (or
        ``from_ns``, ``to_ns``), ``share`` of all.

    Examples
    --------
    >>> flame_rows(
    ...     [
    ...         {"frames": ["main", "save"], "samples": 3},
    ...         {"frames": ["main"], "samples": 1},
    ...     ]
    ... )[["depth", "name", "from_samples", "to_samples"]].values.tolist()
    [[0, 'main', 0, 4], [1, 'save', 1, 4]]
    """
    unit = _unit(stacks)
    begin_in, end_in = f"from_{unit}", f"to_{unit}"
    cut = sorted(
        ((_cut(stack["frames"]), _weight(stack, unit)) for stack in stacks),
        key=lambda one: one[0],
    )
    whole = sum(weight for _, weight in cut)
    boxes: list[tuple[int, str, int, int]] = []
    open_boxes: list[tuple[str, int]] = []
    at = 0
    for frames, weight in [*cut, ([], 0)]:
        same = 0
        for (name, _), frame in zip(open_boxes, frames, strict=False):
            if name != frame:
                break
            same += 1
        for depth in range(len(open_boxes) - 1, same - 1, -1):
            name, begin = open_boxes.pop()
            boxes.append((depth, name, begin, at))
        open_boxes += [(name, at) for name in frames[same:]]
        at += weight
    data = pd.DataFrame(boxes, columns=["depth", "name", begin_in, end_in])
    data = data.sort_values(["depth", begin_in], ignore_index=True)
    data["place"] = [_place(name) for name in data["name"]]
    data["share"] = (data[end_in] - data[begin_in]) / max(whole, 1)
    return data


def _cut(frames: Sequence[str]) -> list[str]:
    left = len(frames) - _MOST_DEPTH
    return [*frames] if left <= 0 else [DROPPED, *frames[left + 1 :]]


def _place(name: str) -> str:
    if name in (DROPPED, "?"):
        return "unknown"
    return "kernel" if name.endswith(_KERNEL) else "program"


def _flame_spec(data: pd.DataFrame, unit: str) -> Spec:
    begin, end = f"from_{unit}", f"to_{unit}"
    width = f"(datum.{end} - datum.{begin})"
    places = [place for place in _PLACES if (data["place"] == place).any()]
    colours = [colour(_PLACES[place]) for place in places]
    whole = int(data[end].max())
    counted = unit == "samples"
    title = "stacks" if counted else "asleep"
    shown: dict[str, Any] = {"tickCount": 5, "grid": False}
    x = {
        "field": begin,
        "type": "quantitative",
        **({"title": title} if counted else duration_axis(title, **shown)),
        "scale": {"domain": [0, whole], "nice": False},
    }
    if counted:
        x["axis"] = {"tickMinStep": 1, **shown}
    y = {"field": "depth", "type": "ordinal", "sort": "descending", "axis": None}
    boxes = {
        "x": x,
        "x2": {"field": end},
        "y": y,
        "color": named(
            "place", {"domain": places, "range": colours}, legend=top_legend(places)
        ),
        "tooltip": tooltip({"name": "function", "of": "share", "n": title}),
    }
    names = {"x": x, "y": y, "text": {"field": "name", "type": "nominal"}}
    room = f"max(1, {width} / {whole} * width - 6)"
    return {
        "height": _ROW_PIXELS * (int(data["depth"].max()) + 1),
        "transform": written(
            of="format(datum.share, '.1~%')",
            n=width if counted else duration_expr(width),
        ),
        "layer": [
            layer("bar", boxes, stroke=colour("card"), strokeWidth=0.5),
            layer(
                "text",
                names,
                f"datum.share >= {_LEGIBLE_SHARE}",
                align="left",
                dx=4,
                limit={"expr": room},
                fontSize=11,
                color=colour("ink"),
            ),
        ],
    }
