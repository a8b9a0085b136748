"""What is kept of a turn, or of a part of one: a column of numbers."""

from __future__ import annotations

from enum import IntEnum, auto

import numpy as np

from latprof_analysis.records.message_rows import Ints

FOREVER = np.iinfo(np.int64).max


class Turn(IntEnum):
    """Rows of a table with a column for each turn, or part of one.

    A time that is not known is 0 where the last counts, and FOREVER where the first.
    """

    IDENTITY = 0  # of the conversation; of DNS with the query's identification
    IS_REPLY = auto()
    # of the first message
    FLOW = auto()
    FIRST_SEQUENCE = auto()
    HEAD = auto()  # what its first bytes are
    IS_DATAGRAM = auto()
    RUN_NS = auto()  # a reply: of its thread, since it had read; BLANK not known
    WAITED_NS = auto()  # the same, for a CPU
    # the least
    BEGIN_NS = auto()  # in the client's order
    FIRST_SEND_NS = auto()
    FIRST_READ_NS = auto()
    PAUSE_NS = auto()  # up to when it was read before its first long pause
    # the largest
    END_NS = auto()
    LAST_SEND_NS = auto()
    LAST_READ_NS = auto()
    SENDER_PID = auto()
    READER_PID = auto()
    WARMUP = auto()
    TRAIN = auto()  # of the generator's trains, whose turns overlap
    LOADED = auto()  # beside a load
    MUDDLED = auto()  # came when the other end's next turn had begun
    ALONE = auto()  # one end of the conversation was seen
    SORTED = auto()  # its protocol was looked at
    UNSPLIT = auto()  # a reply: where it begins is not known
    # sums
    MESSAGES = auto()
    BYTES = auto()
    RETRANSMITS = auto()
    PAUSES_NS = auto()  # nothing was on its way, and all had been read
    REPEATED = auto()  # a request: those before it that were given up
    # of the last message
    READY_NS = auto()
    WAKEUP_NS = auto()
    LAST_SEQUENCE = auto()


LEAST = slice(Turn.BEGIN_NS, Turn.END_NS)
LARGEST = slice(Turn.END_NS, Turn.MESSAGES)
SUMS = slice(Turn.MESSAGES, Turn.READY_NS)
OF_LAST = slice(Turn.READY_NS, len(Turn))

NONE = np.empty((len(Turn), 0), "i8")


def no_turns(count: int) -> Ints:
    """Return so many turns that nobody took."""
    made = np.zeros((len(Turn), count), "i8")
    made[LEAST] = FOREVER
    return made


def first_of(*stamps: Ints) -> Ints:
    """Return the first of stamps that is known, 0 where none is."""
    found = stamps[0]
    for others in stamps[1:]:
        found = np.where(found > 0, found, others)
    return found
