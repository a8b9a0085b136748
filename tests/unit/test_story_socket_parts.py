"""What held a socket's bytes back, and what was lost: from made records.

A slow reference tells each nanosecond by itself.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from latprof_agent.probes.layout import layout_of
from latprof_agent.story.socket_stories import TcpHistory
from latprof_analysis.report.story_lines import conclusion
from latprof_analysis.report.story_words import tcp_words
from latprof_analysis.story.sockets import (
    DroppedSegment,
    behind_parts,
    held_time,
    lost_parts,
)

LAYOUT = layout_of()
HELD, RESENT = LAYOUT.held, LAYOUT.resent
FLOW, OTHER = 0xFFFF_FFFF_FFFF_FFF0, 3
END = 5000
MS = 1_000_000
JIFFY_NS = 4 * MS
_WORDS = (
    "until it was sent again by a fast retransmit",
    "which was sent again by a fast retransmit",
)


def states(*spans):
    """Rows of (from, until, by), of the flow or of another one."""
    made = np.zeros(len(spans), LAYOUT.flights["socket_states"])
    for row, (from_ns, until_ns, by, *flow) in zip(made, spans, strict=True):
        row["from_ns"], row["until_ns"], row["held"] = from_ns, until_ns, HELD[by]
        row["flow"] = flow[0] if flow else FLOW
    return made


def resent(*segments):
    """Rows of (time, start, end, cause)."""
    made = np.zeros(len(segments), LAYOUT.rings["retransmits"])
    for row, (t_ns, start, end, cause) in zip(made, segments, strict=True):
        row["flow"], row["t_ns"], row["cause"] = FLOW, t_ns, RESENT[cause]
        row["start"], row["end"] = start, end
    return made


def held_parts(rows, begin_ns, end_ns):
    return held_time(rows, FLOW, begin_ns, end_ns, HELD, JIFFY_NS).parts


def told(parts):
    return [(part.kind, part.what, part.time_ns) for part in parts]


def test_each_span_is_told_by_what_held_it_and_the_rest_is_not_told_apart():
    rows = states(
        (0, 150, "nagle"),
        (150, 400, "receive_window"),
        (420, 460, "not_known"),
        (460, 900, "pacing"),
        (100, 500, "congestion_window", OTHER),
    )
    assert told(held_parts(rows, 100, 500)) == [
        ("held", "the receive window", 250),
        ("not told apart", "", 60),
        ("held", "Nagle", 50),
        ("held", "pacing", 40),
    ]


def test_without_a_record_nothing_is_told_apart():
    rows = states((100, 500, "nagle", OTHER), (500, 600, "nagle"))
    assert told(held_parts(rows, 100, 500)) == [("not told apart", "", 400)]


def held_in_turn():
    """The receive window's span is longer than Nagle's."""
    rows = states((0, 150, "nagle"), (150, 400, "receive_window"))
    rows["cwnd"], rows["in_flight"], rows["unsent_bytes"] = 10, (1, 7), (100, 35_000)
    rows["ssthresh"], rows["pacing"] = (0x7FFFFFFF, 7), ((1 << 64) - 1, 125_000)
    rows["window_bytes"], rows["mss"] = (64_000, 512), 1448
    rows["rtt_us"], rows["rto_jiffies"] = 250, (51, 102)
    return held_time(rows, FLOW, 100, 500, HELD, JIFFY_NS)


def test_what_tcp_knew_stands_with_each_span():
    first, second = held_in_turn().timeline
    assert {key: first[key] for key in ("from_ns", "time_ns", "kind", "what")} == {
        **{"from_ns": 0, "time_ns": 50},
        **{"kind": "held", "what": "Nagle"},
    }
    assert (second["from_ns"], second["time_ns"]) == (50, 250)
    assert first["tcp"] == {
        **{"cwnd_packets": 10, "ssthresh_packets": None, "in_flight_packets": 1},
        **{"window_bytes": 64_000, "unsent_bytes": 100, "mss_bytes": 1448},
        **{"least_rtt_us": 250, "rto_us": 204_000, "pacing_bytes_per_second": None},
    }
    assert second["tcp"] == first["tcp"] | {
        **{"ssthresh_packets": 7, "in_flight_packets": 7, "window_bytes": 512},
        **{"unsent_bytes": 35_000, "rto_us": 408_000},
        "pacing_bytes_per_second": 125_000,
    }


def test_of_the_longest_span_it_is_told_in_words():
    timeline = held_in_turn().timeline
    assert tcp_words(timeline) == (
        "cwnd 10 packets (ssthresh 7), 7 in flight, 35 kB not sent, the peer's window "
        "512 bytes, RTO 408 ms, paced at 1.000 Mbit/s"
    )
    assert tcp_words(timeline[:1]).endswith("64 kB, RTO 204 ms")
    assert tcp_words([]) == ""


def test_every_holder_has_its_words():
    words = {
        told(held_parts(states((0, 9, name)), 0, 9))[0][1]
        for name in HELD
        if name != "not_known"
    }
    assert len(words) == len(HELD) - 1 and "" not in words


spans = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60), st.sampled_from([*HELD])),
    max_size=6,
)


@given(spans, st.integers(0, 60), st.integers(1, 60))
def test_parts_are_those_of_each_nanosecond(found, begin_ns, took_ns):
    end_ns = begin_ns + took_ns
    rows = states(*sorted(found, key=lambda span: span[0]))
    expected: Counter[int] = Counter()
    taken_until = begin_ns
    for row in rows:  # of those that overlap, the one that began first
        for ns in range(max(taken_until, int(row["from_ns"])), int(row["until_ns"])):
            if ns < end_ns and row["held"] != HELD["not_known"]:
                expected[int(row["held"])] += 1
                taken_until = max(taken_until, ns + 1)
    expected[HELD["not_known"]] = took_ns - expected.total()
    parts = held_parts(rows, begin_ns, end_ns)
    assert sum(part.time_ns for part in parts) == took_ns
    times = sorted(n for n in expected.values() if n)
    assert sorted(part.time_ns for part in parts) == times


def test_what_was_lost_is_told_up_to_each_time_that_it_was_sent_again():
    rows = resent(
        (900, 4000, 5000, "fast"),  # after it had arrived
        (600, 4000, 5000, "timeout"),
        (300, 4000, 5000, "probe"),
        (200, 0, 1000, "fast"),  # not its last byte
    )
    assert told(lost_parts(rows, END, 100, 700, RESENT)) == [
        ("lost", "sent again by a retransmission timeout", 300),
        ("lost", "sent again by a tail loss probe", 200),
        ("unknown from here", "", 100),
    ]
    assert lost_parts(rows[-1:], END, 100, 700, RESENT) is None


FILTER, QUEUE = "at a packet filter", "in the queue of eth9"


def died(*dropped):
    """What killed (time, where) for sure."""
    return [DroppedSegment(t_ns, where, True) for t_ns, where in dropped]


def lost_at(rows, end_ns, dropped):
    """Where each copy was lost that was sent again."""
    parts = lost_parts(rows, END, 0, end_ns, RESENT, dropped)
    return {
        part.time_ns: part.what.rpartition("sent again")[0].rstrip(", ")
        for part in parts
        if part.kind == "lost"
    }


def test_each_copy_is_told_to_be_lost_where_the_kernel_dropped_it():
    rows = resent((200 * MS, 0, END, "probe"), (500 * MS, 0, END, "timeout"))
    dropped = died((MS, FILTER), (201 * MS, QUEUE))
    assert lost_at(rows, 600 * MS, dropped) == {200 * MS: FILTER, 300 * MS: QUEUE}
    # what was lost elsewhere has no place
    assert lost_at(rows, 600 * MS, dropped[1:]) == {200 * MS: "", 300 * MS: QUEUE}
    assert lost_at(rows, 600 * MS, dropped[:1]) == {200 * MS: FILTER, 300 * MS: ""}
    # a copy that dies behind the last one that was sent again is in no part
    late = died((550 * MS, FILTER))
    assert lost_at(rows, 600 * MS, late) == {200 * MS: "", 300 * MS: ""}


def test_a_copy_that_dies_while_it_is_sent_again_is_not_the_one_before():
    rows = resent((200 * MS, 0, END, "probe"), (500 * MS, 0, END, "timeout"))
    at_once = died((200 * MS + 20_000, QUEUE))
    assert lost_at(rows, 600 * MS, at_once) == {200 * MS: "", 300 * MS: QUEUE}
    # but where all is as fast
    fast = resent((100_000, 0, END, "fast"))
    assert lost_at(fast, MS, died((10_000, FILTER))) == {100_000: FILTER}


def test_what_is_freed_with_a_reason_is_surer():
    rows = resent((200 * MS, 0, END, "probe"))
    dropped = [DroppedSegment(MS, "in the kernel", False), *died((2 * MS, QUEUE))]
    assert lost_at(rows, 600 * MS, dropped) == {200 * MS: QUEUE}
    assert lost_at(rows, 600 * MS, dropped[:1]) == {200 * MS: "in the kernel"}


def test_what_is_behind_a_hole_waits_for_what_filled_it():
    rows = resent(
        (50, 0, 1000, "fast"),  # before it was sent itself
        (400, 3000, 4000, "fast"),
        (450, 5000, 6000, "fast"),  # behind it
    )
    assert told(behind_parts(rows, END, 100, 200, 600, RESENT)) == [
        ("behind a missing segment", what, 200) for what in _WORDS
    ]
    early = behind_parts(rows, END, 100, 500, 600, RESENT)
    assert told(early) == [("behind a missing segment", _WORDS[1], 100)]
    assert behind_parts(rows[:1], END, 100, 200, 600, RESENT) is None


def test_what_is_behind_a_hole_is_told_where_that_segment_was_lost():
    rows = resent((400 * MS, 3000, 4000, "fast"))
    times = 100 * MS, 200 * MS, 600 * MS
    assert told(behind_parts(rows, END, *times, RESENT, died((50 * MS, FILTER)))) == [
        ("behind a missing segment", f"lost {FILTER}, {what}", 200 * MS)
        for what in _WORDS
    ]
    # another time that it was lost
    late = died((401 * MS, FILTER))
    assert told(behind_parts(rows, END, *times, RESENT, late)) == [
        ("behind a missing segment", what, 200 * MS) for what in _WORDS
    ]


def story_of(stage, parts):
    whole_ns = sum(part.time_ns for part in parts)
    message = {"end_to_end_ns": whole_ns, "retransmits": 1}
    message |= {"sender_comm": "client", "sender_pid": 7}
    message |= {"reader_comm": "server", "reader_pid": 8}
    of = {"time_ns": whole_ns, "parts": [vars(part) for part in parts]}
    return {"message": message, "stages": {stage: of}}


def test_the_conclusion_names_what_held_or_lost_most():
    held = held_parts(
        states((0, 40 * MS, "delayed_ack"), (40 * MS, 41 * MS, "cork")), 0, 41 * MS
    )
    assert conclusion(story_of("send_queue", held)) == (
        "41.0 ms of 41.0 ms in the send queue of client (pid 7), "
        "held by Nagle until a delayed ACK for 40.0 ms"
    )
    lost = lost_parts(resent((3_200_000, 0, END, "probe")), END, 0, 4 * MS, RESENT)
    for stage in ("transit", "receive_stack"):  # this where its arrival is not known
        assert conclusion(story_of(stage, lost)) == (
            "4.00 ms of 4.00 ms in transit, lost, sent again after 3.20 ms by a tail "
            "loss probe"
        )


def test_the_conclusion_says_where_a_segment_was_lost():
    rows, dropped = resent((32 * MS // 10, 0, END, "probe")), died((MS, FILTER))
    lost = lost_parts(rows, END, 0, 4 * MS, RESENT, dropped)
    assert conclusion(story_of("transit", lost)) == (
        "4.00 ms of 4.00 ms in transit, lost at a packet filter, sent again after "
        "3.20 ms by a tail loss probe"
    )


def test_what_its_own_device_dropped_is_lost_since_its_queue_had_it():
    row = {"protocol": "tcp", "queue_ns": 100, "xmit_ns": None, "arrive_ns": 700}
    way = TcpHistory(FLOW, END, resent((300, 0, END, "timeout")))
    recorder = SimpleNamespace(layout=LAYOUT)
    parts = way.split("transit", 600, row, recorder)["parts"]
    assert [(part["kind"], part["time_ns"]) for part in parts] == [
        ("unknown from here", 400),
        ("lost", 200),
    ]


def test_what_was_lost_is_told_where_its_arrival_is_not_known():
    row = {"protocol": "tcp", "xmit_ns": 100, "arrive_ns": None, "ready_ns": 700}
    way = TcpHistory(FLOW, END, resent((300, 0, END, "timeout")))
    recorder = SimpleNamespace(layout=LAYOUT)
    parts = way.split("receive_stack", 600, row, recorder)["parts"]
    assert [(part["kind"], part["time_ns"]) for part in parts] == [
        ("unknown from here", 400),
        ("lost", 200),
    ]
    assert way.split("transit", 600, row, recorder) == {}
    row["arrive_ns"] = 690
    assert way.split("receive_stack", 10, row, recorder) == {}


def test_the_conclusion_names_what_was_behind_or_no_single_cause():
    behind = behind_parts(
        resent((5 * MS, 0, 1000, "timeout")), END, 0, MS, 6 * MS, RESENT
    )
    assert conclusion(story_of("receive_stack", behind)) == (
        "5.00 ms of 5.00 ms in receive_stack, for 4.00 ms behind a missing segment "
        "until it was sent again by a retransmission timeout"
    )
    several = held_parts(
        states((0, MS, "nagle"), (MS, 2 * MS, "cork"), (2 * MS, 3 * MS, "pacing")),
        *(0, 3 * MS),
    )
    assert "for no single cause: longest held by " in conclusion(
        story_of("send_queue", several)
    )
