"""A line for each stage, each direction, one-way and round trip, from messages.csv.

The factor of a round trip is that of the recorded reply mode, and it is put to the
test: it stands for two crossings, one after the other, so both directions must grow
with size. Where one does not, the round trip's bandwidth is withheld and the reason
told; what each direction says by itself needs no factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from latprof_analysis.fits.fit import fit_round_trips
from latprof_analysis.fits.fit_result import Fit, ReplyMode
from latprof_analysis.fits.one_way import fit_one_way
from latprof_analysis.fits.rate_caveats import refused, with_hosts, without_rate
from latprof_analysis.fits.stage_rates import hosts_byte_ns, slowed_way, with_rate
from latprof_analysis.fits.trips import (
    FLOW,
    against_factor,
    counted,
    pair_round_trips,
    rounds_of,
)
from latprof_analysis.wire import Packets

# What is fitted of each direction, and between which stamps.
QUANTITIES = {
    "application": ("created_ns", "send_ns"),
    "send_queue": ("send_ns", "queue_ns"),
    "qdisc": ("queue_ns", "xmit_ns"),
    "transit": ("xmit_ns", "arrive_ns"),
    "receive_stack": ("arrive_ns", "ready_ns"),
    "receive_queue": ("ready_ns", "read_ns"),
    "one_way": ("send_ns", "ready_ns"),
    "end_to_end": ("send_ns", "read_ns"),
}
# Of these as many as have most messages are fitted, requests and replies first.
_MOST_DIRECTIONS = 4
_NEEDED = (*FLOW, "kind", "size_bytes", "send_ns", "read_ns")


@dataclass(frozen=True)
class StageFit:
    """The fit of one quantity of one direction.

    Attributes
    ----------
    protocol : str
    direction : str
        A kind of message, who sent to whom, or 'round_trip'.
    quantity : str
        A key of ``QUANTITIES``, or 'response_time' of a round trip: it holds the
        responder's own time.
    fit : Fit
        ``fit.factor`` is what was applied. Stages of the hosts have a slope, what a
        byte adds to them, but no bandwidth: a message of many packets passes through
        several at a time. Transit has one where messages were handed over whole,
        and is then the link's own, without the hosts' work on each byte: measured
        within 0.3%, once 1.1%, at 20 to 1000 Mbit/s, where the round trip is 0.5
        to 14% low.
    factor_reason : str
        Why this factor.
    left_out : dict of str to int
        Messages that are not in the fit, by why.
    """

    protocol: str
    direction: str
    quantity: str
    fit: Fit
    factor_reason: str
    left_out: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for JSON."""
        return {
            "protocol": self.protocol,
            "direction": self.direction,
            "quantity": self.quantity,
            "fit": self.fit.as_dict(),
            "factor_reason": self.factor_reason,
            "left_out": dict(self.left_out),
        }


def fit_stages(
    messages: pd.DataFrame,
    *,
    reply_mode: ReplyMode | None,
    packets: Mapping[str, Packets] | None = None,
    in_turn: pd.DataFrame | None = None,
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
    messages : DataFrame
        Columns of messages.csv.
    reply_mode : 'echo', int or None
        As the run recorded it (`reply_mode_of`). None: it is not known, as of
        traffic that was only watched; then no bandwidth is told from round trips.
    packets : mapping of str to Packets, optional
        By protocol, how messages are cut. Without it bandwidth is that of payload.
    in_turn : DataFrame, optional
        Messages without gaps, among which replies are paired with their requests,
        where `messages` are some of many.
    quantities : sequence of str
        Keys of ``QUANTITIES``.

    Examples
    --------
    >>> import numpy as np
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
    _check_columns(messages)
    if in_turn is not None:
        _check_columns(in_turn)
    unknown = [name for name in quantities if name not in QUANTITIES]
    if unknown:
        names = ", ".join(QUANTITIES)
        raise ValueError(f"quantities must be of {names}; got {unknown[0]}")
    options: dict[str, Any] = {
        "confidence": confidence,
        "resamples": resamples,
        "seed": seed,
    }
    found: list[StageFit] = []
    for protocol, rows in messages.groupby("protocol", sort=True):
        cut = (packets or {}).get(str(protocol))
        found += _one_ways(str(protocol), rows, cut, quantities, options)
        turns = rows if in_turn is None else in_turn[in_turn["protocol"] == protocol]
        found += _round_trip(str(protocol), turns, cut, reply_mode, options)
    return found


def _directions(rows: pd.DataFrame) -> list[str]:
    """Name the directions of messages: kinds, or who sent to whom."""
    counts = rows.loc[rows["kind"] != "warmup", "kind"].value_counts()
    found = sorted(counts[counts > 0].head(_MOST_DIRECTIONS).index)
    return sorted(found, key=lambda kind: (kind != "request", kind != "reply"))


def _one_ways(
    protocol: str,
    rows: pd.DataFrame,
    packets: Packets | None,
    quantities: Sequence[str],
    options: dict[str, Any],
) -> Iterator[StageFit]:
    for direction in _directions(rows):
        way = rows[rows["kind"].eq(direction)]
        for quantity in quantities:
            first, last = QUANTITIES[quantity]
            if way.empty or first not in way or last not in way:
                continue
            delay = way[last] - way[first]
            # without the sender's half the size is missing, too
            missing, backwards = delay.isna() | way["size_bytes"].isna(), delay < 0
            empty = way["size_bytes"] == 0
            kept = way[~missing & ~backwards & ~empty]
            left_out = counted(
                {
                    "a stamp is missing": missing,
                    "stamps run backwards": backwards,
                    "it has no bytes": empty,
                }
            )
            columns = (
                kept["size_bytes"],
                delay[kept.index],
                rounds_of(kept["size_bytes"], kept["send_ns"]),
            )
            fit = fit_one_way(*columns, packets=packets, **options)
            yield StageFit(
                protocol=protocol,
                direction=direction,
                quantity=quantity,
                fit=with_rate(fit, quantity, way),
                factor_reason="one direction: each byte crosses once",
                left_out=left_out,
            )


def _round_trip(
    protocol: str,
    rows: pd.DataFrame,
    packets: Packets | None,
    reply_mode: ReplyMode | None,
    options: dict[str, Any],
) -> Iterator[StageFit]:
    trips, left_out = pair_round_trips(rows)
    if trips.empty and not left_out:
        return
    columns = (
        trips["size_bytes"],
        trips["rtt_ns"],
        rounds_of(trips["size_bytes"], trips["send_ns"]),
    )
    if reply_mode is None:
        fit = fit_one_way(*columns, packets=packets, **options)
        against: str | None = "the reply mode was not recorded, so no factor is known"
        factor_reason = "none applied: the reply mode was not recorded"
    else:
        fit = fit_round_trips(
            *columns, reply_mode=reply_mode, packets=packets, **options
        )
        ways = (rows[rows["kind"].eq(kind)] for kind in ("request", "reply"))
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


def _check_columns(messages: pd.DataFrame) -> None:
    missing = [name for name in _NEEDED if name not in messages]
    if missing:
        raise ValueError(f"messages must have the column {missing[0]}, got none")
    if not messages.index.is_unique:
        raise ValueError("messages must have a unique index; use reset_index()")
