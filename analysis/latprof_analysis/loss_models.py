"""Models of how losses follow each other: independent, Gilbert, Gilbert-Elliott."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import ArrayLike

from latprof_analysis.hidden_loss import (
    Runs,
    first_episodes,
    fit_hidden,
    stationary,
)
from latprof_analysis.loss import (
    FEWEST_EPISODES,
    Flags,
    checked_flags,
    transitions,
)

Name = Literal["independent", "gilbert", "gilbert-elliott"]


@dataclass(frozen=True)
class Rate:
    """A probability per packet, with its interval where there is one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class LossModel:
    """One fitted model: a chain of a good and a bad state, seen through losses.

    Attributes
    ----------
    name : str
    p, r : Rate or None
        From good to bad and back, per packet. None for independent losses.
    loss_good, loss_bad : float
        Share of packets lost while in either state.
    log_likelihood, bic : float
        Natural logarithms; of the same flags for all models that are compared.
    parameters : int
    n : int
        Packets used.
    """

    name: Name
    p: Rate | None
    r: Rate | None
    loss_good: float
    loss_bad: float
    log_likelihood: float
    bic: float
    parameters: int
    n: int

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
        rates = {
            key: vars(r) if r else None for key, r in (("p", self.p), ("r", self.r))
        }
        derived = ("bad_share", "loss_share", "mean_bad_packets")
        return {**vars(self), **rates, **{key: getattr(self, key) for key in derived}}


@dataclass(frozen=True)
class ModelChoice:
    """The model of least BIC, and those that it was held against.

    Attributes
    ----------
    best : LossModel or None
        None where `reason` says why.
    models : tuple of LossModel
        Least BIC first.
    n, n_used : int
        Packets given, and the first so many that the fits used.
    reason : str
    """

    best: LossModel | None
    models: tuple[LossModel, ...]
    n: int
    n_used: int
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "best": self.best.name if self.best else None,
            "models": [model.as_dict() for model in self.models],
            "n": self.n,
            "n_used": self.n_used,
            "reason": self.reason,
        }


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
    gilbert = _gilbert(used)
    fits = [_independent(used), gilbert, _gilbert_elliott(used.size, runs, gilbert)]
    first, second, *_ = ordered = sorted(fits, key=lambda model: model.bic)
    reason = f"BIC {second.bic - first.bic:.1f} below that of {second.name}"
    return ModelChoice(first, tuple(ordered), flags.size, used.size, reason)


def _independent(flags: Flags) -> LossModel:
    share = float(flags.mean())
    likelihood = _entropy(int(flags.sum()), share) + _entropy(
        int((~flags).sum()), 1 - share
    )
    return _model("independent", None, None, (share, share), likelihood, 1, flags.size)


def _gilbert(flags: Flags) -> LossModel:
    """Fit by counting: the transitions of this chain are seen."""
    seen = transitions(flags)
    p, r = seen.rates
    bad = stationary(p, r)
    likelihood = (
        math.log(bad if flags[0] else 1 - bad)
        + _entropy(seen.fell, p)
        + _entropy(seen.kept, 1 - p)
        + _entropy(seen.rose, r)
        + _entropy(seen.stayed, 1 - r)
    )
    rates = _jeffreys(seen.fell, seen.kept), _jeffreys(seen.rose, seen.stayed)
    return _model("gilbert", *rates, (0.0, 1.0), likelihood, 2, flags.size)


def _gilbert_elliott(n: int, runs: Runs, gilbert: LossModel) -> LossModel:
    if gilbert.p is None or gilbert.r is None:
        raise AssertionError("a Gilbert chain has two rates")
    (p, r, good, bad), likelihood = fit_hidden(
        runs, gilbert.p.value, gilbert.r.value, gilbert.loss_share
    )
    return _model("gilbert-elliott", Rate(p), Rate(r), (good, bad), likelihood, 4, n)


def _model(
    name: Name,
    p: Rate | None,
    r: Rate | None,
    loss: tuple[float, float],
    likelihood: float,
    parameters: int,
    n: int,
) -> LossModel:
    return LossModel(
        name=name,
        p=p,
        r=r,
        loss_good=loss[0],
        loss_bad=loss[1],
        log_likelihood=likelihood,
        bic=parameters * math.log(n) - 2 * likelihood,
        parameters=parameters,
        n=n,
    )


def _entropy(count: int, chance: float) -> float:
    """Return the log-likelihood of `count` events; none of them cost nothing."""
    return count * math.log(chance) if count else 0.0


def _jeffreys(hits: int, misses: int) -> Rate:
    """Return a share with Jeffreys' 95% interval."""
    from scipy import special  # takes long to load; few get here

    low, high = special.betaincinv(hits + 0.5, misses + 0.5, [0.025, 0.975])
    return Rate(hits / (hits + misses), float(low), float(high))
