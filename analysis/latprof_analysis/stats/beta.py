"""Quantiles of the beta distribution, and what follows from them.

scipy.special has them, but is not installed where latprof only measures, and takes as
long to load as all else of a small run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count

_TINY = 1e-300
_EPSILON = 1e-15


def beta_share(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b), of a, b > 0 [1]_.

    That is the chance that a beta-distributed value is at most `x`.

    References
    ----------
    .. [1] DLMF, 8.17(v): a continued fraction, evaluated by the modified method of
       Lentz (1976).

    Examples
    --------
    >>> round(beta_share(0.5, 2, 3), 12)
    0.6875
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where it converges slowly the other end's is fast
        return 1 - beta_share(1 - x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front += a * math.log(x) + b * math.log1p(-x)
    c, d, fraction = 1.0, 0.0, 1.0
    for term in _terms(x, a, b):
        d = 1 / _not_zero(1 + term * d)
        c = _not_zero(1 + term / c)
        fraction *= c * d
        if abs(c * d - 1) < _EPSILON:
            break
    return math.exp(front) / (a * fraction)


def beta_quantile(probability: float, a: float, b: float) -> float:
    """Return the x with I_x(a, b) = `probability`, by bisection, to 1e-15 of it.

    Examples
    --------
    >>> round(beta_quantile(0.975, 1, 100), 6)
    0.036217
    """
    low, high = 0.0, 1.0
    while True:
        # in proportion while it is small: a share of 1e-9 has as many digits
        middle = math.sqrt(low * high) if low > 0 and high < 0.1 else (low + high) / 2
        if not low < middle < high or high - low <= _EPSILON * high:
            return middle
        if beta_share(middle, a, b) < probability:
            low = middle
        else:
            high = middle


def student_quantile(freedom: float, probability: float) -> float:
    """Return Student's quantile, of a probability of 0.5 or more.

    Examples
    --------
    >>> round(student_quantile(1, 0.975), 4)
    12.7062
    """
    x = beta_quantile(2 * (1 - probability), freedom / 2, 0.5)
    return math.sqrt(freedom * (1 - x) / x)


def _terms(x: float, a: float, b: float) -> Iterator[float]:
    """Yield the continued fraction's numerators: DLMF 8.17.23."""
    for m in count():
        if m:
            yield m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        yield -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
