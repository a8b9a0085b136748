"""The story of a slow message, in lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from latprof_analysis.read.stories import took_ns
from latprof_analysis.report.story_words import (
    accept_words,
    queue_words,
    reads_words,
    tcp_words,
)
from latprof_analysis.stages import EXCHANGE
from latprof_analysis.story.answers import WORK
from latprof_analysis.story.next_hops import RESOLVING
from latprof_analysis.story.sleeps import ended_by, name_of
from latprof_analysis.story.sockets import (
    BEHIND,
    HELD,
    LOST,
    NOT_KNOWN,
    UNKNOWN_WAY,
    lost_words,
)
from latprof_analysis.story.stacks import FEW, NAMES_NOT_RECORDED, SHARE
from latprof_analysis.story.story import UNTRACED
from latprof_analysis.study.likely_cause import process_of
from latprof_analysis.text import counted, duration, percent, plural

_Story = dict[str, Any]
# A smaller share of a stage has no line of its own.
_LITTLE = 0.02
_MOST_NAMES, _MOST_CAUSES = FEW, 5
_MOST_PROCESSES = 3  # of one program; more are one cause
_OF_95 = 1.96  # standard errors
_VERBS = {
    "busy": "was busy",
    "waiting": "waited for a CPU",
    "throttled": "was throttled",
    "asleep": "slept",
    "interrupts": "was held up by interrupts",
    "not recorded": "did something that the recorder has no more",
    "queued": "was queued",
    "held back": "was held back by the queue itself",
}
# Why functions have no names, and what to do.
_AS_OFFSETS = "functions of programs are told as file and offset: "
_NO_NAMES = {
    "file and offset": f"{_AS_OFFSETS}install python3-bpfcc for their names",
    "no answer": "functions have no names: reading them took too long",
    "ended": "functions have no names: their processes had ended, "
    "or may not be looked at",
    "no access": f"{_AS_OFFSETS}latprof may not open their files (an agent may with "
    "--user root)",
    NAMES_NOT_RECORDED: "functions have no names: the recording breaks off before them",
}
# What is not recorded, where its word alone does not say it.
_LACKS = {UNTRACED: "the kernel hides a task that came or left"}
# What bytes underwent, not a thread.
_OF_BYTES = (HELD, RESOLVING, LOST, BEHIND, NOT_KNOWN, UNKNOWN_WAY)
_NOT_RECORDED = {
    "qdisc": "the queue of the sender's device",
    "transit": "the way between both drivers, of which nothing here tells",
    "receive_stack": "the receiver's stack, for no reason that was seen",
    "request_way": "the request's way",
    "reply_way": "the reply's way",
}
_ENTRY_QUEUE = "a queue at the entry of the receiver's host (ifb)"


def story_lines(story: _Story) -> Iterator[str]:
    """Show one: what it was, its stages, and what a thread did in them."""
    whole_ns = took_ns(story)
    yield headline(story)
    for stage, of in story["stages"].items():
        share = of["time_ns"] / whole_ns if whole_ns else 0.0
        if share < _LITTLE:
            continue
        took = f"{duration(of['time_ns']):>8}  {percent(share):>6}"
        yield f"  {stage:<14} {took}  {_met(of)}".rstrip()
        for part in of["parts"] or ():
            if part["time_ns"] >= _LITTLE * of["time_ns"]:
                yield f"    {duration(part['time_ns']):>8}  {_part(part)}"


def _behind(of: _Story) -> str:
    """Say what stood before a message in a queue, or was read before it."""
    if of.get("queue"):
        return queue_words(of["queue"])
    return reads_words(of["reads"], of["time_ns"]) if of.get("reads") else ""


def _met(of: _Story) -> str:
    """Say what a message met in a queue or a socket, where anything is known of it."""
    accept = accept_words(of["accept"]) if of.get("accept") else ""
    tcp = tcp_words(of.get("timeline") or ())
    return "; ".join(filter(None, (accept, _behind(of), tcp)))


def headline(story: _Story) -> str:
    """Say what it was, and what took most of its time."""
    return f"{_said(story['message'])}: {conclusion(story)}"


def conclusion(story: _Story) -> str:
    """Say in a sentence what took most of a message's time."""
    message, stages = story["message"], story["stages"]
    if not stages:
        return "no part of its time is known"
    stage = max(stages, key=lambda name: stages[name]["time_ns"])
    of = stages[stage]
    begin = f"{duration(of['time_ns'])} of {duration(took_ns(story))}"
    again = message["retransmits"]
    if of.get("queue"):
        return f"{begin} in {queue_words(of['queue'])}"
    if stage in ("transit", "receive_stack") and again and not of["parts"]:
        return f"{begin} while {plural(again, 'segment')} had to be sent again"
    return f"{begin} {_where_and_why(message, stage, of)}"


