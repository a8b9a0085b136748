"""Exchanges as the rows of exchanges.csv."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.read.schema import EXCHANGES, of_one_host
from latprof_analysis.records.exchanges import Found
from latprof_analysis.records.joiner import Joiner
from latprof_analysis.records.message_rows import (
    WORK_NS,
    Ints,
    Rows,
    Text,
    blank_zeros,
    flow_columns,
)
from latprof_analysis.records.process_names import Names, as_cells
from latprof_analysis.records.turn import FOREVER, Turn
from latprof_analysis.stages import (
    BLANK,
    EXCHANGE,
    HANDSHAKE,
    OUTCOMES,
    PROBE_STATISTICS,
    UNANSWERED,
)

COLUMNS = of_one_host(EXCHANGES)
# Counts of what a thread did have 32 bits, of which the last is not known.
_LONGEST_WORK_NS = WORK_NS << 32
_LEAST_SLEEP_NS = 2 * WORK_NS
KINDS = [EXCHANGE, "warmup", "train", "loaded", HANDSHAKE, UNANSWERED]


class ExchangeRows(Rows):
    """Rows of exchanges.csv."""

    COLUMNS = COLUMNS

    @property
    def are_exchanges(self) -> bool:
        """Whether they are; else all are turns that have no other."""
        kinds, _ = self.texts["kind"]
        return bool((kinds < KINDS.index(HANDSHAKE)).all())


def exchange_rows(joiner: Joiner, found: Found) -> ExchangeRows:
    """Make rows of request and reply turns, tables of `Turn`."""
    request, reply = found.request, found.reply
    place = joiner.flows.index(request[Turn.FLOW].view("u8"))
    ports, words = flow_columns(joiner.flows, place)
    pids = {
        "client_pid": _either(request[Turn.SENDER_PID], reply[Turn.READER_PID]),
        "server_pid": _either(request[Turn.READER_PID], reply[Turn.SENDER_PID]),
    }
    numbers = {
        "client_port": ports["source_port"],
        "server_port": ports["destination_port"],
        **{name: blank_zeros(values) for name, values in pids.items()},
        **_counts(request, reply),
        **_times(request, reply),
        # nothing is left out for it: what is long would meet it more often
        PROBE_STATISTICS: np.full(len(place), BLANK),
        "waited_ns": _blank_where_none(found.waited_ns, len(place)),
    }
    client, server = _names(joiner, request, reply, pids)
    texts: dict[str, Text] = {
        "protocol": words["protocol"],
        "way": joiner.conversations.ways(place, client, server),
        "kind": (_kinds(found), KINDS),
        "outcome": (_outcomes(found), list(OUTCOMES)),
        "client_address": words["source_address"],
        "server_address": words["destination_address"],
        "client_comm": as_cells(client),
        "server_comm": as_cells(server),
    }
    return ExchangeRows(numbers, texts)


def _names(
    joiner: Joiner, request: Ints, reply: Ints, pids: dict[str, Ints]
) -> tuple[Names, Names]:
    """Name both ends as their messages do, by when they sent or read."""
    asked_ns = _either(_known(request[Turn.FIRST_SEND_NS]), reply[Turn.LAST_READ_NS])
    seen_ns = _either(request[Turn.LAST_READ_NS], _known(reply[Turn.FIRST_SEND_NS]))
    return (
        joiner.names.of(pids["client_pid"], asked_ns),
        joiner.names.of(pids["server_pid"], seen_ns),
    )


def _outcomes(found: Found) -> NDArray[np.int32]:
    if not found.outcome:
        return np.full(found.request.shape[1], -1, np.int32)
    return np.array([OUTCOMES.index(name) for name in found.outcome], np.int32)


def _blank_where_none(values: Ints, count: int) -> Ints:
    return values if len(values) else np.full(count, BLANK)


def _kinds(found: Found) -> NDArray[np.int32]:
    request, reply = found.request, found.reply
    own = KINDS.index(found.kind)
    kinds = np.where(request[Turn.WARMUP] == 1, KINDS.index("warmup"), own)
    for name, turn in (("train", Turn.TRAIN), ("loaded", Turn.LOADED)):
        own = (request[turn] | reply[turn]) == 1
        kinds = np.where(own, KINDS.index(name), kinds)
    return np.asarray(kinds, np.int32)


def _either(values: Ints, others: Ints) -> Ints:
    return np.where(values > 0, values, others)


def _counts(request: Ints, reply: Ints) -> dict[str, Ints]:
    return {
        "requests": request[Turn.MESSAGES],
        "request_bytes": request[Turn.BYTES],
        "replies": reply[Turn.MESSAGES],
        "reply_bytes": reply[Turn.BYTES],
        "retransmits": request[Turn.RETRANSMITS] + reply[Turn.RETRANSMITS],
        "request_first_sequence": request[Turn.FIRST_SEQUENCE],
        "request_last_sequence": request[Turn.LAST_SEQUENCE],
        "reply_first_sequence": reply[Turn.FIRST_SEQUENCE],
        "reply_last_sequence": reply[Turn.LAST_SEQUENCE],
    }


def _times(request: Ints, reply: Ints) -> dict[str, Ints]:
    """Return stamps and the times between them; of a pipeline only the whole."""
    sent, replied = _known(request[Turn.FIRST_SEND_NS]), reply[Turn.FIRST_SEND_NS]
    replied = _known(replied)
    ready, read = request[Turn.READY_NS], request[Turn.LAST_READ_NS]
    got = reply[Turn.LAST_READ_NS]
    # where tickets of TLS may stand before it, nothing says where the reply begins
    unsplit = (reply[Turn.UNSPLIT] == 1) & (reply[Turn.MESSAGES] > 1)
    replied = np.where(unsplit, 0, replied)
    everywhere = np.ones(len(sent), bool)
    pipelined = (replied > 0) & (np.maximum(ready, read) > replied)
    waited = _between(ready, read, ~pipelined)
    wakeup = np.where(waited == BLANK, BLANK, request[Turn.WAKEUP_NS])
    came = _between(replied, got, ~pipelined)
    work = _between(read, replied, ~pipelined)
    unread = np.where(
        came == BLANK, BLANK, _between(reply[Turn.READY_NS], got, ~pipelined)
    )
    return {
        "pipelined": np.where(pipelined, 1, BLANK),
        "request_sent_ns": blank_zeros(sent),
        "request_ready_ns": blank_zeros(ready),
        "request_read_ns": blank_zeros(read),
        "reply_sent_ns": blank_zeros(replied),
        "reply_read_ns": blank_zeros(got),
        "request_way_ns": _between(sent, ready, ~pipelined),
        "server_ns": _between(ready, replied, ~pipelined),
        "reply_way_ns": came,
        "server_queue_ns": waited,
        "server_wakeup_ns": wakeup,
        "server_work_ns": work,
        **_work_parts(work, reply[Turn.RUN_NS], reply[Turn.WAITED_NS]),
        "reply_pauses_ns": np.where(came == BLANK, BLANK, reply[Turn.PAUSES_NS]),
        "client_queue_ns": unread,
        "client_wakeup_ns": np.where(unread == BLANK, BLANK, reply[Turn.WAKEUP_NS]),
        "until_pause_ns": _between(
            sent, np.minimum(reply[Turn.PAUSE_NS], got), everywhere
        ),
        "response_ns": _between(sent, got, everywhere),
    }


def _work_parts(work: Ints, run: Ints, waited: Ints) -> dict[str, Ints]:
    """Return what the server's thread did in this time; the rest of it was sleep."""
    known = (work != BLANK) & (work < _LONGEST_WORK_NS) & (run != BLANK)
    waits = np.clip(waited, 0, np.maximum(work, 0))
    runs = np.clip(run, 0, work - waits)
    # of neither count the last digit is known
    rest = work - waits - runs
    runs = np.where(rest < _LEAST_SLEEP_NS, work - waits, runs)
    return {
        "server_cpu_ns": np.where(known, runs, BLANK),
        "server_cpu_wait_ns": np.where(known, waits, BLANK),
        "server_sleep_ns": np.where(known, work - waits - runs, BLANK),
    }


def _known(stamps: Ints) -> Ints:
    return np.where(stamps == FOREVER, 0, stamps)


def _between(since: Ints, until: Ints, known: np.ndarray) -> Ints:
    return np.where(known & (since > 0) & (until > 0), until - since, BLANK)
