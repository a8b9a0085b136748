"""Loss: shares, episodes and models, against closed forms and simulated chains."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_analysis.stats import loss
from latprof_analysis.stats.loss import (
    Runs,
    choose_loss_model,
    hidden_log_likelihood,
    loss_episodes,
    loss_pattern,
    loss_share,
)
from scipy import stats

flags = st.lists(st.booleans(), min_size=1, max_size=60)


def chains(seed, runs, n, p, r, loss_good=0.0, loss_bad=1.0):
    """Simulate packet by packet; many chains beside each other."""
    rng = np.random.default_rng(seed)
    bad = rng.random(runs) < p / (p + r)
    lost = np.empty((runs, n), dtype=bool)
    for i in range(n):
        lost[:, i] = rng.random(runs) < np.where(bad, loss_bad, loss_good)
        turn = rng.random(runs)
        bad = np.where(bad, turn >= r, turn < p)
    return lost


@pytest.mark.parametrize(
    ("p", "r", "loss_good", "loss_bad"),
    [
        (0.5, 0.5, 0.02, 0.02),  # independent
        (0.005, 0.2, 0.0, 1.0),  # bursts of 5
        (0.005, 0.1, 0.001, 0.5),  # a hidden bad state of 10 packets
    ],
)
def test_intervals_cover_the_true_share_also_under_bursts(p, r, loss_good, loss_bad):
    truth = (r * loss_good + p * loss_bad) / (p + r)
    runs = chains(2, 1000, 10_000, p, r, loss_good, loss_bad)
    found = [loss_share(one) for one in runs]
    assert all(share.reason is None for share in found)
    # 93 to 97%; two standard deviations of 1000 runs are 1.4%
    assert 0.93 <= np.mean([s.low <= truth <= s.high for s in found]) <= 0.97


def test_a_binomial_interval_covers_half_of_the_time_under_bursts():
    runs = chains(3, 500, 10_000, 0.005, 0.2)
    truth = 0.005 / 0.205
    tests = [stats.binomtest(int(one.sum()), one.size).proportion_ci() for one in runs]
    covered = np.mean([ci.low <= truth <= ci.high for ci in tests])
    assert 0.40 <= covered <= 0.58  # the range that others measured
    n_effective = np.median([loss_share(one).n_effective for one in runs])
    # (1 - c) / (1 + c) of the packets, with c = 1 - p - r
    assert n_effective == pytest.approx(10_000 * 0.205 / 1.795, rel=0.1)


def test_no_loss_bounds_the_share_by_the_rule_of_three():
    share = loss_share(np.zeros(1000, dtype=bool))
    exact = stats.binomtest(0, 1000).proportion_ci(method="exact")
    assert (share.low, share.value) == (0.0, 0.0)
    assert share.high == pytest.approx(exact.high)
    assert "independent" in share.reason


def test_few_episodes_have_a_share_but_no_interval():
    share = loss_share([True] * 500 + [False] * 500)
    assert (share.value, share.low, share.high, share.episodes) == (0.5, None, None, 1)
    assert "at least 10" in share.reason
    assert loss_share([True] * 20).value == 1.0


@given(flags)
def test_episodes_rebuild_the_flags(lost):
    found = loss_episodes(lost)
    rebuilt = np.zeros(len(lost), dtype=bool)
    for start, length in zip(found.start, found.length, strict=True):
        rebuilt[start : start + length] = True
    assert rebuilt.tolist() == lost
    assert loss_share(lost).episodes == len(found.start)
    assert (found.gap >= 2).all()


def test_distance_and_period_are_those_of_the_rfcs_example():
    # RFC 3357, sections 5.4.3 and 6.5: packets 2, 5, 7, 9 and 10 of ten are lost
    lost = [0, 1, 0, 0, 1, 0, 1, 0, 1, 1]
    pattern = loss_pattern(lost)
    assert pattern.as_dict() == {
        "distance": [0, 0, 0, 0, 3, 0, 2, 0, 2, 1],
        "period": [0, 1, 0, 0, 2, 0, 3, 0, 4, 4],
    }
    assert pattern.noticeable_rate(2) == 3 / 5
    assert loss_episodes(lost).length.tolist() == [1, 1, 1, 2]
    assert loss_episodes(lost).gap.tolist() == [3, 2, 2]
    assert loss_pattern([0, 0]).noticeable_rate(2) is None


def test_loss_periods_begin_where_the_rfc_says():
    # RFC 3357, section 4, numbered from 0
    lost = [letter == "x" for letter in "rrrxrrxxxrxrrxxx"]
    assert loss_episodes(lost).start.tolist() == [3, 6, 10, 13]
    assert loss_pattern(lost).period.max() == 4


def lost_at(*numbers):
    lost = np.zeros(max(numbers) + 1, dtype=bool)
    lost[list(numbers)] = True
    return loss_pattern(lost)


def test_losses_are_noticeable_as_the_rfc_says():
    # RFC 3357, sections 4 and 6.1, with its loss constraint of 99
    assert lost_at(20, 50).distance[50] == 30
    assert lost_at(50, 125, 126, 127).noticeable_rate(99) == 3 / 4
    assert lost_at(100, 200, 300, 400, 500).noticeable_rate(99) == 0
    assert lost_at(100, 175, 275, 290, 400).noticeable_rate(99) == 2 / 5


@given(flags)
def test_distances_add_up_to_the_span_between_first_and_last_loss(lost):
    where = [i for i, one in enumerate(lost) if one]
    span = where[-1] - where[0] if where else 0
    assert loss_pattern(lost).distance.sum() == span


def test_a_gilbert_chain_is_found_with_its_closed_forms():
    (lost,) = chains(4, 1, 100_000, 0.005, 0.2)
    choice = choose_loss_model(lost)
    best = choice.best
    assert best.name == "gilbert"
    assert best.p.low < 0.005 < best.p.high
    assert best.r.low < 0.2 < best.r.high
    assert best.loss_share == best.p.value / (best.p.value + best.r.value)
    assert best.loss_share == pytest.approx(lost.mean(), rel=0.01)
    assert best.mean_bad_packets == 1 / best.r.value
    assert best.mean_bad_packets == pytest.approx(
        np.mean(loss_episodes(lost).length), rel=0.01
    )


def test_intervals_of_the_gilbert_rates_cover_the_truth():
    p_in, r_in = [], []
    for lost in chains(5, 1000, 4000, 0.01, 0.3):
        model = loss._gilbert(lost)
        p_in.append(model.p.low <= 0.01 <= model.p.high)
        r_in.append(model.r.low <= 0.3 <= model.r.high)
    assert 0.93 <= np.mean(p_in) <= 0.97
    assert 0.93 <= np.mean(r_in) <= 0.97


def test_a_hidden_bad_state_is_recovered_where_gilbert_is_wrong():
    (lost,) = chains(6, 1, 60_000, 0.005, 0.1, 0.001, 0.5)
    choice = choose_loss_model(lost)
    best = choice.best
    assert best.name == "gilbert-elliott"
    assert best.p.value == pytest.approx(0.005, rel=0.25)
    assert best.r.value == pytest.approx(0.1, rel=0.25)
    assert best.loss_bad == pytest.approx(0.5, rel=0.1)
    assert best.loss_good == pytest.approx(0.001, abs=0.0006)
    assert best.mean_bad_packets == pytest.approx(10, rel=0.25)
    gilbert = next(model for model in choice.models if model.name == "gilbert")
    assert gilbert.mean_bad_packets < 3  # what run lengths alone say


def test_of_independent_losses_bic_chooses_no_state_more():
    rng = np.random.default_rng(7)
    names = [choose_loss_model(rng.random(5000) < 0.02).best.name for _ in range(6)]
    assert names == ["independent"] * 6


def forward(lost, p, r, loss_good, loss_bad):
    """Log-likelihood packet by packet: the textbook's scaled forward algorithm."""
    state = np.array([r / (p + r), p / (p + r)])
    step, log = np.array([[1 - p, p], [r, 1 - r]]), 0.0
    loss_in = np.array([loss_good, loss_bad])
    for one in lost:
        state = (state * (loss_in if one else 1 - loss_in)) @ step
        log += math.log(state.sum())
        state /= state.sum()
    return log


