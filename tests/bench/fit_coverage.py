"""How often the intervals of the fit hold the truth, over simulated links.

    python tests/bench/fit_coverage.py [RUNS]

One row for each noise, number of rounds and number of sizes: percent of RUNS
(default 1000) whose 95% interval holds the truth, of the slope and of the fixed
delay. The standard error of 1000 runs is 0.7 points.
"""

import itertools
import sys

import numpy as np
from latprof_analysis.fits.rounds import low_delays
from latprof_analysis.fits.scale import Scale
from latprof_analysis.fits.verdict import fit_line

SLOPE_NS, FIXED_NS = 1.6, 2e6
# Noise in ns of a generator, and its true 10th percentile.
NOISES = {
    "normal": (lambda rng, n: rng.normal(2e5, 3e4, n), 2e5 - 1.2815515655446 * 3e4),
    "exponential": (lambda rng, n: rng.exponential(3e4, n), -3e4 * np.log(0.9)),
    "half Cauchy": (
        lambda rng, n: 1e4 * np.abs(rng.standard_cauchy(n)),
        1e4 * np.tan(0.05 * np.pi),
    ),
}


def held(seed: int, noise: str, rounds: int, sizes: int) -> tuple[bool, bool]:
    """Simulate one run; tell whether slope and delay are within their intervals."""
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
    return slope.low <= SLOPE_NS <= slope.high, delay.low <= truth <= delay.high


def main() -> None:
    """Print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"{'noise':12} rounds sizes  slope  delay   (percent of {runs} runs)")
    for case in itertools.product(NOISES, (20, 50, 200), (6, 10, 20)):
        found = np.mean([held(seed, *case) for seed in range(runs)], axis=0)
        print(f"{case[0]:12} {case[1]:6} {case[2]:5}  {100 * found[0]:5.1f}", end="")
        print(f"  {100 * found[1]:5.1f}", flush=True)


if __name__ == "__main__":
    main()
