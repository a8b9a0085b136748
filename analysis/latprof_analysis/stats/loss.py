"""Packets that did not arrive: their share, in which episodes, how far apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.stats import Ints, Result
from latprof_analysis.stats.quantiles import check_fraction
from latprof_analysis.stats.series import variance_inflation

Flags = NDArray[np.bool_]
# With fewer episodes the data do not tell how long episodes are.
FEWEST_EPISODES = 10


@dataclass(frozen=True)
class LossShare(Result):
    """Share of lost packets, with an interval that knows of bursts."""

    value: float
    low: float | None  # both None where no interval can be given
    high: float | None
    n: int  # packets sent
    lost: int
    episodes: int  # runs of lost packets
    n_effective: float | None  # how many independent packets would tell as much
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

    A burst tells less than as many lost packets apart, so a binomial interval is
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
        from scipy import special  # takes long to load; few get here

        p, r = change_rates(transitions(flags))
        inflation = max((2 - p - r) / (p + r), variance_inflation(flags.astype("f8")))
        n_effective = n / max(1.0, inflation)
        critical = float(special.ndtri((1 + confidence) / 2))
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
