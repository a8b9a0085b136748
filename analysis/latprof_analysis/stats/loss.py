"""Packets that did not arrive: their share, in which episodes, how far apart.

And models of how losses follow each other: independent, Gilbert, Gilbert-Elliott. The
state of the last is hidden: its likelihood and best fit take a search. How long runs
of losses and of arrivals are is given as seen, and as models have them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.stats import Floats, Ints, Result
from latprof_analysis.stats.distribution import ccdf
from latprof_analysis.stats.quantiles import check_fraction, normal_quantile
from latprof_analysis.stats.series import variance_inflation

Flags = NDArray[np.bool_]
# With fewer episodes the data do not show how long episodes are.
FEWEST_EPISODES = 10
# The likelihood of so many episodes takes some ms; a fit asks for it 1000 times.
_MOST_EPISODES = 10_000
# Log-odds beyond this are 0 or 1 for any run that anyone measures.
_BOUND = 14.0
_TINY = 1e-300
Name = Literal["independent", "gilbert", "gilbert-elliott"]
Outcome = Literal["lost", "arrived"]
_POINTS = 40


@dataclass(frozen=True)
class LossShare(Result):
    """Share of lost packets, with an interval that knows of bursts."""

    value: float
    low: float | None  # both None where no interval can be given
    high: float | None
    n: int  # packets sent
    lost: int
    episodes: int  # runs of lost packets
    n_effective: float | None  # how many independent packets would show as much
    confidence: float
    reason: str | None  # why there is no interval, or what it takes for granted


@dataclass(frozen=True)
class Episodes(Result):
    """Runs of packets lost one after the other, as RFC 3357 has them."""

    start: Ints  # shape (e,), index of the first lost packet of each
    length: Ints  # shape (e,), packets lost in each: loss period lengths, section 6.3
    # Shape (e - 1,), from the last packet lost in one to the first of the next, one
    # more than what arrived between: inter-loss-period lengths, section 6.4, without
    # the 0 that stands there for the first period.
    gap: Ints


@dataclass(frozen=True)
class LossPattern(Result):
    """The two streams of RFC 3357, section 5.4, one value for each packet sent."""

    # Shape (n,), of a lost packet how far behind the lost packet before it; 0 for
    # the first lost one, and for those that arrived.
    distance: Ints
    # Shape (n,), of a lost packet the number of its episode, from 1; 0 for those that
    # arrived. The largest is the loss period total of section 6.2.
    period: Ints

    def noticeable_rate(self, threshold: int) -> float | None:
        """Return the share of lost packets at most `threshold` behind another.

        The noticeable rate of RFC 3357, section 6.1, `threshold` its delta; of the
        two divisors that it allows, the packets lost. The first lost packet is
        behind none. None if none was lost.
        """
        if threshold < 1:
            raise ValueError(f"threshold must be at least 1 packet, got {threshold}")
        lost = int(np.count_nonzero(self.period))
        near = (self.distance >= 1) & (self.distance <= threshold)
        return int(near.sum()) / lost if lost else None


def loss_share(lost: ArrayLike, confidence: float = 0.95) -> LossShare:
    """Estimate the share of lost packets, where losses come in bursts.

    A burst shows less than as many lost packets apart, so a binomial interval is
    too narrow. Here n is first divided by the factor by which correlation raises
    the variance of the share: the larger of what a Gilbert chain of the observed
    transitions has, (1 + c) / (1 - c) with c = 1 - p - r, and of what all lags
    add up to (a hidden state correlates farther than one packet). Wilson's
    interval [1]_ then takes n / factor independent packets.

    Parameters
    ----------
    lost : array_like of bool, shape (n,)
        One flag for each packet in the order of sending, true if it was lost.
    confidence : float
        In (0, 1). With 10 episodes or more, and bursts short against the run, as
        many intervals hold the truth (simulated: 93 to 97 of 100).

    Returns
    -------
    LossShare
        Without an interval below 10 episodes, other than when nothing was lost:
        then `high` is exact for independent losses.

    References
    ----------
    .. [1] Wilson (1927). Probable inference, the law of succession, and
       statistical inference. JASA 22, 209-212.

    Examples
    --------
    >>> bursts = np.tile(np.arange(250) < 5, 40)
    >>> share = loss_share(bursts)
    >>> share.value, share.episodes, share.low < 0.02 < share.high
    (0.02, 40, True)
    >>> loss_share([True] + 999 * [False]).reason
    'episodes of loss: 1, at least 10 are needed for an interval; measure longer'
    """
    flags = checked_flags(lost)
    check_fraction("confidence", confidence)
    n, count = flags.size, int(flags.sum())
    episodes = loss_episodes(flags).start.size
    low = high = n_effective = reason = None
    if not count:
        low, high = 0.0, 1 - ((1 - confidence) / 2) ** (1 / n)
        reason = "no packet was lost: high holds if losses are independent"
    elif episodes < FEWEST_EPISODES:
        reason = (
            f"episodes of loss: {episodes}, at least {FEWEST_EPISODES} are needed"
            " for an interval; measure longer"
        )
    else:
        p, r = change_rates(transitions(flags))
        inflation = max((2 - p - r) / (p + r), variance_inflation(flags.astype("f8")))
        n_effective = n / max(1.0, inflation)
        critical = normal_quantile((1 + confidence) / 2)
        low, high = wilson(count / n, n_effective, critical)
    return LossShare(
        value=count / n,
        low=low,
        high=high,
        n=n,
        lost=count,
        episodes=episodes,
        n_effective=n_effective,
        confidence=confidence,
        reason=reason,
    )


def loss_episodes(lost: ArrayLike) -> Episodes:
    """Return the runs of lost packets.

    Parameters
    ----------
    lost : array_like of bool, shape (n,)
        As in `loss_share`.

    Examples
    --------
    >>> loss_episodes([0, 1, 1, 0, 0, 1]).as_dict()
    {'start': [1, 5], 'length': [2, 1], 'gap': [3]}
    """
    flags = checked_flags(lost)
    edges = np.diff(flags.astype(np.int8), prepend=0, append=0)
    start, stop = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return Episodes(start=start, length=stop - start, gap=start[1:] - stop[:-1] + 1)


def loss_pattern(lost: ArrayLike) -> LossPattern:
    """Return loss distance and loss period of each packet [1]_.

    A packet lost at the very start begins a period, as if one had arrived before.

    Parameters
    ----------
    lost : array_like of bool, shape (n,)
        As in `loss_share`.

    References
    ----------
    .. [1] RFC 3357, sections 4 (definitions) and 5.4 (streams).

    Examples
    --------
    >>> pattern = loss_pattern([0, 1, 0, 0, 1, 1])
    >>> pattern.distance.tolist(), pattern.period.tolist()
    ([0, 0, 0, 0, 3, 1], [0, 1, 0, 0, 2, 2])
    >>> round(pattern.noticeable_rate(2), 2)
    0.33
    """
    flags = checked_flags(lost)
    where = np.flatnonzero(flags)
    distance = np.zeros(flags.size, dtype=np.int64)
    distance[where[1:]] = np.diff(where)
    begins = np.diff(flags.astype(np.int8), prepend=0) == 1
    return LossPattern(distance=distance, period=np.cumsum(begins) * flags)


def transitions(flags: Flags) -> Ints:
    """Count neighbours, of shape (2, 2): 0 arrived or 1 lost, and which came next."""
    code = 2 * flags[:-1].astype(np.int8) + flags[1:]
    return np.bincount(code, minlength=4).reshape(2, 2)


def change_rates(seen: Ints) -> tuple[float, float]:
    """Return shares of lost after arrived, of arrived after lost; nan where none was.

    `seen` as of `transitions`.
    """
    (kept, fell), (rose, stayed) = seen.tolist()
    return (
        fell / (kept + fell) if kept + fell else math.nan,
        rose / (rose + stayed) if rose + stayed else math.nan,
    )


def wilson(share: float, n: float, critical: float) -> tuple[float, float]:
    """Return Wilson's interval of a share of n, `critical` standard errors wide.

    >>> [round(end, 3) for end in wilson(0.0, 100, 1.96)]
    [0.0, 0.037]
    """
    middle = share + critical * critical / (2 * n)
    half = critical * math.sqrt(
        share * (1 - share) / n + critical * critical / (4 * n * n)
    )
    scale = 1 + critical * critical / n
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def checked_flags(lost: ArrayLike) -> Flags:
    """Return one flag a packet, or say what is wrong with them."""
    flags = np.asarray(lost)
    if flags.ndim != 1 or not flags.size:
        raise ValueError(f"lost must have shape (n,) with n >= 1, got {flags.shape}")
    if flags.dtype != np.bool_ and not np.isin(flags, (0, 1)).all():
        raise ValueError("lost must hold flags, 0 or 1 for each packet sent")
    return flags.astype(np.bool_)


@dataclass(frozen=True)
class Runs:
    """Flags as runs: `arrived[i]` packets, then `lost[i]`, then `at_end` packets."""

    arrived: Floats
    lost: Floats
    at_end: int


@dataclass(frozen=True)
class Rate:
    """A probability per packet, with its interval where there is one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class LossModel(Result):
    """One fitted model: a chain of a good and a bad state, seen through losses."""

    name: Name
    p: Rate | None  # from good to bad; None for independent losses
    r: Rate | None  # and back
    loss_good: float  # share of packets lost while in either state
    loss_bad: float
    log_likelihood: float  # of the same flags for all models that are compared
    bic: float
    parameters: int
    n: int  # packets used

    @property
    def bad_share(self) -> float:
        """Share of packets sent in the bad state: p / (p + r)."""
        return stationary(self.p.value, self.r.value) if self.p and self.r else 0.0

    @property
    def loss_share(self) -> float:
        """Share of packets that the model loses."""
        return self.loss_good + self.bad_share * (self.loss_bad - self.loss_good)

    @property
    def mean_bad_packets(self) -> float | None:
        """Mean stay in the bad state, 1 / r; for Gilbert the mean burst of loss."""
        return 1 / self.r.value if self.r and self.r.value > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields and what follows from them for JSON."""
        derived = ("bad_share", "loss_share", "mean_bad_packets")
        return super().as_dict() | {key: getattr(self, key) for key in derived}


@dataclass(frozen=True)
class ModelChoice(Result):
    """The model of least BIC, and those that it was held against."""

    best: LossModel | None  # None where `reason` says why
    models: tuple[LossModel, ...]  # least BIC first
    n: int  # packets given, and the first so many that the fits used
    n_used: int
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, of the best model its name."""
        return super().as_dict() | {"best": self.best.name if self.best else None}


