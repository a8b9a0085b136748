"""Keys of the live view: bytes to keys, keys to what is chosen; no terminal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_agent.errors import UsageError
from latprof_agent.filters.groupings import GROUPINGS, next_grouping
from latprof_agent.live.chosen import HELP, Chosen, Order, Page, Prompt, press
from latprof_agent.live.glyphs import UNICODE
from latprof_agent.live.keyboard import Keyboard
from latprof_agent.live.pages import block, page
from latprof_agent.live.rows import SORTS
from latprof_agent.live.shown import Shown, Watched, Window
from latprof_agent.monitor.totals import Counted, Quantity
from latprof_agent.probes.grouping import Grouping
from made_monitor import DNS, REDIS, MadeMonitor


@pytest.fixture
def shown():
    """A view that has taken one interval of the made monitor."""
    monitor, found = MadeMonitor(None, None), Shown()
    first = monitor.totals()
    window = monitor.totals().since(first)
    found.take(Window(Watched(), window, window))
    return found


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1bOB", ["up", "down"]),
        (b"\x1b[5~\x1b[6~\x1b[1~\x1b[F", ["page up", "page down", "home", "end"]),
        (b"\r\n\x7f\x08", ["enter", "enter", "backspace", "backspace"]),
        ("é日".encode(), ["é", "日"]),
        (b"\x1b[1;5Cx\x1b[<0;1;1Mq", ["x", "q"]),  # unknown: swallowed whole
        (b"\x1bq", ["escape", "q"]),
        (b"\x1b[\x01q", ["\x01", "q"]),
        (b"\xff/", ["\ufffd", "/"]),
    ],
)
@pytest.mark.parametrize("piece", [1, 100])
def test_bytes_are_keys_however_they_come(data, keys, piece):
    keyboard = Keyboard()
    pieces = [data[i : i + piece] for i in range(0, len(data), piece)]
    assert [key for part in pieces for key in keyboard.feed(part)] == keys
    assert keyboard.pause() == []


def test_an_escape_alone_is_a_key_once_nothing_follows():
    keyboard = Keyboard()
    assert keyboard.feed(b"\x1b") == []
    assert keyboard.pause() == ["escape"]
    assert keyboard.feed(b"[") == ["["]


def test_groups_are_chosen_opened_and_left(shown):
    chosen = Chosen()
    rows = shown.rows(chosen)
    assert [row.group for row in rows] == [DNS, REDIS]  # two dropped: 0.4 s/s
    chosen = press(chosen, "down", rows)
    assert chosen.group == REDIS
    chosen = press(press(chosen, "down", rows), "enter", rows)
    assert (chosen.page, chosen.quantity) == (Page.GROUP, Quantity.SERVER)
    chosen = press(chosen, "j", rows)
    assert (chosen.group, chosen.quantity) == (REDIS, Quantity.RTT_FLOOR)
    chosen = press(press(chosen, "e", rows), "?", rows)
    assert press(press(chosen, "?", rows), "escape", rows).page == Page.TABLE
    assert press(chosen, "escape", rows).page == Page.TABLE


def test_exemplars_lead_back_to_where_they_were_opened(shown):
    rows = shown.rows(Chosen())
    opened = press(press(Chosen(), "enter", rows), "e", rows)
    assert (opened.page, opened.back) == (Page.EXEMPLARS, Page.GROUP)
    assert press(opened, "escape", rows).page == Page.GROUP
    of_all = press(Chosen(), "e", rows)
    assert press(of_all, "e", rows).page == Page.TABLE


def test_a_filter_is_typed_mended_and_given():
    chosen = press(Chosen(), "/", [])
    for key in ("p", "q", "backspace", "=", "up", "8"):
        chosen = press(chosen, key, [])
    assert (chosen.prompt, chosen.typed) == (Prompt.FILTER, "p=8")
    assert press(chosen, "escape", []) == Chosen()
    given = press(chosen, "enter", [])
    assert (given.order, given.text, given.prompt) == (Order.FILTER, "p=8", None)
    assert press(given, "j", []).order is None


def test_keys_ask_for_what_the_view_cannot_do():
    asked = {key: press(Chosen(), key, []).order for key in "qzgG"}
    assert asked == {"q": Order.QUIT, "z": Order.ZERO, "g": Order.GROUPING, "G": None}
    typed = press(press(press(Chosen(), "G", []), "x", []), "enter", [])
    assert (typed.order, typed.text) == (Order.GROUPING, "x")


def test_sorting_goes_round():
    chosen = Chosen()
    seen = []
    for _ in SORTS:
        seen.append(chosen.sort)
        chosen = press(chosen, "s", [])
    assert seen == list(SORTS) and chosen.sort == "hurt"
    assert press(chosen, "r", []).backwards


@given(
    st.lists(
        st.sampled_from(["up", "down", "enter", "escape", "e", "?", *"srwpgG/zq"])
    ),
    st.integers(1, 250),
    st.integers(1, 70),
)
def test_a_page_is_as_large_as_the_terminal_whatever_was_typed(keys, width, height):
    monitor, shown = MadeMonitor(None, None, None, 5), Shown()
    zero = monitor.totals()
    chosen = Chosen()
    for key in keys:
        chosen = press(chosen, key, shown.rows(chosen))
        now = monitor.totals()
        shown.take(Window(Watched(), now.since(zero), now))
        lines = page(shown, chosen, Watched(), (width, height), UNICODE)
        assert len(lines) == height


def test_a_group_says_what_its_servers_threads_did(shown):
    counted = shown.window.interval.groups[REDIS].counted
    states = Counted.SERVER_RUN_NS, Counted.SERVER_WAIT_NS, Counted.SERVER_REST_NS
    counted.update(dict(zip(states, (6 * 10**8, 10**8, 3 * 10**8), strict=True)))
    chosen = Chosen(page=Page.GROUP, group=REDIS)
    lines = page(shown, chosen, Watched(), (120, 60), UNICODE)
    text = "\n".join(line.plain for line in lines)
    said = "server time: 60.0% on a CPU, 10.0% waiting for one, 30.0% not yet read"
    assert said in text


def test_a_long_message_is_shown_whole(shown):
    text = "filter: prt: must be one of " + "many, " * 20 + "port; did you mean port"
    lines = page(shown, Chosen(message=text), Watched(), (60, 24), UNICODE)
    assert len(lines) == 24
    assert " ".join(line.plain for line in lines[-3:]) == text


def test_what_the_kernel_does_not_offer_is_said_with_the_losses(shown):
    lacking = {"quantity": "functions that drop", "state": "unavailable"}
    lacking |= {"reason": "hidden\x1b[2J", "remedy": "set kernel.kptr_restrict to 0"}
    offered = lacking | {"state": "partial"}
    shown.window.interval.capabilities += [lacking, offered]
    told = "unavailable: functions that drop: hidden?[2J; set kernel.kptr_restrict to 0"
    opened = Chosen(page=Page.GROUP, group=DNS)
    lines = page(shown, opened, Watched(), (100, 24), UNICODE)
    block_lines = block(shown.window, shown.rows(opened), 100, UNICODE)
    for found in (lines, block_lines):
        assert [line.plain.rstrip() for line in found].count(f" {told}") == 1


def test_what_is_not_measured_has_a_line_with_its_share(shown):
    own = shown.window.interval.own
    sent = sum(row.totals.counted["sent_messages"] for row in shown.rows(Chosen()))
    packets = round(sent * own.coverage_ratio)  # as many as were counted
    before = own.unmatched.copy()
    own.unmatched |= {"segmented_sends": packets, "multipath_sockets": 3}
    screen = page(shown, Chosen(), Watched(), (100, 24), UNICODE)
    lines = block(shown.window, shown.rows(Chosen()), 100, UNICODE)
    for found in (screen, lines):
        told = [line.plain.strip() for line in found]
        (gso,) = [line for line in told if "UDP_SEGMENT" in line]
        assert re.fullmatch(
            r"not measured: \S+ packets of .*, 50% of what was sent", gso
        )
        assert "not measured: 3 sockets of MPTCP" in told
    assert len(screen) == 24
    own.unmatched.clear()
    own.unmatched |= before | {"segmented_sends": packets // 10_000}
    screen = page(shown, Chosen(), Watched(), (100, 24), UNICODE)
    assert "not measured" not in "".join(line.plain for line in screen)


def test_help_names_every_key():
    told = " ".join(keys for keys, _ in HELP)
    for key in "ez?qsrwp/gG":
        assert key in told


def test_groupings_go_round_and_are_checked():
    grouping, seen = Grouping(prefix_ipv4=16), []
    for _ in GROUPINGS:
        seen.append(grouping.by)
        grouping = next_grouping("", grouping)
    assert seen[0] == grouping.by == ("service",)
    assert len(set(seen)) == len(GROUPINGS) and ("none",) in seen
    assert next_grouping("comm, remote", grouping) == Grouping(("comm", "remote"), 16)
    with pytest.raises(UsageError, match=r"--by must be of service, .*, got 'ports'"):
        next_grouping("ports", grouping)
    with pytest.raises(UsageError, match="--by must be none or others"):
        next_grouping("none,comm", grouping)


@pytest.mark.parametrize(
    ("counts", "covered_seconds", "is_said"),
    [({"told": 3}, 50.0, True), ({"told": 3}, 200.0, False), (None, 50.0, False)],
)
def test_that_a_pause_has_no_stories_is_said_where_somebody_asks_for_them(
    shown, counts, covered_seconds, is_said
):
    interval = shown.window.interval
    own = replace(interval.own, seconds=200.0, covered_seconds=covered_seconds)
    made = replace(interval, own=own, story_counts=counts, stories={})
    window = replace(shown.window, interval=made)
    lines = block(window, shown.rows(Chosen()), 140, UNICODE)
    said = [
        line.plain for line in lines if "stories are of 25% of the time" in line.plain
    ]
    assert bool(said) == is_said
