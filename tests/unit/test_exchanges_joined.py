"""Messages to exchanges: known conversations, in any pieces, and nothing forgotten."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest
from halves import LAYOUT, RECEIVER, SENDER, mapped
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_analysis.records import exchanges as module
from latprof_analysis.records.conversations import Conversations
from latprof_analysis.records.endings import Endings
from latprof_analysis.records.exchanges import LATE_NS, Exchanges
from latprof_analysis.records.flows import IPPROTO_TCP, Flows
from latprof_analysis.records.message_rows import KINDS, MESSAGE, Messages
from latprof_analysis.records.turn import FOREVER, Turn
from latprof_analysis.stages import BLANK, EXCHANGE, PROBE_STATISTICS

MS = 1_000_000
NOW = 1 << 60  # what has no answer waited until then
CLIENT, SERVER = "10.0.0.1", "10.0.0.2"
PORTS = {CLIENT: 40_000, SERVER: 80}
FIRST = {CLIENT: 11, SERVER: 22}  # sequence numbers
PIDS = {CLIENT: 100, SERVER: 200}


def announcement(number, source, side, connection=0):
    """What one end tells of what `source` sends; the server's was accepted."""
    other = SERVER if source == CLIENT else CLIENT
    teller = source if side == SENDER else other
    record = np.zeros(1, LAYOUT.rings["flows"])
    told = {
        "flow": number,
        "t_ns": 1,
        "source": mapped(source),
        "destination": mapped(other),
        "source_port": PORTS[source],
        "destination_port": PORTS[other],
        "protocol": IPPROTO_TCP,
        "side": side,
        "first_sequence": FIRST[source] + connection,
        "first_answer": FIRST[other] + connection,
        "accepted": teller == SERVER,
    }
    for name, value in told.items():
        record[name] = value
    return record


def numbers(connection):
    """The flow numbers of a connection: to the server, and back."""
    return {CLIENT: 10 * connection + 1, SERVER: 10 * connection + 2}


def paired(connections, ends=(CLIENT, SERVER)):
    """Exchanges of so many connections, of which these ends are watched."""
    flows = Flows(LAYOUT.rings["flows"])
    conversations = Conversations(flows)
    for connection in range(connections):
        for source, number in numbers(connection).items():
            for side in (SENDER, RECEIVER):
                other = SERVER if source == CLIENT else CLIENT
                if (source if side == SENDER else other) not in ends:
                    continue
                record = announcement(number, source, side, connection)
                flows.add(record)
                conversations.add(record)
    endings = Endings(flows, conversations, LAYOUT.endings)
    return Exchanges(flows, conversations, endings, LAYOUT.heads)


def messages(rows):
    """Rows of (connection, source, send, ready, read, sequence); one byte each."""
    table = np.array([row[2:] for row in rows], "i8").reshape(len(rows), 4)
    send, ready, read, sequence = table.T
    number = np.array([numbers(row[0])[row[1]] for row in rows], "u8")
    zero = np.zeros(len(rows), "i8")
    columns = {
        "sequence": sequence,
        "send_ns": send,
        "queue_ns": send,
        "xmit_ns": send,
        "ready_ns": ready,
        "read_ns": read,
        "wakeup_ns": zero,
        "retransmits": zero,
        "head": zero,
        "head_id": zero,
        "answer_run_ns": np.full(len(rows), BLANK),
        "answer_waited_ns": np.full(len(rows), BLANK),
        "sender_pid": zero + 100,
        "reader_pid": zero + 200,
        PROBE_STATISTICS: np.full(len(rows), BLANK),
    }
    kinds = np.full(len(rows), MESSAGE, "i4"), KINDS
    return Messages(columns, {"kind": kinds}, (number, sequence - 1, sequence))


def exchanges_in(found):
    """The request and reply turns of what is exchanges."""
    kinds = [one for one in found if one.kind == EXCHANGE]
    return [
        np.concatenate(turns, axis=1)
        for turns in zip(*((f.request, f.reply) for f in kinds), strict=True)
    ]


