"""Student's and chi-square's tails without scipy, whose import takes 20 MB.

The agent fits lines all the time, and is to stay small.
"""

from __future__ import annotations

import math
from statistics import NormalDist

# With fewer degrees the expansion is off by more than 0.01% at 97.5%.
_FEWEST_EXPANDED = 5.0


def student_quantile(freedom: float, probability: float) -> float:
    """Return Student's quantile, by Cornish and Fisher's expansion [1]_.

    Within 0.01% of the exact one at 0.975, 0.08% at 0.995.

    References
    ----------
    .. [1] Abramowitz and Stegun (1964). Handbook of Mathematical Functions, 26.7.5.

    Examples
    --------
    >>> [round(student_quantile(n, 0.975), 3) for n in (1, 5, 30, math.inf)]
    [12.706, 2.57, 2.042, 1.96]
    """
    if freedom < _FEWEST_EXPANDED:
        from scipy.special import stdtrit  # slow to import, and few get here

        return float(stdtrit(freedom, probability))
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**k for k, term in enumerate(terms, 1))


def chi_square_tail(freedom: int, value: float) -> float:
    """Return the probability of more than `value`, exactly [1]_.

    References
    ----------
    .. [1] Abramowitz and Stegun (1964), 26.4.4 and 26.4.5.

    Examples
    --------
    >>> [round(chi_square_tail(n, x), 4) for n, x in ((1, 3.8415), (6, 12.5916))]
    [0.05, 0.05]
    """
    half = value / 2
    if half <= 0:
        return 1.0
    odd = freedom % 2
    tail = math.erfc(math.sqrt(half)) if odd else 0.0
    log_half = math.log(half)
    for k in range(freedom // 2):
        power = k + odd / 2
        tail += math.exp(power * log_half - half - math.lgamma(power + 1))
    return min(1.0, tail)
