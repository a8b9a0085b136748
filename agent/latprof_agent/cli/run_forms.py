"""The forms of `latprof run`: what each is for, and which options it has.

`latprof run` sends requests and replies, `run mesh`, `run ops` and `run bulk` other
traffic of latprof's own, `run attach` watches what runs already, and `run -- COMMAND`
runs a program.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from latprof_analysis.say import say_error

from latprof_agent.cli import RUN_FORMS, bulk_options, mesh_options, ops_options
from latprof_agent.cli.given_words import END, given_options, without
from latprof_agent.cli.lab_options import FOR_LAB
from latprof_agent.cli.presets import PRESETS
from latprof_agent.filters.kinds import KINDS as FILTERS

PING_PONG, COMMAND, ATTACH = "pingpong", "command", "attach"

_TO = ("to", "secret_file", "responder_bytes")
_OUTPUT = (
    *("out", "name", "parquet", "json", "all", "quiet", "no_recording", "ring_bytes"),
    *("sweep", "repeat"),
)
_PROBES = ("story", "no_probes")
_OWN = (*FOR_LAB, *_TO, *_OUTPUT, "preset", "scale")

# of `run` alone, when attaching had no form; a port may also be one of a COMMAND's
_ATTACHED_BY = ("pid", "comm", "cgroup", "port", "ports")


class Form(NamedTuple):
    """What it is called with, and its options by name."""

    usage: str
    text: str
    options: tuple[str, ...]
    examples: tuple[str, ...]


FORMS = {
    PING_PONG: Form(
        "latprof run [mesh | ops | bulk | attach] [options]\n"
        "       latprof run [options] -- COMMAND [ARG ...]",
        """\
Send requests and replies between two network namespaces joined by a link of
known rate and delay, and show where each of them spent its time.

"""
        + "".join(f"  run {name:<8}{what}\n" for name, what in RUN_FORMS.items())
        + "  run -- COMMAND  run a program (help: latprof run --help --)\n",
        (
            *("protocol", "sizes", "reply", "wire", "nagle", "duration", "rounds"),
            *("warmup", "interval", "train", "train_gap", "poisson", "spin", "timeout"),
            *("client_cpu", "server_cpu", "pieces", "load", "think", "busy"),
            *("priority", "max_acks", *_PROBES, *_OWN),
        ),
        (
            "latprof run                         # 100 Mbit/s and 1 ms each way",
            "latprof run --rate 0 --delay 0      # joined by plain veth",
            "latprof run --protocol udp --interval 2ms --spin  # 70 of 100 Mbit/s",
            "latprof run --train 16              # LogGP: L, o, g and G",
            "latprof run --qdisc tbf --rate 20mbit --protocol tcp",
            "latprof run --load tcp:4 --protocol tcp  # idle, and under load",
            "latprof run --loss 1% --protocol udp --sizes 64,1400",
            "latprof run --to 192.0.2.7 --secret-file secret  # `latprof echo` there",
            "latprof run --story 5ms --duration 1  # then latprof story runs/latest",
            "latprof run --sweep rate=10mbit,100mbit --repeat 3 --duration 1s",
            "latprof run --preset clear --scale 0.01",
        ),
    ),
    "mesh": Form(
        "latprof run mesh [options]",
        mesh_options.TEXT,
        (
            *("protocol", "sizes", "reply", "nagle", "warmup", "interval", "poisson"),
            *("spin", "timeout", *mesh_options.OWN, *_PROBES, *_OWN),
        ),
        (
            "latprof run mesh --hosts 10 --interval 10ms --sizes 1024",
            "latprof run mesh --to 192.0.2.7,192.0.2.8 --secret-file secret",
        ),
    ),
    "ops": Form(
        "latprof run ops [options]",
        ops_options.TEXT,
        (
            *("rounds", "warmup", "client_cpu", "server_cpu", *ops_options.OWN),
            *(*_PROBES, *_OWN),
        ),
        (
            "latprof run ops --payload-sizes 1k,1m  # redis beside the floor",
            "latprof run ops --to 192.0.2.7 --secret-file secret",
        ),
    ),
    "bulk": Form(
        "latprof run bulk [options]",
        bulk_options.TEXT,
        (
            *("protocol", "duration", "client_cpu", "server_cpu"),
            *(*bulk_options.OWN, *_OWN),
        ),
        (
            "latprof run bulk --protocol udp     # 1, 2, 4 and 8 channels",
            "latprof run bulk --find-rate 0.1% --rate 1gbit --qdisc tbf",
            "latprof run bulk --to 192.0.2.7 --secret-file secret",
        ),
    ),
    ATTACH: Form(
        "latprof run attach [options]",
        """\
Watch sockets that are there already, and show where their messages spent their
time, until --duration is over, Ctrl-C, or the processes of --pid have ended.
The other ends of TCP connections on this host are watched, too, unless a NAT is
between.
""",
        ("duration", "with", "lend_until_eof", "story", *_OUTPUT),
        (
            "latprof run attach --port 80 --duration 5s",
            "latprof run attach --comm curl --duration 5s",
            "latprof run attach --port 80 --duration 5s --with ssh:root@192.0.2.7",
            "latprof run attach --remote 10.0.0.0/8 --not port=22 --duration 5s",
        ),
    ),
    COMMAND: Form(
        "latprof run [options] -- COMMAND [ARG ...]",
        """\
