"""How often the intervals of the fit hold the truth, over simulated links.

    python tests/bench/fit_coverage.py [RUNS]

One row for each noise, number of rounds and number of sizes: percent of RUNS
(default 1000) whose 95% interval holds the truth: of the slope, of the fixed delay,
and of what a packet takes beside its bytes. Then natural traffic, by how busy its
link is, in how many messages of which a quarter is sampled: percent of the runs that
told a line, of these the percent whose interval holds the slope, and the largest
error of a slope in percent. The standard error of 1000 runs is 0.7 points.
"""

import itertools
import sys
from pathlib import Path

import numpy as np
from latprof_analysis.fit.caveats import packet_cost
from latprof_analysis.fit.estimates import Scale
from latprof_analysis.fit.line import fit_line
from latprof_analysis.fit.natural import fit_natural
from latprof_analysis.fit.rounds import low_delays
from latprof_analysis.fit.wire import Crossing, Packets

sys.path.append(str(Path(__file__).parents[1] / "unit"))
from natural_links import BYTE_NS, queued

SLOPE_NS, FIXED_NS = 1.6, 2e6
BARE = Packets(mss_bytes=1448)
# Noise in ns of a generator, and its true 10th percentile.
NOISES = {
    "normal": (lambda rng, n: rng.normal(2e5, 3e4, n), 2e5 - 1.2815515655446 * 3e4),
    "exponential": (lambda rng, n: rng.exponential(3e4, n), -3e4 * np.log(0.9)),
    "half Cauchy": (
        lambda rng, n: 1e4 * np.abs(rng.standard_cauchy(n)),
        1e4 * np.tan(0.05 * np.pi),
    ),
}


def held(seed: int, noise: str, rounds: int, sizes: int) -> tuple[bool, bool, float]:
    """Simulate one run; tell whether each figure is within its interval."""
    draw, low_ns = NOISES[noise]
    rng = np.random.default_rng(seed)
    x = np.unique(np.geomspace(18, 65_000, sizes).round())
    size = np.tile(x, rounds)
    rtt = FIXED_NS + SLOPE_NS * size + draw(rng, size.size)
    index = np.repeat(np.arange(float(rounds)), x.size)
    low = low_delays(size, rtt, index, fewest=10, resamples=300, seed=seed)
    line = fit_line(x, low)
    scale = Scale(low.count, 0.95, 1, 1.0, line.freedom)
    slope = scale.slope(line.slopes)
    delay = scale.intercept_seconds(line.intercepts_ns)
    truth = (FIXED_NS + low_ns) / 1e9
    # the slope holds what a byte of a full packet costs; here packets cost nothing
    packet = packet_cost(Crossing.one_way(x, BARE), low, 0.95).per_packet_ns
    return (
        slope.low <= SLOPE_NS <= slope.high,
        delay.low <= truth <= delay.high,
        packet.low <= 0 <= packet.high if packet else np.nan,  # too few sizes
    )


def natural(runs: int, load: float, messages: int) -> np.ndarray:
    """Simulate natural traffic; shares told and held, and the largest error."""
    fits = [fit_natural(queued(seed, load, messages=messages)) for seed in range(runs)]
    slopes = [f.slope_ns_per_byte for f in fits if f.model == "line"]
    held = [s.low <= BYTE_NS <= s.high for s in slopes if s]
    error = max((abs(s.value / BYTE_NS - 1) for s in slopes if s), default=np.nan)
    return np.array([len(slopes) / runs, np.mean(held) if held else np.nan, error])


def main() -> None:
    """Print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    told = f"(percent of {runs} runs)"
    print(f"{'noise':12} rounds sizes  slope  delay packet   {told}")
    for case in itertools.product(NOISES, (20, 50, 200), (6, 10, 20)):
        found = np.mean([held(seed, *case) for seed in range(runs)], axis=0)
        print(f"{case[0]:12} {case[1]:6} {case[2]:5}", *_percent(found), flush=True)
    print(f"{'natural, busy':14} messages   told   held  error   {told}")
    for load, messages in itertools.product((0.1, 0.5, 0.8), (2000, 6000)):
        figures = natural(runs, load, messages)
        print(f"{load:14} {messages:8}", *_percent(figures), flush=True)


def _percent(shares: np.ndarray) -> list[str]:
    return [f"{100 * share:6.1f}" for share in shares]


if __name__ == "__main__":
    main()
