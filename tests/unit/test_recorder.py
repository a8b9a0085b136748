"""The recorder hands rows to any sink, and needs neither lab nor workload for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import latprof_agent
import numpy as np
import pytest
from latprof_agent.errors import CaptureError, StoreError
from latprof_agent.probes.layout import layout_of
from latprof_agent.recorder import HOLD_NS, Recorder
from latprof_agent.sinks.round_trip_rows import RoundTrips
from latprof_agent.sinks.sink import Sink
from latprof_analysis.records.flows import IPPROTO_TCP
from latprof_analysis.records.message_rows import MESSAGE, REQUEST
from latprof_analysis.records.whole_messages import Spans
from latprof_analysis.stages import BLANK

LAYOUT = layout_of()
PACKAGE = Path(latprof_agent.__file__).parent
FLOW, CLIENT_PORT, SERVER_PORT = 7, 40_000, 5201
SENDER, RECEIVER = 1, 2
ADDRESSES = {
    "source": [0] * 10 + [255, 255, 10, 203, 0, 1],
    "destination": [0] * 10 + [255, 255, 10, 203, 0, 2],
}
PORTS = {"source_port": CLIENT_PORT, "destination_port": SERVER_PORT}
COUNTERS = {"lost_sent_messages": 0, "merged_reads": 3}
COST = {"probes_cpu_share": 0.01}
MET_NS = 77  # sent while the cost was measured
SECOND = 10**9


def records(ring: str, *rows: dict) -> np.ndarray:
    """Records of a ring as the probes lay them out; zero where nothing is said."""
    made = np.zeros(len(rows), LAYOUT.rings[ring])
    for i, row in enumerate(rows):
        for name, value in row.items():
            made[name][i] = value
    return made


def one_message(begin_ns: int) -> dict[str, np.ndarray]:
    """What the rings hold of 100 bytes over a new TCP connection."""
    flow = {"flow": FLOW, "protocol": IPPROTO_TCP, **ADDRESSES, **PORTS}
    half = {"flow": FLOW, "end": 100, "size_bytes": 100}
    left = {"send_ns": begin_ns, "queue_ns": begin_ns + 10, "xmit_ns": begin_ns + 30}
    came = ("arrive_ns", 1030), ("ready_ns", 1050), ("read_ns", 1100)
    came = {name: begin_ns + after_ns for name, after_ns in came}
    return {
        "flows": records("flows", flow | {"side": SENDER}, flow | {"side": RECEIVER}),
        "sent_messages": records("sent_messages", half | left | {"packets": 1}),
        "received_ranges": records("received_ranges", half | came),
    }


class MadeCapture:
    """Gives batches that a test has made, one a time, as if drained in order."""

    layout = LAYOUT
    ephemeral_ports = range(32768, 61000)
    flight = None  # nobody asks why
    cost = SimpleNamespace(
        as_dict=lambda: COST, periods=lambda: np.array([[MET_NS, MET_NS]])
    )

    def __init__(self, *batches: tuple[int, dict[str, np.ndarray]]) -> None:
        self._batches = list(batches)
        self.drained_ns = 0
        self.failure: CaptureError | None = None

    def read(self) -> dict[str, np.ndarray]:
        made = {}
        if self._batches:
            self.drained_ns, made = self._batches.pop(0)
        return {ring: records(ring) for ring in LAYOUT.rings} | made

    def check(self) -> None:
        failure, self.failure = self.failure, None
        if failure:
            raise failure

    def counters(self) -> dict[str, int]:
        return COUNTERS


class Kept(Sink):
    """A sink that keeps what it is given, also where it says that it is full."""

    failure = None

    def __init__(self, failure: StoreError | None = None) -> None:
        self.failure = failure
        self.rows, self.trips, self.untraced, self.tallies = [], [], [], []

    def add_messages(self, rows) -> None:
        assert not self.tallies
        self.rows += [rows.row(i) for i in range(len(rows))]

    def add_exchanges(self, rows) -> None:
        assert not self.tallies

    def add_round_trips(self, trips) -> None:
        assert not self.tallies
        self.trips.append(trips)

    def add_untraced(self, periods) -> None:
        assert not self.tallies
        self.untraced += zip(periods["from_ns"], periods["until_ns"], strict=True)

    def end(self, tally) -> None:
        self.tallies.append(tally)


class KnowingSource:
    """Knows of all messages to the server's port that they were made at a time."""

    def __init__(self, created_ns: int) -> None:
        self.created_ns = created_ns
        self.calls, self.tails = [], []
        sent = [np.array([MET_NS, 78][:n]) for n in (2, 0)]
        self.trips = [RoundTrips("tcp", {"sequence": s, "sent_ns": s}, 0) for s in sent]

    def described(self):
        return {"kind": "made"}

    def read(self) -> RoundTrips | None:
        return self.trips.pop(0) if self.trips else None

    def kinds_of(self, flows):
        return np.where(flows["destination_port"] == SERVER_PORT, REQUEST, MESSAGE)

    def created_of(self, rows):
        mine = np.flatnonzero(rows.numbers["destination_port"] == SERVER_PORT)
        return mine, np.full(len(mine), self.created_ns), rows.texts["kind"][0][mine]

    def spans_of(self, rows):
        return np.empty(0, "i8"), Spans.none(0)

    def forget_before(self, send_ns: int) -> None:
        """It keeps nothing."""


