"""How a run was made, by its documents: what a fit needs, and what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from latprof_analysis.fit.estimates import ReplyMode
from latprof_analysis.fit.wire import Packets
from latprof_analysis.text import (
    NS_PER_SECOND,
    duration,
    given_duration,
    given_rate,
    plural,
    rate,
)


@dataclass(frozen=True)
class RunSetup:
    """How a run was made.

    Attributes
    ----------
    host, kernel : str
        Empty where the run does not have them.
    reply_mode : 'echo' or int or None
        None where no load generator reports how the responder answered.
    messages_per_round : int
        Of the generator, those of trains with them; 0 where there are no rounds.
    interval_ns : int
        Of an open loop, from one single message to the next; 0 in a closed one.
    link : str
        The lab's link in one line, empty without a lab.
    packets : dict of str to Packets
        By protocol, how messages are cut on the lab's link.
    """

    host: str = ""
    kernel: str = ""
    reply_mode: ReplyMode | None = None
    messages_per_round: int = 0
    interval_ns: int = 0
    link: str = ""
    packets: dict[str, Packets] = field(default_factory=dict)


def reply_mode_of(reply_bytes: int | None) -> ReplyMode:
    """Return the reply mode that a run recorded as `reply_bytes`: none is an echo.

    Examples
    --------
    >>> reply_mode_of(None), reply_mode_of(18)
    ('echo', 18)
    """
    return "echo" if reply_bytes is None else reply_bytes


def packets_of(lab: Mapping[str, Any] | None, protocol: str) -> Packets:
    """Return how messages are cut on a lab's link, as the link counts bytes.

    Parameters
    ----------
    lab : mapping or None
        ``lab`` of run.json; without one nothing is known of packets.
    protocol : {'tcp', 'udp'}
    """
    if not lab:
        return Packets()
    first, *_ = lab["addresses"].values()
    version = 6 if ":" in first else 4
    mtu = int(lab["known"]["mtu_bytes"])
    make = Packets.tcp if protocol == "tcp" else Packets.udp
    packets = make(mtu_bytes=mtu, ip_version=version)
    header = int(lab["known"]["link_header_bytes"])
    return replace(packets, overhead_bytes=packets.overhead_bytes + header)


def messages_per_round(plan: Mapping[str, Any]) -> int:
    """Return how many messages the generator sends in a round.

    Examples
    --------
    >>> messages_per_round({"sizes": [64, 1024]})
    2
    >>> messages_per_round({"sizes": [64], "train_messages": 16, "train_gap_ns": 5000})
    33
    """
    train = int(plan.get("train_messages", 0))
    return len(plan["sizes"]) * (1 + (_turns_of_a_size(plan) - 1) * train)


def _turns_of_a_size(plan: Mapping[str, Any]) -> int:
    """Return of how many turns a size has in a round one is a single message."""
    if not plan.get("train_messages"):
        return 1
    return 3 if plan.get("train_gap_ns") else 2


def single_interval_ns(plan: Mapping[str, Any]) -> int:
    """Return the time from one single message to the next, in the mean; 0: closed loop.

    Examples
    --------
    >>> single_interval_ns({"interval_ns": 1000, "train_messages": 16})
    2000
    """
    return int(plan["interval_ns"]) * _turns_of_a_size(plan)


def known_transit_ns(
    protocol: str, size_bytes: int, lab: Mapping[str, Any] | None
) -> float | None:
    """Return how long a message takes between a lab's hosts, idle; None: not known.

    Each link of the way, of which all have one rate, sends a packet when it has
    all of it. While one packet is on the second link, the next is on the first, so
    every link beyond the first adds the time of the longest packet.

    Parameters
    ----------
    protocol : {'tcp', 'udp'}
    size_bytes : int
    lab : mapping or None
        ``lab`` of run.json.

    Examples
    --------
    >>> known = {"kind": "emulator", "rate_bps": 8_000_000, "delay_ns": 0}
    >>> known |= {"mtu_bytes": 1500, "link_header_bytes": 0}
    >>> lab = {"known": known, "addresses": {"a": "10.0.0.1"}}
    >>> known_transit_ns("udp", 2952, lab)  # 1500 and 1500 bytes
    3000000.0
    >>> known_transit_ns("udp", 2952, lab | {"known": known | {"links": 2}})
    4500000.0
    """
    if not lab or lab["known"]["kind"] == "veth":
        return None
    known = lab["known"]
    delay_ns = float(known["delay_ns"])
    # what a token bucket holds back stands in the qdisc stage
    if not known["rate_bps"] or known.get("rate_is_token_bucket"):
        return delay_ns
    packets, more_links = packets_of(lab, protocol), int(known.get("links", 1)) - 1
    bytes_ = float(packets.wire_bytes(size_bytes))
    bytes_ += more_links * float(packets.longest_bytes(size_bytes))
    return delay_ns + bytes_ * 8 * NS_PER_SECOND / float(known["rate_bps"])


def setup_of(run: Mapping[str, Any]) -> RunSetup:
    """Read a run.json.

    Raises
    ------
    ValueError
        If it does not hold what latprof writes.
    """
    try:
        return _setup_of(run)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        text = f"run.json is not as latprof writes it ({type(error).__name__}: {error})"
        raise ValueError(text) from error


def _setup_of(run: Mapping[str, Any]) -> RunSetup:
    plan = (run.get("workload") or {}).get("plan")
    lab = run.get("lab")
    setup = RunSetup(
        host=str(run.get("host", "")),
        kernel=str(run.get("kernel", "")),
        link=_link(lab["known"]) if lab else "",
        packets={p: packets_of(lab, p) for p in ("tcp", "udp")} if lab else {},
    )
    if not plan:
        return setup
    return replace(
        setup,
        reply_mode=reply_mode_of(plan["reply_bytes"]),
        messages_per_round=messages_per_round(plan),
        interval_ns=single_interval_ns(plan),
    )


def _link(known: Mapping[str, Any]) -> str:
    names = (
        "kind",
        "rate_bps",
        "burst_bytes",
        "qdisc",
        "delay_ns",
        "loss",
        "mtu_bytes",
    )
    return ", ".join(f"{name} {known[name]}" for name in names if known[name])


def common_setup(setups: Mapping[str, RunSetup]) -> tuple[RunSetup, list[str]]:
    """Return what all runs have in common, and where they differ, a line each.

    A fit over runs with different reply modes or links would be of neither.

    Examples
    --------
    >>> setups = {"a": RunSetup(reply_mode="echo"), "b": RunSetup(reply_mode=18)}
    >>> common, differences = common_setup(setups)
    >>> common.reply_mode, differences
    (None, ["reply_mode: 'echo' (a), 18 (b)"])
    """
    if not setups:
        return RunSetup(), []
    kept, differences = {}, []
    for name in (f.name for f in fields(RunSetup)):
        values = {run: getattr(setup, name) for run, setup in setups.items()}
        distinct = {repr(value): run for run, value in reversed(values.items())}
        if len(distinct) == 1:
            kept[name] = next(iter(values.values()))
        elif name != "packets":  # the link gives it
            text = ", ".join(f"{v} ({run})" for v, run in reversed(distinct.items()))
            differences.append(f"{name}: {text}")
    return RunSetup(**kept), differences


# Of the offered rate: an open loop that sends less has fallen behind.
FALLS_BEHIND = 0.95
# Of the link's rate: what a suggested interval leaves room for.
_ROOMY = 0.9


class Load(NamedTuple):
    """What an open loop sends in one direction.

    Attributes
    ----------
    mean_bytes : float
        Of a message on the wire, its packets' headers with it.
    bits_per_second : float
    """

    mean_bytes: float
    bits_per_second: float


def offered_load(
    sizes: Sequence[int],
    interval_ns: float,
    lab: Mapping[str, Any] | None,
    protocol: str,
) -> Load:
    """Return the load of messages whose sizes are equally frequent.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of the messages.
    interval_ns : float
        Between two of them, in the mean.
    lab : mapping or None
        ``lab`` of run.json: how its link cuts messages into packets.
    protocol : {'tcp', 'udp'}

    Examples
    --------
    >>> known = {"mtu_bytes": 1500, "link_header_bytes": 0}
    >>> lab = {"known": known, "addresses": {"a": "10.0.0.1"}}
    >>> offered_load([1472, 2952], 1_000_000, lab, "udp")
    Load(mean_bytes=2250.0, bits_per_second=18000000.0)
    """
    mean = float(np.mean(packets_of(lab, protocol).wire_bytes(list(sizes))))
    return Load(mean, 8 * mean * NS_PER_SECOND / interval_ns)


def overloads(run: Mapping[str, Any], protocols: Sequence[str]) -> Iterator[str]:
    """Say where a run's open loop offers more than its reader or its link can take.

    Parameters
    ----------
    run : mapping
        ``workload`` and ``lab`` of run.json.
    protocols : sequence of {'tcp', 'udp'}
    """
    plan, lab = run["workload"]["plan"], run["lab"]
    yield from _slow_readers(plan or {})
    limit = _limit(run)
    if not limit:
        return
    of_a_turn = _messages_per_turn(plan)
    every_ns = plan["interval_ns"] / of_a_turn
    for protocol in protocols:
        loads = _loads(run, protocol)
        most = max(loads, key=lambda load: load.bits_per_second)
        if most.bits_per_second > limit:
            way = "each way" if loads[0] == loads[1] else "to its responder"
            way = "back from its responder" if most != loads[0] else way
            held = protocol == "tcp" or _holds_senders(lab)
            yield (
                f"{protocol} offers {rate(most.bits_per_second, 3)} {way} (mean "
                f"{most.mean_bytes / 1000:.1f} kB with headers every "
                f"{given_duration(every_ns)}) to a link of "
                f"{given_rate(limit)}: "
                f"{_effect(most, lab['known'], held=held)}; use --interval "
                f"{_roomy_interval(most, limit, of_a_turn)} or smaller --sizes"
            )


def _slow_readers(plan: Mapping[str, Any]) -> Iterator[str]:
    """Say where the responder's work takes longer than the next message to come."""
    work_ns = plan.get("think_ns", 0) + plan.get("busy_ns", 0)
    if not work_ns or not plan["interval_ns"]:
        return
    every_ns = plan["interval_ns"] / _messages_per_turn(plan)
    if work_ns > every_ns:
        yield (
            f"the responder works {given_duration(work_ns)} for a message, and one is "
            f"due every {given_duration(every_ns)}: each waits "
            f"{given_duration(work_ns - every_ns)} longer than the one before; use a "
            "longer --interval, or a shorter --busy or --think"
        )


