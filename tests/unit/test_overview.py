"""The overview of a run: what is on it, and that it fits the terminal.

The summaries were written by real runs: as by default, an overload, losses, three
rounds only, and another program.
"""

from __future__ import annotations

import copy
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_analysis.report.answer import answer
from latprof_analysis.report.depth import depth
from latprof_analysis.report.overview import losses, overview
from latprof_analysis.report.parts import Fold, Items, Missing, Table, Text
from latprof_analysis.report.tables import stage_parts
from latprof_analysis.report.terminal import table_lines, write_parts
from latprof_analysis.study.analysis import analyze
from latprof_analysis.study.incomplete import incomplete_text
from latprof_analysis.study.likely_cause import likely_cause
from latprof_analysis.study.ways import pairs_of, time_by_stage
from rich.console import Console

SUMMARIES = {
    path.stem: json.loads(path.read_text())
    for path in (Path(__file__).parent / "summaries").glob("*.json")
}
WIDTHS = (80, 100, 200)


def screen(summary: dict, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    write_parts(overview(summary), console)
    return console.file.getvalue().splitlines()


def tables(lines: list[str]) -> dict[str, list[str]]:
    """Tables by their first head, from the head to the last row."""
    found = {}
    for i, line in enumerate(lines):
        for name in ("stage", "response", "the link"):
            if line.startswith(f"{name} "):
                end = next(j for j in range(i, len(lines)) if not lines[j])
                found[name] = lines[i:end]
    return found


def redis(ways: int = 1) -> dict:
    """A summary as of redis-benchmark and a server that were both seen."""
    summary = copy.deepcopy(SUMMARIES["iperf3"])
    ours = SUMMARIES["default"]["kinds"]
    summary["kinds"] = {}
    for i in range(ways):
        there, back = f"redis-benchmark -> redis-server:{7777 + i}", "tcp request"
        summary["kinds"][f"tcp {there}"] = ours[back] | {"messages": 9000 - i}
        client, _, server = there.partition(" -> ")
        summary["kinds"][f"tcp {server} -> {client}"] = ours["tcp reply"]
    return summary


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", sorted(SUMMARIES))
def test_no_line_is_wider_than_the_terminal_and_at_100_columns_40_are_enough(
    name, width
):
    lines = screen(SUMMARIES[name], width)
    assert max(map(len, lines)) <= width
    assert width < 100 or len(lines) <= 40


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", sorted(SUMMARIES))
def test_no_column_and_no_row_tells_nothing(name, width):
    for lines in tables(screen(SUMMARIES[name], width)).values():
        for row in lines[1:]:
            assert set(row.split()[1:]) - {"-"}, row
        ends = [found.end() for found in re.finditer(r"\S+", lines[0])]
        for end in ends[1:] if lines[0].startswith("stage") else []:
            cells = {row[:end].split(" ")[-1] for row in lines[1:] if len(row) >= end}
            assert cells - {"-"}, (end, lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_all_four_ways_stand_side_by_side_with_their_p99_and_share(width):
    lines = screen(SUMMARIES["default"], width)
    heads = tables(lines)["stage"][0].split()
    for column in ("p50", "p99"):
        assert heads.count(column) == 4
    assert heads.count("share") + heads.count("%") == 4
    assert heads.count("p95") == (4 if width == 200 else 0)
    assert not [line for line in lines if line.startswith("-:")]  # nothing is too few


def test_kinds_that_share_no_size_have_their_columns():
    summary = copy.deepcopy(SUMMARIES["default"])
    trips = summary["round_trips"]
    few = {"sent": 1, "lost": 0, "rtt": {"n": 1, "max_ns": 9000}}
    for size in range(1, 9):
        trips[f"p{size}"] = few | {"sizes": {f"{size}": {"n": 1, "max_ns": 9000}}}
    lines = screen(summary)
    assert "and 2 more protocols: --all" in lines
    row = next(line for line in lines if line.startswith("1 B"))
    assert "9.00 us" in row


def test_the_answer_names_the_stage_that_has_most_of_both_ways_time():
    summary = SUMMARIES["default"]
    sums = dict.fromkeys(("transit", "end_to_end"), 0.0)
    for way in ("tcp request", "tcp reply"):
        for name in sums:
            stage = summary["kinds"][way]["stages"][name]
            sums[name] += stage["n"] * stage["mean_ns"]
    share = f"{100 * sums['transit'] / sums['end_to_end']:.1f}%"
    (line,) = [x for x in screen(summary) if x.startswith("tcp: ")]
    assert line.startswith(f"tcp: {share} of the time in transit; response p50 ")
    assert line.endswith("; none lost")


def test_the_order_is_answer_stages_sizes_link_losses_slowest_warnings_folder():
    text = "\n".join(screen(SUMMARIES["loss"]))
    told = (
        *("ping-pong", "\ntcp: ", "\nudp: ", "\nstage ", "\nresponse ", "the link"),
        *("\nlost: ", "\nslowest message", "\nwarning: ", " records, ", "\nfolder: "),
        "\nnext: latprof report runs/loss",
    )
    places = [text.find(one) for one in told]
    assert -1 not in places
    assert places == sorted(places)


def test_losses_are_named_by_place_with_the_emulators_own_counts():
    (line,) = [x for x in screen(SUMMARIES["overload"]) if x.startswith("lost:")]
    dropped = SUMMARIES["overload"]["link_counters"]["emulator"]["ab"]["dropped_queue"]
    assert line == f"lost: {dropped} packets (a to b) in the link's queue"
    text = " ".join(screen(SUMMARIES["loss"], 200))
    assert "packets (119 a to b, 99 b to a) on the link" in text
    assert "retransmitted: 72 segments of 62 messages" in text
    assert not [x for x in screen(SUMMARIES["default"]) if x.startswith("lost:")]


def test_what_a_leaf_drops_is_not_counted_again_with_its_root():
    """The counters are the kernel's: a tbf of 10 Mbit/s, a pfifo of 30 in it."""
    tbf = {"kind": "tbf", "sent_packets": 39, "dropped_packets": 4962}
    nested = {"qdiscs": [tbf, tbf | {"kind": "pfifo"}]}
    ended = {"qdiscs": []}  # the device is gone
    run = {"link_counters": {"a": nested, "b": ended}}
    assert losses(run) == "4962 packets (a) in a qdisc"
    run = {"link_counters": {"netem": {"ab": nested, "ba": ended}}}
    assert losses(run) == "4962 packets (a to b) on the link"


def test_a_reply_that_came_after_its_time_out_is_called_late():
    summary = copy.deepcopy(SUMMARIES["default"])
    summary["workload"]["runs"][1]["late"] = 1
    lines = screen(summary)
    assert "lost: 1 answered after the time-out" in lines
    assert len(lines) <= 40


def test_a_sign_for_too_few_is_explained_only_where_it_stands():
    summary = copy.deepcopy(SUMMARIES["default"])
    sizes = summary["round_trips"]["tcp"]["sizes"]
    sizes["18"]["p50_ns"] = None
    (line,) = [x for x in screen(summary) if x.startswith("-:")]
    assert "p99 1000" in line


@pytest.mark.parametrize("width", WIDTHS)
def test_ways_of_other_programs_are_paired_and_the_rest_is_counted(width):
    lines = screen(redis(5), width)
    title = next(line for line in lines if line.startswith("    ") and "tcp" in line)
    shown = len(re.findall(r"tcp redis-benchmark", title))
    assert 2 <= shown <= 3
    i = lines.index(title)
    assert lines[i + 1].split() == ["request", "reply"] * shown
    assert f"and {10 - 2 * shown} more ways: --all" in lines
    assert max(map(len, lines)) <= width
    assert len(lines) <= 40


def test_the_way_to_the_servers_port_is_the_request():
    kinds = {"tcp b:80 -> a": {"messages": 1}, "tcp a -> b:80": {"messages": 2}}
    (pair,) = pairs_of(kinds)
    assert pair.name == "tcp a -> b:80"
    assert [f["messages"] for f in pair.ways.values()] == [2, 1]
    assert list(pair.ways) == ["request", "reply"]


def test_a_kind_that_no_end_is_known_of_stands_alone():
    (other,) = pairs_of({"tcp other": {"messages": 1}})
    assert (other.name, list(other.ways)) == ("tcp other", ["messages"])


def test_stages_of_both_ways_share_all_the_time():
    (pair,) = [p for p in pairs_of(SUMMARIES["default"]["kinds"]) if p.name == "udp"]
    assert sum(time_by_stage(pair).values()) == pytest.approx(1, abs=1e-9)


MS = 1_000_000
STAMPS = dict.fromkeys(
    ("created_ns", "send_ns", "queue_ns", "xmit_ns", "arrive_ns", "ready_ns"), 1
)


@pytest.mark.parametrize(
    ("row", "known_ns", "cause"),
    [
        (
            {"qdisc_ns": 12 * MS, "transit_ns": MS},
            None,
            "waited 12.0 ms in its sender's",
        ),
        (
            {"transit_ns": 19 * MS, "retransmits": 1},
            MS,
            "1 segment sent again, whole 18.0 ms later",
        ),
        (
            {"receive_queue_ns": 6 * MS, "wakeup_ns": 5 * MS},
            None,
            "its reader waited 5.00 ms for a CPU",
        ),
        (
            {"receive_queue_ns": 6 * MS, "wakeup_ns": MS},
            None,
            "its receiver had not read for 5.00 ms",
        ),
        (
            {"transit_ns": 6 * MS, "send_queue_ns": 1000},
            6 * MS,
            "its own bytes and the delay take 6.00 ms",
        ),
        # what it always needs is no cause where something else came on top
        (
            {"transit_ns": 6 * MS, "send_queue_ns": 2 * MS},
            6 * MS,
            "waited 2.00 ms in its sender's socket",
        ),
        ({"transit_ns": 99 * MS}, MS, "waited 98.0 ms on the link beside its own"),
        ({}, None, "no part of its time is known"),
    ],
)
def test_the_likely_cause_is_what_took_most_beyond_what_the_link_needs(
    row, known_ns, cause
):
    assert likely_cause(STAMPS | row, known_ns).startswith(cause)


def test_the_slowest_message_has_its_cause_first_then_names_and_pids_of_both_ends():
    (line,) = [x for x in screen(SUMMARIES["default"], 400) if x.startswith("slowest")]
    row = SUMMARIES["default"]["slowest"]
    cause, which = line.split("; ")
    assert cause.startswith("slowest message, 9.89 ms: its reader waited ")
    for end in ("sender", "reader"):
        assert f"{row[f'{end}_comm']} (pid {row[f'{end}_pid']})" in which


texts = st.text(alphabet="12.", min_size=1, max_size=9)


@given(
    st.lists(texts, min_size=1, max_size=5).flatmap(
        lambda rows: st.tuples(
            st.just(rows),
            st.lists(
                st.lists(texts, min_size=len(rows), max_size=len(rows)),
                min_size=1,
                max_size=4,
            ),
        )
    )
)
def test_every_row_of_a_table_ends_each_column_at_the_same_place(made):
    rows, columns = made
    cells = [[name, *(f"{c[i]}|" for c in columns)] for i, name in enumerate(rows)]
    heads = [[("of", len(columns))]]
    table = Table("", ["name", *("n" for _ in columns)], cells, heads=heads)
    lines = table_lines(table, 200)
    bars = {tuple(m.end() for m in re.finditer(r"\|", x)) for x in lines[2:]}
    assert len(bars) == 1
    assert all(line == line.rstrip() for line in lines)


def halves_of(figures: dict, stages: tuple[str, ...]) -> dict:
    """Figures of messages of which one end was seen, as `MessageTotals` has them."""
    left = {name: dict(figures["stages"][name]) for name in stages}
    for stage in left.values():
        del stage["share_of_end_to_end"]
    half = {"messages": figures["messages"], "stages": left}
    return figures | {"complete": 0, "stages": {}, "halves": half}


def one_end() -> dict:
    """A run whose server was older: requests leave, replies come."""
    summary = redis()
    there, back = summary["kinds"]
    summary["kinds"] = {
        there: halves_of(summary["kinds"][there], ("send_queue", "qdisc")),
        back: halves_of(summary["kinds"][back], ("receive_stack", "receive_queue")),
    }
    return summary | {"slowest": None}


@pytest.mark.parametrize("width", WIDTHS)
def test_of_messages_with_one_end_the_half_that_was_seen_is_shown(width):
    lines = screen(one_end(), width)
    assert "request seen at the sender only; reply seen at the receiver only" in (
        " ".join(" ".join(lines).split())
    )
    table = tables(lines)["stage"]
    rows = ["send_queue", "qdisc", "receive_stack", "receive_queue"]
    assert [row.split()[0] for row in table[1:]] == rows
    assert not {"share", "%"} & set(table[0].split())  # of what is not known
    assert max(map(len, lines)) <= width


def test_why_one_end_was_not_seen_is_said_unless_a_lab_had_both():
    kinds, run = one_end()["kinds"], {"workload": {"plan": None}, "lab": None}
    n = sum(figures["messages"] for figures in kinds.values())
    text = incomplete_text(run | {"kinds": kinds})
    assert text == (
        f"of {n} messages {n:,} (100.0%) were seen at one end only: these files do not "
        "say why"
    )
    halves = {"sent, receiver not watched": n - 90, "received, sender not seen": 90}
    told = run | {"kinds": kinds, "unmatched": halves}
    text = incomplete_text(told)
    assert text.startswith(f"of {n} messages {n - 90:,} (")
    assert "lack their receiver's half: it has an address of this host" in text
    assert "whether it is on this host is not known" in text
    assert incomplete_text(told | {"lab": {"known": {}}}) == ""
    # several runs that have nothing in common tell of no lab
    assert incomplete_text(told | {"workload": None}) == ""
    whole = {"kinds": SUMMARIES["default"]["kinds"], "unmatched": {}}
    assert incomplete_text(run | whole) == ""
    console = Console(file=io.StringIO(), width=100)
    for kind, figures in kinds.items():
        write_parts(list(stage_parts(kind, figures)), console)
    assert "seen at one end only" in console.file.getvalue()
    assert "send_queue" in console.file.getvalue()


DATA = Path(__file__).parents[1] / "data"


def analyzed(*paths, width=80, everything=False):
    """What `analyze` prints of files, and its document."""
    document = analyze([str(path) for path in paths], thorough=everything).document
    return lines_of(document, width, everything=everything), document


def lines_of(document, width=80, *, everything=False):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    write_parts((depth if everything else overview)(document), console)
    return console.file.getvalue().splitlines()


def test_analyze_of_a_default_run_is_40_lines_of_80_columns():
    lines, _ = analyzed(DATA / "run")
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 40
    for begin in ("stage ", "response ", "slowest message, "):
        assert [line for line in lines if line.startswith(begin)]


FILES = [path for path in sorted(DATA.glob("*.*")) if path.suffix != ".sh"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_line_of_another_tools_file_is_wider_than_the_terminal(path):
    _, document = analyzed(path, everything=True)
    for width in WIDTHS:
        first = lines_of(document, width)
        every = lines_of(document, width, everything=True)
        assert max(map(len, first + every)) <= width
        assert 0 < len(first) <= 40


def test_the_answer_of_the_report_is_that_of_the_terminal():
    lines, document = analyzed(DATA / "run", width=400)
    for sentence in answer(document)[:2]:
        assert sentence.removesuffix(".").replace(" µs", " us") in lines


def estimate(low, high):
    return {"value": (low + high) / 2, "low": low, "high": high, "n": 9}


def side(rate_bps):
    """One side of a hinge, at a rate that is known within 1%."""
    ends = estimate(0.99 * rate_bps, 1.01 * rate_bps)
    slope = estimate(8e9 / ends["high"], 8e9 / ends["low"])
    delay = estimate(1e-3, 1.1e-3)
    return {
        "slope_ns_per_byte": slope,
        "bandwidth_bits_per_second": ends,
        "intercept_seconds": delay,
    }


def with_fit(**changed):
    """The default run's summary, of which TCP's fit is another."""
    summary = copy.deepcopy(SUMMARIES["default"])
    summary["round_trips"]["tcp"]["fit"] |= changed
    return summary


def test_two_slopes_are_told_as_two_ranges():
    knot = estimate(7500, 8500)
    hinge = {"knot_bytes": knot, "below": side(1e8), "above": side(1e9)}
    none = {"bandwidth_bits_per_second": None, "link_rate_range": None}
    summary = with_fit(model="hinge", reason="it bends", hinge=hinge, **none)
    text = "\n".join(lines_of(summary))
    assert "tcp round trips, up to 8,000 B  99.00 to 101.0 Mbit/s" in text
    assert "tcp round trips, above          990.0 Mbit/s to 1.010 Gbit/s" in text
    text = "\n".join(lines_of(summary, everything=True))
    assert "bandwidth, tcp, up to 8,000 B" in text
    assert "refused" not in text


@pytest.mark.parametrize("everything", [False, True])
def test_where_a_bandwidth_is_refused_the_reason_is_told(everything):
    none = {"bandwidth_bits_per_second": None, "fixed_delay_seconds": None}
    summary = with_fit(model="none", reason="it bends twice", **none)
    text = "\n".join(lines_of(summary, everything=everything))
    assert "it bends twice" in text
    assert ("refused, see below" in text) == everything
    # once: run warns of it in its own words
    summary["warnings"] = ["tcp: no bandwidth from the fit: it bends twice"]
    assert "\n".join(lines_of(summary)).count("it bends twice") == 1


def test_a_change_of_level_is_told_by_its_time_and_by_what_it_did():
    _, document = analyzed(DATA / "run")
    figures = document["messages"]["tcp request"]
    median = figures["tail"]["percentiles"]["p50"]["value_ns"]
    change = {"index": 9, "low": 8, "high": 10, "run": "run"}
    change |= {"before": {"value": 0.0}, "after": {"value": median / 2}}
    when = {"t_s": 3.25, "low_s": 3.2, "high_s": 3.3}
    levels = figures["time"]["level_changes"] = {"changes": [change | when]}
    (line,) = [x for x in lines_of(document, 300, everything=True) if " 3.25 s" in x]
    assert "from 3.25 s [3.2, 3.3] on it took " in line
    assert " more (50.0% of the median)" in line
    # where its place is all that is known it is named by that, counted from 1
    levels["changes"] = [change]
    text = "\n".join(lines_of(document, 300, everything=True))
    assert "from value 10 [9, 11] on it took " in text


@pytest.mark.parametrize(("worth", "told"), [(1008, False), (90, True)])
def test_that_neighbours_are_alike_is_told_where_it_widens_intervals(worth, told):
    _, document = analyzed(DATA / "run")
    found = {"lag_1": -0.001, "band": 0.1, "n": 1008, "n_effective": worth}
    for figures in (*document["messages"].values(), *document["round_trips"].values()):
        figures["time"]["autocorrelation"] = found
    text = "\n".join(lines_of(document, 300, everything=True))
    assert ("those of 90 independent values, not of 1008" in text) == told
    assert "-0.00" not in text


HOSTILE = "\x1b[2Jx\u202e\r\x07"
names = st.text(max_size=12) | st.just(HOSTILE)


@given(names, names, names)
def test_no_text_of_others_acts_on_a_terminal(one, two, three):
    rows = [[one, two], [three, "1"]]
    head = Table(one, ["name", two], rows, three, heads=[[(three, 1)]])
    items = Items([one, two])
    parts = [Text(one), head, items, Missing(two, three), Fold(three, [Text(two)])]
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    write_parts(parts, console)
    assert all(c.isprintable() for c in console.file.getvalue() if c != "\n")


def test_runs_of_several_set_ups_are_laid_out_one_by_one():
    setups = [SUMMARIES["default"], SUMMARIES["loss"]]
    document = {"setups": setups, "notes": ["two set-ups"], "warnings": []}
    lines = lines_of(document, 100)
    assert [line for line in lines if line.startswith("set-up ")] == [
        "set-up 1 of 2",
        "set-up 2 of 2",
    ]
    assert lines[-1] == "note: two set-ups"


def test_losses_of_several_runs_are_added_by_place():
    link = {"emulator": {"ab": {"dropped_queue": 3, "dropped_loss": 0}}}
    runs = {name: {"link_counters": link, "unread_at_close": 2} for name in "xy"}
    told = "6 packets (a to b) in the link's queue, 4 datagrams unread at close"
    assert losses({"runs": runs}) == told


def test_a_table_with_texts_that_have_no_room_is_folded():
    rows = [["name " * 9, "text " * 20, "7.00 us"]]
    lines = table_lines(Table("", ["what", "why", "p50"], rows), 60)
    assert max(map(len, lines)) <= 60
    assert "".join(" ".join(lines).split()).count("text") == 20
