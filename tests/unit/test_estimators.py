"""Each rival of the default line against an implementation that is not ours."""

import json
import warnings
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known_links import (
    ONE_WAY_NS,
    QUEUE_NS,
    RATE,
    TCP,
    exponential,
    fit_tcp,
    link,
    pareto_spikes,
    sweep,
    transmission_ns,
)
from latprof_analysis.fit.rivals import (
    ESTIMATORS,
    as_table,
    compare_estimators,
    draw_lines,
    huber_line,
    huber_scores,
    least_squares_line,
    least_squares_scores,
    quantile_line,
    quantile_scores,
    tukey_line,
    tukey_scores,
)
from latprof_analysis.fit.rounds import block_weights
from scipy import stats
from simulated_links import SIZES

FEW = SIZES[::4]


def compare(trips, *names, reply_mode="echo", **options):
    return compare_estimators(
        *trips, reply_mode=reply_mode, packets=TCP, names=names or None, **options
    )


def crossing(size):
    return 2 * TCP.wire_bytes(size)


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_weighted_least_squares_is_scipys_of_repeated_points(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0, 1e5, 12), rng.normal(size=12)
    times = rng.integers(0, 4, 12)
    times[:2] = 1
    line = stats.linregress(np.repeat(x, times), np.repeat(y, times))
    slope, intercept = least_squares_line(x, y, times.astype(float))
    assert slope == pytest.approx(line.slope, rel=1e-6, abs=1e-15)
    assert intercept == pytest.approx(line.intercept, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("ours", "norm"), [(huber_line, "HuberT"), (tukey_line, "TukeyBiweight")]
)
def test_m_estimates_are_those_of_statsmodels(ours, norm, seed):
    from statsmodels import api

    size, rtt, _ = link(seed, noise=pareto_spikes, rounds=20)
    x, y = crossing(size) / 1e5, rtt / 1e6
    model = api.RLM(y, api.add_constant(x), M=getattr(api.robust.norms, norm)())
    theirs = model.fit(maxiter=500, tol=1e-12)
    slope, intercept = ours(x, y, np.ones_like(x))
    assert slope == pytest.approx(theirs.params[1], rel=1e-5)
    assert intercept == pytest.approx(theirs.params[0], rel=1e-5)


def check_loss(x, y, slope, intercept, p):
    left = y - slope * x - intercept
    return np.sum(np.where(left > 0, p * left, (p - 1) * left))


def test_quantile_regression_is_no_worse_than_that_of_statsmodels():
    from statsmodels import api

    size, rtt, _ = link(1, noise=exponential, rounds=30)
    x, y = crossing(size) / 1e5, rtt / 1e6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its iteration ends without converging
        theirs = api.QuantReg(y, api.add_constant(x)).fit(q=0.1, max_iter=500).params
    slope, intercept = quantile_line(x, y, np.ones_like(x))
    assert slope == pytest.approx(theirs[1], rel=2e-3)
    ours = check_loss(x, y, slope, intercept, 0.1)
    assert ours <= check_loss(x, y, theirs[1], theirs[0], 0.1) * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.25, 0.5]))
def test_quantile_regression_is_the_best_of_all_lines_through_two_points(seed, p):
    rng = np.random.default_rng(seed)
    x, y = rng.permutation(40)[:14].astype(float), rng.exponential(1, 14)
    times = rng.integers(0, 3, 14)
    times[:3] = 1
    x_all, y_all = np.repeat(x, times), np.repeat(y, times)
    best = np.inf
    for i, j in combinations(np.flatnonzero(times), 2):
        slope = (y[j] - y[i]) / (x[j] - x[i])
        best = min(best, check_loss(x_all, y_all, slope, y[i] - slope * x[i], p))
    found = quantile_line(x, y, times.astype(float), p)
    assert check_loss(x_all, y_all, *found, p) == pytest.approx(best, rel=1e-6)