def _limit(run: Mapping[str, Any]) -> float:
    """Return the rate of the link of a run's open loop; 0 where there is no such."""
    plan, lab = run["workload"]["plan"], run["lab"]
    if not plan or not plan.get("interval_ns") or not lab:
        return 0.0
    return float(lab["known"]["rate_bps"] or 0)


def _loads(run: Mapping[str, Any], protocol: str) -> tuple[Load, Load]:
    """Return what a run's open loop offers to its responder, and what comes back."""
    plan, lab = run["workload"]["plan"], run["lab"]
    replies = plan["sizes"] if plan["reply_bytes"] is None else [plan["reply_bytes"]]
    every_ns = plan["interval_ns"] / _messages_per_turn(plan)
    requests, back = (
        offered_load(sizes, every_ns, lab, protocol)
        for sizes in (plan["sizes"], replies)
    )
    return requests, back


def _messages_per_turn(plan: Mapping[str, Any]) -> float:
    """Return how many messages the generator sends in an interval, in the mean."""
    return messages_per_round(plan) / (len(plan["sizes"]) * _turns_of_a_size(plan))


def utilisation(run: Mapping[str, Any], protocol: str) -> float | None:
    """Return the share of its link's rate that an open loop offers, the larger way.

    Parameters
    ----------
    run : mapping
        ``workload`` and ``lab`` of run.json.
    protocol : {'tcp', 'udp'}

    Returns
    -------
    float or None
        Above 1 its queue grows; None of a closed loop and of a link without a rate.
    """
    limit = _limit(run)
    if not limit:
        return None
    return max(load.bits_per_second for load in _loads(run, protocol)) / limit


