"""Quantiles of the beta distribution, against scipy's."""

from __future__ import annotations

import pytest
from latprof_analysis.stats.beta import beta_quantile, beta_share, student_quantile
from scipy import special

PARAMETERS = (0.5, 1, 1.5, 2, 7, 40.5, 999, 30_000, 2_000_000)
PROBABILITIES = (0.0005, 0.025, 0.5, 0.975, 0.9995)


@pytest.mark.parametrize("a", PARAMETERS)
def test_quantiles_as_scipy_has_them(a):
    for b in PARAMETERS:
        for p in PROBABILITIES:
            found = beta_quantile(p, a, b)
            # the logarithms of the gamma function leave so many digits
            assert found == pytest.approx(special.betaincinv(a, b, p), rel=1e-7)
            assert beta_share(found, a, b) == pytest.approx(p, rel=1e-7)


@pytest.mark.parametrize("freedom", [1, 1.3, 2, 3, 4.9])
def test_students_quantiles_as_scipy_has_them(freedom):
    for p in (0.75, 0.95, 0.975, 0.9999):
        exact = special.stdtrit(freedom, p)
        assert student_quantile(freedom, p) == pytest.approx(exact, rel=1e-9)


def test_outside_of_0_to_1_nothing_or_all_is_below():
    assert (beta_share(-1, 2, 3), beta_share(0, 2, 3)) == (0, 0)
    assert (beta_share(1, 2, 3), beta_share(2, 2, 3)) == (1, 1)