def told(found):
    """Each exchange as (connection, times and counts of both turns)."""
    request, reply = exchanges_in(found)
    rows = (
        *(Turn.FIRST_SEND_NS, Turn.LAST_READ_NS, Turn.READY_NS),
        *(Turn.MESSAGES, Turn.BYTES, Turn.FIRST_SEQUENCE, Turn.LAST_SEQUENCE),
    )
    return [
        (int(request[Turn.FLOW, i]) // 10, *request[rows, i], *reply[rows, i])
        for i in range(request.shape[1])
    ]


def all_at_once(rows, connections, ends=(CLIENT, SERVER)):
    pairer = paired(connections, ends)
    found = told(pairer.add(messages(rows), FOREVER, NOW)) if rows else []
    return sorted(found), pairer.no_exchange


@st.composite
def polite(draw, connection=0):
    """A connection on which each end waits for the other, and its exchanges."""
    now, rows, turns = draw(st.integers(1, 50)) * MS, [], []
    sequence = Counter()
    for _ in range(draw(st.integers(0, 6))):
        for source in (CLIENT, SERVER):
            mine = []
            for _ in range(draw(st.integers(1, 3))):
                sequence[source] += 1
                gaps = [draw(st.integers(1, 90)) * MS for _ in range(3)]
                send, ready, read = np.cumsum([now, *gaps])[1:].tolist()
                mine.append((connection, source, send, ready, read, sequence[source]))
                # the next may be sent before this one is read
                now = send
            now = max(read for *_, read, _ in mine) + MS
            rows += mine
            turns.append(mine)
    exchanges = []
    for request, reply in zip(turns[::2], turns[1::2], strict=True):
        found = [connection]
        for mine in (request, reply):
            # in the order of the bytes, each is read no earlier than the one before
            reads = np.maximum.accumulate([row[4] for row in mine]).tolist()
            readies = np.maximum.accumulate([row[3] for row in mine]).tolist()
            mine[:] = [
                (*row[:3], ready, read, row[5])
                for row, ready, read in zip(mine, readies, reads, strict=True)
            ]
            found += [mine[0][2], reads[-1], readies[-1], len(mine), len(mine)]
            found += [mine[0][5], mine[-1][5]]
        exchanges.append(tuple(found))
    return [row for turn in turns for row in turn], exchanges


@settings(deadline=None)
@given(st.integers(1, 4).flatmap(lambda n: st.tuples(*map(polite, range(n)))))
def test_who_waits_for_each_other_has_all_exchanges(connections):
    rows = [row for rows, _ in connections for row in rows]
    expected = sorted(e for _, exchanges in connections for e in exchanges)
    found, rest = all_at_once(rows, len(connections))
    assert found == expected
    assert not rest


impolite = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([CLIENT, SERVER]),
        *([st.integers(1, 300)] * 3),
    ),
    max_size=30,
)


def in_order(events):
    """Anybody sends anything at any time; bytes are read in order."""
    rows, last = [], {}
    sequence = Counter()
    for connection, source, *gaps in sorted(events, key=lambda e: e[2]):
        key = connection, source
        sequence[key] += 1
        send, ready, read = (np.cumsum(gaps) * MS + sequence[key]).tolist()
        ready, read = (
            max(pair) for pair in zip((ready, read), last.get(key, (0, 0)), strict=True)
        )
        read = max(read, ready)
        last[key] = ready, read
        rows.append((connection, source, send, ready, read, sequence[key]))
    return rows


@settings(deadline=None)
@given(impolite)
def test_every_message_is_in_an_exchange_or_counted(events):
    rows = in_order(events)
    found, rest = all_at_once(rows, 3)
    paired_messages = sum(e[4] + e[11] for e in found)
    assert paired_messages + sum(rest.values()) == len(rows)
    for _, sent, read, _, _, _, _, _, answered, got, *_ in found:
        assert sent <= answered <= got
        assert read <= got


def test_what_is_read_when_the_next_is_sent_came_before_it():
    """To the nanosecond, whichever of them comes to the agent first."""
    rows = [
        (0, CLIENT, 10 * MS, 11 * MS, 12 * MS, 1),
        *((0, SERVER, 13 * MS, 14 * MS, 15 * MS, number) for number in (1, 2, 3)),
        (0, CLIENT, 15 * MS, 16 * MS, 17 * MS, 2),
        (0, SERVER, 18 * MS, 19 * MS, 20 * MS, 4),
    ]
    for order in permutations(rows):
        found, rest = all_at_once(order, 1)
        assert [(one[1], one[9]) for one in found] == [
            (10 * MS, 15 * MS),
            (15 * MS, 20 * MS),
        ]
        assert not rest