def test_the_low_line_is_that_of_the_default_answer_interval_and_all():
    trips = link(3, noise=exponential)
    fit = fit_tcp(trips, resamples=200)
    (line,) = compare(trips, "p10_weighted_theil_sen", resamples=200)
    assert line.bandwidth_bits_per_second == fit.bandwidth_bits_per_second
    assert line.fixed_delay_seconds == fit.fixed_delay_seconds
    assert line.slope_ns_per_byte == fit.slope_ns_per_byte
    assert line.factor == fit.factor


def by_size(size, rtt, reduce):
    sizes = np.unique(size)
    return crossing(sizes), np.array([reduce(rtt[size == s]) for s in sizes])


@pytest.mark.parametrize(
    ("name", "reduce"),
    [
        ("minimum", np.min),
        ("p10_theil_sen", lambda v: np.quantile(v, 0.1, method="median_unbiased")),
    ],
)
def test_lines_per_size_are_scipys(name, reduce):
    size, rtt, index = link(5, noise=exponential)
    (line,) = compare((size, rtt, index), name)
    x, y = by_size(size, rtt, reduce)
    theil_sen = stats.theilslopes(y, x, method="joint")
    assert line.bandwidth_bits_per_second.value == pytest.approx(8e9 / theil_sen.slope)
    assert line.fixed_delay_seconds.value == pytest.approx(theil_sen.intercept / 1e9)
    # Repeated medians go another way to the same link.
    siegel = stats.siegelslopes(y, x)
    assert theil_sen.slope == pytest.approx(siegel.slope, rel=1e-3)


