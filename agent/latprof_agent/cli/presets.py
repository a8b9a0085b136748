"""Presets: experiments that were published, each with one option.

To add one, add a row to PRESETS.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from latprof_analysis import units
from latprof_analysis.say import say_error

from latprof_agent.cli.given_words import (
    given_options,
    own_words,
    parsed_again,
    shown_form,
    without,
)
from latprof_agent.cli.option_rules import excluded_by

SCALES = "0.0001", "100"
_OTHER_SERVERS = {"--to", "--redis", "--endpoint"}


@dataclass(frozen=True)
class Preset:
    """What an experiment sets.

    `options` are by name, without dashes, with their text; None for a flag. `scaled`
    are whole numbers, in the option's own unit, that `--scale` multiplies; 1 is as it
    was published, and with `scale` it takes about a minute. Each value of those in
    `swept` was a run of its own.
    """

    repeats: str
    options: Mapping[str, str | None]
    scaled: Mapping[str, int] = field(default_factory=dict)
    swept: Mapping[str, str] = field(default_factory=dict)
    scale: float = 1.0
    form: str = "pingpong"  # of `latprof run`

    def words(self, scale: float | None) -> Iterator[tuple[str, list[str]]]:
        """Yield each option, and the words that set it."""
        for name, text in self.options.items():
            yield name, [f"--{name}", *([] if text is None else [text])]
        for name, values in self.swept.items():
            yield name, ["--sweep", f"{name}={values}"]
        for name, whole in self.scaled.items():
            number = max(1, round(whole * (self.scale if scale is None else scale)))
            yield name, [f"--{name}", str(number)]


# CLEAR states only its least and largest size, 18 and 65535 bytes; steps are 2 KiB.
_CLEAR_SIZES = (18, *range(2048, 65535, 2048), 65535)


def _tmsn(hosts: int, interval: str) -> Preset:
    """Return a set-up that TMSN published: what it said of it, and what it did not.

    Among 10 machines 100 KiB every 10 ms, 0.74 Gbit/s into each, took 2.8 ms, and
    200 KiB 187: its link carried at least the one, and not 1.47 Gbit/s.
    """
    return Preset(
        f"TMSN's stress test as published, among {hosts} machines: 100 messages of 1 "
        f"to 200 KiB to each other every {interval}, echoes and heartbeats, ten tests "
        "(its link is not told: ours has 1 Gbit/s)",
        {"hosts": str(hosts), "interval": interval, "rate": "1gbit", "delay": "0"},
        {"tests": 10},
        scale=0.5 if hosts == 3 else 0.1,
        form="mesh",
    )


PRESETS = {
    "clear": Preset(
        "CLEAR: TCP ping-pong of 18 to 65535 bytes in its wire format, means of 5 "
        "times 100 round trips of each size, and its result text",
        {
            "protocol": "tcp",
            "wire": "clear",
            "sizes": ",".join(map(str, _CLEAR_SIZES)),
        },
        {"rounds": 500},
        scale=0.5,
    ),
    "timewarp": Preset(
        "Time Warp, 1988: two runs of 51424 messages at random times, each with a "
        "short acknowledgement, at most 2 and at most 20 without one, to a reader that "
        "is busy; its latencies A, B, C and D side by side (its sizes, gaps and work "
        "are not told, and its 32 nodes are two here: these are ours)",
        {
            "protocol": "tcp",
            "sizes": "128,256,512,1024",
            "reply": "18",
            "interval": "1ms",
            "poisson": None,
            "busy": "700us",
            "rate": "0",
            "delay": "0",
            "all": None,
        },
        {"rounds": 51424 // 4},
        {"max-acks": "2,20"},
        scale=0.5,
    ),
    "tmsn-3-50ms": _tmsn(3, "50ms"),
    "tmsn-10-50ms": _tmsn(10, "50ms"),
    "tmsn-10-10ms": _tmsn(10, "10ms"),
    "tmsn": Preset(
        "TMSN's stress test shortened, among 3 machines every 10 ms, which it did not "
        "publish: our link carries 100 KiB at that interval and not 200",
        {
            "hosts": "3",
            "interval": "10ms",
            "rate": "250mbit",
            "delay": "0",
        },
        {"tests": 10},
        scale=0.5,
        form="mesh",
    ),
    "proxystore": Preset(
        "ProxyStore's remote operations: GET, SET, EXISTS and EVICT of 1 kB to 10 MB "
        "on redis and on an endpoint, five times each",
        {
            "backend": "redis,proxystore",
            "rate": "0",
            "delay": "0",
        },
        {"rounds": 5},
        form="ops",
    ),
    "mcdtp": Preset(
        "MCDTP: 1 GB in UDP datagrams of 1400 bytes over 1, 2, 4 and 8 channels "
        "(over a WAN there, over a bare veth here)",
        {"protocol": "udp", "channels": "1,2,4,8"},
        {"volume": 10**9},
        form="bulk",
    ),
}


def add_preset(group: Any, names: Sequence[str]) -> None:
    """Add the options that choose one of these."""
    described = "; ".join(f"{name}: {PRESETS[name].repeats}" for name in names)
    group.add_argument(
        "--preset",
        choices=names,
        help="set options as a published experiment had them; what is given beside it "
        f"wins. {described} (default: none)",
    )
    group.add_argument(
        "--scale",
        type=units.within(units.number, *SCALES),
        metavar="SHARE",
        help="of a preset's rounds; 1: as it was published (default: for about a "
        "minute)",
    )


def with_preset(options: argparse.Namespace) -> argparse.Namespace:
    """Return the options with those of the preset that were not given, if any."""
    if options.preset is None:
        if options.scale is not None:
            options.parser.error("--scale: needs --preset")
        return options
    words = without(own_words(options), ("--preset", "--scale"))
    taken = _taken(options, words)
    preset = PRESETS[options.preset]
    chosen = [
        word
        for name, its_words in preset.words(options.scale)
        if f"--{name}" not in taken
        for word in its_words
    ]
    line = " ".join(["latprof run", *shown_form(options), *chosen])
    say_error(f"preset {options.preset}: {line}")
    return parsed_again(options, [*chosen, *words])


def _taken(options: argparse.Namespace, words: list[str]) -> set[str]:
    """Return the options that were given or are swept, and those that these exclude."""
    given = {*given_options(words), *(f"--{one.name}" for one in options.sweep)}
    taken = {*given, *excluded_by(given)}
    if taken & _OTHER_SERVERS:
        taken.add("--backend")  # each comes with its own
    for group in options.parser._mutually_exclusive_groups:
        names = {
            name for action in group._group_actions for name in action.option_strings
        }
        if names & taken:
            taken |= names
    return taken