def choose_loss_model(lost: ArrayLike) -> ModelChoice:
    """Fit three models by maximum likelihood, and choose the one of least BIC.

    Independent losses have one parameter; the simple form of Gilbert's chain
    [1]_, which loses all in its bad state and none in the good one, two;
    Elliott's [2]_, which loses a share in each, four. More parameters always fit
    better, so each costs log(n) of -2 log(likelihood) [3]_.

    Parameters
    ----------
    lost : array_like of bool, shape (n,)
        One flag for each packet in the order of sending, true if it was lost.

    Returns
    -------
    ModelChoice
        Without a best model below 10 episodes of loss. Of more than 10,000
        episodes the packets up to the last of these are used: see `n_used`.

    References
    ----------
    .. [1] Gilbert (1960). Capacity of a burst-noise channel. Bell System
       Technical Journal 39, 1253-1265.
    .. [2] Elliott (1963). Estimates of error rates for codes on burst-noise
       channels. Bell System Technical Journal 42, 1977-1997.
    .. [3] Schwarz (1978). Estimating the dimension of a model. Annals of
       Statistics 6, 461-464.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> choice = choose_loss_model(rng.random(10_000) < 0.02)
    >>> choice.best.name, round(choice.best.loss_share, 3)
    ('independent', 0.019)
    """
    flags = checked_flags(lost)
    used, runs = first_episodes(flags)
    if len(runs.lost) < FEWEST_EPISODES:
        reason = (
            f"episodes of loss: {len(runs.lost)}, at least {FEWEST_EPISODES} are"
            " needed to tell models apart; measure longer"
        )
        return ModelChoice(None, (), flags.size, used.size, reason)
    rates = change_rates(transitions(used))
    fits = [_independent(used), _gilbert(used), _gilbert_elliott(runs, *rates)]
    first, second, *_ = ordered = sorted(fits, key=lambda model: model.bic)
    reason = f"BIC {second.bic - first.bic:.1f} below that of {second.name}"
    return ModelChoice(first, tuple(ordered), flags.size, used.size, reason)