SOLVERS = {
    "least_squares": (least_squares_line, least_squares_scores),
    "huber": (huber_line, huber_scores),
    "tukey": (tukey_line, tukey_scores),
    "quantile_10": (quantile_line, quantile_scores),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_draws_by_one_step_spread_as_lines_that_are_solved_anew(name):
    solve, scores = SOLVERS[name]
    size, rtt, index = link(6, noise=exponential, rate=10e9, sizes=FEW)
    x = crossing(size)
    block, weights = block_weights(index.astype(float), resamples=150, seed=4)
    line = solve(x, rtt, np.ones_like(x))
    stepped = draw_lines(line, scores, x, rtt, block, weights)
    solved = np.array([solve(x, rtt, row[block]) for row in weights]).T
    for ours, slow in zip(stepped, solved, strict=True):
        assert ours[0] == slow[0]
        # The spread of 150 draws is known to 6%, and these are the same draws; that
        # of a quantile rests on an estimated density, good to about 15% here.
        assert ours.std() == pytest.approx(slow.std(), rel=0.25)
        assert np.corrcoef(ours, slow)[0, 1] > 0.85


@pytest.mark.parametrize("reply_mode", ["echo", 18])
def test_each_estimator_finds_a_quiet_link(reply_mode):
    lines = compare(
        link(2, reply_mode, noise=exponential), reply_mode=reply_mode, resamples=100
    )
    assert [line.name for line in lines] == list(ESTIMATORS)
    for line in lines:
        assert line.factor == (2 if reply_mode == "echo" else 1)
        assert line.bandwidth_bits_per_second.value == pytest.approx(RATE, rel=0.005)
        # The floor, and at most the mean of the queueing above it.
        above = line.fixed_delay_seconds.value * 1e9 - 2 * ONE_WAY_NS
        assert 0 <= above < 1.2 * QUEUE_NS


@settings(max_examples=5, deadline=None)
@given(st.floats(1e6, 1e10), st.floats(1e4, 1e8))
def test_without_noise_each_estimator_finds_the_line(rate, delay_ns):
    size, index = sweep(np.random.default_rng(1), FEW, rounds=10)
    rtt = delay_ns + transmission_ns(crossing(size), rate)
    for line in compare((size, rtt, index), resamples=100):
        found = line.bandwidth_bits_per_second
        rounding = 1e-7 * rate * delay_ns / transmission_ns(65_000, rate)
        assert found.value == pytest.approx(rate, rel=1e-6, abs=rounding)


def test_spikes_move_least_squares_and_no_robust_line():
    rate, errors = 10e9, {name: [] for name in ESTIMATORS}
    names = [name for name in ESTIMATORS if name != "huber"]
    for seed in range(5):
        trips = link(seed, noise=pareto_spikes, rate=rate, rounds=60, sizes=SIZES[::2])
        for line in compare(trips, *names, resamples=100):
            found = line.bandwidth_bits_per_second
            error = 1.0 if found is None else abs(found.value / rate - 1)
            errors[line.name].append(error)
    assert np.median(errors.pop("least_squares")) > 0.1
    for name, found in errors.items():
        assert max(found, default=0) < 0.05, name


def covered(name, runs, rounds, truth_of):
    hits = []
    for seed in range(runs):
        trips = link(seed, noise=exponential, rate=10e9, rounds=rounds, sizes=FEW)
        (line,) = compare(trips, name)
        hits.append(truth_of(line))
    return np.mean(hits)


def slope_is_inside(line):
    return (
        line.slope_ns_per_byte.low
        <= 1.6 / TCP.payload_share
        <= line.slope_ns_per_byte.high
    )


@pytest.mark.parametrize("name", ["least_squares", "p10_theil_sen"])
def test_intervals_of_the_slope_cover_the_truth(name):
    # Of 2000 runs: 93% of least squares, 98% of the low line. Four standard
    # deviations of 120 runs at 95% are 8%.
    assert covered(name, 120, 40, slope_is_inside) >= 0.87


def test_the_interval_of_minima_misses_the_floor():
    def floor_is_inside(line):
        delay = line.fixed_delay_seconds
        return delay.low <= 2 * ONE_WAY_NS / 1e9 <= delay.high

    # A draw cannot go below the sample's minimum, and that stands above the floor.
    assert covered("minimum", 100, 40, floor_is_inside) < 0.8
    assert "too narrow" in ESTIMATORS["minimum"][0]


def test_the_table_has_a_row_for_each_estimator():
    lines = compare(link(2, rounds=20, sizes=FEW), resamples=100)
    table = as_table(lines)
    assert list(table.index) == list(ESTIMATORS)
    for line in lines:
        row = table.loc[line.name]
        assert row["fixed_delay_seconds"] == line.fixed_delay_seconds.value
        assert row["n"] == line.n
        found = line.bandwidth_bits_per_second
        if found is None:
            assert np.isnan(row["bandwidth_bits_per_second"])
        else:
            assert row["bandwidth_bits_per_second_low"] == found.low
        assert json.loads(json.dumps(line.as_dict(), allow_nan=False)) == line.as_dict()


def test_a_slope_that_may_be_zero_has_no_bandwidth():
    rng = np.random.default_rng(1)
    size, index = sweep(rng, FEW, 20)
    rtt = 1e6 + rng.exponential(1e5, size.size)
    (line,) = compare((size, rtt, index), "least_squares")
    assert line.bandwidth_bits_per_second is None
    assert np.isnan(as_table([line])["bandwidth_bits_per_second"]).all()


GOOD = [64, 128], [1e5, 2e5], [0, 0]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (([], [], []), {}, "a line needs 2 sizes or more, got 0"),
        (([64, 64], [1, 2], [0, 1]), {}, "a line needs 2 sizes or more, got 1"),
        (([64], [np.nan], [0]), {}, "rtt_ns must be finite"),
        (([64], [-1], [0]), {}, "rtt_ns must be more than 0"),
        (GOOD, {"names": ["best"]}, "names must be of .* got best"),
        (GOOD, {"reply_mode": "none"}, "reply_mode must be"),
        (GOOD, {"resamples": 3}, "resamples must be 100 or more"),
    ],
)
def test_bad_input_is_refused(columns, options, message):
    with pytest.raises(ValueError, match=message):
        compare_estimators(*columns, **{"reply_mode": "echo", **options})


def test_no_rounds_are_refused():
    with pytest.raises(ValueError, match="must hold a round or more"):
        block_weights(np.array([]), resamples=3, seed=1)
