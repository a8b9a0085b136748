"""What is told of a load: the sentence, the table, the page."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from latprof_analysis.report.build import build_report
from latprof_analysis.report.depth import depth
from latprof_analysis.report.load_parts import load_sections
from latprof_analysis.report.load_text import load_parts, load_sentences
from latprof_analysis.report.overview import overview
from latprof_analysis.report.parts import Figure, Items, Table, Text
from latprof_analysis.stats.histogram import Histogram
from latprof_analysis.study.analysis import analyze
from latprof_analysis.study.load import load_figures, phase_figures
from run_folders import write_run

RATE_BPS = 100e6
MS = 1_000_000


def times(mean_ns: float) -> dict:
    return {"n": 500, "p50_ns": mean_ns, "p99_ns": None, "mean_ns": mean_ns}


def phase(mean_ns: int, *, lost: int = 0) -> dict:
    rtt = Histogram()
    rtt.record([mean_ns] * 500)
    return phase_figures(rtt, 500 + lost, lost)


def queue(place: str, kind: str, held: int, **more: str) -> dict:
    ends = {"median": held, "max": 1.25 * held}
    return {
        **{"way": "request", "place": place, "interface": "veth0", "kind": kind},
        **{"handle": "1:", "parent": "root", "n": 30},
        **{f"{name}_bytes": n for name, n in ends.items()},
        **{f"{name}_ns": 8e9 * n / RATE_BPS for name, n in ends.items()},
        **more,
    }


def document(**more: object) -> dict:
    row = {"way": "request", "stage": "qdisc", "idle": times(0.01 * MS)}
    stage = row | {"loaded": times(60.77 * MS), "more_mean_ns": 60.76 * MS}
    flows = {
        **{"load": "tcp:4:up", "protocol": "tcp", "direction": "up", "flows": 4},
        **{"congestion": "cubic", "rate_bps": None, "down": None, "failure": None},
        "up": {"sent_bps": 96e6, "received_bps": 95.5e6, "retransmits": 12},
    }
    told = {
        **load_figures(phase(MS), phase(63 * MS), [stage]),
        "queues": [queue("a", "tbf", 770_000), queue("b", "tbf", 0, way="reply")],
        "flows": [flows],
        **more,
    }
    load = {"asked": ["tcp:4:up"], "open_loop": False, "rate_bps": RATE_BPS}
    return {"load": load | {"protocols": {"tcp": told}}}


def test_the_sentence_says_how_much_where_and_which_queue_holds_it():
    (text,) = load_sentences(document())
    assert text == (
        "tcp under load: 62.0 ms more on average (1.00 ms to 63.0 ms), 98.0% of it in "
        "qdisc of requests: tbf 1: at a's veth0 holds 770 kB, which at 100 Mbit/s take "
        "61.6 ms"
    )


@pytest.mark.parametrize(
    ("queues", "name"),
    [
        (
            [
                queue("a", "htb", 10**5),
                queue("a", "pfifo", 10**5, handle="2:", parent="1:1"),
            ],
            "pfifo 2: at a's veth0 holds 100 kB",
        ),
        ([queue("emulator", "emulator", 10**6, interface="ab")], "qdisc of requests"),
        (
            [
                queue("a", "tbf", 31_000),
                queue("a", "fq_codel", 31_000, handle="2:", parent="1:1"),
            ],
            # not what these take at the link's rate
            "fq_codel 2: at a's veth0 holds 31 kB in a queue for each flow: a message "
            "waits in its own",
        ),
    ],
)
def test_the_queue_is_the_lowest_that_holds_most_in_the_stage_that_grew(queues, name):
    (text,) = load_sentences(document(queues=queues))
    assert name in text
    assert "emulator" not in text


def test_growth_on_the_way_is_the_emulators_queue():
    told = document(queues=[queue("emulator", "emulator", 10**6, interface="ab")])
    told["load"]["protocols"]["tcp"]["stages"][0]["stage"] = "transit"
    (text,) = load_sentences(told)
    assert "transit of requests: the emulator's queue a to b holds 1 MB" in text


@pytest.mark.parametrize(
    ("stage", "named"),
    [
        ("application", False),
        ("send_queue", True),
        ("qdisc", True),
        ("receive_stack", False),
        ("receive_queue", False),
    ],
)
def test_a_queue_is_named_only_for_a_stage_in_which_messages_wait_for_it(stage, named):
    told = document()
    told["load"]["protocols"]["tcp"]["stages"][0]["stage"] = stage
    (text,) = load_sentences(told)
    assert f"98.0% of it in {stage} of requests" in text
    assert ("tbf 1: at a's veth0 holds 770 kB" in text) == named


def test_growth_of_replies_is_the_other_ends_queue():
    held = [queue("a", "tbf", 10**6), queue("b", "tbf", 10**5, way="reply")]
    told = document(queues=held)
    told["load"]["protocols"]["tcp"]["stages"][0]["way"] = "reply"
    (text,) = load_sentences(told)
    assert "in qdisc of replies: tbf 1: at b's veth0 holds 100 kB" in text


def test_what_was_lost_and_what_was_not_measured_is_said():
    assert load_sentences(document(loaded=None, more_mean_ns=None)) == [
        "tcp under load: not measured"
    ]
    (text,) = load_sentences(document(loaded=phase(63 * MS, lost=500)))
    assert text.endswith("500 of 1000 lost (50.0%)")
    none = phase_figures(Histogram(), 7, 7)
    assert load_sentences(document(loaded=none, more_mean_ns=None)) == [
        "tcp under load: 7 of 7 lost"
    ]


def test_the_table_has_both_phases_and_round_trips_per_minute():
    table, flows, *notes = load_parts(document())
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["round trip", "request qdisc", "RPM"]
    assert (table.rows[-1][3], table.rows[-1][6]) == ("60,000", "952")
    assert isinstance(flows, Items)
    assert flows.items == [
        "load beside tcp: 4 flows of tcp (cubic) up 96.00 Mbit/s sent, 95.50 Mbit/s "
        "received, 12 retransmitted segments"
    ]
    assert all(isinstance(note, Text) and note.quiet for note in notes)
    assert len(notes) == 2  # a closed loop asks unevenly
    every = list(load_parts(document(), everything=True))
    assert any("median 770 kB (61.6 ms" in i for i in every[1].items)


def test_a_flow_that_failed_is_told_in_its_words():
    told = document()
    told["load"]["protocols"]["tcp"]["flows"][0]["failure"] = "it died"
    _, flows, *_ = load_parts(told)
    assert flows.items == ["load beside tcp: it died"]


def test_without_a_load_nothing_is_told():
    assert list(load_parts({})) == load_sentences({}) == []


def test_a_folder_tells_it_as_the_run_did(tmp_path):
    write_run(tmp_path / "run")
    path = tmp_path / "run" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | document()))
    study = analyze(tmp_path / "run")
    assert study.document["load"] == json.loads(path.read_text())["load"]
    report = build_report(study, "run")
    (section,) = [one for one in report.sections if one.name == "load"]
    (figure,) = [part for part in section.parts if isinstance(part, Figure)]
    assert set(figure.data["phase"]) == {"idle", "loaded"}
    assert figure.title in load_sentences(document())
    for lay_out in (overview, depth):
        texts = [p.text for p in lay_out(study.document) if isinstance(p, Text)]
        assert load_sentences(document())[0] in texts


@pytest.mark.parametrize("heard", [(), ("idle",), ("loaded",)])
def test_a_page_of_phases_in_which_all_was_lost_tells_it_in_words(heard):
    none = phase_figures(Histogram(), 500, 500)
    phases = {name: phase(MS) if name in heard else none for name in ("idle", "loaded")}
    told = document(**phases, more_mean_ns=None)
    (section,) = load_sections(told)
    first, table, *_ = section.parts
    assert isinstance(table, Table)
    (said,) = load_sentences(told)
    if heard:
        assert isinstance(first, Figure)
        assert (first.title, set(first.data["phase"])) == (said, {*heard})
    else:
        assert first == Text(said)
        assert said == "tcp under load: 500 of 500 lost"


@pytest.mark.parametrize(
    ("wrong", "where"),
    [("protocols", "load.protocols"), ("open_loop", "load.open_loop")],
)
def test_a_load_that_is_not_as_latprof_writes_it_is_left_out(tmp_path, wrong, where):
    write_run(tmp_path / "run")
    path = Path(tmp_path / "run" / "summary.json")
    told = copy.deepcopy(document())
    told["load"][wrong] = 5
    path.write_text(json.dumps(json.loads(path.read_text()) | told))
    found = analyze(tmp_path / "run").document
    assert "load" not in found
    assert any(where in note for note in found["notes"])
