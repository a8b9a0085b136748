"""How long runs of losses and of arrivals are: as seen, and as models have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.distribution import ccdf
from latprof_analysis.loss import Flags, checked_flags
from latprof_analysis.loss_models import LossModel

Floats = NDArray[np.float64]
Outcome = Literal["lost", "arrived"]

_POINTS = 40


def run_lengths(flags: Flags, outcome: Outcome) -> NDArray[np.int64]:
    """Return the lengths of runs of losses, or of arrivals between two losses.

    What arrived before the first loss and after the last is cut off by the ends of
    the measurement, and is no run.

    Examples
    --------
    >>> seen = np.array([0, 0, 1, 1, 0, 0, 0, 1, 0], bool)
    >>> run_lengths(seen, "lost").tolist(), run_lengths(seen, "arrived").tolist()
    ([2, 1], [3])
    """
    edges = np.diff(flags.astype(np.int8), prepend=0, append=0)
    start, stop = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return stop - start if outcome == "lost" else start[1:] - stop[:-1]


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

    Examples
    --------
    >>> from latprof_analysis.loss_models import Rate
    >>> chain = LossModel("gilbert", Rate(0.01), Rate(0.5), 0, 1, 0, 0, 2, 1000)
    >>> at_least(chain, "lost", [1, 2, 3]).tolist()
    [1.0, 0.5, 0.25]
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
    flags = checked_flags(lost)
    outcomes: tuple[Outcome, ...] = ("lost", "arrived")
    return {outcome: _compared(flags, outcome, models) for outcome in outcomes}


def _compared(
    flags: Flags, outcome: Outcome, models: Sequence[LossModel]
) -> dict[str, Any]:
    lengths = run_lengths(flags, outcome)
    if not lengths.size:
        return {"n": 0, "lengths": []}
    seen = ccdf(lengths, _POINTS)
    packets = seen.value.astype(np.int64).tolist()
    columns: dict[str, list[float]] = {
        "share": seen.share.tolist(),
        "low": seen.low.tolist(),
        "high": seen.high.tolist(),
    }
    for model in models:
        columns[model.name] = at_least(model, outcome, packets).tolist()
    rows = zip(packets, *columns.values(), strict=True)
    names = ("packets", *columns)
    return {
        "n": int(lengths.size),
        "lengths": [dict(zip(names, row, strict=True)) for row in rows],
    }
