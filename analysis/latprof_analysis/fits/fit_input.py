"""Checks of what the fits are given, each with one plain sentence."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.fits.fit_result import ReplyMode
from latprof_analysis.fits.rounds import Floats


def column_of(name: str, values: ArrayLike) -> Floats:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1:
        raise ValueError(f"{name} must have shape (n,), got {column.shape}")
    if not np.isfinite(column).all():
        wrong = column[~np.isfinite(column)][0]
        raise ValueError(f"{name} must be finite, got {wrong}")
    return column


def check_rows(
    sizes: Floats, delays: Floats, rounds: Floats, *, name: str = "rtt_ns"
) -> None:
    """Check rows whose delays are called `name`; a round trip is never 0."""
    if not sizes.size == delays.size == rounds.size:
        raise ValueError(
            f"size_bytes, {name} and round_index must have equal length, "
            f"got {sizes.size}, {delays.size} and {rounds.size}"
        )
    if (sizes <= 0).any():
        raise ValueError(f"size_bytes must be more than 0, got {sizes.min():.0f}")
    if name == "rtt_ns" and (delays <= 0).any():
        raise ValueError(f"rtt_ns must be more than 0, got {delays.min():.0f}")
    for each, column in ((name, delays), ("round_index", rounds)):
        if (column < 0).any():
            raise ValueError(f"{each} must be 0 or more, got {column.min():.0f}")


def check_options(reply_mode: ReplyMode, confidence: float, resamples: int) -> None:
    if reply_mode != "echo" and (isinstance(reply_mode, str) or reply_mode < 1):
        raise ValueError(
            f"reply_mode must be 'echo' or a number of bytes, got {reply_mode!r}"
        )
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    if resamples < 100:
        raise ValueError(f"resamples must be 100 or more, got {resamples}")
