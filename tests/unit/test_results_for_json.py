"""Every result can be written as JSON: `as_dict` holds plain values, and no NaN."""

import json
import pkgutil
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path

import latprof_analysis as lp
import numpy as np
import pytest
from exchange_rows import exchange
from latprof_analysis.compare import (
    compare_loss,
    compare_quantile,
    compare_ranks,
    compare_throughput,
)
from latprof_analysis.compare.effects import Effect
from latprof_analysis.compare.sides import Trips
from latprof_analysis.read.schema import EXCHANGES
from latprof_analysis.stats import Result
from latprof_analysis.study.exchange_totals import ExchangeTotals
from latprof_analysis.study.sweep import SweptRun
from latprof_analysis.study.totals import MessageTotals, TripTotals
from message_rows import MessageRows, message

DATA = Path(__file__).parent.parent / "data"
RNG = np.random.default_rng(1)
SIZES = np.tile([64, 1000, 4000, 16000, 64000, 128000], 40)
ROUNDS = np.repeat(np.arange(40), 6)
RTT_NS = 2e6 + 160 * SIZES + RNG.uniform(0, 5e4, SIZES.size)
BENT_NS = RTT_NS + 1600 * np.maximum(SIZES - 4000, 0)
WAITS = np.append(RNG.gamma(9, 30, 900), 7000 + RNG.gamma(4, 50, 100))
STEP = np.repeat([1.0, 9.0], 500) + RNG.random(1000)
BURSTS = np.tile(np.arange(250) < 5, 40)


def hidden_bursts():
    bad = np.tile(np.arange(200) < 20, 100)
    return bad & (RNG.random(bad.size) < 0.5)


def histogram(values):
    found = lp.Histogram()
    found.record(np.asarray(values, dtype=np.int64))
    return found


def loggp(spacings_ns, calls=None):
    sizes = np.tile([1000.0, 4000, 16000, 64000], 20)
    one = 2e6 + 160 * (sizes - 1)
    step = [np.maximum(d, 3000 + 80 * (sizes - 1)) for d in spacings_ns]
    return lp.fit_loggp(
        np.tile(sizes, 1 + len(step)),
        np.repeat([1] + [5] * len(step), 80),
        np.repeat([0, *spacings_ns], 80),
        np.concatenate([one, *(one + 4 * s for s in step)]),
        np.tile(np.repeat(np.arange(20), 4), 1 + len(step)),
        reply_mode="echo",
        send_ns=calls and np.full(80 * (1 + len(step)), calls),
        resamples=100,
    )


def stages():
    runs = lp.read_runs(DATA / "run")
    return lp.fit_stages(runs.messages, reply_mode="echo", resamples=100)


def message_totals():
    totals = MessageTotals()
    totals.add(
        MessageRows([message((1, 2, 3, 4, 5, 6, 9)), message((0, 2, 3, 4, 0, 0, 0))])
    )
    return totals


def exchange_totals():
    totals = ExchangeTotals()
    totals.add(MessageRows([exchange((1, 2, 3, 4, 5))], EXCHANGES))
    return totals


def quantile_change():
    return compare_quantile([WAITS], [WAITS + 9], 0.5)


def side_trips(share):
    lost = RNG.random(2000) < share
    return [Trips(np.arange(2000) * 1000, lost, frozenset([64]))]


def trip_totals():
    totals = TripTotals()
    sent = np.arange(100) * 1000
    totals.add(np.full(100, 64), np.full(100, 900), sent, sent)
    return totals


def pair_clocks():
    """Both ways, 5 s ahead; one only; nothing."""
    t = np.arange(10**10, 2 * 10**10, 10**8)
    there = lp.Sightings(t, t + 5_000_100_000)
    back = lp.Sightings(t + 5_000_000_000, t + 100_000)
    nothing = lp.Sightings([], [])
    ways = (there, back), (there, nothing), (nothing, nothing)
    return [lp.pair_clock(*both) for both in ways]


def host_clocks():
    clock, one_way, _ = pair_clocks()
    return [
        lp.relate_hosts(3, {(0, 1): clock, (1, 2): clock, (0, 2): clock}),
        lp.relate_hosts(2, {(0, 1): one_way}),
        lp.relate_hosts(2, {}),
    ]


