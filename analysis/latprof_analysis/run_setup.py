"""What a run's documents say of how it was made: what a fit needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from latprof_analysis.fits.fit_result import ReplyMode
from latprof_analysis.text import NS_PER_SECOND
from latprof_analysis.wire import Packets


@dataclass(frozen=True)
class RunSetup:
    """How a run was made.

    Attributes
    ----------
    host, kernel : str
        Empty where the run does not tell.
    reply_mode : 'echo' or int or None
        None where no load generator tells how the responder answered.
    sizes_per_round : int
        Messages of the generator's rounds; 0 where there are none.
    interval_ns : int
        Of an open loop; 0 in a closed one.
    link : str
        The lab's link in one line, empty without a lab.
    packets : dict of str to Packets
        By protocol, how messages are cut on the lab's link.
    """

    host: str = ""
    kernel: str = ""
    reply_mode: ReplyMode | None = None
    sizes_per_round: int = 0
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
    version = 6 if ":" in lab["addresses"]["a"] else 4
    mtu = int(lab["known"]["mtu_bytes"])
    make = Packets.tcp if protocol == "tcp" else Packets.udp
    packets = make(mtu_bytes=mtu, ip_version=version)
    header = int(lab["known"]["link_header_bytes"])
    return replace(packets, overhead_bytes=packets.overhead_bytes + header)


def known_transit_ns(
    protocol: str, size_bytes: int, lab: Mapping[str, Any] | None
) -> float | None:
    """Return how long a message takes on a lab's link that is idle; None: not known.

    Parameters
    ----------
    protocol : {'tcp', 'udp'}
    size_bytes : int
    lab : mapping or None
        ``lab`` of run.json.
    """
    if not lab or lab["known"]["kind"] == "veth":
        return None
    known = lab["known"]
    delay_ns = float(known["delay_ns"])
    if not known["rate_bps"] or known.get("rate_is_token_bucket"):
        return delay_ns
    wire_bytes = float(packets_of(lab, protocol).wire_bytes(size_bytes))
    return delay_ns + wire_bytes * 8 * NS_PER_SECOND / float(known["rate_bps"])


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
        sizes_per_round=len(plan["sizes"]),
        interval_ns=int(plan["interval_ns"]),
    )


def _link(known: Mapping[str, Any]) -> str:
    told = ("kind", "rate_bps", "burst_bytes", "qdisc", "delay_ns", "loss", "mtu_bytes")
    return ", ".join(f"{name} {known[name]}" for name in told if known[name])


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
        elif name != "packets":  # the link tells it
            told = ", ".join(f"{v} ({run})" for v, run in reversed(distinct.items()))
            differences.append(f"{name}: {told}")
    return RunSetup(**kept), differences
