"""Guests with clocks of their own talk, each records its half, and the host joins them.

What is joined is held against what their programs knew, by their own readings of their
own clocks, and against the machine's clock, which stamps the files that guests make on
a folder of its.
"""

import json
import time
from collections import Counter, defaultdict
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from between import DATAGRAM_EACH
from latprof_analysis.records.recording import CLOCKS, NAME, Recording
from linked_guests import ASKS, FAST, SERVER, Guests

CLOCK_REALTIME_COARSE = 5  # of linux/time.h
# A file is made at up to a tick of the machine's clock after the time that it gets.
TICK_NS = round(1e9 * time.clock_getres(CLOCK_REALTIME_COARSE))
HOUR_SECONDS = 3600
STAGES = (
    *("application", "send_queue", "qdisc", "transit"),
    *("receive_stack", "receive_queue"),
)
STAMPS = ("send", "queue", "xmit", "arrive", "ready", "read")
# TCP merges segments while their socket is in use, which have no arrival then; a guest
# without KVM is slow to read.
UNSEEN_ARRIVALS = 0.01
# Stamps and offsets are whole ns; and probes read a clock that an adjustment reaches at
# another time than the one that programs read.
ROUNDED_NS = 1000
CHRONY = ["rtcsync", "makestep 0.01 3", "cmdport 0", "pidfile /run/chronyd.pid"]


def two(folder, kernels):
    """The second one has another kernel; the first one's wall clock is set midway."""
    guests = Guests(folder, 200, a={"sets_wall_clock_by_s": HOUR_SECONDS}, b={})
    guests.run({"a": kernels[0], "b": kernels[-1]})
    return guests


def three(folder, kernels):
    """Two never talk with each other, and whom they talk to stands still for a time."""
    waits = {"waits": True}
    guests = Guests(folder, 500, ["--story", "5ms"], a=waits, b={}, c=waits)
    several = {"a": kernels[0], "b": kernels[-1], "c": kernels[0]}
    guests.run(several, guests.stop_server_midway)
    return guests


def steered(folder, kernels):
    """The first one's clock follows the second one's, by chrony."""
    if not Path("/usr/sbin/chronyd").exists():
        pytest.skip("no chrony here; apt-get install chrony")
    guests = Guests(
        *(folder, 500),
        a={"chronyd": [f"server {ASKS['a']} iburst minpoll 0 maxpoll 0", *CHRONY]},
        b={"chronyd": ["local stratum 1", "allow", *CHRONY]},
    )
    guests.run({"a": kernels[0], "b": kernels[-1]})
    return guests


# Two guests at once, beside those of test_kernels.py, take 143 s where other tests run.
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module", params=[two, three, steered])
def guests(request, kernels, tmp_path_factory):
    return request.param(tmp_path_factory.mktemp("hosts"), kernels)


of_two, of_three, of_steered, of_free = (
    pytest.mark.parametrize("guests", scenarios, indirect=True)
    for scenarios in ([two], [three], [steered], [two, three])
)