def compared_runs(lost: Flags, models: Sequence[LossModel]) -> dict[str, Any]:
    """Hold the run lengths that were seen against those of models.

    Returns
    -------
    dict
        For ``lost`` and ``arrived``: ``n`` runs, and their ``lengths``, thinned:
        ``packets``, the ``share`` of runs that are at least so long with its
        interval ``low`` to ``high``, and by each model, under its name, the share
        that it has.
    """
    seen = loss_episodes(lost)
    return {
        "lost": _compared("lost", seen.length, models),
        "arrived": _compared("arrived", seen.gap - 1, models),
    }


def at_least(model: LossModel, outcome: Outcome, packets: Sequence[int]) -> Floats:
    """Return the share of runs that are at least so long, by a model.

    Independent losses and Gilbert's chain make geometric runs. In Elliott's, the
    state when a run begins is that of a packet of the other outcome, one step on; a
    run goes on as long as each further state gives the same outcome [1]_.

    Parameters
    ----------
    model : LossModel
    outcome : {"lost", "arrived"}
    packets : sequence of int
        From 1.

    References
    ----------
    .. [1] Neuts (1981). Matrix-Geometric Solutions in Stochastic Models, section 2.2
       (distributions of phase type).
    """
    loss = np.array([model.loss_good, model.loss_bad])
    same = loss if outcome == "lost" else 1 - loss
    if model.p is None or model.r is None:
        return np.asarray(same[0] ** (np.asarray(packets, np.float64) - 1))
    p, r = model.p.value, model.r.value
    steps = np.array([[1 - p, p], [r, 1 - r]])
    before = np.array([1 - model.bad_share, model.bad_share]) * (1 - same)
    first = (before @ steps) * same
    if not first.sum():  # a model in which no such run begins
        return np.zeros(len(packets))
    on = steps * same  # one packet on, and the same outcome again
    shares = [(first @ np.linalg.matrix_power(on, k - 1)).sum() for k in packets]
    return np.asarray(shares, np.float64) / float(first.sum())


