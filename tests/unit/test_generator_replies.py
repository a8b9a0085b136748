"""Which of the generator's messages a datagram back from another host is of."""

from __future__ import annotations

import os

import numpy as np
import pytest
from latprof_agent.sinks.round_trip_rows import TRAIN_COLUMNS
from latprof_agent.workload.generator_log import GeneratorLog, log_in
from latprof_analysis.records.message_rows import REPLY, TRAIN_REPLY, WARMUP
from test_whole_messages import FIELDS, PORT, WARMUP_FLAG, call, rows_of

NAMES = tuple(dict.fromkeys((*FIELDS, *TRAIN_COLUMNS)))
SENT, READ = 100_000, 150_000  # the log's first message


def log_of(records, **how):
    """A log that the client wrote; the responder's clock is another."""
    descriptor = os.memfd_create("log")
    os.write(descriptor, f"{' '.join(NAMES)}\n".encode())
    rows = [[record.get(name, 0) for name in NAMES] for record in records]
    os.write(descriptor, np.array(rows, "<u8").tobytes())
    log = GeneratorLog(
        *(log_in(descriptor), "udp", PORT),
        **{"open_loop": False, "agreed": False, "one_clock": False},
        **how,
    )
    log.read()
    os.close(descriptor)
    return log


def message(number, received_ns, **values):
    told = {"sequence": number, "size_bytes": 64, "reply_bytes": 64}
    told |= {"sent_ns": SENT, "request_end": number, "reply_created_ns": 7}
    return told | {"received_ns": received_ns} | values


def reply(read_ns):
    """What this end alone saw of one: no more than that it came."""
    unseen = dict.fromkeys(("send_ns", "queue_ns", "xmit_ns"), 0)
    return call(0, 64, read_ns - 50, kind=REPLY, read_ns=read_ns, **unseen)


def kinds(log, reads_ns):
    rows = rows_of(*(reply(read_ns) for read_ns in reads_ns))
    rows.texts["protocol"][0][:] = 1
    mine, created, found = log.created_of(rows)
    assert len(mine) == len(reads_ns)
    assert not created.any()  # by no clock of this host's
    return found.tolist()


def test_a_reply_is_of_the_message_that_was_over_right_after_it_was_read():
    log = log_of(
        [
            message(1, READ + 1000, flags=WARMUP_FLAG),
            message(2, READ + 2000, flags=WARMUP_FLAG),
            message(3, READ + 3000),
            message(4, 0, flags=2),  # lost
            message(5, READ + 5000),
        ]
    )
    reads = [READ + n - 10 for n in (1000, 2000, 3000, 5000)]
    assert kinds(log, reads) == [WARMUP, WARMUP, REPLY, REPLY]


def test_what_is_read_later_than_a_batch_does_not_name_its_last_reply():
    log = log_of([message(1, READ + 1000, flags=WARMUP_FLAG), message(2, READ + 2000)])
    assert kinds(log, [READ + 990]) == [WARMUP]
    assert kinds(log, [READ + 1990]) == [REPLY]


@pytest.mark.parametrize("train", [0, 3])
def test_of_trains_what_is_not_known_to_have_gone_alone_is_in_no_figure(train):
    log = log_of([message(1, READ + 1000, train=train)], trains=True)
    alone, of_train = REPLY, TRAIN_REPLY
    assert kinds(log, [READ + 990]) == [of_train if train else alone]
    assert kinds(log, [READ + 1990]) == [of_train]
