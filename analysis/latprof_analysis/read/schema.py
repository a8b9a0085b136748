"""How a delimited format is documented; and so the tables of a run folder.

A format has its columns, and what must hold in a row. Times of a run are
nanoseconds; stamps are CLOCK_MONOTONIC of the host that ran.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.stages import BLANK, LOADED, PROBE_STATISTICS, STAGES, STAMPS
from latprof_analysis.stats.kernel_histogram import edges_ns

if TYPE_CHECKING:
    import pandas as pd


Mask = NDArray[np.bool_]
# Which rows are wrong, and why the i-th is.
Wrong = tuple[Mask, Callable[[int], str]]
Texts = Mapping[str, tuple[NDArray[np.int32], Sequence[str]]]


@dataclass(frozen=True)
class Column:
    """A column of a schema.

    Parameters
    ----------
    kind : {'count', 'number', 'text'}
        A whole number from 0 (Int64); a number from 0 (float64); text (category).
    needed : bool
        A file without the column is not of this format.
    blank : bool
        A cell may be empty: there is no value.
    about : str
        What it says, for people.
    """

    name: str
    kind: Literal["count", "number", "text"]
    needed: bool = True
    blank: bool = False
    about: str = ""


@dataclass(frozen=True)
class Schema:
    """The columns of a format, and what else must hold in each row.

    `check` has the columns of numbers that are there: whole ones are BLANK where
    there is none, others NaN. `check_texts` has those of text, as `Columns` gives them.
    `ends_whole`: its writer ends every line. `spaced`: a space follows each delimiter.
    `ruler`: lines that begin so are no rows. `end`: a line that begins so and what
    follows are none. `empty_rows`: an empty line is a row. `guarded`: texts are as
    `csv_cells.guarded` leaves them.
    """

    columns: tuple[Column, ...]
    check: Callable[[Mapping[str, NDArray[Any]]], list[Wrong]] | None = None
    delimiter: str = ","
    ends_whole: bool = False
    spaced: bool = False
    ruler: bytes = b""
    end: bytes = b""
    guarded: bool = False
    check_texts: Callable[[Texts], list[Wrong]] | None = None
    empty_rows: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in their order."""
        return tuple(column.name for column in self.columns)

    @property
    def texts(self) -> tuple[str, ...]:
        """Names of those of text."""
        return tuple(c.name for c in self.columns if c.kind == "text")

    def limited(self, names: Collection[str] | None) -> list[Column]:
        """Return the columns of these names; all, if none are given."""
        return [c for c in self.columns if names is None or c.name in names]


Numbers = Mapping[str, NDArray[np.int64]]


def _text(name: str, about: str, *, needed: bool = False) -> Column:
    return Column(name, "text", needed=needed, blank=not needed, about=about)


def _count(name: str, about: str, *, needed: bool = False) -> Column:
    return Column(name, "count", needed=needed, blank=not needed, about=about)


def _backwards(numbers: Numbers) -> list[Wrong]:
    """Find messages whose stamps run backwards: a clock has stepped, or a mix-up."""
    names = [f"{stamp}_ns" for stamp in STAMPS if f"{stamp}_ns" in numbers]
    if not names:
        return []
    latest = numbers[names[0]]
    bad = np.zeros(len(latest), bool)
    for name in names[1:]:
        stamp = numbers[name]
        bad |= (stamp < latest) & (stamp != BLANK)
        latest = np.maximum(latest, stamp)
    return [(bad, lambda i: _which_backwards(numbers, names, i))]


def _which_backwards(numbers: Numbers, names: list[str], i: int) -> str:
    for first, second in combinations(names, 2):
        before, after = numbers[first][i], numbers[second][i]
        if BLANK not in (before, after) and after < before:
            return f"{second} {after} is before {first} {before}"
    raise AssertionError("no stamp runs backwards")