def test_a_message_arrives_at_the_sink_as_one_row_with_its_stages():
    begin_ns = 5 * SECOND
    capture = MadeCapture((begin_ns + SECOND, one_message(begin_ns)))
    sink = Kept()
    recorder = Recorder(capture, [sink])
    recorder.step()
    assert sink.rows == []  # held: what comes late may belong to it
    recorder.finish()
    (row,) = sink.rows
    assert (row["protocol"], row["kind"], row["size_bytes"]) == ("tcp", "message", 100)
    assert (row["source_address"], row["source_port"]) == ("10.203.0.1", CLIENT_PORT)
    assert row["destination_address"] == "10.203.0.2"
    stages = "send_queue", "qdisc", "transit", "receive_stack", "receive_queue"
    assert [row[f"{name}_ns"] for name in stages] == [10, 20, 1000, 20, 50]
    assert (row["end_to_end_ns"], row["retransmits"]) == (1100, 0)
    assert row["created_ns"] is None
    assert sink.trips == []


def test_rows_are_given_out_while_recording_once_nothing_can_come_for_them(
    monkeypatch,
):
    monkeypatch.setattr("latprof_agent.recorder.JOIN_NS", 0)
    begin_ns = 5 * SECOND
    drained_ns = begin_ns + SECOND
    again = {
        "retransmits": records("retransmits", {"flow": FLOW, "start": 0, "end": 100})
    }
    capture = MadeCapture(
        (drained_ns, one_message(begin_ns)),
        (drained_ns + HOLD_NS, again),
        (drained_ns + HOLD_NS + 1, {}),
    )
    sink = Kept()
    recorder = Recorder(capture, [sink])
    for rows in (0, 0, 1):
        recorder.step()
        assert len(sink.rows) == rows
    assert sink.rows[0]["retransmits"] == 1


def test_what_a_source_knows_is_in_the_rows_and_its_round_trips_reach_the_sink():
    begin_ns = 5 * SECOND
    capture = MadeCapture((begin_ns + SECOND, one_message(begin_ns)))
    sink = Kept()
    recorder = Recorder(capture, [sink])
    recorder.add_source(KnowingSource(begin_ns - 400))
    recorder.finish()
    (row,) = sink.rows
    assert (row["kind"], row["application_ns"]) == ("request", 400)
    assert [len(trips) for trips in sink.trips] == [2]
    assert sink.trips[0].numbers["probe_statistics"].tolist() == [1, BLANK]


def test_messages_that_met_the_measuring_of_the_cost_are_flagged():
    sink = Kept()
    capture = MadeCapture(
        (SECOND, one_message(MET_NS)), (2 * SECOND, one_message(SECOND))
    )
    recorder = Recorder(capture, [sink])
    recorder.step()
    recorder.finish()
    flags = {row["send_ns"]: row["probe_statistics"] for row in sink.rows}
    assert flags[MET_NS] == 1
    assert set(flags.values()) <= {1, None}


def test_untraced_time_and_what_was_counted_reach_the_sink():
    periods = records(
        "untraced_periods",
        {"from_ns": 5, "until_ns": 9},
        {"from_ns": 20, "until_ns": 21},
    )
    made = one_message(5 * SECOND) | {"untraced_periods": periods}
    del made["received_ranges"]
    sink = Kept()
    Recorder(MadeCapture((6 * SECOND, made)), [sink]).finish()
    assert sink.untraced == [(5, 9), (20, 21)]
    (tally,) = sink.tallies
    assert tally.records == 2 + 1 + 2
    assert (tally.counters, tally.probe_cost) == (COUNTERS, COST)
    assert tally.unmatched == {"sent, no receiver's half": 1}


def test_a_sink_that_is_full_ends_the_recording_and_is_told_of_the_end_once():
    begin_ns = 5 * SECOND
    sink = Kept(StoreError("full"))
    capture = MadeCapture((begin_ns + SECOND, one_message(begin_ns)))
    recorder = Recorder(capture, [sink])
    with pytest.raises(StoreError, match="full"):
        recorder.step_for(60)
    recorder.finish()
    assert len(sink.rows) == 1
    assert [tally.records for tally in sink.tallies] == [4]


def test_all_sinks_are_given_the_same_and_each_may_be_the_one_that_is_full():
    begin_ns = 5 * SECOND
    sinks = Kept(), Sink(), Kept(StoreError("full"))
    capture = MadeCapture((begin_ns + SECOND, one_message(begin_ns)))
    recorder = Recorder(capture, list(sinks))
    with pytest.raises(StoreError, match="full"):
        recorder.step_for(60)
    recorder.finish()
    first, _, last = sinks
    assert first.rows == last.rows and len(first.rows) == 1
    assert first.tallies == last.tallies and len(first.tallies) == 1


def test_what_was_drained_before_that_failed_is_given_out_all_the_same():
    begin_ns = 5 * SECOND
    sink, capture = Kept(), MadeCapture((begin_ns + SECOND, one_message(begin_ns)))
    capture.failure = CaptureError("cannot drain the probes")
    with pytest.raises(CaptureError, match="cannot drain"):
        Recorder(capture, [sink]).finish()
    assert len(sink.rows) == 1
    assert [tally.records for tally in sink.tallies] == [4]


def test_what_runs_as_root_loads_no_library_of_the_offline_analysis():
    # each takes memory and time, and pyarrow's allocator a thread with root's rights
    names = [
        ".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts)
        for p in sorted(PACKAGE.rglob("*.py"))
        if p.stem != "__main__"
    ]
    assert len(names) > 100
    # what a command shows of a run
    names += [f"latprof_analysis.report.{one}" for one in ("overview", "depth")]
    program = (
        f"import sys, importlib\n"
        f"for name in {names}: importlib.import_module(name)\n"
        "print({'pandas', 'pyarrow', 'scipy'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "set()"
