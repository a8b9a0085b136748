"""Probabilities of many comparisons, corrected for how many they are."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Correction = Literal["benjamini-hochberg", "holm", "none"]


def adjusted(
    p_values: ArrayLike, correction: Correction = "benjamini-hochberg"
) -> NDArray[np.float64]:
    """Correct probabilities for being one of many.

    ``"benjamini-hochberg"`` bounds the expected share of false ones among what is
    found [1]_, also where comparisons depend on each other in the same direction,
    as stages and sizes of a run do [2]_. ``"holm"`` bounds the probability of a
    single false one, however they depend [3]_.

    Parameters
    ----------
    p_values : array_like, shape (n,)
        Each in [0, 1].

    References
    ----------
    .. [1] Benjamini and Hochberg (1995). Controlling the false discovery rate.
       JRSS B 57, 289-300.
    .. [2] Benjamini and Yekutieli (2001). The control of the false discovery rate
       in multiple testing under dependency. Annals of Statistics 29, 1165-1188.
    .. [3] Holm (1979). A simple sequentially rejective multiple test procedure.
       Scandinavian Journal of Statistics 6, 65-70.

    Examples
    --------
    >>> adjusted([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.04, 0.04]
    >>> adjusted([0.01, 0.04, 0.03], "holm").round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError("p_values must have shape (n,) and lie from 0 to 1")
    n = p.size
    if correction == "none" or not n:
        return p
    order = np.argsort(p, kind="stable")
    if correction == "holm":
        raised = np.maximum.accumulate(p[order] * np.arange(n, 0, -1))
    else:
        scaled = p[order] * n / np.arange(1, n + 1)
        raised = np.minimum.accumulate(scaled[::-1])[::-1]
    corrected = np.empty(n)
    corrected[order] = np.minimum(1.0, raised)
    return corrected
