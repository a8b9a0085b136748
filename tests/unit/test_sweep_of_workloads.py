"""What a sweep shows of operations, bulk transfers and a mesh; where loss sets in."""

from __future__ import annotations

import pytest
from latprof_analysis.report.sweep_parts import sweep_parts
from latprof_analysis.report.terminal import Terminal, write_parts
from latprof_analysis.study.bulk import bulk_document
from latprof_analysis.study.operations import operation_figures
from latprof_analysis.study.sweep import SweptRun, find_knees, rows_of
from latprof_analysis.study.sweep_figures import figures_of
from test_bulk_figures import part, two_channels
from test_mesh import overloaded
from test_operations import made

MS = 1_000_000
LAB = {
    "known": {"rate_bps": 10_000_000, "mtu_bytes": 1500, "link_header_bytes": 14},
    "addresses": {"a": "10.0.0.1"},
}


def transfers(offered_bps=0):
    one = part(two_channels()) | {"offered_bps": offered_bps}
    one["balance"] |= {"places": [{"place": "receive buffer", "packets": 10}]}
    return {
        "bulk": bulk_document([{"bulk": one}]),
        "workload": {"bulk": {"datagram_bytes": 1400}},
        "lab": LAB,
    }


def test_operations_have_a_row_for_each_store_operation_and_payload():
    times = [9 * MS, 1 * MS, 3 * MS, 2 * MS, 7 * MS]
    section = operation_figures(made({("REDIS", "GET", 1_000_000): times}))
    ((name, figures),) = figures_of({"ops": section}).items()
    assert name == "REDIS GET 1000000 B"
    assert figures["avg_ns"] == pytest.approx(2e6)  # without the first and the last
    assert figures["operation"]["p50_ns"] == 3e6
    assert figures["operation"]["p99_ns"] is None
    assert figures["goodput_bps"] == pytest.approx(8e6 / 3e-3)
    assert figures["shares"]["network"] == pytest.approx(0.2)
    assert figures["rtt"] == {}


def test_bulk_transfers_have_what_was_received_lost_and_where_it_died():
    ((name, figures),) = figures_of(transfers(9_000_000)).items()
    assert name == "udp 2"
    # 6000 bytes sent and 5000 received, from 0 to 2.5 s
    assert figures["sent_bps"] == pytest.approx(8 * 6000 / 2.5)
    assert figures["received_bps"] == pytest.approx(8 * 5000 / 2.5)
    assert (figures["lost"], figures["loss_ratio"]) == (10, 10 / 60)
    assert figures["died"] == {"receive buffer": 10}
    # 1400 bytes are 1442 on the wire
    assert figures["utilisation"] == pytest.approx(0.9 * 1442 / 1400)
    (found,) = figures_of(transfers()).values()
    assert found["utilisation"] is None  # as fast as it goes


def test_a_search_in_which_no_rate_came_through_received_none():
    searches = [{"channels": 4, "rate_bps": 97e6}, {"channels": 8, "rate_bps": 0.0}]
    found = figures_of({"bulk": {"parts": [], "searches": searches}})
    told = {name: figures["received_bps"] for name, figures in found.items()}
    assert told == {"udp 4 highest rate": 97e6, "udp 8 highest rate": None}


def test_a_mesh_has_a_row_for_each_size():
    section = overloaded()
    section["knees"] = [{"size_bytes": 1024, "interval_ns": 7 * MS}]
    found = figures_of({"mesh": section})
    assert [*found] == ["tcp 1024 B", "tcp 204800 B"]
    for cell, figures in zip(section["cells"], found.values(), strict=True):
        assert figures["avg_ns"] == pytest.approx(1000 * cell["table"]["avg_msg"])
        assert figures["rtt"]["p50_ns"] == cell["intended"]["p50_ns"]
        assert figures["utilisation"] == cell["utilisation"]
        assert figures["loss_ratio"] == cell["lost"] / cell["sent"]
        assert sum(figures["shares"].values()) == pytest.approx(1)
    assert [one["kept_up_ns"] for one in found.values()] == [7 * MS, None]
    large = found["tcp 204800 B"]["stages_ns"]
    assert large["qdisc"] == 4000 + 10  # there and back
    assert large["application"] == 9000 + 10


OFFERS = {"5m": 5e6, "8m": 8e6, "9m": 9e6, "12m": 12e6}


def rows_with(*losses, used=(0.5, 0.8, 0.9, 0.95), sent=10_000, repeats=1):
    """Rows of bulk transfers with these shares lost, at ever higher rates."""
    runs = []
    for offer, loss, share in zip(OFFERS, losses, used, strict=False):
        for n in range(1, repeats + 1):
            figures = {
                "utilisation": share,
                "loss_ratio": loss,
                "lost": loss * sent,
                "received_bps": (1 - loss) * OFFERS[offer],
                "died": {"qdisc tbf of a": loss * sent} if loss else {},
            }
            runs.append(
                SweptRun({"offer": offer}, n, "f", "done", figures={"udp 1": figures})
            )
    return rows_of([{"offer": offer} for offer in [*OFFERS][: len(losses)]], runs), runs


@pytest.mark.parametrize(
    ("losses", "at"),
    [
        ((0, 0, 0.02, 0.2), 2),
        ((0.01, 0.011, 0.012, 0.2), 3),  # some is always lost, then far more
        ((0, 0, 0.0005, 0.2), 3),  # 5 datagrams are chance
        ((0, 0.02, 0, 0.2), 3),  # and back
    ],
)
def test_the_knee_is_where_loss_sets_in_for_good(losses, at):
    rows, _ = rows_with(*losses)
    (knee,) = find_knees(rows, "offer", OFFERS)
    assert (knee["row"], knee["rules"]) == (at, ["loss"])


@pytest.mark.parametrize(
    "losses", [(0, 0, 0, 0), (0.3, 0.3, 0.3, 0.3), (0, 0, 0, 0.0005)]
)
def test_without_a_rise_of_loss_there_is_no_knee(losses):
    rows, _ = rows_with(*losses)
    assert not find_knees(rows, "offer", OFFERS)


def test_the_knee_is_told_with_its_rate_and_where_most_died(capsys):
    rows, runs = rows_with(0, 0, 0.02, 0.2, used=(0.5, 0.8, 1.03, 1.2))
    knees = find_knees(rows, "offer", OFFERS)
    told = {
        **{"folder": "x", "line": "latprof run", "repeat": 1, "planned": 4},
        **{"swept": [{"name": "offer", "values": [*OFFERS]}], "folders": [*OFFERS]},
        **{"rows": rows, "knees": knees, "runs": [run.as_dict() for run in runs]},
    }
    write_parts(sweep_parts(told), Terminal(width=120))
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[1].split() == [
        *("offer", "link", "%", "received", "lost", "%", "died", "at")
    ]
    assert lines[4].split() == [
        *("9m", "103", "8.82", "Mbit/s", "2", "knee", "qdisc", "tbf", "of", "a", "100%")
    ]
    assert (
        "knee, udp 1: at offer=9m 103.0% of the link's rate is offered and loss sets "
        "in (2.0%); 100.0% of them died at qdisc tbf of a"
    ) in " ".join(out.split())
