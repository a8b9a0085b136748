"""Series: against statsmodels, closed forms, a slow search and simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_analysis.stats import change_points
from latprof_analysis.stats.change_points import level_changes, mid_ranks
from latprof_analysis.stats.series import autocorrelation, ipdv, pdv, variance_inflation
from scipy import signal

# whole numbers, so that differences are exact
delays = st.lists(
    st.one_of(st.integers(-(10**6), 10**6).map(float), st.just(math.nan)),
    min_size=1,
    max_size=60,
)


def chain(rng, n, correlation):
    noise = rng.normal(size=n + 500)
    return signal.lfilter([1], [1, -correlation], noise)[500:]


def test_the_autocorrelation_is_that_of_statsmodels():
    from statsmodels.tsa import stattools as statsmodels

    x = chain(np.random.default_rng(1), 777, 0.6)
    mine = autocorrelation(x, lags=50)
    assert mine.value == pytest.approx(statsmodels.acf(x, nlags=50, fft=False))
    assert mine.lag.tolist() == list(range(51))


def test_the_autocorrelation_is_that_of_its_definition():
    x = np.random.default_rng(2).exponential(1, 300)
    y = x - x.mean()
    expected = [1.0, *((y[k:] @ y[:-k]) / (y @ y) for k in range(1, 299))]
    assert autocorrelation(x, lags=298).value == pytest.approx(expected)


def test_of_white_noise_95_of_100_correlations_lie_within_the_band():
    x = np.random.default_rng(3).normal(size=100_000)
    found = autocorrelation(x, lags=2000)
    inside = np.abs(found.value[1:]) < found.band
    assert 0.93 <= inside.mean() <= 0.97


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_a_chain_is_worth_as_many_values_as_its_closed_form_says(correlation):
    x = chain(np.random.default_rng(4), 200_000, correlation)
    expected = (1 - correlation) / (1 + correlation)
    worth = autocorrelation(x).n_effective / x.size
    assert worth == pytest.approx(expected, rel=0.1)
    long = chain(np.random.default_rng(4), 1_100_000, correlation)
    assert 1 / variance_inflation(long) == pytest.approx(expected, rel=0.6)


def test_an_interval_of_the_mean_by_effective_values_covers_it():
    rng = np.random.default_rng(5)
    covered = []
    for _ in range(800):
        x = chain(rng, 5000, 0.7)
        half = 1.96 * x.std() / math.sqrt(autocorrelation(x).n_effective)
        covered.append(abs(x.mean()) <= half)
    assert 0.93 <= np.mean(covered) <= 0.97


@given(delays)
def test_ipdv_is_the_difference_of_neighbours_that_both_arrived(owd):
    found = ipdv(owd)
    pairs = [(i, owd[i] - owd[i - 1]) for i in range(1, len(owd))]
    expected = [(i, d) for i, d in pairs if not math.isnan(d)]
    assert list(zip(found.index, found.value, strict=True)) == expected
    assert found.undefined == len(pairs) - len(expected)


@given(delays, st.integers(-(10**9), 10**9))
def test_a_clock_wrong_by_a_constant_changes_no_variation(owd, offset):
    shifted = np.array(owd) + offset
    for variation in (ipdv, pdv):
        assert variation(shifted).value.tolist() == variation(owd).value.tolist()


@given(delays)
def test_pdv_is_what_the_fastest_packet_did_not_take(owd):
    found = pdv(owd)
    arrived = [d for d in owd if not math.isnan(d)]
    assert found.value.tolist() == [d - min(arrived) for d in arrived]
    assert found.undefined == len(owd) - len(arrived)
    assert "RFC 5481" in found.selection


LOST = math.nan


@pytest.mark.parametrize(
    ("owd_ms", "ipdv_ms", "pdv_ms"),
    [
        # Figure 1, section 4.4
        ([20, 10, 20, 25, 20], [-10, 10, 5, -5], [10, 0, 10, 15, 10]),
        # Figure 2, section 5.3, A and B. Of the sixth packet of B it prints -10, which
        # contradicts its own delays (100 - 120) and the definition in section 4.1.
        (
            [100, 110, 120, 130, 140, 150, 140, 130, 120, 110, 100],
            [10] * 5 + [-10] * 5,
            [0, 10, 20, 30, 40, 50, 40, 30, 20, 10, 0],
        ),
        (
            [100, 110, 150, LOST, 120, 100, 110, 150, 130, 120, 100],
            [10, 40, LOST, LOST, -20, 10, 40, -20, -10, -20],
            [0, 10, 50, LOST, 20, 0, 10, 50, 30, 20, 0],
        ),
    ],
)
def test_variations_are_those_of_the_figures_in_rfc_5481(owd_ms, ipdv_ms, pdv_ms):
    differences, from_least = ipdv(owd_ms), pdv(owd_ms)
    for found, expected in (
        (differences, [LOST, *ipdv_ms]),
        (from_least, pdv_ms),
    ):
        told = np.full(len(owd_ms), LOST)
        told[found.index] = found.value
        np.testing.assert_array_equal(told, expected)
    assert differences.undefined == np.isnan(ipdv_ms).sum()


def test_a_queue_that_drains_varies_as_rfc_5481_says():
    # section 5.2: behind a burst, with packets 20 ms apart
    owd_ms = [0.0, 85.0, 65.0, 45.0, 25.0, 5.0, 0.0]
    assert ipdv(owd_ms).value.tolist() == [85, -20, -20, -20, -20, -5]
    assert pdv(owd_ms).value[1:6].tolist() == [85, 65, 45, 25, 5]


@given(st.lists(st.integers(0, 10**6).map(float), min_size=2, max_size=50))
def test_ipdv_adds_up_to_the_difference_of_last_and_first(owd):
    assert ipdv(owd).value.sum() == owd[-1] - owd[0]


NOISE = {
    "normal": lambda rng, n: rng.normal(size=n),
    "pareto": lambda rng, n: rng.pareto(1.1, n),
    "few values": lambda rng, n: rng.poisson(1, n).astype(float),
    "dependent": lambda rng, n: chain(rng, n, 0.5),
    "constant with outliers": lambda rng, n: np.where(rng.random(n) < 0.01, 1e9, 5.0),
}


@pytest.mark.parametrize("noise", NOISE)
def test_no_change_is_found_where_none_was(noise):
    rng = np.random.default_rng(6)
    found = [level_changes(NOISE[noise](rng, n)) for n in [100, 1000, 10_000] * 30]
    assert np.mean([len(one.changes) > 0 for one in found]) <= 0.05


@pytest.mark.parametrize("correlation", [0.98, 0.99, 0.999])
@pytest.mark.parametrize("n", [300, 3000])
def test_values_that_depend_on_each_other_for_long_show_no_levels(correlation, n):
    rng = np.random.default_rng(11)
    # begun long before, so that it starts anywhere
    found = [level_changes(chain(rng, n + 5000, correlation)[-n:]) for _ in range(60)]
    assert np.mean([len(one.changes) > 0 for one in found]) <= 0.07


def test_a_step_is_found_beside_dependence():
    rng = np.random.default_rng(12)
    right = 0
    for _ in range(40):
        x = chain(rng, 8000, 0.95)[-3000:]
        x[1200:] += 2 * np.std(x)
        changes = level_changes(x).changes
        right += len(changes) == 1 and abs(changes[0].index - 1200) < 150
    assert right >= 36


@pytest.mark.parametrize("step", [1.0, 4.0])
def test_a_step_beside_heavy_tails_is_found_within_its_interval(step):
    rng = np.random.default_rng(7)
    covered, counts = [], []
    for _ in range(200):
        x = rng.standard_t(2, 1000)
        x[400:] += step
        found = level_changes(x).changes
        counts.append(len(found))
        covered += [change.low <= 400 <= change.high for change in found[:1]]
    assert np.mean(np.array(counts) == 1) >= 0.95
    assert np.mean(covered) >= 0.93
    assert found[0].before.value == pytest.approx(0, abs=0.3)
    assert found[0].after.value == pytest.approx(step, abs=0.3)


@pytest.mark.parametrize("n", [900, 5000])
def test_a_sharp_step_is_one_change_wherever_stretches_were_cut(n):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        place = int(rng.integers(n // 10, n - n // 10))
        delay = rng.exponential(1e5, n) + np.where(np.arange(n) >= place, 2e6, 0)
        (change,) = level_changes(delay).changes
        # a chance value next to the step may seem to be of the other level
        assert abs(change.index - place) <= 5
        assert change.low <= place <= change.high


def test_a_queue_that_stood_for_a_while_is_two_changes():
    rng = np.random.default_rng(8)
    x = rng.exponential(10, 20_000) + 100
    x[5000:5200] += 30
    x[rng.integers(0, x.size, 100)] = 1e6
    up, down = level_changes(x).changes
    assert up.low <= 5000 <= up.high
    assert down.low <= 5200 <= down.high
    assert up.after.low < 100 + 30 + 10 * math.log(2) < up.after.high
    assert up.gain > 3 * math.log(x.size)


def optimal_partition(ranks, price):
    """Least squares of levels plus a price for each: all partitions, the slow way."""
    n = len(ranks)
    sums, squares = (np.append(0, np.cumsum(v)) for v in (ranks, ranks**2))
    best, last = [-price], [0]
    for stop in range(1, n + 1):
        start = np.arange(stop)
        cost = squares[stop] - squares[:stop]
        cost = cost - (sums[stop] - sums[:stop]) ** 2 / (stop - start)
        total = np.array(best) + cost + price
        last.append(int(np.argmin(total)))
        best.append(float(total.min()))
    places = []
    while n:
        n = last[n]
        places.append(n)
    return sorted(places)[1:]


def test_changes_are_those_of_the_best_of_all_partitions():
    rng = np.random.default_rng(9)
    x = rng.normal(size=900) + np.repeat([0, 3, 1, -2, 2], [200, 150, 250, 100, 200])
    ranks = mid_ranks(x)
    variance = np.mean(np.diff(ranks) ** 2) / 2
    expected = optimal_partition(ranks, 3 * math.log(900) * variance)
    found = [change.index for change in level_changes(x).changes]
    assert len(expected) == 4
    assert found == expected


def test_a_monotone_change_of_scale_moves_no_change():
    x = np.random.default_rng(10).exponential(1, 2000) + np.repeat([0, 1], 1000)
    found, scaled = level_changes(x), level_changes(np.exp(3 * x))
    assert len(found.changes) == 1
    places = [
        [(c.index, c.low, c.high) for c in one.changes] for one in (found, scaled)
    ]
    assert places[0] == places[1]


def test_a_series_that_is_searched_in_coarser_steps_is_settled_value_by_value(
    monkeypatch,
):
    x = np.random.default_rng(11).normal(size=6000) + np.repeat([0, 2, 0], 2000)
    fine = level_changes(x)
    monkeypatch.setattr(change_points, "_MOST_SEARCHED", 1000)
    assert level_changes(x) == fine
    assert len(fine.changes) == 2


def test_equal_values_have_no_change():
    assert level_changes([3.0] * 100).changes == ()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: autocorrelation([]), "series must have shape"),
        (lambda: autocorrelation([1.0] * 20), "not all equal"),
        (lambda: autocorrelation([1.0, math.nan]), "got 1 that are not"),
        (lambda: autocorrelation(range(20), lags=0), "lags must be at least 1"),
        (lambda: autocorrelation(range(20), confidence=1), "confidence must be"),
        (lambda: ipdv([[1.0]]), "owd must have shape"),
        (lambda: pdv([math.inf]), "owd must be finite or"),
        (lambda: level_changes(range(29)), "at least 30 values, got 29"),
        (lambda: level_changes([math.inf] * 40), "series must be finite"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_without_any_packet_that_arrived_there_is_no_variation():
    assert ipdv([math.nan] * 3).value.size == 0
    assert pdv([math.nan] * 3).as_dict()["undefined"] == 3