def _where_and_why(message: _Story, stage: str, of: _Story) -> str:
    end = "sender" if stage in ("application", "send_queue") else "reader"
    who = _process(message, end)
    where = {
        "application": f"before the send call of {who}",
        "receive_queue": f"in the receive queue of {who}",
        "send_queue": f"in the send queue of {who}",
        "server": f"from request to reply at {who}",
    }.get(stage, f"in {_NOT_RECORDED.get(stage, stage)}")
    if stage == "receive_stack" and message.get("entry_queued"):
        where = f"in {_ENTRY_QUEUE}"
    if _is_unaccepted(of):
        where += f", whose connection was {accept_words(of['accept'])}"
    if not of["parts"] or stage == "qdisc":
        return where
    first = of["parts"][0]
    if first["kind"] in _OF_BYTES:
        return _of_bytes(where, stage, of)
    if 2 * first["time_ns"] < of["time_ns"]:
        return f"{where}, for no single cause: longest it {_verb(first)}"
    rest = "" if len(of["parts"]) == 1 else f" for {duration(first['time_ns'])}"
    # asleep or without a CPU it was not at the messages of others
    behind = _behind(of) if first["kind"] == "busy" else ""
    begin = f"{where}: it" if _is_unaccepted(of) else f"{where}, which"
    return f"{begin} {_verb(first)}{rest}{_ended_by(first)}" + (
        f", {behind}" if behind else ""
    )


def _is_unaccepted(of: _Story) -> bool:
    """Whether nobody could read it for most of its time, or for nobody knows how long.

    A short one stands beside the stage only.
    """
    if not of.get("accept"):
        return False
    waited_ns = of["accept"]["waited_ns"]
    return waited_ns is None or 2 * waited_ns >= of["time_ns"]


def _of_bytes(where: str, stage: str, of: _Story) -> str:
    """Where bytes were, and what took most of their time there."""
    first = of["parts"][0]
    if stage != "send_queue":
        # what was lost was on its way, also where its arrival is not known
        where = f"in {'transit' if first['kind'] == LOST else stage}"
    text = _words(first)
    if 2 * first["time_ns"] < of["time_ns"]:
        return f"{where}, for no single cause: longest {text}{_meanwhile(first)}"
    took = duration(first["time_ns"])
    if first["kind"] == LOST:
        return f"{where}, {lost_words(first['what'], f' after {took}')}"
    if len(of["parts"]) == 1:
        return f"{where}, {text}{_meanwhile(first)}"
    if first["kind"] == BEHIND:
        return f"{where}, for {took} {text}"
    return f"{where}, {text} for {took}{_meanwhile(first)}"


def _meanwhile(part: dict[str, Any]) -> str:
    """What a reader did most of the time for which it had no room."""
    if part["kind"] != HELD or not part["who"]:
        return ""
    one = part["who"][0]
    first = _first_done(one, part["time_ns"])
    if not first:
        return ""
    took = duration(first["time_ns"])
    return f", while {_thread(one)} {_verb(first)} for {took} of it{_ended_by(first)}"


def summary_lines(document: dict[str, Any], shown: int) -> Iterator[str]:
    """Say how many there are, and which causes took most of their time."""
    yield count_line(document, shown)
    yield from flow_lines(document)
    if document["stories"]:
        yield f"{shares_of_what(document)}:"
    for cause in causes(document)[:_MOST_CAUSES]:
        share, error = percent(cause["share"]), cause["share_error"]
        within = f" +- {percent(error)}" if error else ""
        yield f"  {share:>6}{within}  {cause['cause']}"
    yield from recorder_lines(document["recorder"])


def flow_lines(document: dict[str, Any]) -> Iterator[str]:
    """Say which flows have no story, where some have none."""
    flows = document.get("slow_flows", 0)
    with_story = document.get("flows_with_story", flows)
    more = " or more" if document.get("more_flows") else ""
    if flows > with_story:
        yield (
            f"of {counted(flows, 'flow')}{more} with a slow one {with_story:,} have a "
            "story: the slowest of each first, then the slowest of all"
        )


