"""When the probes' cost is measured, and which messages met that."""

from __future__ import annotations

import os

import numpy as np
import pytest
from latprof_agent.capture import cost
from latprof_agent.capture.cost import ON_THE_WAY_NS, ProbeCost

SECOND = 10**9


class Clock:
    """Time as a test has it."""

    def __init__(self, monkeypatch) -> None:
        self.now_ns = 5 * SECOND
        monkeypatch.setattr(cost.time, "monotonic", lambda: self.now_ns / 1e9)
        monkeypatch.setattr(cost.time, "monotonic_ns", lambda: self.now_ns)


class MadeDrain:
    """Each program has run twice as often at each look, 100 ns each time."""

    runs = 1

    def cost(self, program):
        self.runs *= 2
        return self.runs, 100 * self.runs


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def measured(clock, monkeypatch):
    monkeypatch.setattr(cost._drain, "statistics", lambda: os.open("/", os.O_RDONLY))
    made = ProbeCost(MadeDrain(), ["program"])
    made.sample()
    made.begin()
    clock.now_ns += SECOND // 2
    yield made
    made.stop()


def met(measured, *sent_ns):
    return cost.beside_statistics(measured.periods(), np.array(sent_ns)).tolist()


def test_the_share_of_some_programs_is_theirs_alone(clock, monkeypatch):
    monkeypatch.setattr(cost._drain, "statistics", lambda: os.open("/", os.O_RDONLY))
    made = ProbeCost(MadeDrain(), ["a", "b"])
    assert made.last_share(0.0) is None
    made.open_sample()
    clock.now_ns += SECOND
    made.close_sample()
    # 2 and 4 runs at first, 8 and 16 later; 100 ns each, and 50 ns to come there
    assert made.last_share(0.0) == pytest.approx(18 * 100e-9)
    assert made.last_share(50e-9, {"b"}) == pytest.approx(12 * 150e-9)
    assert made.last_share(50e-9, ()) == 0


def test_what_was_sent_in_a_sample_or_shortly_before_met_it(clock, measured):
    begin_ns = clock.now_ns
    assert met(measured, begin_ns) == [False]
    measured.sample()
    before_ns = begin_ns - ON_THE_WAY_NS
    sent_ns = before_ns - 1, before_ns, begin_ns, begin_ns + SECOND
    assert met(measured, *sent_ns) == [False, True, True, True]  # it has not ended
    clock.now_ns = end_ns = begin_ns + 11_000_000
    measured.sample()
    assert met(measured, begin_ns, end_ns, end_ns + 1) == [True, True, False]
    clock.now_ns = second_ns = begin_ns + SECOND
    measured.sample()
    assert met(measured, end_ns + 1, second_ns, begin_ns) == [False, True, True]
    assert measured.as_dict()["probes_sampled_seconds"] == pytest.approx(0.011)


def test_a_sample_lasts_10_ms_of_each_second(clock, measured):
    on_ns = 0
    for _ in range(3000):
        measured.sample()
        clock.now_ns += 1_000_000
        on_ns += 1_000_000 * int(measured._statistics is not None)
    assert on_ns == pytest.approx(3 * 10_000_000, abs=3_000_000)


def test_where_the_kernel_refuses_statistics_no_message_met_them(clock, measured):
    def refuse():
        raise PermissionError

    measured.switch_on = refuse
    measured.sample()
    assert met(measured, clock.now_ns) == [False]
    assert measured.cpu_share() is None


def test_a_run_without_probes_or_of_half_a_second_has_no_sample(clock):
    for programs in ([], ["program"]):
        made = ProbeCost(MadeDrain(), programs)
        made.begin()
        clock.now_ns += SECOND // 2 - 1 if programs else SECOND
        made.sample()
        assert met(made, clock.now_ns) == [False]


class Costing:
    """A drain whose program is told to have run more often, 100 ns each time."""

    runs = 0

    def cost(self, _program):
        return self.runs, 100 * self.runs


def test_what_programs_took_only_grows_and_is_that_of_their_time(clock, monkeypatch):
    monkeypatch.setattr(cost._drain, "statistics", lambda: os.open("/", os.O_RDONLY))
    drain = Costing()
    made = ProbeCost(drain, ["program"])

    def sample(runs):
        made.open_sample()
        clock.now_ns += SECOND // 10
        drain.runs += runs
        made.close_sample()

    assert made.by_program(5.0) == ({}, {})
    sample(100)  # 1000 a second, since the start
    told = [made.by_program(10.0)[0]["program"], made.by_program(11.0)[0]["program"]]
    sample(0)  # an idle second does not make those before idle
    told.append(made.by_program(12.0)[0]["program"])
    assert told == pytest.approx([10_000, 11_000, 11_000])
    assert made.by_program(12.0)[1]["program"] == pytest.approx(1.1e-3)
