"""The live view's model: windows of totals to figures, rows, heat maps; no terminal."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_agent.live.columns import (
    estimated,
    fitting,
    lost,
    pair,
    with_whole_losses,
    worst,
)
from latprof_agent.live.document import document
from latprof_agent.live.ending import ending_sentence
from latprof_agent.live.figures import CELLS, SLOW, cell_edges_ns, figures_of
from latprof_agent.live.glyphs import ASCII, UNICODE, glyphs_for
from latprof_agent.live.heat import folded, heat_lines
from latprof_agent.live.history import MOST_INTERVALS, History
from latprof_agent.live.names import ALL, group_name
from latprof_agent.live.pages import LEGEND
from latprof_agent.live.rows import LOSS_SECONDS, SORTS, ordered, rows_of
from latprof_agent.live.shown import Shown, Watched, Window
from latprof_agent.monitor.totals import (
    Counted,
    Drop,
    Group,
    GroupTotals,
    Own,
    Quantity,
    Totals,
)
from made_totals import fit, measured, of, scaled, slow

A, B = Group("tcp", "server", "80"), Group("udp", "client", "53")
HOSTILE = "a\x1b[2J\n\u202e\udcff[red]"
SUMMARIES = Path(__file__).parent / "summaries"


def window(groups, seconds=2.0, **more):
    totals = Totals(groups=groups, own=Own(seconds, seconds), **more)
    return Window(Watched(), totals, totals)


def row(totals, seconds=2.0, group=A):
    interval = window({group: totals}, seconds).interval
    return rows_of(interval, figures_of(interval))[0]


@given(st.lists(st.integers(0, 2**37), min_size=1, max_size=400))
def test_figures_are_those_of_the_histogram_itself(values):
    histogram = of(values)
    figure = figures_of(window({A: measured(qdisc=values)}).interval)[A][Quantity.QDISC]
    assert figure.n == len(values)
    assert figure.mean_ns == pytest.approx(sum(values) / len(values))
    names = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    assert all(figure.quantile(n) == histogram.quantile(p) for n, p in names.items())
    # each value lies between the edges of the half octave that counts it
    edges = np.append(cell_edges_ns(), np.inf)
    assert figure.shape.tolist() == np.histogram(values, edges)[0].tolist()
    assert len(figure.shape) == CELLS


def test_half_octaves_halve_octaves():
    edges = cell_edges_ns()
    assert edges[:4].tolist() == [0, 64, 96, 128]
    assert (edges[3:-1:2] == 2 * edges[1:-3:2]).all()


def test_hurt_is_time_beyond_the_median_of_what_was_slow():
    values = [100_000] * 95 + [500_000] * 4 + [10_000_000]
    # 500 us are no 8 medians; one took 9.9 ms more than the median, in 2 s
    assert SLOW == 8
    found = row(measured(receive_queue=values, qdisc=[50] * 100))
    assert found.hurt == pytest.approx(9.9e-3 / 2, rel=1 / 32)
    assert found.worst == Quantity.RECEIVE_QUEUE
    # one wait that shows in two quantities counts once
    twice = row(measured(receive_queue=values, server=values))
    assert twice.hurt == pytest.approx(found.hurt)


def test_loss_hurts_where_nothing_made_it_good_in_time():
    totals = measured(qdisc=[50] * 10)
    totals.drops[Drop("qdisc", "OVERLIMIT")] = 7
    totals.retransmits |= Counter(fast=4, timeout=1)
    # 5 segments stand for 5 of 7 packets; one of them waited for its timeout
    assert row(totals).hurt == pytest.approx(LOSS_SECONDS * (2 + 1) / 2)
    totals.drops.clear()
    assert row(totals).hurt == pytest.approx(LOSS_SECONDS * 1 / 2)


def test_too_few_values_have_no_percentile_but_a_count():
    found = row(measured(response=[1000] * 4, send_queue=[5056] * 100))
    assert found.exchange and found.exchange.quantile("p50") is None
    assert pair(found.exchange) == "- n=4"
    assert found.hurt == 0
    assert worst(found) == "send_queue 90:5.1us"  # no p99 of 100
    assert worst(row(measured(qdisc=[9000] * 3))) == "qdisc n=3"
    assert pair(None) == "-"


def test_scaled_counts_tell_no_more_than_what_was_measured():
    made = window({A: measured(server=[1000] * 1000)})
    made.interval.groups[A].histograms[Quantity.SERVER].unmeasured = 900
    found = figures_of(made.interval)[A][Quantity.SERVER]
    # a hundred were measured: that tells a p90, not a p99
    assert found.quantile("p90") == pytest.approx(1000, rel=1 / 32)
    assert (found.quantile("p95"), found.quantile("p99")) == (None, None)
    assert (found.n, found.count) == (100, 1000)


def test_rates_count_by_the_time_of_the_window():
    totals = GroupTotals(
        counted=Counter({Counted.EXCHANGES: 10, Counted.SENT_BYTES: 1000})
    )
    found = row(totals, seconds=4.0)
    assert (found.rate(Counted.EXCHANGES), found.bits_per_second) == (2.5, 2000)
    assert row(totals, seconds=0.0).bits_per_second == 0


def test_the_best_source_of_the_network_rtt_is_shown():
    both = row(measured(rtt_floor=[90_000] * 10, rtt_handshake=[95_000] * 10))
    assert both.network_rtt[0] == Quantity.RTT_HANDSHAKE
    assert row(measured(rtt_floor=[9] * 10)).network_rtt[0] == Quantity.RTT_FLOOR
    assert row(measured(server=[9], response=[8])).exchange.mean_ns == 8


def test_groups_in_which_nothing_happened_have_no_row():
    earlier = Totals(groups={A: measured(qdisc=[50] * 9)})
    interval = Totals(groups=earlier.groups | {B: measured()}).since(earlier)
    assert rows_of(interval, figures_of(interval)) == []


def test_rows_are_sorted_by_each_figure_and_by_name_where_equal():
    quiet, busy = measured(qdisc=[50] * 10), measured(qdisc=[50] * 10)
    busy.counted[Counted.SENT_MESSAGES] = 9
    third = Group("tcp", "client", "9")
    interval = window({A: quiet, B: busy, third: quiet}).interval
    rows = rows_of(interval, figures_of(interval))
    order = [r.group for r in ordered(rows, "messages")]
    assert order == [B, third, A]
    assert [r.group for r in ordered(rows, "messages", backwards=True)][-1] == B
    assert [r.group for r in ordered(rows, "name")] == [third, A, B]
    assert [r.group for r in ordered(rows, "name", backwards=True)] == [B, A, third]
    assert all(len(ordered(rows, sort)) == 3 for sort in SORTS)


def test_a_loss_names_the_place_of_most():
    totals = measured()
    totals.drops |= Counter({Drop("qdisc", "x"): 3, Drop("socket", "y"): 9})
    totals.retransmits["fast"] = 2
    assert lost(row(totals)) == "12+ socket"
    totals.drops.clear()
    assert lost(row(totals)) == "2 again"


intervals = st.lists(
    st.lists(st.integers(0, 2**37), max_size=20), min_size=1, max_size=12
)


@given(intervals, st.integers(1, 15))
def test_the_heat_map_has_the_shape_of_each_interval(made, columns):
    history = History()
    edges = np.append(cell_edges_ns(), np.inf)
    for values in made:
        groups = {B: measured(server=[7])}
        if values:
            groups[A] = measured(qdisc=values)
        history.add(figures_of(window(groups).interval), 2.0)
    expected = [np.histogram(values, edges)[0] for values in made[-columns:]]
    found = history.heat(A, Quantity.QDISC, columns)
    assert found.T.tolist() == [shape.tolist() for shape in expected]
    assert history.heat(A, Quantity.SERVER, columns).sum() == 0


def test_the_history_is_bounded():
    history = History()
    figures = figures_of(window({A: measured(qdisc=[7])}).interval)
    for _ in range(MOST_INTERVALS + 5):
        history.add(figures, 1.0)
    assert history.heat(A, Quantity.QDISC, 10**6).shape == (CELLS, MOST_INTERVALS)


@given(st.lists(st.integers(0, 2**37), min_size=1, max_size=30), st.integers(2, 60))
def test_a_folded_heat_map_fits_and_loses_nothing(values, room):
    heat = figures_of(window({A: measured(qdisc=values)}).interval)[A][Quantity.QDISC]
    rows, lows = folded(heat.shape[:, None], room)
    assert len(rows) <= room
    assert rows.sum() == len(values)
    assert lows[0] <= min(values)
    assert rows[0].any() and rows[-1].any()
    lines = heat_lines(heat.shape[:, None], [1.0], room + 1, ASCII)
    assert len(lines) == len(rows) + 1 or room == 2


def test_a_spark_has_a_character_for_three_octaves():
    def spark(*values):
        totals = window({A: measured(qdisc=values)}).interval
        return ASCII.sparked(figures_of(totals)[A][Quantity.QDISC].shape)

    assert spark(0, 1023) == "@       "
    assert spark(1024, 8191) == " @      "
    assert spark(2**28, 2**40) == "       @"
    assert spark(*[100] * 1000, 2**14) == "@ .     "  # one of many shows


def test_glyphs_are_what_the_encoding_has():
    assert glyphs_for("utf-8") is UNICODE
    assert glyphs_for("ascii") is ASCII
    assert glyphs_for("no such") is ASCII
    assert [len(set(g.spark)) for g in (UNICODE, ASCII)] == [9, 9]
    assert UNICODE.cut("abcdef", 4) == "abc…"
    assert UNICODE.cut("日本語", 4) == "日 …"  # each two columns wide
    assert ASCII.cut("ab", 4) == "ab  "


@given(st.integers(1, 400))
def test_columns_never_need_more_than_there_is(width):
    columns = fitting(width)
    assert sum(c.width for c in columns) + len(columns) - 1 <= width
    assert columns[0].title == "group"


def test_80_columns_have_what_matters_and_more_have_all_stages():
    titles = [c.title for c in fitting(79)]
    must = ["group", "worst", "exchange", "net RTT", "exch", "lost", "bit"]
    assert titles == must
    wide = {c.title for c in fitting(250)}
    assert wide >= {"hurt", "send_queue", "qdisc", "receive_stack", "receive_queue"}
    assert wide >= {"wakeup", "transit", "end_to_end"}


@given(st.sampled_from([79, 159, 199]), st.integers(0, 2**37), st.integers(1, 2000))
def test_every_cell_is_as_wide_as_its_column(width, value, n):
    totals = measured(**{q.value: [value] * n for q in ALL})
    totals.counted |= Counter(dict.fromkeys(Counted, 10**9 + value))
    totals.drops[Drop("receiver", "x")] = value
    found = row(totals)
    for glyphs in (UNICODE, ASCII):
        for column in fitting(width):
            text = column.laid(column.cell(found, glyphs), glyphs)
            assert len(text) == column.width
            if column.title not in ("group", "lost"):
                assert glyphs.more not in text or glyphs is ASCII, column.title


@given(
    st.sampled_from([79, 159, 199]), st.sampled_from([1, 3_000, 10**9]), st.booleans()
)
def test_where_lines_stand_for_themselves_no_place_of_loss_is_cut(width, n, more):
    totals = measured()
    totals.drops[Drop("elsewhere", "x")] = n
    if more:
        totals.drops[Drop("socket", "y")] = 1
    found = row(totals)
    (column,) = (
        c for c in fitting(width, with_whole_losses([found])) if c.title == "lost"
    )
    text = column.laid(column.cell(found, UNICODE), UNICODE)
    assert text.split()[1] == "elsewhere"


def test_each_word_of_a_block_is_in_its_legend():
    legend = " ".join(LEGEND)
    titles = {c.title for c in fitting(250)} - {"group", ""}
    assert [title for title in titles if title not in legend] == []
    assert max(map(len, LEGEND)) < 80


def test_names_of_others_are_one_visible_line():
    group = Group(comm=HOSTILE, cgroup=f"/x/{HOSTILE}/", remote="::/64")
    assert group_name(group).isprintable()
    assert group_name(Group()) == "all traffic"
    assert group_name(Group("tcp", cgroup="/")) == "tcp /"


@pytest.mark.parametrize(
    "group",
    [
        "kubepods.slice/kubepods-pod1.slice/cri-containerd-{}.scope",
        "kubepods/burstable/pod1/{}",
        "kubepods.slice/kubepods-pod1.slice/crio-{}.scope",
        "system.slice/docker-{}.scope",
    ],
)
def test_a_container_is_named_as_its_runtime_shows_it(group):
    path = f"/{group.format(64 * 'b')}"
    assert group_name(Group("tcp", cgroup=path)) == f"tcp {12 * 'b'}"
    assert group_name(Group("tcp", cgroup=f"{path}/init.scope")).endswith("/init.scope")


def test_a_document_has_the_keys_of_a_summary():
    summary = json.loads(next(iter(sorted(SUMMARIES.glob("*.json")))).read_text())
    totals = measured(qdisc=[50] * 10, response=[1000] * 10, rtt_floor=[9] * 10)
    totals.counted[Counted.SENT_MESSAGES] = 10
    totals.drops[Drop("qdisc", "OVERLIMIT", "f", "eth0 1:")] = 2
    told = {
        "fits": {(A, Quantity.TRANSIT): fit()},
        "exemplars": [slow(Group(comm=HOSTILE), Quantity.SERVER)],
    }
    made = window({A: totals}, **told)
    made.interval.own.program_seconds = {"p": 0.02}
    found = document(made)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    same = {"format", "kernel", "lost_records", "unmatched", "capabilities", "cost"}
    assert same <= set(found) & set(summary)
    group = found["groups"][0]
    kind = next(iter(summary["kinds"].values()))
    assert {"messages", "bytes", "packets", "retransmits", "stages"} <= set(group)
    stage = next(iter(kind["stages"].values()))
    estimated = {"count", "count_relative_error"}
    assert set(group["stages"]["qdisc"]) - estimated <= set(stage)
    assert (
        group["stages"]["qdisc"] | {"n": 10, "p50_ns": 32} == group["stages"]["qdisc"]
    )
    assert group["exchanges"]["parts"]["response"]["p99_ns"] is None
    assert group["network_rtt"]["floor"]["n"] == 10
    assert group["drops"] == [
        {
            "place": "qdisc",
            "reason": "OVERLIMIT",
            "function": "f",
            "device": "eth0 1:",
            "packets": 2,
        }
    ]
    assert group["fits"]["transit"]["bandwidth_bits_per_second"]["value"] == 8 * 125e6
    assert found["cost"]["probes_cpu_share"] == pytest.approx(0.01)
    assert found["exemplars"][0]["group"] == {"comm": HOSTILE}


def test_what_was_scaled_has_its_error_and_the_real_count():
    totals = measured(qdisc=[50_000] * 400, response=[1000] * 3)
    totals.counted[Counted.SENT_MESSAGES] = 400
    made = window({A: scaled(totals, times=50, error=0.08)})
    (group,) = document(made)["groups"]
    assert group["messages"] == 20_000
    assert group["measured"]["messages"] == 400
    assert group["relative_error"]["messages"] == pytest.approx(0.08)
    qdisc = group["stages"]["qdisc"]
    assert (qdisc["n"], qdisc["count"]) == (400, 20_000)
    assert qdisc["count_relative_error"] == pytest.approx(0.08)
    # 20,000 would do for a p99.9, but 400 were measured: four of them beyond p99
    assert qdisc["p90_ns"] is not None
    assert qdisc["p99_ns"] is None
    assert group["exchanges"]["parts"]["response"]["p50_ns"] is None  # of three


@pytest.mark.parametrize(
    ("error", "shown"), [(0.0, "10k"), (0.08, "~10k"), (0.3, "~10k"), (0.7, "-")]
)
def test_the_table_shows_the_digits_that_hold(error, shown):
    totals = measured(qdisc=[50_000] * 400)
    totals.counted[Counted.SENT_MESSAGES] = 400
    made = row(scaled(totals, times=50, error=error))
    messages = next(c for c in fitting(200) if c.title == "msgs")
    assert messages.cell(made, ASCII) == shown


@given(st.floats(0.01, 1e14), st.floats(0.006, 0.5))
def test_a_rate_that_was_scaled_has_room_in_its_column(value, error):
    assert len(estimated(value, error)) <= 4
    assert estimated(value, error).startswith("~")


def test_the_ending_says_that_counts_were_scaled():
    totals = measured(qdisc=[50_000] * 409)
    totals.counted[Counted.SENT_MESSAGES] = 409
    made = Totals(groups={A: scaled(totals, times=50, error=0.08)}, own=Own(2.0, 0.04))
    text = ending_sentence(Window(Watched(), made, made))
    assert "scaled from 2.0% of the time, 20000 messages sent" in text


def test_what_an_evicted_group_had_is_not_new_to_the_others():
    before = Totals(groups={A: measured(qdisc=[1] * 9)})
    before.groups[A].counted[Counted.SENT_MESSAGES] = 9
    other = Group("tcp", "server", "other")
    now = Totals(groups={other: measured(qdisc=[1] * 11)})
    now.groups[other].counted[Counted.SENT_MESSAGES] = 11
    new = now.since(before).groups
    assert set(new) == {other}
    assert new[other].counted[Counted.SENT_MESSAGES] == 2
    assert new[other].histograms[Quantity.QDISC].count == 2


def test_the_ending_says_how_much_and_what_hurt_most():
    slow = measured(receive_queue=[1000] * 990 + [10_000_000] * 10)
    slow.counted[Counted.SENT_MESSAGES] = 1000
    text = ending_sentence(window({A: slow, B: measured(qdisc=[1] * 9)}))
    assert text.startswith("watched 2 s: 2 groups, 1000 messages sent; most hurt: tcp")
    assert "80 (receive_queue 1.0us)" in text
    assert "0 groups; agent" in ending_sentence(window({}))


def test_a_copy_of_the_view_does_not_see_what_comes_later():
    shown = Shown()
    shown.take(window({A: measured(qdisc=[50] * 10)}))
    frozen = shown.copy()
    shown.take(window({B: measured(qdisc=[50] * 10)}))
    assert len(frozen.history.seconds) == 1
    assert frozen.history.heat(A, Quantity.QDISC, 9).shape[1] == 1
