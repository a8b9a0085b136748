"""Simulated round trips over links whose bandwidth and delay are known."""

import numpy as np
from latprof_analysis.fit.line import fit_round_trips
from latprof_analysis.fit.wire import Packets

TCP = Packets.tcp(mtu_bytes=1500)
SIZES = np.unique(np.geomspace(18, 65_000, 20).astype(int))
RATE = 100e6
ONE_WAY_NS = 1e6
QUEUE_NS = 30e3  # mean of the exponential queueing


def sweep(rng, sizes=SIZES, rounds=100):
    """Each size once a round, in random order."""
    size = np.concatenate([rng.permutation(sizes) for _ in range(rounds)])
    return size, np.repeat(np.arange(rounds), len(sizes))


def transmission_ns(wire_bytes, rate=RATE):
    return wire_bytes * 8e9 / rate


def exponential(rng, n):
    return rng.exponential(QUEUE_NS, n)


def pareto_spikes(rng, n):
    spikes = (rng.random(n) < 0.02) * rng.pareto(1.5, n) * 2e6
    return exponential(rng, n) + spikes


def burst(rng, n):
    noise = pareto_spikes(rng, n)
    start = rng.integers(0, n - n // 10)
    noise[start : start + n // 10] += rng.exponential(5e6, n // 10)
    return noise


def link(seed, reply_mode="echo", noise=burst, rate=RATE, rounds=100, sizes=SIZES):
    """Round trips over a link of `rate` and 1 ms each way."""
    rng = np.random.default_rng(seed)
    size, index = sweep(rng, sizes, rounds)
    there = TCP.wire_bytes(size)
    back = there if reply_mode == "echo" else TCP.wire_bytes(reply_mode)
    rtt = 2 * ONE_WAY_NS + transmission_ns(there + back, rate)
    return size, rtt + noise(rng, size.size), index


def token_bucket(seed, burst_bytes, reply_mode="echo", sizes=SIZES):
    """Round trips after a pause: the bucket is full and lets the first bytes by."""
    rng = np.random.default_rng(seed)
    size, index = sweep(rng, sizes)
    there = TCP.wire_bytes(size)
    back = there if reply_mode == "echo" else np.full_like(there, 70)
    waits = [transmission_ns(np.maximum(0, w - burst_bytes)) for w in (there, back)]
    rtt = 50e3 + 0.1 * there + sum(waits) + exponential(rng, size.size)
    return size, rtt, index


def fit_tcp(link, reply_mode="echo", **options):
    return fit_round_trips(*link, reply_mode=reply_mode, packets=TCP, **options)
