"""A line for each stage, each direction, one-way and round trip, from messages.csv.

The factor of a round trip is that of the recorded reply mode, and it is put to the
test: it stands for two crossings, one after the other, so both directions must grow
with size. Where one does not, the round trip's bandwidth is withheld and the reason
given; a direction by itself needs no factor. Slopes of stages that are a link's rate
are distinguished from those of the hosts' work; of all, the best is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.fit.caveats import (
    refused,
    slowed_by_losses,
    slowed_by_sender,
    with_hosts,
    with_range,
    without_rate,
    without_rate_caveats,
)
from latprof_analysis.fit.estimates import Fit, ReplyMode
from latprof_analysis.fit.line import fit_one_way, fit_round_trips
from latprof_analysis.fit.natural import DEVICE, Natural, are_free, fit_natural
from latprof_analysis.fit.rounds import Floats
from latprof_analysis.fit.trips import (
    FLOW,
    against_factor,
    checked_columns,
    counted,
    paired,
    rounds_of,
)
from latprof_analysis.fit.wire import Packets
from latprof_analysis.read.rows import Columns
from latprof_analysis.stages import APART, BLANK, STAGES, STAMPS
from latprof_analysis.stats import Result
from latprof_analysis.stats.quantiles import quantiles_by

if TYPE_CHECKING:
    import pandas as pd

_COUNTS = ("protocol", "retransmits", "packets")
# Of transit's growth with size, what the stages before may grow by: the last bytes
# of a long message then did not wait for the first to be sent.
_HANDED_OVER = 0.15
# By how much hosts stamp the last packet of a message of many sooner or later than
# that of one: 2 us were seen, 0.04% of what 65 kB take at 100 Mbit/s.
_AROUND_STAMPS_NS = 5e3
# What is fitted of each direction, and between which stamps. These are of a message's
# last packet, and the others' time for the link passes in earlier stages: only the
# last two hold all of it, and so give a bandwidth.
_WHOLE = {"one_way": ("send", "ready"), "end_to_end": ("send", "read")}
QUANTITIES = dict(zip(STAGES, pairwise(STAMPS), strict=True)) | _WHOLE
# Of messages whose sizes are as they came.
_BETWEEN = QUANTITIES | {DEVICE: ("queue", "arrive")}
# Of these as many as have most messages are fitted, requests and replies first.
_MOST_DIRECTIONS = 4
_NEEDED = (*FLOW, "kind", "size_bytes", "send_ns", "read_ns")
# The link alone; with the stack of both hosts; with their copying, too.
_BY_PURITY = ("transit", *_WHOLE)


@dataclass(frozen=True)
class StageFit(Result):
    """The fit of one quantity of one direction.

    Stages of the hosts have a slope, what a byte adds to them, but no bandwidth: a
    message of many packets passes through several at a time. Transit has one where
    messages were handed over whole, and is then the link's own, without the hosts'
    work on each byte: measured within 0.3%, once 1.1%, at 20 to 1000 Mbit/s, where
    the round trip is 0.5 to 14% low.
    """

    protocol: str
    direction: str  # a kind of message, who sent to whom, or 'round_trip'
    # A key of QUANTITIES, or 'response_time' of a round trip: it holds the responder's
    # own time.
    quantity: str
    fit: Fit  # its factor is what was applied
    factor_reason: str  # why this factor
    left_out: dict[str, int]  # messages that are not in the fit, by why


def fit_stages(
    messages: Columns | pd.DataFrame,
    *,
    reply_mode: ReplyMode | None,
    packets: Mapping[str, Packets] | None = None,
    in_turn: Columns | pd.DataFrame | None = None,
    quantities: Sequence[str] = tuple(QUANTITIES),
    confidence: float = 0.95,
    resamples: int = 400,
    seed: int = 1,
) -> list[StageFit]:
    """Fit D = a S + b to each stage of each direction, and to the round trip.

    A stage is taken from its two stamps: where one is missing, the message is left
    out and counted, since its time stands for two stages. Warm-up is left out. The
    n-th message of a size counts as of round n.

    Parameters
    ----------
    messages : DataFrame or Columns
        Of messages.csv.
    reply_mode : 'echo', int or None
        As the run recorded it (`reply_mode_of`). None: it is not known, as of
        traffic that was only watched; then round trips give no bandwidth.
    packets : mapping of str to Packets, optional
        By protocol, how messages are cut. Without it bandwidth is that of payload.
    in_turn : DataFrame or Columns, optional
        Messages without gaps, among which replies are paired with their requests,
        where `messages` are some of many.
    quantities : sequence of str
        Keys of ``QUANTITIES``.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(1)
    >>> size = np.tile([64, 1000, 4000, 16000, 64000], 30)
    >>> send = 10_000_000 * np.arange(150) + 1
    >>> ready = send + 1_000_000 + 80 * size + rng.integers(0, 9000, 150)
    >>> messages = pd.DataFrame({
    ...     "protocol": "udp", "source_address": "a", "source_port": 1,
    ...     "destination_address": "b", "destination_port": 2, "kind": "message",
    ...     "size_bytes": size, "send_ns": send, "ready_ns": ready, "read_ns": ready})
    >>> found, = fit_stages(messages, reply_mode="echo", quantities=["one_way"])
    >>> found.direction, found.fit.factor
    ('message', 1)
    >>> round(found.fit.bandwidth_bits_per_second.value / 1e6)
    100
    """
    rows = checked_columns(messages, _NEEDED)
    turns = rows if in_turn is None else checked_columns(in_turn, _NEEDED)
    unknown = [name for name in quantities if name not in QUANTITIES]
    if unknown:
        names = ", ".join(QUANTITIES)
        raise ValueError(f"quantities must be of {names}; got {unknown[0]}")
    draw: dict[str, Any] = {
        "confidence": confidence,
        "resamples": resamples,
        "seed": seed,
    }
    found: list[StageFit] = []
    for (protocol,), at in rows.split("protocol"):
        if protocol is None:
            continue
        options = draw | {"packets": (packets or {}).get(protocol)}
        found += _one_ways(protocol, rows.at(at), quantities, options)
        in_protocol = turns.at(turns.are("protocol", protocol))
        found += _round_trip(protocol, in_protocol, reply_mode, options)
    return found


def link_rates(fits: Iterable[StageFit]) -> dict[tuple[str, str], StageFit | None]:
    """Return by protocol and direction the fit whose bandwidth is the link's.

    Transit where messages were handed over whole, else the one-way delay, else the
    delay from end to end; None where all of them are refused. No factor is needed,
    and a reply's direction has its own figure. On emulated links of 20 to 1000
    Mbit/s transit was within 0.3% in 14 of 15 directions and 1.1% high in one, with
    idle CPUs; one-way delays were 0.1 to 0.8% low at 20 and 100 Mbit/s
    (`Fit.host_share` has by how much they may be), round trips up to 14% at 1000.

    Parameters
    ----------
    fits : iterable of StageFit
        As `fit_stages` returns them.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> size = np.tile([64, 1000, 4000, 16000, 64000], 30)
    >>> send = 10_000_000 * np.arange(150) + 1
    >>> xmit = send + 2000 + size  # copied first, at 1 ns a byte
    >>> arrive = xmit + 1_000_000 + 80 * size
    >>> messages = pd.DataFrame({
    ...     "protocol": "udp", "source_address": "a", "source_port": 1,
    ...     "destination_address": "b", "destination_port": 2, "kind": "message",
    ...     "size_bytes": size, "send_ns": send, "xmit_ns": xmit,
    ...     "arrive_ns": arrive, "ready_ns": arrive, "read_ns": arrive})
    >>> found = link_rates(fit_stages(messages, reply_mode=None))["udp", "message"]
    >>> found.quantity, round(found.fit.bandwidth_bits_per_second.value / 1e6, 3)
    ('transit', 100.0)
    """
    chosen: dict[tuple[str, str], StageFit | None] = {}
    for stage in fits:
        if stage.quantity not in _BY_PURITY:
            continue
        key = stage.protocol, stage.direction
        best = chosen.setdefault(key, None)
        rank = _BY_PURITY.index(stage.quantity)
        purer = best is None or rank < _BY_PURITY.index(best.quantity)
        if purer and stage.fit.bandwidth_bits_per_second:
            chosen[key] = stage
    return chosen


def with_rate(fit: Fit, quantity: str, way: Columns) -> Fit:
    """Return the fit of a quantity of one direction, with a rate if it has one.

    Stages of hosts have none. Transit has one where messages were handed over
    whole, as a datagram is: then it holds the time of all their bytes, and none of
    the hosts' work on them.
    """
    slowed = slowed_way(way, fit) if quantity in _BY_PURITY else None
    if slowed:
        return refused(fit, slowed)
    if quantity in _WHOLE:
        return with_hosts(fit, hosts_byte_ns(way, last=_WHOLE[quantity][1]))
    if quantity != "transit" or fit.model != "line":
        return without_rate(fit)
    transit_ns = max(_growth(way, "xmit", "arrive"), 1)
    handed_over = _growth(way, "send", "xmit") / transit_ns
    if handed_over > _HANDED_OVER:
        return without_rate(fit)
    stamps = min(1.0, _AROUND_STAMPS_NS / transit_ns)
    bare = replace(fit, host_share=stamps, caveats=without_rate_caveats(fit))
    return with_range(bare, max(0.0, handed_over) + stamps)


def hosts_byte_ns(way: Columns, last: str) -> float:
    """Return what hosts took for a byte until a stamp, in ns; 0 if it is not known.

    It is known of datagrams: hosts work before and after the qdisc and the link do,
    not meanwhile.

    Parameters
    ----------
    way : Columns
        Messages of one direction.
    last : str
        The stamp, 'ready' or 'read'.
    """
    if "protocol" not in way.texts or not way.are("protocol", "udp").all():
        return 0.0
    ends = _ends(way, 0.5, ("send", "queue"), ("arrive", last))
    if ends is None:
        return 0.0
    (least, short_ns), (most, long_ns) = ends
    return (long_ns - short_ns) / (most - least)


def slowed_way(messages: Columns, fit: Fit) -> str | None:
    """Say why delays of these messages may be TCP's own doing; None if not."""
    there = {*messages.numbers, *messages.texts}
    if not {*_COUNTS} <= there or not messages.are("protocol", "tcp").any():
        return None
    again = int((messages.numbers["retransmits"] > 0).sum())
    found, slope = slowed_by_losses(len(messages), again), fit.slope_ns_per_byte
    if found or slope is None:
        return found
    packets = float(messages.numbers["packets"].max(initial=0))
    waited_ns = _growth(messages, "queue", "arrive")
    return slowed_by_sender(packets, slope.value / fit.factor, waited_ns)