def hidden_log_likelihood(
    runs: Runs, p: float, r: float, loss_good: float, loss_bad: float
) -> float:
    """Return the log-likelihood of a Gilbert-Elliott chain that began long ago.

    What the forward algorithm sums packet by packet is a product of one 2 by 2
    matrix for each packet, and the same one all through a run. So a run is a
    matrix power in closed form, and the product is formed by halves.
    """
    step = np.array([[1 - p, p], [r, 1 - r]])
    of_arrived = step * np.array([1 - loss_good, 1 - loss_bad])
    of_lost = step * np.array([loss_good, loss_bad])
    matrices, logs = _power(of_arrived, np.append(runs.arrived, runs.at_end))
    lossy, lossy_logs = _power(of_lost, runs.lost)
    matrices[:-1] = matrices[:-1] @ lossy
    scale, product = _product(matrices)
    bad = stationary(p, r)
    seen = float(np.array([1 - bad, bad]) @ product @ np.ones(2))
    return float(logs.sum() + lossy_logs.sum() + scale + math.log(max(seen, _TINY)))


def first_episodes(flags: Flags) -> tuple[Flags, Runs]:
    """Return the flags up to the last episode that is used, and their runs."""
    found = loss_episodes(flags)
    start, lost = found.start[:_MOST_EPISODES], found.length[:_MOST_EPISODES]
    stop = np.append(0, start + lost)
    end = flags.size if found.start.size <= _MOST_EPISODES else int(stop[-1])
    arrived = (start - stop[:-1]).astype("f8")
    return flags[:end], Runs(arrived, lost.astype("f8"), end - int(stop[-1]))


def stationary(p: float, r: float) -> float:
    """Return the share of packets in the bad state."""
    return p / (p + r) if p + r > 0 else 0.0


def _power(matrix: Floats, exponents: Floats) -> tuple[Floats, Floats]:
    """Return matrix powers, each divided by exp(the log that stands beside it)."""
    half_trace = (matrix[0, 0] + matrix[1, 1]) / 2
    half_gap = math.sqrt(
        ((matrix[0, 0] - matrix[1, 1]) / 2) ** 2 + matrix[0, 1] * matrix[1, 0]
    )
    # Never equal, so that Sylvester's formula for the powers holds.
    half_gap = max(half_gap, 1e-9 * half_trace, _TINY)
    large, small = half_trace + half_gap, half_trace - half_gap
    first = (matrix - small * np.eye(2)) / (2 * half_gap)
    ratio = np.asarray((small / large) ** exponents)[:, None, None]
    return first + ratio * (np.eye(2) - first), exponents * math.log(large)


def _product(matrices: Floats) -> tuple[float, Floats]:
    """Return the ordered product of matrices and the log of what it was divided by."""
    scale = 0.0
    while len(matrices) > 1:
        odd = matrices[-1:] if len(matrices) % 2 else matrices[:0]
        pairs = matrices[0 : len(matrices) - 1 : 2] @ matrices[1::2]
        size = np.maximum(pairs.max(axis=(1, 2)), _TINY)
        scale += float(np.log(size).sum())
        matrices = np.concatenate([pairs / size[:, None, None], odd])
    return scale, matrices[0]


