"""How losses follow each other in the report, against chains of known parameters."""

from __future__ import annotations

import numpy as np
import pytest
from latprof_analysis.report.loss_parts import loss_model_parts, run_rows
from latprof_analysis.report.parts import Cell, Figure, Fold, Missing, Table, Text
from latprof_analysis.stats.loss import LossModel, Rate, at_least
from latprof_analysis.study import findings
from numpy.typing import NDArray
from scipy import stats


def gilbert(n: int, p: float, r: float) -> NDArray[np.bool_]:
    rng = np.random.default_rng(9)
    lost, bad = np.empty(n, bool), False
    for i, u in enumerate(rng.random(n)):
        bad = u >= r if bad else u < p
        lost[i] = bad
    return lost


def test_a_gilbert_chains_parameters_and_run_lengths_are_the_known_ones() -> None:
    p, r = 0.01, 0.3
    loss = findings.losses(gilbert(40_000, p, r))
    parts = loss_model_parts({"udp round trips": loss})
    _, models = (one for one in parts if isinstance(one, Table))
    assert "gilbert losses, BIC" in models.title
    first = models.rows[0]
    assert isinstance(first[0], Cell)
    assert (first[0].text, first[0].under) == ("gilbert", "chosen")
    for cell, truth in ((first[1], p), (first[2], r)):
        assert isinstance(cell, Cell)
        # some 390 episodes: 5% spread of p, 4% of r
        assert float(cell.text) == pytest.approx(truth, rel=0.15)
        low, high = map(float, cell.under.split(" to "))
        assert high - low == pytest.approx(4 * 0.045 * truth, rel=0.3)
    rows = run_rows(loss)
    seen = rows[rows["model"] == "observed"]
    for outcome, leave in (("lost", r), ("arrived", p)):
        some = rows[rows["outcome"] == outcome]
        model = some[some["model"] == "gilbert"]
        fitted = loss["model"]["models"][0]["r" if outcome == "lost" else "p"]["value"]
        # a run of at least k is one of k or more in a geometric distribution
        closed = stats.geom.sf(model["packets"] - 1, fitted)
        assert model["share"].to_numpy() == pytest.approx(closed, rel=1e-9)
        observed = seen[seen["outcome"] == outcome]
        true = stats.geom.sf(observed["packets"] - 1, leave)
        inside = (observed["low"] <= true) & (true <= observed["high"])
        # the points depend on each other, so more than 1 in 20 may be out
        assert inside.mean() > 0.7
        assert some["n"].iloc[0] == pytest.approx(390, rel=0.15)


def test_run_lengths_of_a_hidden_chain_are_those_of_a_simulated_one() -> None:
    p, r, good, bad = 0.02, 0.15, 0.01, 0.6
    rng = np.random.default_rng(3)
    n, state = 300_000, False
    states = np.empty(n, bool)
    for i, u in enumerate(rng.random(n)):
        state = u >= r if state else u < p
        states[i] = state
    lost = rng.random(n) < np.where(states, bad, good)
    model = LossModel("gilbert-elliott", Rate(p), Rate(r), good, bad, 0, 0, 4, n)
    edges = np.flatnonzero(np.diff(lost.astype(int)))
    lengths, kinds = np.diff(edges), lost[edges[:-1] + 1]
    for outcome, which in (("lost", kinds), ("arrived", ~kinds)):
        for k in (1, 2, 3, 5):
            seen = (lengths[which] >= k).mean()
            # 1 / sqrt(10 000 runs) is 1%: three times half of it
            assert at_least(model, outcome, [k])[0] == pytest.approx(seen, abs=0.015)


def test_too_few_losses_have_a_share_and_a_reason_and_none_a_bound() -> None:
    few = np.zeros(2000, bool)
    few[[3, 900]] = True
    parts = loss_model_parts(
        {"udp": findings.losses(few), "tcp": findings.losses(np.zeros(1000, bool))}
    )
    (missing,) = [one for one in parts if isinstance(one, Missing)]
    assert "at least 10" in missing.reason
    assert not any(isinstance(one, Figure) for one in parts)
    quiet = parts[-1]
    assert isinstance(quiet, Text)
    # 1 - 0.025 ** (1 / 1000)
    assert "none of 1,000 was lost; up to 0.37%" in quiet.text


def test_losses_of_a_second_group_are_folded() -> None:
    lost = findings.losses(gilbert(3000, 0.02, 0.4))
    parts = loss_model_parts({"a": lost, "b": lost})
    assert [type(one) for one in parts] == [Table, Table, Figure, Fold]
