"""Copies of rings that are written over while they are read: whole, and in order."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from latprof_agent import _drain
from latprof_agent.probes.catalogue import COVERED
from latprof_agent.probes.layout import OBJECT, layout_of

LAYOUT = layout_of()
SMALL, LARGE = 1 << 13, 1 << 22
PROGRAM = "on_flight_switch"


@pytest.fixture
def switching():
    """Two tasks that pass a byte back and forth, so that CPUs switch all the time."""
    there, back = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            while os.read(there[0], 1) == b"+":
                os.write(back[1], b"+")
        finally:
            os._exit(0)
    ended = threading.Event()

    def play():
        while not ended.is_set():
            os.write(there[1], b"+")
            os.read(back[0], 1)

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        os.write(there[1], b"-")
        os.waitpid(child, 0)
        for end in (*there, *back):
            os.close(end)


@pytest.fixture
def recorder(request):
    drain = _drain.Drain(str(OBJECT))
    try:
        for ring in [*LAYOUT.rings, *LAYOUT.flights]:
            drain.set_ring_bytes(ring, 0)
        drain.set_ring_bytes("switches", request.param)
        drain.set_ring_bytes("untraced_periods", SMALL)
        drain.enable(PROGRAM)
        drain.load()
        drain.attach(PROGRAM, -1)
        yield drain
    finally:
        drain.close()


def copies(drain, until):
    """By CPU each copy's switches, and since when it has all."""
    while True:
        records, since = drain.snapshot("switches")
        rows = np.frombuffer(records, LAYOUT.flights["switches"])
        for cpu, since_ns in since.items():
            yield rows[rows["cpu"] == cpu], since_ns
        if until(rows, since):
            return


@pytest.mark.parametrize("recorder", [SMALL], indirect=True)
def test_what_is_written_over_meanwhile_is_left_out(recorder, switching):
    seen, gaps, hidden = set(), set(), set()

    def enough(rows, _since):
        seen.update(rows["t_ns"].tolist())
        hidden.update(spells_of(recorder)["until_ns"].tolist())
        return len(seen) > 50_000

    for rows, since_ns in copies(recorder, enough):
        t_ns = rows["t_ns"].astype("i8")
        assert (np.diff(t_ns) >= 0).all()
        # there is a record since when all are there, or none of them
        assert since_ns in (0, 2**64 - 1, *t_ns.tolist())
        kept = rows[t_ns >= since_ns] if since_ns < 2**63 else rows[:0]
        # who leaves is who had come
        others = kept["left_thread"][1:] != kept["thread"][:-1]
        gaps.update(kept["t_ns"][1:][others].tolist())
    # unless one of them is hidden from probes, which say so
    assert len(gaps - hidden) <= len(seen) / 1000, (gaps - hidden, len(seen))


@pytest.mark.parametrize("recorder", [LARGE], indirect=True)
def test_a_ring_that_was_never_full_has_all_since_ever(recorder, switching):
    found = list(copies(recorder, lambda rows, _since: len(rows) > 1000))
    assert all(since_ns == 0 for _, since_ns in found)
    (times,) = [rows["t_ns"] for rows, _ in found[-1:]]
    assert len(times) == len(np.unique(times)) or len(times) < 2


@pytest.mark.parametrize("recorder", [LARGE], indirect=True)
def test_who_is_hidden_from_the_recorder_is_a_spell(recorder, switching):
    """Its program does the work of on_switch, too; here tasks may be hidden or not."""
    assert COVERED[PROGRAM] == "on_switch"
    found = list(copies(recorder, lambda rows, _since: len(rows) > 20_000))
    all_spells = spells_of(recorder)
    for cpu in range(os.cpu_count() or 1):
        *_, rows = (rows for rows, _ in found if len(rows) and rows["cpu"][0] == cpu)
        hidden = np.flatnonzero(rows["left_thread"][1:] != rows["thread"][:-1])
        until_ns = rows["t_ns"][-1]
        expected = list(
            zip(rows["t_ns"][hidden], rows["t_ns"][hidden + 1], strict=True)
        )
        spells = all_spells[all_spells["cpu"] == cpu][["from_ns", "until_ns"]]
        assert spells[spells["until_ns"] <= until_ns].tolist() == expected


def spells_of(drain):
    """Those of hidden tasks that wait in the ring."""
    dtype = LAYOUT.rings["untraced_periods"]
    room = np.zeros(drain.waiting("untraced_periods") // dtype.itemsize, dtype)
    drain.read("untraced_periods", room)
    return room
