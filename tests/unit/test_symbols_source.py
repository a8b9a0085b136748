"""What a story says of names of functions, where nothing answers for them."""

import numpy as np
import pytest
from latprof_agent.symbols.symbols import NONE_NEEDED, Symbols
from latprof_analysis.report.story_lines import recorder_lines

PID, IMAGE = 41, 7
STACK = np.dtype(
    [
        *((name, "u4") for name in ("pid", "image", "user_frames", "kernel_frames")),
        *((name, "u8", (4,)) for name in ("user", "kernel")),
    ]
)


def stacks(user_frames: int) -> np.ndarray:
    samples = np.zeros(1, STACK)
    samples["pid"], samples["image"] = PID, IMAGE
    samples["user_frames"] = user_frames
    samples["user"][:, :user_frames] = 0x1000
    return samples


def looked_at(monkeypatch, error: Exception, user_frames: int) -> Symbols:
    """Symbols whose program that reads files does this instead of an answer."""

    def look(*_):
        raise error

    symbols = Symbols()
    monkeypatch.setattr(symbols._files, "look", look)
    symbols.note(stacks(user_frames), {PID})
    symbols.finish()
    return symbols


@pytest.mark.parametrize(
    ("error", "source", "words"),
    [
        (TimeoutError(), "no answer", "took too long"),
        (ProcessLookupError(), "ended", "had ended"),
    ],
)
def test_names_that_nothing_gave_are_not_called_needless(
    monkeypatch, error, source, words
):
    symbols = looked_at(monkeypatch, error, user_frames=2)
    assert symbols.source == source
    (line,) = recorder_lines({"skipped": 0, "symbols": symbols.source})
    assert words in line


@pytest.mark.parametrize("error", [TimeoutError(), ProcessLookupError()])
def test_a_stack_of_the_kernel_alone_needs_no_names(monkeypatch, error):
    assert looked_at(monkeypatch, error, user_frames=0).source == NONE_NEEDED