def _directions(rows: Columns) -> list[tuple[str, NDArray[np.intp]]]:
    """Return the directions with most messages: kinds, or who sent to whom."""
    kinds = [(k, at) for (k,), at in rows.split("kind") if k not in (None, *APART)]
    most = sorted(kinds, key=lambda one: -len(one[1]))[:_MOST_DIRECTIONS]
    known = ("request", "reply")
    return sorted(most, key=lambda one: (*(one[0] != kind for kind in known), one[0]))


def _one_ways(
    protocol: str,
    rows: Columns,
    quantities: Sequence[str],
    options: Mapping[str, Any],
) -> Iterator[StageFit]:
    for direction, at in _directions(rows):
        way = rows.at(at)
        size = way.numbers["size_bytes"]
        natural = _natural(way) if are_free(size[size > 0]) else None
        for quantity in quantities:
            first, last = (f"{stamp}_ns" for stamp in QUANTITIES[quantity])
            if first not in way.numbers or last not in way.numbers:
                continue
            begin, end = way.numbers[first], way.numbers[last]
            # without the sender's half the size is missing, too
            missing = (begin == BLANK) | (end == BLANK) | (size == BLANK)
            backwards = ~missing & (end < begin)
            empty = size == 0
            kept = ~missing & ~backwards & ~empty
            left_out = counted(
                {
                    "a stamp is missing": missing,
                    "stamps run backwards": backwards,
                    "it has no bytes": empty,
                }
            )
            if natural:
                fit = fit_natural(natural, quantity)
            else:
                columns = (
                    size[kept],
                    (end - begin)[kept],
                    rounds_of(size[kept], way.numbers["send_ns"][kept]),
                )
                fit = fit_one_way(*columns, **options)
                fit = with_rate(fit, quantity, way)
            yield StageFit(
                protocol=protocol,
                direction=direction,
                quantity=quantity,
                fit=fit,
                factor_reason="one direction: each byte crosses once",
                left_out=left_out,
            )


