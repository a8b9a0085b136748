"""What mypy says of the library's names; an `ignore` that it needs not is an error."""

from typing import assert_type

import latprof_analysis as lp
import numpy as np
from latprof_analysis.stats.quantiles import Quantile

VALUES = np.arange(100.0)

assert_type(lp.quantile_ci(VALUES, 0.5), Quantile)
assert_type(lp.read_runs("runs/one"), lp.Runs)
lp.quantile_ci("nonsense", typo=3)  # type: ignore[call-arg]
lp.quantile_ci(VALUES, "median")  # type: ignore[arg-type]
NOTHING = lp.nothing_of_ours  # type: ignore[attr-defined]