def _holds_senders(lab: Mapping[str, Any]) -> bool:
    """Whether datagrams wait in their sender's own qdisc, and so in its send buffer."""
    shaped = lab["known"]["rate_is_token_bucket"]
    return bool(shaped and (lab["known"]["kind"] == "veth" or lab["link"]["qdisc"]))


def _effect(load: Load, known: Mapping[str, Any], *, held: bool) -> str:
    limit = float(known["rate_bps"])
    if not held:
        # what cannot leave fills the queue, and what finds it full is lost
        excess = load.bits_per_second - limit
        fills = 8 * known["queue_bytes"] * NS_PER_SECOND / excess
        lost = 100 * excess / load.bits_per_second
        return (
            f"its queue is full after {duration(fills)}, then {lost:.0f}% of the "
            "bytes are lost"
        )
    late = load.bits_per_second / limit - 1
    return f"with each second messages leave {duration(1e9 * late)} later"


def _roomy_interval(load: Load, limit: float, messages: float) -> str:
    needed_ns = 8 * messages * load.mean_bytes * NS_PER_SECOND / limit
    return given_duration(_round_up(needed_ns / _ROOMY)).replace(" ", "")


def _round_up(ns: float) -> float:
    """Return the next of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(ns))
    return next(float(f * power) for f in (1, 2, 5, 10) if f * power >= ns)


def message_loss(packets: float, loss: float, burst: float = 0.0) -> float:
    """Return the share of messages of so many packets that lose one or more.

    Parameters
    ----------
    packets : float
        Of a message, sent one after the other.
    loss : float
        Share of packets that are lost.
    burst : float
        Mean packets in a burst of losses, by a chain of two states; 0: losses are
        independent.

    Examples
    --------
    >>> round(message_loss(45, 0.01), 3), round(message_loss(45, 0.01, burst=3), 3)
    (0.364, 0.147)
    """
    if not loss:
        return 0.0
    begins = loss / ((1 - loss) * burst) if burst else loss
    return float(1 - (1 - loss) * (1 - begins) ** (packets - 1))


def expected_losses(run: Mapping[str, Any], protocols: Sequence[str]) -> Iterator[str]:
    """Say how many of the largest messages lose a packet where the link loses some."""
    plan, lab = run["workload"]["plan"], run["lab"]
    loss = lab and lab["known"]["loss"]
    if not plan or not loss:
        return
    burst = (lab.get("link") or {}).get("loss_burst") or 0.0
    size = max(plan["sizes"])
    for protocol in protocols:
        packets = float(packets_of(lab, protocol).packets(size))
        if packets > 1:
            share = 100 * message_loss(packets, loss, burst)
            what = "is lost" if protocol == "udp" else "has some sent again"
            yield (
                f"{100 * loss:g}% of packets are lost each way: a {protocol} message "
                f"of {plural(int(packets), 'packet')} {what} in {share:.0f}%"
            )