def _natural(way: Columns) -> Natural:
    """Return messages of one direction whose sizes are as they came."""
    way = way.at((way.numbers["size_bytes"] > 0) & (way.numbers["send_ns"] != BLANK))

    def column(name: str) -> Floats:
        return way.floats(name) if name in way.numbers else np.full(len(way), np.nan)

    at = {stamp: column(f"{stamp}_ns") for stamp in STAMPS}
    delays = {name: at[last] - at[first] for name, (first, last) in _BETWEEN.items()}
    return Natural(
        size_bytes=way.floats("size_bytes"),
        t_ns=way.floats("send_ns"),
        delays_ns={name: np.where(ns >= 0, ns, np.nan) for name, ns in delays.items()},
        packets=column("packets"),
        resent=column("retransmits") > 0,
        stream="protocol" in way.texts and bool(way.are("protocol", "tcp").any()),
    )


def _round_trip(
    protocol: str,
    rows: Columns,
    reply_mode: ReplyMode | None,
    options: Mapping[str, Any],
) -> Iterator[StageFit]:
    trips, left_out = paired(rows)
    if not trips["size_bytes"].size and not left_out:
        return
    columns = (
        trips["size_bytes"],
        trips["rtt_ns"],
        rounds_of(trips["size_bytes"], trips["send_ns"]),
    )
    if reply_mode is None:
        fit = fit_one_way(*columns, **options)
        against: str | None = "the reply mode was not recorded, so no factor is known"
        factor_reason = "none applied: the reply mode was not recorded"
    else:
        fit = fit_round_trips(*columns, reply_mode=reply_mode, **options)
        ways = (rows.at(rows.are("kind", kind)) for kind in ("request", "reply"))
        hosts_ns = sum(hosts_byte_ns(way, "read") for way in ways)
        fit = with_hosts(fit, hosts_ns / fit.factor)
        against = slowed_way(rows, fit) or against_factor(
            trips, reply_mode, bent=fit.model == "hinge"
        )
        echo = "a full echo: each byte crosses twice"
        short = f"replies of {reply_mode} bytes: each byte of a request crosses once"
        factor_reason = f"recorded as {echo if reply_mode == 'echo' else short}"
    if against and fit.model == "line":
        fit = refused(fit, against)
    elif against:
        fit = replace(without_rate(fit), caveats=(*fit.caveats, against))
    yield StageFit(
        protocol, "round_trip", "response_time", fit, factor_reason, left_out
    )


def _growth(way: Columns, first: str, last: str) -> float:
    """Return by how much the largest messages take longer between two stamps, in ns.

    By 10th percentiles; infinite where it is not known.
    """
    ends = _ends(way, 0.1, (first, last))
    return ends[1][1] - ends[0][1] if ends else math.inf


def _ends(
    way: Columns, p: float, *between: tuple[str, str]
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Return the smallest size and the largest, each with a quantile of its times.

    Times are those between pairs of stamps, added up, of messages that have all of
    them; None where there are not two sizes of such.
    """
    stamps = [f"{stamp}_ns" for pair in between for stamp in pair]
    if not {*stamps} <= {*way.numbers}:
        return None
    size = way.numbers["size_bytes"]
    columns = [way.numbers[name] for name in stamps]
    known = np.logical_and.reduce([values != BLANK for values in (size, *columns)])
    took = sum((b - a)[known] for a, b in zip(columns[::2], columns[1::2], strict=True))
    sizes, quantiles = quantiles_by(size[known], took, p)
    if len(sizes) < 2:
        return None
    least, most = ((float(sizes[i]), float(quantiles[i])) for i in (0, -1))
    return least, most
