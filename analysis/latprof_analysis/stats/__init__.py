"""Single questions, each to an array: its quantiles, modes, levels, losses."""

from __future__ import annotations

import math
from dataclasses import is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Result:
    """A dataclass that answers a question, and can be written as JSON."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON; None for what it has no number for."""
        return {name: _plain(value) for name, value in vars(self).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Result):
        return value.as_dict()
    if is_dataclass(value):
        return {name: _plain(field) for name, field in vars(value).items()}
    if isinstance(value, np.ndarray):
        plain = value.tolist()
        finite = value.dtype.kind != "f" or np.isfinite(value).all()
        return plain if finite else _plain(plain)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