# From each class, results: with every part of it, and with as little as it can have.
RESULTS = {
    "Autocorrelation": lambda: [lp.autocorrelation(WAITS)],
    "Between": lambda: [host_clocks()[0].between[0, 1]],
    "Ccdf": lambda: [lp.ccdf(WAITS), lp.ccdf([1.0])],
    "Change": lambda: lp.level_changes(STEP).changes,
    "FigureChange": lambda: [
        quantile_change(),
        compare_quantile([[1.0]], [[2.0]], 0.5),
        compare_loss(side_trips(0.02), side_trips(0.0)),
        compare_throughput(side_trips(0.02), side_trips(0.0)),
    ],
    "Changes": lambda: [lp.level_changes(STEP)],
    "DelayVariation": lambda: [
        *(function([1.0, float("nan"), 2.0, 3.0]) for function in (lp.ipdv, lp.pdv)),
        lp.pdv([float("nan")]),
    ],
    "Dispersion": lambda: [
        lp.fit_dispersion(
            np.repeat(np.arange(6), 50),
            1e9 * np.repeat(np.arange(6), 50) + 1.2e5 * np.tile(np.arange(50), 6),
            np.full(300, 1500),
        ),
        lp.fit_dispersion([1], [1], [1]),
    ],
    "Effect": lambda: [quantile_change().difference, Effect(1.0, None, None)],
    "Episodes": lambda: [lp.loss_episodes(BURSTS), lp.loss_episodes([0])],
    "Fit": lambda: (
        [
            lp.fit_round_trips(SIZES, delay, ROUNDS, reply_mode="echo", resamples=100)
            for delay in (RTT_NS, BENT_NS, np.full(SIZES.size, 5.0))
        ]
        + [lp.fit_round_trips([1], [1], [1], reply_mode=18)]
        + [lp.fit_one_way(SIZES, RTT_NS, ROUNDS, resamples=100)]
    ),
    "Histogram": lambda: [histogram([0, 100, 10**12]), histogram([])],
    "HostClock": lambda: [table for each in host_clocks() for table in each.hosts],
    "HostClocks": host_clocks,
    "Loop": lambda: host_clocks()[0].loops,
    "PairClock": pair_clocks,
    "LeastSquares": lambda: [
        lp.fit_means_of_five(SIZES, RTT_NS, reply_mode="echo"),
        lp.fit_means_of_five([1, 2, 3], [5, 6, 5]),
    ],
    "LineEstimate": lambda: lp.compare_estimators(
        SIZES, RTT_NS, ROUNDS, reply_mode="echo", resamples=100
    ),
    "LogGP": lambda: [
        loggp([0, 1e7], calls=900.0),
        loggp([0]),
        lp.fit_loggp([1], [1], [0], [1], [1], reply_mode=18),
    ],
    "TrainTimes": lambda: [*loggp([0, 1e7], calls=900.0).sizes, *loggp([0]).sizes],
    "LossModel": lambda: lp.choose_loss_model(hidden_bursts()).models,
    "LossPattern": lambda: [lp.loss_pattern(BURSTS), lp.loss_pattern([0])],
    "ExchangeTotals": lambda: [exchange_totals(), ExchangeTotals()],
    "WayTotals": lambda: list(exchange_totals().ways.values()),
    "KindTotals": lambda: list(message_totals().kinds.values()),
    "LossShare": lambda: [
        lp.loss_share(BURSTS),
        lp.loss_share([0]),
        lp.loss_share([1]),
    ],
    "ModelChoice": lambda: [
        lp.choose_loss_model(hidden_bursts()),
        lp.choose_loss_model(BURSTS),
        lp.choose_loss_model([0]),
    ],
    "MessageTotals": lambda: [message_totals(), MessageTotals()],
    "Modes": lambda: [lp.find_modes(WAITS), lp.find_modes(np.ones(50))],
    "Piece": lambda: [
        piece
        for scale in ("linear", "log")
        for sample in (WAITS, [0.0])
        for piece in lp.three_pieces(sample, scale)
    ],
    "Quantile": lambda: [*lp.percentiles(WAITS), *lp.percentiles([1.0], [0.5])],
    "Study": lambda: [lp.analyze(DATA / "run"), lp.analyze(DATA / "irtt.json")],
    "SweptRun": lambda: [
        SweptRun({"mtu": "900"}, 1, "runs/a", "done", figures={"tcp": {}}),
        SweptRun({}, 2, "", "failed", "the responder failed"),
    ],
    "TripTotals": lambda: [trip_totals(), TripTotals()],
    "Measured": lambda: [quantile_change().a],
    "RankEffect": lambda: [
        compare_ranks([WAITS], [WAITS + 9]),
        compare_ranks([[1.0]], [[2.0]]),
    ],
    "Samples": lambda: (
        [
            lp.read_samples(path)
            for path in sorted(DATA.glob("*.*"))
            if path.suffix != ".sh"
        ]
        + [lp.read_samples(DATA / "run")]
    ),
    "StageFit": stages,
    "Waiting": lambda: [
        lp.wait_by_queue(np.arange(20), 5.0 + 3.0 * np.arange(20)),
        lp.wait_by_queue(np.arange(1000), WAITS),
    ],
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_json_without_nan_and_reads_back_as_it_was(name):
    results = RESULTS[name]()
    assert results
    for result in results:
        assert type(result).__name__ == name
        document = result.as_dict()
        text = json.dumps(document, allow_nan=False)
        assert json.loads(text).keys() == document.keys()


def test_no_class_of_results_is_left_out():
    modules = [
        import_module(module.name)
        for module in pkgutil.walk_packages(lp.__path__, f"{lp.__name__}.")
        if not module.name.endswith("__main__")
    ]
    found = {
        value.__name__
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
        if hasattr(value, "as_dict") and value is not Result
    }
    assert found == RESULTS.keys()


def test_what_a_function_of_the_package_returns_has_as_dict():
    returned = {
        value
        for value in (getattr(lp, name) for name in lp.__all__)
        if is_dataclass(value) and isinstance(value, type)
    }
    without = {value.__name__ for value in returned if not hasattr(value, "as_dict")}
    # parts of a Fit, input, and a run's own tables
    assert without == {"Estimate", "Packets", "Runs", "Sightings"}
