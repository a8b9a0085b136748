"""Figures of bulk transfers, against sums that are done by hand."""

from __future__ import annotations

import pytest
from latprof_analysis.report.bulk_text import bulk_parts, bulk_sentences
from latprof_analysis.report.parts import Table, Text
from latprof_analysis.study.bulk import (
    BETWEEN,
    BULK_COLUMNS,
    SOCKET,
    balance,
    balance_between,
    bulk_document,
    bulk_rows,
    direction_figures,
    joined_balances,
    rates_over_time,
)

SECOND = 10**9


def sender(start_ns, slots, sent):
    last_ns = start_ns + len(slots) * SECOND
    return {
        **{"sent": sent, "bytes": sum(slots), "start_ns": start_ns},
        **{"first_ns": start_ns, "last_ns": last_ns},
        **{"slot_ns": SECOND, "slot_bytes": slots},
    }


def receiver(start_ns, slots, received, lost, runs=()):
    counts = dict.fromkeys(("duplicates", "reordered", "extent_max"), 0)
    return {
        **sender(start_ns, slots, 0),
        **counts,
        **{"received": received, "lost": lost, "lost_in_socket": lost},
        **{"socket_drops": lost, "loss_runs": len(runs), "receive_buffer_bytes": 4096},
        "loss_run_list": [[0, length, 0, length] for length in runs],
    }


