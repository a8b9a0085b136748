"""Natural traffic over links that are known: what was sampled of many messages.

Sizes, gaps and other traffic are drawn; the queue comes about. A link that is no
line has its own delays in closed form.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from latprof_analysis.fit.natural import WHOLE, Natural

RATE = 100e6
BYTE_NS = 8e9 / RATE
DELAY_NS = 1e6
HOST_NS = 2e4  # mean of what hosts add
MESSAGES = 6000
SHARE = 0.25  # of the messages that are sampled


def log_normal(rng, n, sigma=2.0):
    """Sizes from 64 B to 1 MB."""
    return np.clip(rng.lognormal(np.log(4000), sigma, n), 64, 1e6).round()


def fifo(rng, size, load=0.5, other=0.0, byte_ns=BYTE_NS):
    """Delays of messages that come at any time to a link with one queue.

    `load` is that of the messages, `other` that of other traffic, in packets.
    """
    gaps = rng.exponential(size.mean() * byte_ns / load, size.size)
    t_ns = np.cumsum(gaps)
    work = size * byte_ns
    if other:
        packets = int(t_ns[-1] / (1500 * byte_ns) * other)
        t_ns = np.concatenate([t_ns, rng.uniform(0, t_ns[-1], packets)])
        work = np.concatenate([work, np.full(packets, 1500 * byte_ns)])
    order = np.argsort(t_ns, kind="stable")
    come, served = t_ns[order], work[order]
    # when the queue is empty again is the highest that come less all work before was
    done = np.cumsum(served)
    free = np.maximum.accumulate(come - (done - served)) + done
    left = np.empty_like(free)
    left[order] = free
    return t_ns[: size.size], (left - t_ns)[: size.size]


def pareto(rng, n):
    """Host noise, heavy of tail."""
    return (
        rng.exponential(HOST_NS, n) + (rng.random(n) < 0.02) * rng.pareto(1.2, n) * 1e6
    )


def sample(rng, size, t_ns, delay_ns, stream=False, **delays):
    """A quarter of the messages, by chance."""
    chosen = rng.random(size.size) < SHARE
    found = Natural(
        size, t_ns, {WHOLE: delay_ns, **delays}, np.ceil(size / 1448),
        np.zeros(size.size, bool), stream,
    )  # fmt: skip
    return take(found, chosen)


def take(messages, chosen):
    """Some of the messages."""
    return replace(
        messages,
        size_bytes=messages.size_bytes[chosen],
        t_ns=messages.t_ns[chosen],
        delays_ns={n: d[chosen] for n, d in messages.delays_ns.items()},
        packets=messages.packets[chosen],
        resent=messages.resent[chosen],
    )


def queued(seed, load=0.5, other=0.0, noise=pareto, messages=MESSAGES, sigma=2.0):
    """A link of 100 Mbit/s and 1 ms, messages of log-normal sizes."""
    rng = np.random.default_rng(seed)
    size = log_normal(rng, messages, sigma)
    t_ns, waited = fifo(rng, size, load, other)
    return sample(rng, size, t_ns, DELAY_NS + waited + noise(rng, size.size))


def _alone(seed, delay_of, sizes=log_normal, noise=pareto):
    rng = np.random.default_rng(seed)
    size = sizes(rng, MESSAGES)
    t_ns = np.cumsum(rng.exponential(5e6, size.size))
    return sample(rng, size, t_ns, delay_of(rng, size) + noise(rng, size.size))


def _line(_rng, size):
    return DELAY_NS + BYTE_NS * size


def _mixed_paths(rng, size):
    """Long messages go to who is far away."""
    far = rng.random(size.size) < (size / 20_000) ** 2
    return np.where(far, 20e6, 1e6) + 8 * size


def _two_rates(rng, size):
    """The rate changed in the middle, to a tenth."""
    late = np.arange(size.size) > size.size / 2
    return DELAY_NS + np.where(late, 10, 1) * BYTE_NS * size


def _windows(_rng, size):
    """Slow start: a round trip of 5 ms for each doubling of ten segments."""
    return DELAY_NS + 5e6 * np.ceil(np.log2(1 + size / 14_480)) + 8 * size


def _batches(seed, of=15):
    """Messages of one size are sent many at once: the last wait for the others."""
    rng = np.random.default_rng(seed)
    size = np.repeat(log_normal(rng, MESSAGES // of), of)
    waited = np.cumsum(BYTE_NS * size.reshape(-1, of), axis=1).ravel()
    t_ns = np.repeat(np.cumsum(rng.exponential(2e8, size.size // of)), of)
    return sample(rng, size, t_ns, DELAY_NS + waited + pareto(rng, size.size))


def _octave(rng, n):
    return rng.uniform(1000, 1999, n).round()


# Of these nothing is to be told.
NO_LINES = {
    "one octave of sizes": lambda seed: _alone(seed, _line, _octave),
    "one size": lambda seed: _alone(seed, _line, lambda _r, n: np.full(n, 1000.0)),
    "two sizes": lambda seed: _alone(
        seed, _line, lambda r, n: r.choice([64.0, 65_536.0], n)
    ),
    "no growth": lambda seed: _alone(seed, lambda _r, s: DELAY_NS + 0 * s),
    "shrinks": lambda seed: _alone(seed, lambda _r, s: 2e8 - 80 * s),
    "copied by a CPU": lambda seed: _alone(seed, lambda _r, s: 3e4 + 0.3 * s),
    "copied slowly": lambda seed: _alone(seed, lambda _r, s: 3e4 + 2.4 * s),
    "token bucket": lambda seed: _alone(
        seed, lambda _r, s: 5e4 + BYTE_NS * np.maximum(0, s - 32_768)
    ),
    "faster for long ones": lambda seed: _alone(
        seed, lambda _r, s: DELAY_NS + BYTE_NS * np.minimum(s, 30_000) + 8 * s
    ),
    "slow start": lambda seed: _alone(seed, _windows),
    "two paths": lambda seed: _alone(seed, _mixed_paths),
    "batches of one size": _batches,
    "square root": lambda seed: _alone(seed, lambda _r, s: DELAY_NS + 1e5 * np.sqrt(s)),
}