# Of the CSV: the readers here, and Parquet, have the name itself.
_GUARDED = "; with ' before it where it begins as a formula: = + - @"
MESSAGES = Schema(
    (
        _text("protocol", "tcp or udp", needed=True),
        _text("source_address", "of the sender"),
        _count("source_port", "of the sender"),
        _text("destination_address", "of the receiver"),
        _count("destination_port", "of the receiver"),
        _count("translated", "1 where a NAT changed addresses or ports on its way"),
        _text(
            "kind",
            "request, reply, heartbeat, warmup, or message; of a train: train, train "
            "reply; beside a load: loaded, loaded reply",
            needed=True,
        ),
        _text("way", "sender -> receiver, by name, the port at the server's end"),
        _count("sequence", "TCP: offset of the last byte, from 1; UDP: number"),
        Column(
            "size_bytes",
            "count",
            blank=True,
            about="what the send call gave; blank where only the receiver was seen",
        ),
        _count("packets", "in which it went"),
        _count("retransmits", "segments of it that were sent again"),
        _count("hops", "routers on its way"),
        _count("queue_bytes_at_arrival", "what waited in the socket before it"),
        _count("sender_pid", "process that sent it"),
        _text("sender_comm", f"name of the process that sent it{_GUARDED}"),
        _count("reader_pid", "process that read it"),
        _text("reader_comm", f"name of the process that read it{_GUARDED}"),
        _count("reader_thread", "thread of it that read"),
        _text("reader_thread_comm", f"name of that thread{_GUARDED}"),
        # of joined folders
        _text("sender_host", f"host that sent it, of a joined folder{_GUARDED}"),
        _text("reader_host", f"host that got it, of a joined folder{_GUARDED}"),
        *(_count(f"{stamp}_ns", f"stamp {stamp}") for stamp in STAMPS),
        *(_count(f"{stage}_ns", f"stage {stage}") for stage in STAGES),
        # of joined folders
        _count("transit_low_ns", "transit between two hosts is at least this"),
        _count("transit_high_ns", "... and at most; blank where nothing bounds it"),
        _count(
            "transit_queueing_ns",
            "part of transit above the least of its way between the two hosts, which "
            "rests on no assumption of how both ways compare",
        ),
        _text(
            "clocks",
            "what is known of two hosts' clocks then: good, approximate, one "
            "direction only, broken, unknown; below the error: transit is too short "
            "for them; contradicted: it arrived before it left, whatever they are off",
        ),
        _count("wakeup_ns", "part of receive_queue: runnable without a CPU"),
        _count("end_to_end_ns", "read less created, or less send"),
        _count(PROBE_STATISTICS, "1 if sent while latprof's own cost was measured"),
    ),
    check=_backwards,
    ends_whole=True,
    guarded=True,
)


# Columns that only joined folders have: there messages are of several hosts.
OF_HOSTS = frozenset(
    {
        *("sender_host", "reader_host", "client_host", "server_host", "clocks"),
        *("transit_low_ns", "transit_high_ns", "transit_queueing_ns"),
        *("request_way_low_ns", "request_way_high_ns"),
        *("reply_way_low_ns", "reply_way_high_ns"),
    }
)


def of_one_host(schema: Schema) -> tuple[str, ...]:
    """Name the columns that a folder of one host has."""
    return tuple(name for name in schema.names if name not in OF_HOSTS)