def each_way(guests):
    """How many messages went each way of a protocol, by the plan."""
    each = {"tcp": guests.requests, "udp": -(-guests.requests // DATAGRAM_EACH)}
    return {
        (protocol, *ends): n
        for protocol, n in each.items()
        for client in guests.clients
        for ends in permutations((client, SERVER))
    }


def test_each_message_is_one_row_with_both_hosts(guests):
    ways = ("protocol", "sender_host", "reader_host")
    rows = guests.rows("messages")
    assert Counter(tuple(row[end] for end in ways) for row in rows) == each_way(guests)


def test_each_exchange_has_its_client_and_its_server(guests):
    ways = ("protocol", "client_host", "server_host")
    rows = guests.rows("exchanges")
    asked = {way: n for way, n in each_way(guests).items() if way[-1] == SERVER}
    assert Counter(tuple(row[end] for end in ways) for row in rows) == asked


@of_free
def test_messages_are_whole(guests):
    every = guests.rows("messages")
    rows = [row for row in every if row["clocks"] != "broken"]
    whole = [
        row for row in rows if row["send_ns"] and row["xmit_ns"] and row["read_ns"]
    ]
    assert len(whole) >= 0.999 * len(rows)
    unseen = sum(not row["arrive_ns"] for row in rows)
    assert unseen <= UNSEEN_ARRIVALS * len(rows)
    # of each way the last before a clock stood still, and the first after it
    most = 2 * len(each_way(guests)) if guests.stopped_ns else 0
    assert len(every) - len(rows) <= most


def test_nothing_is_before_what_caused_it(guests):
    for row in guests.rows("messages"):
        taken = [int(row[f"{stamp}_ns"]) for stamp in STAMPS if row[f"{stamp}_ns"]]
        assert taken == sorted(taken), row


def test_stages_sum_to_end_to_end(guests):
    for row in guests.rows("messages"):
        if row["end_to_end_ns"]:
            stages = [int(row[f"{stage}_ns"]) for stage in STAGES if row[f"{stage}_ns"]]
            assert sum(stages) == int(row["end_to_end_ns"]), row


@of_free
def test_each_message_is_sent_and_read_as_its_programs_know(guests):
    ways = defaultdict(list)
    for row in guests.rows("messages"):
        ways[row["protocol"], row["sender_host"], row["reader_host"]].append(row)
    for (protocol, sender, reader), rows in ways.items():
        client = sender if sender in ASKS else reader
        for at, what, stamp in (
            (sender, "sent", "send_ns"),
            (reader, "received", "read_ns"),
        ):
            rows.sort(key=lambda row: int(row["send_ns"] or row["read_ns"]))
            _, before, after = guests.calls(client, at, f"{protocol} {what}").T
            taken = np.array([float(row[stamp] or np.nan) for row in rows])
            if at != "a":
                clock = guests.clock(at)
                taken += np.interp(taken, clock["at_ns"], clock["offset_ns"])
            known = ~np.isnan(taken)
            assert (before - ROUNDED_NS <= taken)[known].all()
            assert (taken <= after + ROUNDED_NS)[known].all()


def starts(guests, name, *, after_stop):
    """Bounds of the machine's time when a guest's clock would have been 0.

    Which is a file's time less the guest's own when it was made.
    """
    before, after, made = np.array(guests.of(name, "marks")).T
    if name == SERVER and guests.stopped_ns:
        begin_ns, end_ns = guests.stopped_ns
        kept = made > end_ns if after_stop else made < begin_ns - TICK_NS
        before, after, made = before[kept], after[kept], made[kept]
    low = made - (after / (1 + FAST[name])).astype("i8")
    high = made - (before / (1 + FAST[name])).astype("i8") + TICK_NS
    assert low.max() <= high.min()
    return low.max(), high.min()


def true_offset(guests, name, at_ns, *, after_stop=False):
    """Bounds of what its clock was ahead of the first one's, at that one's times."""
    (low_a, high_a), (low, high) = (
        starts(guests, each, after_stop=after_stop) for each in ("a", name)
    )
    return tuple(
        at_ns * FAST[name] + start * (1 + FAST[name])
        for start in (low_a - high, high_a - low)
    )


def parts(guests):
    """Times by the first guest's clock between which all clocks ran on."""
    if not guests.stopped_ns:
        yield False, -np.inf, np.inf
        return
    low, high = starts(guests, "a", after_stop=False)
    yield False, -np.inf, guests.stopped_ns[0] - high
    yield True, guests.stopped_ns[1] - low, np.inf


@of_free
def test_what_is_known_of_clocks_holds_the_truth(guests):
    for after_stop, since_ns, until_ns in parts(guests):
        for name in guests.names[1:]:
            clock = guests.clock(name)
            within = (since_ns <= clock["at_ns"]) & (clock["at_ns"] <= until_ns)
            at, low, high = (
                clock[key][within] for key in ("at_ns", "low_ns", "high_ns")
            )
            least, most = true_offset(guests, name, at, after_stop=after_stop)
            assert len(at)
            assert ((low <= most) & (least <= high)).all()
            offset = clock["offset_ns"][within]
            assert ((low <= offset) & (offset <= high)).all()


def widest_at(clock, key, at_ns):
    """An end of the interval at times: the wider one of both beside each."""
    places = np.searchsorted(clock["at_ns"], at_ns).clip(1, len(clock["at_ns"]) - 1)
    wider = np.minimum if key == "low_ns" else np.maximum
    return wider(clock[key][places - 1], clock[key][places])


def test_no_message_contradicts_what_is_known_of_clocks(guests):
    """Whatever clocks did: each was received after it was sent, as programs know."""
    clock = guests.clock("b")
    for protocol in ("tcp", "udp"):
        sent, received, answered, got = (
            guests.calls("a", at, f"{protocol} {what}")
            for at, what in zip("abba", ("sent", "received") * 2, strict=True)
        )
        begun_ns, done_ns = sent[:, 1], got[:, 2]
        assert (widest_at(clock, "low_ns", begun_ns) <= received[:, 2] - begun_ns).all()
        assert (widest_at(clock, "high_ns", done_ns) >= answered[:, 1] - done_ns).all()


def pairs(guests):
    """What summary.json says of each pair of hosts."""
    return {tuple(pair["hosts"]): pair for pair in guests.clocks["pairs"]}


@of_free
def test_the_interval_of_a_drift_holds_the_true_one(guests):
    for (one, other), pair in pairs(guests).items():
        true_ppb = 1e9 * ((1 + FAST[other]) / (1 + FAST[one]) - 1)
        assert abs(pair["drift_ppb"] - true_ppb) <= pair["drift_error_ppb"]


@of_two
def test_clocks_that_nobody_set_are_not_broken(guests):
    """A wall clock is none of those that stamps are of."""
    assert pairs(guests)["a", "b"]["unknown"] == [{}, {}]
    assert "broken" not in guests.clock("b")["state"]


@of_two
def test_a_wall_clock_that_was_set_is_said_to_be(guests):
    (of_set,) = guests.clocks["wall_clocks_set"]
    assert of_set["host"] == "a"
    first, last = guests.of("a", "walls")
    # of two readings each: between one's bounds, and as exact as the recording's own
    least, most = last[0] - first[1], last[1] - first[0]
    assert least - of_set["error_ns"] <= of_set["by_ns"] <= most + of_set["error_ns"]
    assert "a's wall clock was set" in guests.said


@of_two
def test_how_far_wall_clocks_are_apart_is_as_they_stood_at_last(guests):
    pair = pairs(guests)["a", "b"]
    (low_a, high_a), (low_b, high_b) = (guests.of(n, "walls")[-1] for n in "ab")
    # their CLOCK_MONOTONIC then, of which the recordings knew their wall clocks' lead
    least, most = true_offset(guests, "b", guests.clock("b")["at_ns"][[0, -1]])
    slack = pair["largest_error_ns"] + pair["wall_error_ns"]
    for offset_ns in (pair["wall_offset_ns"], *pair["over_time"]["offset_ns"]):
        assert least.min() + low_b - high_a - slack <= offset_ns
        assert offset_ns <= most.max() + high_b - low_a + slack


@of_three
def test_a_clock_that_stood_still_is_broken_there(guests):
    for hosts in (("a", "b"), ("b", "c")):
        assert pairs(guests)[hosts]["state"] == "broken"
    until_ns = guests.calls("a", "a", "tcp received")[guests.requests // 2 - 1, 2]
    since_ns = guests.calls("a", "a", "tcp sent")[guests.requests // 2, 1]
    for name in "bc":
        clock = guests.clock(name)
        within = (until_ns <= clock["at_ns"]) & (clock["at_ns"] <= since_ns)
        assert "broken" in clock["state"][within]


@of_three
def test_hosts_that_never_talk_are_related_through_another(guests):
    assert ("a", "c") not in pairs(guests)
    clock = guests.clock("c")
    known = clock["state"] != "broken"
    assert known.any()
    assert np.isfinite(clock["high_ns"] - clock["low_ns"])[known].all()


@of_three
def test_stories_say_what_cpus_of_each_host_did(guests):
    """Though each host saw halves, of which it could not know that they were slow."""
    document = json.loads((guests.folder / "joined" / "stories.json").read_text())
    stories = document["stories"]
    assert stories
    for of in (story["message"] for story in stories):
        ends = of["sender_comm"], of["reader_comm"]
        assert set(ends) in (
            {"python3 on a", "python3 on b"},
            {"python3 on b", "python3 on c"},
        )
    servers = [s["stages"]["server"] for s in stories if "server" in s["stages"]]
    known_ns = sum(
        part["time_ns"]
        for server in servers
        for part in server["parts"] or ()
        if part["kind"] != "not recorded"
    )
    # the rest is of halves that were not among the longest, or while b stood still
    assert known_ns > 0.5 * sum(server["time_ns"] for server in servers)


@of_steered
def test_of_a_clock_that_chrony_steers_its_own_bound_agrees(guests):
    """It says of the first guest's how far it may be from the second one's."""
    assert "broken" not in guests.clock("b")["state"]
    steps = Recording(guests.folder / "a" / "run" / NAME).steps()
    clocks = np.concatenate([step.beside[CLOCKS] for step in steps])
    assert clocks["synchronised"].all()
    most_ns = int(clocks["largest_error_ns"].max())
    course = pairs(guests)["a", "b"]["over_time"]
    for low_ns, high_ns in zip(course["low_ns"], course["high_ns"], strict=True):
        assert low_ns <= most_ns
        assert high_ns >= -most_ns


@of_steered
def test_messages_that_a_steered_clock_leaves_without_a_transit_are_counted(guests):
    pair = pairs(guests)["a", "b"]
    found = Counter(
        (row["sender_host"], row["clocks"])
        for row in guests.rows("messages")
        if not row["transit_ns"] and row["clocks"] not in ("good", "approximate")
    )
    ends = zip(pair["hosts"], pair["unknown"], strict=True)
    assert found == {(end, why): n for end, of in ends for why, n in of.items()}
