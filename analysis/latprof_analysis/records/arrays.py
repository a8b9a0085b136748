"""Records as they came: structured arrays, by ring."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Records = np.ndarray[Any, np.dtype[Any]]
Batch = dict[str, Records]  # by ring


def as_bytes(records: Records) -> NDArray[Any]:
    """The same memory, each record one piece.

    NumPy copies records field by field, which takes 20 times as long (35 to 90 ns for
    one of 80 bytes, `take` and `compress` 2 ns; NumPy 2.4).
    """
    return records.view(f"V{records.itemsize}")


def stacked(*parts: Records) -> Records:
    """Copy records of one kind into one array."""
    return np.concatenate([as_bytes(part) for part in parts]).view(parts[0].dtype)