def shares_of_what(document: dict[str, Any]) -> str:
    """Say of what shares of causes are."""
    limit_ns, sample = document["limit_ns"], document.get("sample")
    above = "" if limit_ns is None else f" above {duration(limit_ns)}"
    if document.get("exchange_limit_ns", limit_ns) != limit_ns:
        above += f" ({duration(document['exchange_limit_ns'])} of exchanges)"
    if sample:
        return (
            f"of the time{above} of all {_slow_ones(document):,}, by a sample of "
            f"{len(sample):,} (+-: 95%)"
        )
    return f"of the time{above} of all {len(document['stories'])}"


def _slow_ones(document: dict[str, Any]) -> int:
    return int(document["slow_messages"]) + int(document.get("slow_exchanges", 0))


def count_line(document: dict[str, Any], shown: int) -> str:
    """Say how many messages and exchanges were slow, and how many have a story."""
    stories, limit_ns = document["stories"], document["limit_ns"]
    than = "more than p99.9" if limit_ns is None else f"{duration(limit_ns)} or longer"
    if "quantile" in document:
        name = f"p{100 * document['quantile']:g}"
        than = (
            f"more than the running {name}, which was {duration(limit_ns)} at the end"
        )
        own_ns = document.get("exchange_limit_ns", limit_ns)
        if own_ns != limit_ns:
            than += f" ({duration(own_ns)} of exchanges)"
    counts = {
        "exchange": document.get("slow_exchanges"),
        "message": document["slow_messages"],
    }
    slow = [counted(n, noun) for noun, n in counts.items() if n] or ["0 messages"]
    return (
        f"{' and '.join(slow)} took {than}; {shown} of "
        f"{len(stories)} {'story' if len(stories) == 1 else 'stories'} shown"
    )


def recorder_lines(recorder: dict[str, Any]) -> Iterator[str]:
    """Say what a recorder had no room for, and how to have names."""
    if recorder["skipped"]:
        yield f"{recorder['skipped']} times there was no room to keep what CPUs did"
    if why := _NO_NAMES.get(recorder["symbols"]):
        yield why


