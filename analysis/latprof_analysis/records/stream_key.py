"""A place in a flow as one number, so that flows sort and search together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

OFFSET_BITS = 44  # 17 TB in one direction of one connection


def stream_key(flow: Array, offset: Array) -> Array:
    """Join a flow's index and an offset in it; keys of one flow are neighbours."""
    return np.asarray(flow << OFFSET_BITS | offset.astype("i8"))