rates = st.floats(0.001, 0.999)


@given(flags, rates, rates, rates, rates)
def test_the_product_over_runs_is_the_forward_algorithm(lost, p, r, good, bad):
    _, runs = loss.first_episodes(np.array(lost))
    expected = forward(lost, p, r, good, bad)
    assert hidden_log_likelihood(runs, p, r, good, bad) == pytest.approx(
        expected, rel=1e-6, abs=1e-6
    )


def baum_welch(lost, p, r, good, bad, rounds):
    """Re-estimate as Rabiner's tutorial does, the slow way."""
    for _ in range(rounds):
        step = np.array([[1 - p, p], [r, 1 - r]])
        seen = np.where(np.array(lost)[:, None], [good, bad], [1 - good, 1 - bad])
        n = len(lost)
        alpha, beta, scale = np.empty((n, 2)), np.ones((n, 2)), np.empty(n)
        state = np.array([r, p]) / (p + r) * seen[0]
        for i in range(n):
            state = state if i == 0 else (alpha[i - 1] @ step) * seen[i]
            scale[i] = state.sum()
            alpha[i] = state / scale[i]
        for i in range(n - 2, -1, -1):
            beta[i] = step @ (seen[i + 1] * beta[i + 1]) / scale[i + 1]
        gamma = alpha * beta
        later = (seen[1:] * beta[1:]) / scale[1:, None]
        moves = alpha[:-1].T @ later * step
        p, r = moves[0, 1] / moves[0].sum(), moves[1, 0] / moves[1].sum()
        good, bad = (gamma[lost].sum(axis=0) / gamma.sum(axis=0)).tolist()
    return p, r, good, bad