def two_channels():
    return {
        "channels": [
            {
                "channel": 0,
                "sender": sender(0, [1000, 3000], 40),
                "receiver": receiver(0, [1000, 2000], 30, 10, [4, 6]),
            },
            {
                "channel": 1,
                "sender": sender(SECOND // 2, [1000, 1000], 20),
                "receiver": receiver(SECOND // 2, [1000, 1000], 20, 0),
            },
        ]
    }


def part(said):
    directions = {"up": direction_figures(said, "up")}
    told = balance(directions, [], 0)
    return {
        **{"part": 0, "protocol": "udp", "channels": 2, "stopped": False},
        **{"directions": directions, "balance": told},
    }


def test_channels_add_up_and_their_maximum_is_of_a_moment():
    up = direction_figures(two_channels(), "up")
    assert (up["sent"], up["received"], up["lost"]) == (60, 50, 10)
    assert (up["loss_runs"], up["longest_loss_run"]) == (2, 6)
    assert up["loss"] == pytest.approx(10 / 60)
    # 6000 bytes in 2.5 s; from 1 to 2 s 3000 of one channel and 1000 of the other
    assert up["client"]["average_bps"] == pytest.approx(8 * 6000 / 2.5)
    assert up["client"]["max_bps"] == pytest.approx(8 * 4000)
    assert up["server"]["max_bps"] == pytest.approx(8 * 3000)


def longest_of(runs, listed):
    """Say of how many the longest run is, where only the first runs are listed."""
    said = two_channels()
    half = receiver(0, [1000, 2000], 30, 10, runs)
    half["loss_run_list"] = half["loss_run_list"][:listed]
    lengths = [0] * max(runs).bit_length()
    for length in runs:
        lengths[length.bit_length() - 1] += 1
    said["channels"][0]["receiver"] = half | {"loss_run_lengths": lengths}
    return said, direction_figures(said, "up")


@pytest.mark.parametrize(
    ("runs", "bounds"),
    [
        ([4, 6, 2, 3], (6, 6)),  # none of those that are not listed is so long
        ([4, 6, 7, 2], (6, 7)),
        ([4, 6, 900, 2], (512, 1023)),
        ([1] * 3, (1, 1)),
    ],
)
def test_the_longest_run_is_of_all_runs_though_only_the_first_are_listed(runs, bounds):
    said, up = longest_of(runs, listed=2)
    least, most = up["longest_loss_run"], up["longest_loss_run_at_most"]
    assert (least, most) == bounds
    assert least <= max(runs) <= most
    table = next(p for p in bulk_parts(document(part(said))) if isinstance(p, Table))
    shown = table.rows[0][table.columns.index("longest")]
    assert shown == (f"{least}" if least == most else f"at least {least}")
    rows = bulk_rows([part(said)])
    names = ("longest_loss_run", "longest_loss_run_at_most")
    assert [rows[0][BULK_COLUMNS.index(name)] for name in names] == [*bounds]


def test_a_channel_that_lists_all_its_runs_tells_the_longest_of_all():
    said, _ = longest_of([4, 6, 7, 2], listed=2)
    said["channels"][1]["receiver"] |= receiver(0, [1000, 1000], 20, 9, [9])
    up = direction_figures(said, "up")
    assert (up["longest_loss_run"], up["longest_loss_run_at_most"]) == (9, 9)


def test_the_same_datagrams_down_are_the_servers():
    up, down = (direction_figures(two_channels(), way) for way in ("up", "down"))
    assert (up["client"], up["server"]) == (down["server"], down["client"])


def test_slots_of_channels_hold_all_bytes_wherever_they_begin():
    halves = [sender(0, [7, 5], 1), sender(SECOND // 3, [9], 1)]
    _, slot_ns, rates = rates_over_time(halves)
    assert slot_ns == SECOND
    assert rates.sum() / 8 == pytest.approx(21)


def test_an_end_that_did_not_tell_leaves_no_figure_and_no_sum():
    said = two_channels()
    said["channels"][1]["receiver"] = None
    told = part(said)
    up = told["directions"]["up"]
    assert (up["sent"], up["received"], up["lost"], up["loss"]) == (
        60,
        None,
        None,
        None,
    )
    assert told["balance"] is None
    texts = [p.text for p in bulk_parts(document(told)) if isinstance(p, Text)]
    assert texts == ["note: udp 2: an end did not tell what it counted"]
    assert bulk_sentences(document(told)) == []


def document(*parts):
    return {"bulk": bulk_document([{"bulk": one} for one in parts])}


def test_what_died_in_buffers_is_said_not_to_be_the_networks():
    (text,) = bulk_sentences(document(part(two_channels())))
    assert text.startswith("udp: 10 of 60 datagrams lost (16.7%), all of them in the")
    assert "buffers of 4,096 bytes, none on the network" in text


@pytest.mark.parametrize(
    ("in_socket", "said"),
    [
        (4, ": 4 at receive buffer, 6 unexplained"),
        (0, ", no counter on the way tells where"),
        (13, ": 13 at receive buffer, -3 unexplained"),
    ],
)
def test_what_no_counter_tells_of_is_not_said_to_have_died_in_buffers(in_socket, said):
    one = part(two_channels())
    up = one["directions"]["up"] | {"lost_in_socket": in_socket}
    one["balance"] = balance({"up": up}, [], 0)
    (text,) = bulk_sentences(document(one))
    assert text == f"udp: 10 of 60 datagrams lost (16.7%){said}"


def test_a_place_of_its_own_is_named_and_the_sessions_packets_are_apart():
    one = part(two_channels())
    up = one["directions"]["up"] | {"lost_in_socket": 3}
    dropped = [{"place": "qdisc tbf of a", "packets": 9}]
    one["balance"] = balance({"up": up}, dropped, 2)
    assert one["balance"]["unexplained"] == 0
    (text,) = bulk_sentences(document(one))
    assert text == (
        "udp: 10 of 60 datagrams lost (16.7%): 9 at qdisc tbf of a, 3 at " + SOCKET
    )
    places = [p for p in bulk_parts(document(one)) if isinstance(p, Table)][-1]
    assert ("of these no data", "-2") in places.rows


@pytest.mark.parametrize(("packets", "unexplained"), [(4, 6), (13, -3)])
def test_what_does_not_add_up_is_a_warning(packets, unexplained):
    one = part(two_channels())
    up = one["directions"]["up"] | {"lost_in_socket": 0}
    one["balance"] = balance({"up": up}, [{"place": "x", "packets": packets}], 0)
    assert one["balance"]["unexplained"] == unexplained
    (text,) = (p for p in bulk_parts(document(one)) if isinstance(p, Text))
    assert text.tone == "warning"
    assert f"{unexplained} datagrams unexplained" in text.text


def between_hosts(packets):
    one = part(two_channels())
    up = one["directions"]["up"] | {"lost_in_socket": 3}
    dropped = [{"place": "qdisc of eth0", "packets": packets}]
    one["balance"] = balance_between({"up": up}, dropped)
    told = document(one)
    told["workload"] = {"bulk": {"to": "there", "device": "eth0"}}
    return told


def test_what_no_counter_of_this_host_tells_of_was_lost_between_the_hosts():
    told = between_hosts(2)
    (text,) = bulk_sentences(told)
    assert text == (
        "udp: 10 of 60 datagrams lost (16.7%): 5 between the hosts, 3 at receive "
        "buffer, 2 at qdisc of eth0"
    )
    texts = [p.text for p in bulk_parts(told) if isinstance(p, Text)]
    assert texts == [
        "note: lost between the hosts: at least 5 datagrams (from eth0 here to the "
        "socket on there, or back: no counter there is this host's)",
        "note: what this host dropped is of all its programs, the session's own "
        "connection too",
    ]
    places = [p for p in bulk_parts(told) if isinstance(p, Table)][-1]
    assert (BETWEEN, "5") in places.rows
    assert "unexplained" not in {name for name, *_ in places.rows}
    assert places.note.endswith("by its own counter, and the rest between the hosts")


def test_what_this_host_dropped_beyond_what_was_lost_is_no_data():
    told = between_hosts(9)
    (balance,) = (one["balance"] for one in told["bulk"]["parts"])
    assert (balance["session_packets"], balance["unexplained"]) == (2, None)
    assert balance["places"][-1] == {"place": BETWEEN, "packets": 0}
    first, _ = (p for p in bulk_parts(told) if isinstance(p, Text))
    assert "lost between the hosts: at least 0 datagrams" in first.text


def test_a_row_for_all_channels_and_one_for_each():
    rows = bulk_rows([part(two_channels())])
    assert [row[BULK_COLUMNS.index("channel")] for row in rows] == ["all", 0, 1]
    sent = [row[BULK_COLUMNS.index("sent")] for row in rows]
    assert sent == [60, 40, 20]
    assert {len(row) for row in rows} == {len(BULK_COLUMNS)}


def test_balances_of_several_runs_add_up_by_channels():
    one = part(two_channels())
    other = part(two_channels()) | {"channels": 8}
    found = joined_balances([one, other, one, {"channels": 8, "balance": None}])
    assert [*found] == [2, 8]
    assert (found[2]["sent"], found[2]["received"]) == (120, 100)
    assert found[2]["places"] == [{"place": SOCKET, "packets": 20}]
    unknown = one | {"balance": one["balance"] | {"unexplained": None}}
    assert joined_balances([one, unknown])[2]["unexplained"] is None


def trial(offered_bps, loss, seconds=2.0):
    sent_bps = offered_bps or 4e8
    return {
        **{"seconds": seconds, "offered_bps": offered_bps, "sent_bps": sent_bps},
        **{"received_bps": (1 - loss) * sent_bps, "loss": loss},
        "passed": loss <= 0.001,
    }


def search(**more):
    return {
        **{"channels": 4, "most_loss": 0.001, "resolution": 0.01, "rate_bps": 97e6},
        **{"failed_bps": 97.9e6, "bound": ["qdisc tbf of a"], "held_back": False},
        **{"trial_seconds": 2.0, "trials": [trial(0, 0.75), trial(97_000_000, 0.0)]},
        **{"confirmation": trial(97_000_000, 0.00034, 10.0), **more},
    }


@pytest.mark.parametrize(
    ("confirmation", "said"),
    [
        (trial(97_000_000, 0.00034, 10.0), "confirmed: 0.034% lost in 10 s"),
        (
            trial(97_000_000, 0.002, 60.0),
            "NOT confirmed: 0.2% lost in 60 s, 96.81 Mbit/s of 97.00 Mbit/s received; "
            "try a longer --trial",
        ),
        (None, "not confirmed by a longer one"),
    ],
)
def test_a_rate_that_was_found_is_told_with_its_trials_and_if_it_stood_a_longer_one(
    confirmation, said
):
    document = {"bulk": {"parts": [], "searches": [search(confirmation=confirmation)]}}
    assert bulk_sentences(document) == [
        "udp, 4 channels: 97.00 Mbit/s of payload is the highest rate with 0.1% lost "
        f"or less (2 trials of 2 s, to 1%), {said}; at 97.90 Mbit/s datagrams died at "
        "qdisc tbf of a"
    ]
    (table,) = bulk_parts(document)
    assert isinstance(table, Table)
    assert len(table.rows) == 2 + (confirmation is not None)
    assert [row[1] for row in table.rows[:2]] == ["2 s", "2 s"]


def said_of(**more):
    (text,) = bulk_sentences({"bulk": {"parts": [], "searches": [search(**more)]}})
    return text


@pytest.mark.parametrize(
    ("bound", "held_back", "why"),
    [
        (["qdisc tbf of a"], False, "datagrams died at qdisc tbf of a"),
        ([], False, "they came slower than sent"),
        ([], True, "the sender was held back"),
    ],
)
def test_where_no_rate_came_through_none_is_called_the_highest(bound, held_back, why):
    trials = [trial(0, 0.75), trial(3_000_000, 0.5)]
    none = {"rate_bps": 0.0, "failed_bps": 3e6, "trials": trials, "confirmation": None}
    assert said_of(**none, bound=bound, held_back=held_back) == (
        "udp, 4 channels: no rate that was tried came through with 0.1% lost or less "
        f"(2 trials of 2 s); at 3.000 Mbit/s {why}"
    )


def test_a_search_that_did_not_end_tells_the_least_that_the_rate_is():
    told = said_of(failed_bps=130e6, confirmation=None)
    assert told == (
        "udp, 4 channels: at least 97.00 Mbit/s of payload with 0.1% lost or less, the "
        "search did not end (2 trials of 2 s), not confirmed by a longer one; at 130.0 "
        "Mbit/s datagrams died at qdisc tbf of a"
    )


def test_a_sender_slower_than_offered_within_a_trials_ends_leaves_a_search_ended():
    # 0.4% less was sent than the 97 Mbit/s that passed: the bounds are those offered
    assert "96.61 Mbit/s of payload is the highest" in said_of(rate_bps=0.996 * 97e6)


def test_a_sender_that_nothing_bounds_has_ended_its_search():
    told = said_of(rate_bps=4e8, failed_bps=None, trials=[trial(0, 0.0)])
    assert "400.0 Mbit/s of payload is the highest rate" in told
    assert told.endswith("; as fast as it goes")