Run a COMMAND, at one end of a link of known rate and delay or on this host, and
show where the messages of its sockets spent their time.
""",
        (
            *("server", "no_lab", "user", "ports", "protocol", *FOR_LAB, *_PROBES),
            *_OUTPUT,
        ),
        (
            "latprof run --server 'iperf3 -s -1' -- iperf3 -c {server} -t 2",
            "latprof run --no-lab --name curl -- curl http://127.0.0.1/",
        ),
    ),
}
# In the manual and for shells, which know no COMMAND from others.
WITHOUT_NAME = ""
FORMS[WITHOUT_NAME] = FORMS[PING_PONG]._replace(
    options=(*FORMS[PING_PONG].options, *FORMS[COMMAND].options),
    examples=(*FORMS[PING_PONG].examples, *FORMS[COMMAND].examples),
)
# Shown by --help-all and in the manual: the rest is what most runs need.
RARE = (
    *("wire", "nagle", "train_gap", "poisson", "spin", "timeout", "client_cpu"),
    *("server_cpu", "pieces", "think", "busy", "priority", "max_acks", "warmup"),
    *("leaf", "burst", "queue", "loss_burst", "mtu", "ipv6", "no_offloads"),
    *("emulator", "congestion", "seed", "scale", "parquet", "no_recording"),
    *("ring_bytes", "no_probes", "heartbeat_interval", "redis_parser"),
    *("receive_buffer", "send_way", "receive_way", "trial", "probes", "preset"),
    *("datagram", "direction", "endpoint", "tests", "repeat", "responder_bytes"),
)


def form_of(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return which form is meant by what stands behind `run`, and the words of it.

    Spellings of before 2026-11-27 are taken, with a line that says the new one.
    """
    kept = list(words)
    if kept and kept[0] in (PING_PONG, *RUN_FORMS):
        return kept[0], kept[1:]
    given = list(given_options(kept))
    if END in kept:
        return COMMAND, kept
    old = _after(kept, "--workload")
    if old in (PING_PONG, *RUN_FORMS):
        kept = without(kept, ("--workload",))
        _say_new(f"--workload {old}", old)
        return old, kept
    attaching = [f"--{name}" for name in _ATTACHED_BY]
    if found := next((name for name in given if name in attaching), ""):
        _say_new(f"run {found}", ATTACH)
        return ATTACH, kept
    preset = PRESETS.get(_after(kept, "--preset"))
    return (preset.form if preset else PING_PONG), kept


def _say_new(old: str, form: str) -> None:
    new = "latprof run" if form == PING_PONG else f"latprof run {form}"
    say_error(f"{old} is `{new}` from now on")


def _after(words: Sequence[str], option: str) -> str:
    """Return the value of an option, or nothing."""
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        name, given, value = word.partition("=")
        if name == option:
            return value if given else after
    return ""


_NAMES = {PING_PONG: "run", COMMAND: "run -- COMMAND", WITHOUT_NAME: "run"}


def where_else(form: str) -> dict[str, str]:
    """Return by option what has it and this form has not."""
    own = FORMS[form].options
    found: dict[str, str] = {}
    for other, its in FORMS.items():
        name = _NAMES.get(other, f"run {other}")
        its_own = set(its.options) - set(own)
        if other == ATTACH:
            its_own |= {"not", *FILTERS}
        for option in sorted(its_own):
            word = "port" if option == "ports" else option.replace("_", "-")
            found.setdefault(f"--{word}", f"latprof {name}")
    return found


class Group:
    """A group of a parser that takes these options only; it is shown if it has any.

    The others are there with their defaults, as if nobody gave them.
    """

    def __init__(
        self,
        parser: argparse.ArgumentParser,
        names: Sequence[str],
        title: str,
        of: Group | None = None,
    ) -> None:
        self._parser, self._names = parser, names
        self._title, self._of = title, of
        self._made: Any = None

    def make(self) -> Any:
        """Return the parser's own group."""
        if self._made is None:
            self._made = (
                self._of.make().add_mutually_exclusive_group()
                if self._of
                else self._parser.add_argument_group(self._title)
            )
        return self._made

    def add_argument(self, *words: str, **settings: Any) -> None:
        """Declare an option; without it its name has the default."""
        name = settings.get("dest") or words[-1].lstrip("-").replace("-", "_")
        if name in self._names:
            self.make().add_argument(*words, **settings)
        else:
            flag = False if settings.get("action") == "store_true" else None
            self._parser.set_defaults(**{name: settings.get("default", flag)})

    def add_mutually_exclusive_group(self) -> Group:
        """Options of which one may be given."""
        return Group(self._parser, self._names, "", of=self)


def presets_of(form: str) -> Iterator[str]:
    """Names of those that this form has."""
    form = form or PING_PONG
    return (name for name, preset in PRESETS.items() if preset.form == form)