def causes(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what took the time by which all that was slow was so.

    Of a slow one that is the time above its limit (without one, all of it), which its
    parts have as they have the whole. Of many slow ones a sample stands for all.

    Returns
    -------
    list of dict
        ``cause`` (stage, and what held it up there), ``time_ns``, ``share`` of the
        time of all, and ``share_error``: by so much the share of a sample may be off,
        95% (a ratio's, by linearization, with the correction for a finite population;
        Cochran, Sampling Techniques, 1977, 6.4); 0 without one. The longest first.
    """
    sample = document.get("sample")
    stories = sample or document["stories"]
    short = _short_names(stories)
    rows = [_times_by_cause(one, document, short) for one in stories]
    times: dict[str, float] = {}
    for row in rows:
        for name, took in row.items():
            times[name] = times.get(name, 0.0) + took
    whole = sum(times.values())
    drawn = len(rows) / _slow_ones(document) if sample else 1.0
    return [
        {
            "cause": name,
            "time_ns": round(took),
            "share": took / whole if whole else 0.0,
            "share_error": _share_error(rows, name, took / whole, drawn),
        }
        for name, took in sorted(times.items(), key=lambda one: -one[1])
        if took
    ]


def _short_names(stories: Iterable[_Story]) -> dict[str, str]:
    """Name programs of which many processes are in stories by their number."""
    pids: dict[str, set[int]] = {}
    for story in stories:
        for of in story["stages"].values():
            for part in of["parts"] or ():
                for one in part.get("who") or ():
                    pids.setdefault(one["comm"], set()).add(one["pid"])
    return {
        comm: f"{comm} ({len(found)} processes)"
        for comm, found in pids.items()
        if len(found) > _MOST_PROCESSES
    }


def _times_by_cause(
    story: _Story, document: dict[str, Any], short: Mapping[str, str]
) -> dict[str, float]:
    """Split the time above its limit of a story, and of those that it stands for.

    `short` has names of programs that stand for all their processes.
    """
    whole_ns = took_ns(story)
    limit_ns = document["limit_ns"]
    if story["message"]["kind"] == EXCHANGE:
        limit_ns = document.get("exchange_limit_ns", limit_ns)
    above = max(whole_ns - (limit_ns or 0), 0) * story.get("stands_for", 1)
    found: dict[str, float] = {}
    for stage, of in story["stages"].items():
        for part in of["parts"] or [{"kind": "", "time_ns": of["time_ns"]}]:
            name = f"{stage}: {_cause(part, short)}" if part["kind"] else stage
            more = part["time_ns"] * above / whole_ns if whole_ns else 0.0
            found[name] = found.get(name, 0.0) + more
    return found


def _share_error(
    rows: list[dict[str, float]], name: str, share: float, drawn: float
) -> float:
    """Return half of the 95% interval of a cause's share."""
    count = len(rows)
    if drawn >= 1 or count < 2:
        return 0.0
    wholes = [sum(row.values()) for row in rows]
    off = (
        row.get(name, 0.0) - share * of for row, of in zip(rows, wholes, strict=True)
    )
    squares = sum(one * one for one in off) * count / (count - 1) * (1 - drawn)
    return float(_OF_95 * squares**0.5 / sum(wholes))


def _cause(part: dict[str, Any], short: Mapping[str, str]) -> str:
    if part["kind"] == "queued":
        return _queued(part)
    who = ""
    if part.get("who"):
        first = part["who"][0]
        name = name_of if part["kind"] == "asleep" else _name
        who = short.get(first["comm"]) or name(first)
    if part["kind"] == "waiting" and who:
        return f"waiting for a CPU{_had(part['who'][0], who)}"
    if part["kind"] == "busy" and (within := _functions(part)):
        return f"busy in {within}"
    if part["kind"] == "asleep" and who:
        return f"{_words(part)}, {ended_by(part['who'][0])} {who}"
    return _words(part)


def _functions(part: dict[str, Any]) -> str:
    """Where it was busy: the function of most stacks, or the few that most were in.

    "": there are no stacks, or they are of too many functions.
    """
    if part["what"]:
        return str(part["what"])
    left = SHARE * sum(one["samples"] for one in part["functions"])
    found: list[str] = []
    for one in part["functions"][:_MOST_NAMES] if left else ():
        found.append(_function(one))
        left -= one["samples"]
        if left <= 0:
            return " or ".join(found)
    return ""


def _function(one: dict[str, Any]) -> str:
    """Name a function; of a program that has ended none may be known."""
    return "code without a name" if one["name"] == "?" else str(one["name"])


def _words(part: dict[str, Any]) -> str:
    kind, what = str(part["kind"]), str(part["what"])
    if kind == HELD:
        return f"{kind} by {what}"
    if kind == LOST:
        return lost_words(what)
    if kind == "not recorded" and what:
        return f"{kind} ({_LACKS.get(what, what)})"
    return f"{kind} {what}" if what else kind


def _said(message: dict[str, Any]) -> str:
    number = message["sequence"]
    named = "" if number is None else f" {number}"
    size = message["size_bytes"]
    of_bytes = "" if size is None else f" of {size} bytes"
    what = f"{message['protocol']} {message['kind']}".lstrip()
    return (
        f"{what}{named}{of_bytes}, "
        f"{_process(message, 'sender')} to {_process(message, 'reader')}"
    )


def _process(message: dict[str, Any], end: str) -> str:
    if not message[f"{end}_comm"] and message[f"{end}_pid"] is None:
        return _address(message, "source" if end == "sender" else "destination")
    return process_of(message, end, "an unknown process")


def _address(message: dict[str, Any], end: str) -> str:
    """Of an end whose half was not recorded."""
    host, port = message.get(f"{end}_address"), message.get(f"{end}_port")
    if not host:
        return "an unknown process"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _had(one: dict[str, Any], name: str = "") -> str:
    """Who had the CPU that another one waited for, as the end of a sentence."""
    name = name or _name(one)
    if one.get("lower_class"):
        return f" (why is not known: {name}, which had it, is of a lower class)"
    return f", which {name} had"


def _name(one: dict[str, Any]) -> str:
    return "nobody" if one["comm"] == "idle" else f"{one['comm']} (pid {one['pid']})"


def _thread(one: dict[str, Any]) -> str:
    """Name a thread of a process, which its own number may name, or a socket's end."""
    if one.get("peer"):
        return name_of(one)
    thread = one.get("thread", one["pid"])
    of = "" if thread == one["pid"] else f", thread {thread}"
    return f"{one['comm']} (pid {one['pid']}{of})"


def _ended_by(part: dict[str, Any]) -> str:
    """Who woke a thread most of the time, as the end of a sentence."""
    first = part["who"][0] if part["kind"] == "asleep" and part["who"] else None
    if not first or 2 * first["time_ns"] < part["time_ns"]:
        return ""
    if first.get("peer"):
        return f", until {_answered(first)}"
    return f", until {_thread(first)} woke it{_did(first)}"


def _did(one: dict[str, Any]) -> str:
    """What that thread did most of the time that another one waited for it."""
    first = _first_done(one, one["time_ns"])
    if not first:
        return ""
    took = duration(first["time_ns"])
    return f", which {_verb(first)} for {took} of it{_ended_by(first)}"


def _first_done(one: dict[str, Any], whole_ns: int) -> dict[str, Any]:
    """What a thread did for half of a time or more; empty: nothing, or not known."""
    did = one.get("did")
    if not did or 2 * did[0]["time_ns"] < whole_ns:
        return {}
    # that part has no more than a kind, a word and whom it waited for
    first: dict[str, Any] = {"who": (), "functions": ()} | did[0]
    return first


def _answered(one: dict[str, Any]) -> str:
    """Say that the other end of a socket answered, and where it took its time."""
    peer = one["peer"]
    if not peer["answers"]:
        return f"{name_of(one)} sent"
    times = "" if peer["answers"] == 1 else f" {peer['answers']} times"
    words = f"{name_of(one)} answered{times}"
    if again := peer["again"]:
        words += f", which waits for {name_of(again)} again"
    first = _first_done(one, peer["stage_ns"])
    doing = f": {_doing(first)}{_ended_by(first)}" if first else ""
    took = f"{duration(peer['stage_ns'])} of {duration(peer['whole_ns'])}"
    end, _, stage = peer["stage"].partition(" ")
    if stage:
        where = queue_words(peer["queue"]) if peer.get("queue") else stage
        return f"{words} (its {end} {took} in {where})"
    where = "its work" if end == WORK else "in its receive queue"
    return f"{words} ({where} {took}{doing})"


def _doing(part: dict[str, Any]) -> str:
    return _verb(part).removeprefix("was ")


def _verb(part: dict[str, Any]) -> str:
    """What a thread did, as the end of a sentence."""
    if part["kind"] == "not recorded" and (part["what"] or part["functions"]):
        return f"did something that is {_words(part)}{_seen(part)}"
    return _VERBS.get(part["kind"], str(part["kind"])) + _detail(part)


def _seen(part: dict[str, Any]) -> str:
    """Say where stacks have seen a thread of which no more is recorded."""
    if part["kind"] != "not recorded" or not part["functions"]:
        return ""
    count = sum(one["samples"] for one in part["functions"])
    few = [_function(one) for one in part["functions"][:_MOST_NAMES]]
    return f", but for {plural(count, 'stack')} in which it ran in {' or '.join(few)}"


def _detail(part: dict[str, Any]) -> str:
    if part["kind"] == "waiting" and part["who"]:
        return _had(part["who"][0])
    if part["kind"] == "busy":
        return f" in {within}" if (within := _functions(part)) else ""
    return f" {part['what']}" if part["what"] else ""


def _queued(part: dict[str, Any]) -> str:
    who = f" {_name(part['who'][0])}" if part["who"] else ""
    return f"queued {part['what']}{who}".rstrip()


def _part(part: dict[str, Any]) -> str:
    if part["kind"] == "queued":
        return _queued(part)
    cpu = "" if part["cpu"] is None else f" (CPU {part['cpu']})"
    if part["kind"] == "waiting":
        who = ", ".join(
            f"{_name(one)}{' of a lower class' * one.get('lower_class', False)} "
            f"{duration(one['time_ns'])}"
            for one in part["who"][:_MOST_NAMES]
        )
        had = f", which had {who}" if who else ""
        elsewhere_ns = part["time_ns"] - sum(one["time_ns"] for one in part["who"])
        if elsewhere_ns >= _LITTLE * part["time_ns"]:
            had += f"; {duration(elsewhere_ns)} of it in another CPU's queue"
        return f"waiting for a CPU{cpu}{had}"
    if part["kind"] == "busy":
        samples = sum(one["samples"] for one in part["functions"])
        names = ", ".join(
            f"{_function(one)} {percent(one['samples'] / samples)}"
            for one in part["functions"][:_MOST_NAMES]
        )
        text = f"; {names} of {plural(samples, 'stack')}" if samples else ""
        within = f" in {part['what']}" if part["what"] else ""
        return f"busy{cpu}{within}{text}"
    if part["kind"] == "asleep":
        return _words(part) + _woken(part)
    if part["kind"] == HELD:
        return _words(part) + _meanwhile(part)
    had = _had(part["who"][0]) if part["kind"] == "throttled" and part["who"] else ""
    return _words(part) + cpu + had + _seen(part)


def _woken(part: dict[str, Any]) -> str:
    """Who woke a thread; of several each one's share of its sleep."""
    if len(part["who"]) < 2:
        return _ended_by(part)
    words, before = "", ""
    for one in part["who"][:_MOST_NAMES]:
        how = ended_by(one)
        words += f", {'' if how == before else f'{how} '}{_thread(one)} "
        words += duration(one["time_ns"])
        before = how
    return words
