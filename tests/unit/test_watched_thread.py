"""A thread that an error has ended is seen, by whoever asks."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from latprof_agent.capture.capture import Capture
from latprof_agent.capture.flight import NEVER_NS, FlightRecorder
from latprof_agent.errors import LatprofError
from latprof_agent.probes.layout import layout_of
from latprof_agent.watched_thread import Apart, WatchedThread


def fails():
    raise ValueError("of\nits own")


def test_what_ended_a_thread_is_raised_once_and_not_on_the_screen(capfd):
    thread = WatchedThread("flight recorder", fails)
    thread.start()
    thread.join()
    with pytest.raises(LatprofError) as raised:
        thread.check()
    assert str(raised.value) == (
        "the flight recorder has ended: ValueError: of its own; start again, and "
        "report it"
    )
    thread.check()
    assert capfd.readouterr().err == ""


def test_a_thread_that_ends_as_it_should_raises_nothing():
    thread = WatchedThread("flight recorder", lambda: None)
    thread.start()
    thread.join()
    thread.check()


class BrokenDrain:
    """Has copies that cannot be read."""

    def set_constant(self, *_):
        pass

    put = set_constant

    def snapshot(self, _):
        fails()


def test_a_recorder_that_an_error_has_ended_ends_the_command():
    recorder = FlightRecorder(BrokenDrain(), layout_of(), NEVER_NS)
    recorder.begin()
    recorder.want(1 << 40, 1 << 30, np.array([1]))
    capture = Capture.__new__(Capture)
    capture.flight, capture._thread = recorder, recorder._thread
    recorder._thread.join()
    with pytest.raises(LatprofError, match="the flight recorder has ended: ValueError"):
        capture.check()
    recorder.finish()


def test_work_apart_gives_its_result_or_raises_what_it_raised():
    done = Apart("it", 60, lambda: 7)
    done._thread.join()
    assert done.is_over
    assert done.result() == 7
    failed = Apart("it", 60, fails)
    failed._thread.join()
    with pytest.raises(ValueError, match="its own"):
        failed.result()


def test_work_that_takes_too_long_is_left_behind():
    never = threading.Event()
    waits = Apart("it", 0.01, never.wait)
    waits._thread.join(0.02)
    assert waits.is_over
    with pytest.raises(TimeoutError, match=r"it takes over 0\.01 s"):
        waits.result()
    never.set()