def alone(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the round trips that are no part of a train, and beside no load."""
    rows = rows[rows["train"].isna()] if "train" in rows else rows
    return rows[rows["phase"] != LOADED] if "phase" in rows else rows


def _lost_or_timed(numbers: Numbers) -> list[Wrong]:
    if not {"rtt_ns", "lost"} <= numbers.keys():
        return []
    lost = numbers["lost"]
    bad = (lost <= 0) & (numbers["rtt_ns"] == BLANK)
    odd = lost > 1
    return [
        (bad, lambda _: "it is not lost, and has no rtt_ns"),
        (odd, lambda i: f"lost must be 0 or 1, got {lost[i]}"),
    ]


ROUND_TRIPS = Schema(
    (
        _text("protocol", "tcp or udp", needed=True),
        _count("sequence", "number of the request", needed=True),
        _count("size_bytes", "of the request", needed=True),
        _count("reply_bytes", "of the reply"),
        _count("intended_ns", "when it should have been sent"),
        _count("sent_ns", "when it was sent"),
        _count("received_ns", "when its reply was read; blank if lost"),
        Column(
            "rtt_ns",
            "count",
            blank=True,
            about="from sent_ns in a closed loop, from intended_ns in an open one",
        ),
        _count("lost", "1 if no reply came", needed=True),
        _count(PROBE_STATISTICS, "1 if sent while latprof's own cost was measured"),
        # of runs with trains (--train)
        _count("train", "number of the train that it is part of; blank: it went alone"),
        _count("train_messages", "how many messages its train has"),
        _count("train_gap_ns", "from one send of the train to the next; 0: at once"),
        _count("send_returned_ns", "when the one send call that took it whole ended"),
        _count(
            "receive_called_ns",
            "when the receive call began that found its reply there",
        ),
        _text("source", "host of a mesh that sent it; other runs have no such column"),
        _text("destination", "host of a mesh that answered"),
        _count("heartbeat", "1 of a heartbeat of a mesh, else 0"),
        _count("test", "number of the mesh's test, as in the run's run.json"),
        # of runs with a load (--load)
        _text("phase", "idle, or loaded: beside the flows of the load"),
    ),
    check=_lost_or_timed,
    ends_whole=True,
    guarded=True,
)

EXCHANGES = Schema(
    (
        _text("protocol", "tcp or udp", needed=True),
        _text("way", "client -> server, by name, with the server's port", needed=True),
        _text(
            "kind",
            "exchange; or warmup, train, loaded: in no figure; of other_turns.csv: "
            "unanswered (a request), handshake (of TLS)",
            needed=True,
        ),
        _text("client_address", "of who asks"),
        _count("client_port", "of who asks"),
        _text("server_address", "of who answers"),
        _count("server_port", "of who answers"),
        _count("client_pid", "process that asks"),
        _text("client_comm", f"name of the process that asks{_GUARDED}"),
        _count("server_pid", "process that answers"),
        _text("server_comm", f"name of the process that answers{_GUARDED}"),
        # of joined folders
        _text("client_host", f"host that asks, of a joined folder{_GUARDED}"),
        _text("server_host", f"host that answers, of a joined folder{_GUARDED}"),
        _count("requests", "send calls of the request turn"),
        _count("request_bytes", "of the request turn"),
        _count("replies", "send calls of the reply turn"),
        _count("reply_bytes", "of the reply turn"),
        _count("retransmits", "retransmitted segments, both ways"),
        _count("request_first_sequence", "sequence of the request's first message"),
        _count("request_last_sequence", "... and of its last"),
        _count("reply_first_sequence", "sequence of the reply's first message"),
        _count("reply_last_sequence", "... and of its last"),
        _count("pipelined", "1 if the reply began before the request was whole there"),
        _count("request_sent_ns", "stamp: first send of the request"),
        _count("request_ready_ns", "stamp: its last byte readable at the server"),
        _count("request_read_ns", "stamp: ... and read"),
        _count("reply_sent_ns", "stamp: first send of the reply"),
        _count("reply_read_ns", "stamp: the client has read its last byte"),
        _count("request_way_ns", "from request_sent to request_ready"),
        _count("server_ns", "from request_ready to reply_sent"),
        _count("reply_way_ns", "from reply_sent to reply_read"),
        # of joined folders
        _text("clocks", "of what is known of two hosts' clocks then, as of messages"),
        *(
            _count(f"{way}_{bound}_ns", f"{way} between two hosts is at {word} this")
            for way in ("request_way", "reply_way")
            for bound, word in (("low", "least"), ("high", "most"))
        ),
        _count("server_queue_ns", "part of server: readable, and not yet read"),
        _count("server_wakeup_ns", "part of server_queue: runnable without a CPU"),
        _count("server_work_ns", "part of server: from request_read to reply_sent"),
        _count(
            "server_cpu_ns",
            "part of server_work: its thread was on a CPU; blank where another thread "
            "answered than the one that had read",
        ),
        _count("server_cpu_wait_ns", "part of server_work: runnable without a CPU"),
        _count(
            "server_sleep_ns",
            "part of server_work: its thread slept; with interrupts that took its CPU, "
            "where it slept, too, and the kernel counts these apart",
        ),
        _count("reply_pauses_ns", "part of reply_way: the server had not sent on"),
        _count(
            "client_queue_ns",
            "part of reply_way: the reply's last byte was readable, and not yet read",
        ),
        _count("client_wakeup_ns", "part of client_queue: runnable without a CPU"),
        Column(
            "response_ns",
            "count",
            blank=True,
            about="from request_sent to reply_read; blank without the client's end",
        ),
        _count(
            "until_pause_ns",
            "response_ns, but until the reply's first pause of 100 ms or longer: what "
            "came later may be no part of it",
        ),
        _text("outcome", "of what is unanswered: what ended the waiting"),
        _count("waited_ns", "... after so long since the request was sent"),
        _count(PROBE_STATISTICS, "1 if sent while latprof's own cost was measured"),
    ),
    ends_whole=True,
    guarded=True,
)


# So many of a bucket's values may be added up 32,000 times.
_MOST_OF_A_BUCKET = 2**48


def _no_bucket(numbers: Numbers) -> list[Wrong]:
    low, count = numbers["bucket_low_ns"], numbers["count"]
    edges = edges_ns()[:-1]
    at = np.minimum(np.searchsorted(edges, low), edges.size - 1)
    bad, many = edges[at] != low, count > _MOST_OF_A_BUCKET
    return [
        (bad, lambda i: f"no bucket begins at {low[i]} ns"),
        (many, lambda i: f"count must be less than 2**48, got {count[i]}"),
    ]


# Of all traffic, where messages and exchanges are a sample: `latprof watch --record`.
# One row for each bucket that holds something, of each group, quantity and interval.
HISTOGRAMS = Schema(
    (
        _text("protocol", "tcp or udp; each of these: blank if not told apart by it"),
        _text("role", "of this host's end: client or server"),
        _text("service", "port of the server's end, or other"),
        _text("cgroup", "path of this host's end's control group"),
        _text("comm", "name of this host's end's process"),
        _text("remote", "subnet of the other end"),
        _text("interface", "that it went by"),
        _text("namespace", "of Kubernetes, of this host's end's pod"),
        _text("pod", "of this host's end"),
        _text("container", "of this host's end"),
        _text("workload", "what that pod or container is one of"),
        _text("quantity", "a stage of messages, or what else was timed", needed=True),
        _count("begin_ns", "when the interval began"),
        _count("end_ns", "when it ended"),
        _count("bucket_low_ns", "durations from this on", needed=True),
        _count("bucket_high_ns", "to below this; blank: whatever is longer"),
        _count("count", "how many there were", needed=True),
        _count("sum_ns", "of all in the interval; in the row of its lowest bucket"),
        _count("unmeasured", "of all: how many stand for pauses; in that row, too"),
    ),
    check=_no_bucket,
    ends_whole=True,
    guarded=True,
)