def _independent(flags: Flags) -> LossModel:
    share = float(flags.mean())
    likelihood = _entropy(int(flags.sum()), share) + _entropy(
        int((~flags).sum()), 1 - share
    )
    return _model(
        "independent", (None, None), (share, share), likelihood, 1, flags.size
    )


def _gilbert(flags: Flags) -> LossModel:
    """Fit by counting: the transitions of this chain are seen."""
    seen = transitions(flags)
    p, r = change_rates(seen)
    (kept, fell), (rose, stayed) = seen.tolist()
    bad = stationary(p, r)
    likelihood = (
        math.log(bad if flags[0] else 1 - bad)
        + _entropy(fell, p)
        + _entropy(kept, 1 - p)
        + _entropy(rose, r)
        + _entropy(stayed, 1 - r)
    )
    rates = _jeffreys(fell, kept), _jeffreys(rose, stayed)
    return _model("gilbert", rates, (0.0, 1.0), likelihood, 2, flags.size)


def _gilbert_elliott(runs: Runs, p: float, r: float) -> LossModel:
    """Fit the chain of greatest likelihood, from p and r of Gilbert's on.

    The likelihood is climbed by its gradient in log-odds, from the Gilbert chain
    and from two chains that are not near it; the highest top counts. Baum and
    Welch's re-estimation climbs the same hill in more and smaller steps [1]_.

    References
    ----------
    .. [1] Rabiner (1989). A tutorial on hidden Markov models and selected
       applications in speech recognition. Proceedings of the IEEE 77, 257-286.
    """
    from scipy import optimize, special  # take long to load; few get here

    def cost(log_odds: Floats) -> float:
        # per packet, so that the optimiser's own scale suits any run
        chances = special.expit(log_odds)
        return -hidden_log_likelihood(runs, *chances.tolist()) / packets

    packets = float(runs.arrived.sum() + runs.lost.sum() + runs.at_end)
    share = stationary(p, r)
    starts = [
        (p, r, 1e-5, 1 - 1e-5),
        (p / 3, r / 4, share / 10, 0.5),
        (0.01, 0.1, share / 2, min(0.9, 5 * share)),
    ]
    tops = [
        optimize.minimize(
            cost,
            special.logit(np.clip(start, 1e-6, 1 - 1e-6)),
            method="L-BFGS-B",
            bounds=[(-_BOUND, _BOUND)] * 4,
            options={"ftol": 1e-10, "gtol": 1e-8, "maxiter": 100},
        )
        for start in starts
    ]
    top = min(tops, key=lambda found: found.fun)
    up, down, good, bad = special.expit(top.x).tolist()
    if good > bad:  # which state is called bad is free until here
        up, down, good, bad = down, up, bad, good
    rates, likelihood = (Rate(up), Rate(down)), -float(top.fun) * packets
    return _model("gilbert-elliott", rates, (good, bad), likelihood, 4, int(packets))


def _model(
    name: Name,
    rates: tuple[Rate | None, Rate | None],
    loss: tuple[float, float],
    likelihood: float,
    parameters: int,
    n: int,
) -> LossModel:
    bic = parameters * math.log(n) - 2 * likelihood
    return LossModel(name, *rates, *loss, likelihood, bic, parameters, n)


def _entropy(count: int, chance: float) -> float:
    """Return the log-likelihood of `count` events; none of them cost nothing."""
    return count * math.log(chance) if count else 0.0


def _jeffreys(hits: int, misses: int) -> Rate:
    """Return a share with Jeffreys' 95% interval."""
    from scipy import special  # takes long to load; few get here

    low, high = special.betaincinv(hits + 0.5, misses + 0.5, [0.025, 0.975])
    return Rate(hits / (hits + misses), float(low), float(high))


def _compared(
    outcome: Outcome, lengths: Ints, models: Sequence[LossModel]
) -> dict[str, Any]:
    if not lengths.size:
        return {"n": 0, "lengths": []}
    seen = ccdf(lengths, _POINTS)
    packets = seen.value.astype(np.int64).tolist()
    columns: dict[str, list[float]] = {
        "packets": packets,
        "share": seen.share.tolist(),
        "low": seen.low.tolist(),
        "high": seen.high.tolist(),
    }
    for model in models:
        columns[model.name] = at_least(model, outcome, packets).tolist()
    rows = zip(*columns.values(), strict=True)
    return {
        "n": int(lengths.size),
        "lengths": [dict(zip(columns, row, strict=True)) for row in rows],
    }