@settings(deadline=None)
@given(
    st.one_of(impolite.map(in_order), polite().map(lambda made: made[0])),
    st.lists(st.integers(0, 3000), max_size=6),
    st.randoms(use_true_random=False),
)
def test_the_pieces_in_which_messages_come_make_no_difference(rows, cuts, random):
    expected = all_at_once(rows, 3)
    pairer, found = paired(3), []
    # a message comes when it was read, or a little later
    due = [(row[4] + random.randrange(LATE_NS), row) for row in rows]
    times = [0, *sorted(cut * MS for cut in cuts), FOREVER]
    for since, until in pairwise(times):
        some = [row for at, row in due if since <= at < until]
        random.shuffle(some)
        found += told(pairer.add(messages(some) if some else None, until, NOW))
    overlapped = {one.place // 2 for one in pairer.taken_back}
    kept = [one for one in found if one[0] not in overlapped]
    assert sorted(kept) == expected[0]
    both = Counter(one[0] for one in found) - Counter(one[0] for one in kept)
    counted = sum(pairer.no_exchange.values())
    again = sum(one[4] + one[11] for one in found if one[0] in both)
    assert counted + again == sum(expected[1].values())


def test_a_client_that_does_not_wait_makes_no_exchange():
    """It asks again while the answer is on its way: which is the answer to what?"""
    rows = [
        (0, CLIENT, 1 * MS, 2 * MS, 3 * MS, 1),
        (0, SERVER, 4 * MS, 9 * MS, 10 * MS, 1),
        (0, CLIENT, 5 * MS, 6 * MS, 7 * MS, 2),
        (0, SERVER, 20 * MS, 21 * MS, 22 * MS, 2),
    ]
    found, rest = all_at_once(rows, 1)
    # both requests went before the first answer was read: a pipeline
    assert [(e[4], e[11]) for e in found] == [(2, 2)]
    assert not rest
    rows.insert(3, (0, CLIENT, 12 * MS, 13 * MS, 30 * MS, 3))
    found, rest = all_at_once(rows, 1)
    assert found == []
    assert sum(rest.values()) == 5


def test_of_one_end_what_it_saw_is_paired():
    """The client's own: when it asked, and when it had read the answer."""
    client = [
        (0, CLIENT, 1 * MS, 0, 0, 1),
        (0, SERVER, 0, 5 * MS, 6 * MS, 1),
        (0, CLIENT, 7 * MS, 0, 0, 2),
        (0, SERVER, 0, 8 * MS, 9 * MS, 2),
    ]
    found, rest = all_at_once(client, 1, ends=(CLIENT,))
    assert [(e[1] // MS, e[9] // MS) for e in found] == [(1, 6), (7, 9)]
    server = [
        (0, CLIENT, 0, 2 * MS, 3 * MS, 1),
        (0, SERVER, 4 * MS, 0, 0, 1),
        (0, CLIENT, 0, 8 * MS, 9 * MS, 2),
        (0, SERVER, 10 * MS, 0, 0, 2),
    ]
    found, more = all_at_once(server, 1, ends=(SERVER,))
    assert [(e[3] // MS, e[8] // MS) for e in found] == [(2, 4), (8, 10)]
    assert not rest
    assert not more


def test_a_stream_that_nobody_answers_takes_the_memory_of_one_turn():
    pairer = paired(1)
    for batch in range(50):
        begin = batch * 1000
        rows = [
            (0, CLIENT, (begin + i) * MS, (begin + i) * MS + 1, (begin + i) * MS + 2, i)
            for i in range(1, 1000)
        ]
        request, _ = exchanges_in(
            pairer.add(messages(rows), (begin + 10_000) * MS, NOW)
        )
        assert request.shape[1] == 0
        assert pairer._open.shape[1] == 1
    pairer.add(None, FOREVER, NOW)
    assert sum(pairer.no_exchange.values()) == 50 * 999


def test_an_answer_that_comes_late_finds_its_request():
    """Its flow is announced when the server speaks for the first time."""
    flows = Flows(LAYOUT.rings["flows"])
    conversations = Conversations(flows)
    endings = Endings(flows, conversations, LAYOUT.endings)
    pairer = Exchanges(flows, conversations, endings, LAYOUT.heads)

    def announce(source):
        for side in (SENDER, RECEIVER):
            record = announcement(numbers(0)[source], source, side)
            flows.add(record)
            conversations.add(record)

    announce(CLIENT)
    asked = [(0, CLIENT, i * MS, i * MS + 5, i * MS + 9, i) for i in range(1, 4)]
    assert told(pairer.add(messages(asked), 5000 * MS, NOW)) == []
    announce(SERVER)
    answer = [(0, SERVER, 9000 * MS, 9001 * MS, 9002 * MS, 1)]
    pairer.add(messages(answer), 9100 * MS, NOW)
    ((_, sent, _, _, count, bytes_, first, last, *_, got, _, _, _, _, _),) = told(
        pairer.add(None, FOREVER, NOW)
    )
    assert (sent, count, bytes_, first, last) == (1 * MS, 3, 3, 1, 3)
    assert got == 9002 * MS
    assert not pairer.no_exchange


def test_what_comes_at_once_is_not_open_because_it_is_much(monkeypatch):
    """A batch may hold more turns than may be open, and end within an exchange."""
    monkeypatch.setattr(module, "OPEN_LIMIT", 8)
    count, each = 50, MS
    rows = []
    for i in range(count):
        at = i * each
        ask = (0, CLIENT, at + 1, at + 2, at + 3, i + 1)
        rows += [ask, (0, SERVER, at + 4, at + 5, at + 6, i + 1)]
    exchanges = paired(1)
    until_ns = rows[-1][2] + LATE_NS  # the last answer is not over by then
    found = exchanges.add(messages(rows), until_ns, NOW)
    found += exchanges.add(None, FOREVER, NOW)
    assert exchanges_in(found)[0].shape[1] == count
    assert not exchanges.no_exchange


def test_who_is_who_is_told_of_both_ways_and_by_both_ends():
    flows = Flows(LAYOUT.rings["flows"])
    conversations = Conversations(flows)
    # the server speaks first, and is found all the same: it was accepted
    for source, number in reversed(numbers(0).items()):
        for side in (SENDER, RECEIVER):
            record = announcement(number, source, side)
            flows.add(record)
            conversations.add(record)
    place = flows.index(np.array([1, 2], "u8"))
    assert conversations.to_server[place].tolist() == [True, False]
    assert conversations.whole.all()
    assert len(set(conversations.identity)) == 1
    assert [*map(conversations.turned, [*place.tolist(), -1])] == [*place[::-1], -1]
    assert [conversations.label(i) for i in place] == [
        "elsewhere -> 10.0.0.2:80",
        "10.0.0.2:80 -> elsewhere",
    ]
    conversations.ways(place[:1], one("curl"), one("nginx"))
    assert [conversations.label(i) for i in place] == [
        "curl -> nginx:80",
        "nginx:80 -> curl",
    ]


@pytest.mark.parametrize(
    ("ephemeral", "way"),
    [
        (range(32768, 61000), "elsewhere -> 10.0.0.2:80"),
        (range(1, 100), "10.0.0.1:40000 -> elsewhere"),
    ],
)
def test_whose_port_its_host_hands_out_is_the_client(ephemeral, way):
    flows = Flows(LAYOUT.rings["flows"])
    conversations = Conversations(flows, ephemeral)
    record = announcement(1, CLIENT, SENDER)
    flows.add(record)
    conversations.add(record)
    assert conversations.label(0) == way


def test_a_process_may_call_itself_anything():
    flows = Flows(LAYOUT.rings["flows"])
    conversations = Conversations(flows)
    record = announcement(1, CLIENT, SENDER)
    flows.add(record)
    conversations.add(record)
    conversations.ways(np.array([0]), one('a,"b\n'), one(""))
    assert conversations.label(0) == "a??b? -> 10.0.0.2:80"


def test_messages_after_an_exec_are_of_the_new_name_also_behind_a_release():
    flows = Flows(LAYOUT.rings["flows"])
    conversations = Conversations(flows)
    for number in (1, 2):
        record = announcement(number, CLIENT, SENDER, connection=number)
        flows.add(record)
        conversations.add(record)
    before = "sh -> nginx:80", "sh -> nginx:80"
    after = "curl -> nginx:80"
    nginx = one("nginx")
    assert shown(conversations, [1, 0], ["sh", "sh"], nginx) == [*before]
    assert shown(conversations, [1, 1, 0], ["sh", "curl", "sh"], nginx) == [
        *(before[0], after, before[1]),
    ]
    flows.release(1)
    conversations.release(np.array([1]))
    assert shown(conversations, [0, 0, -1], ["curl", "sh", "sh"], nginx)[:2] == [
        *(after, before[0]),
    ]


def one(name):
    return np.zeros(1, np.int32), [name]


def shown(conversations, place, senders, reader):
    """The ways of messages of such flows and senders."""
    index = np.arange(len(place), dtype=np.int32)
    readers = np.zeros(len(place), np.int32), reader[1]
    at, words = conversations.ways(np.array(place), (index, senders), readers)
    return [words[i] for i in at]


def test_released_flows_leave_the_others_as_they_are():
    flows = Flows(LAYOUT.rings["flows"])
    conversations = Conversations(flows)
    for connection in range(3):
        for source, number in numbers(connection).items():
            for side in (SENDER, RECEIVER):
                record = announcement(number, source, side, connection)
                flows.add(record)
                conversations.add(record)
    before = conversations.identity[flows.index(np.array([21, 22], "u8"))]
    flows.touch(flows.index(np.array([21, 22], "u8")))
    conversations.release(flows.release(2))
    after = conversations.identity[flows.index(np.array([21, 22], "u8"))]
    assert after.tolist() == before.tolist()
    assert after[0] == after[1]
    # a new one may have the ends of one that is gone
    record = announcement(31, CLIENT, SENDER, 0)
    flows.add(record)
    conversations.add(record)
    assert conversations.identity[flows.index(np.array([31], "u8"))] not in before