def test_the_fit_is_the_top_that_baum_and_welch_climb_to():
    (lost,) = chains(8, 1, 4000, 0.01, 0.1, 0.005, 0.6)
    hidden = next(
        m for m in choose_loss_model(lost).models if m.name == "gilbert-elliott"
    )
    p, r, good, bad = baum_welch(lost, 0.01, 0.1, 0.005, 0.6, rounds=40)
    assert hidden.log_likelihood >= forward(lost, p, r, good, bad) - 1e-6
    assert hidden.p.value == pytest.approx(p, rel=0.1)
    assert hidden.r.value == pytest.approx(r, rel=0.1)
    assert hidden.loss_bad == pytest.approx(bad, rel=0.05)


def test_the_richer_model_never_fits_worse():
    for seed in range(3):
        (lost,) = chains(seed, 1, 3000, 0.02, 0.3)
        fitted = {m.name: m.log_likelihood for m in choose_loss_model(lost).models}
        assert fitted["gilbert-elliott"] >= fitted["gilbert"] - 0.01
        assert fitted["gilbert-elliott"] >= fitted["independent"] - 0.01


def test_too_few_episodes_choose_no_model_and_too_many_are_cut_with_a_word():
    few = choose_loss_model([False] * 100 + [True])
    assert few.best is None
    assert "at least 10" in few.reason
    many = choose_loss_model(np.arange(30_000) % 2 == 0)
    assert (many.n, many.n_used) == (30_000, 19_999)  # to the last of 10,000 episodes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: loss_share([]), r"lost must have shape \(n,\) with n >= 1"),
        (lambda: loss_share([0, 2]), "lost must hold flags"),
        (lambda: loss_share([0.0, math.nan]), "lost must hold flags"),
        (lambda: loss_share([True], confidence=95), "confidence must be between"),
        (lambda: loss_pattern([0]).noticeable_rate(0), "at least 1 packet, got 0"),
        (lambda: choose_loss_model([[True]]), r"got \(1, 1\)"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_run_without_any_loss_has_a_likelihood():
    runs = Runs(np.empty(0), np.empty(0), at_end=5)
    expected = forward([False] * 5, 0.1, 0.3, 0.2, 0.2)
    assert hidden_log_likelihood(runs, 0.1, 0.3, 0.2, 0.2) == pytest.approx(expected)
