"""Series as a queue makes them: neighbours alike, the tail heavy."""

import numpy as np
from scipy import signal, special


def pareto_series(rng, n, correlation, tail=2.5):
    """Latencies with a Pareto tail whose normal scores are an AR(1) chain."""
    noise = rng.normal(size=n + 300) * np.sqrt(1 - correlation**2)
    chain = signal.lfilter([1], [1, -correlation], noise)[300:]
    return 1000 * special.ndtr(-chain) ** (-1 / tail)


def pareto_quantile(p, tail=2.5):
    return 1000 * (1 - p) ** (-1 / tail)
