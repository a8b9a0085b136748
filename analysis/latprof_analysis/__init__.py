"""Pure functions of arrays: no root, no clock, no agent.

Names are looked up on first use, so that importing the package loads neither
numpy nor scipy.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Estimate": "fit.estimates",
    "Fit": "fit.estimates",
    "Histogram": "stats.histogram",
    "Packets": "fit.wire",
    "Quantile": "stats.quantiles",
    "ReadError": "read",
    "Runs": "read",
    "Samples": "read",
    "Study": "study.analysis",
    "analyze": "study.analysis",
    "autocorrelation": "stats.series",
    "ccdf": "stats.distribution",
    "choose_loss_model": "stats.loss_models",
    "compare_estimators": "fit.rivals",
    "compare_quantile": "compare",
    "compare_ranks": "compare",
    "compare_sides": "compare",
    "detect": "read",
    "find_modes": "stats.modes",
    "fit_dispersion": "fit.trains",
    "fit_loggp": "fit.trains",
    "fit_means_of_five": "fit.rivals",
    "fit_one_way": "fit.line",
    "fit_round_trips": "fit.line",
    "fit_stages": "fit.by_stage",
    "ipdv": "stats.series",
    "level_changes": "stats.change_points",
    "link_rates": "fit.by_stage",
    "loss_episodes": "stats.loss",
    "loss_pattern": "stats.loss",
    "loss_share": "stats.loss",
    "pair_round_trips": "fit.trips",
    "pdv": "stats.series",
    "percentiles": "stats.distribution",
    "percentiles_by_group": "stats.waiting",
    "percentiles_in_order": "stats.distribution",
    "quantile_ci": "stats.quantiles",
    "read_samples": "read",
    "read_batches": "read.batches",
    "read_columns": "read",
    "read_runs": "read",
    "read_sides": "compare",
    "samples_needed": "stats.quantiles",
    "scan_runs": "study.scan",
    "stage_dispersions": "fit.trains",
    "three_pieces": "stats.distribution",
    "wait_by_queue": "stats.waiting",
    "write_parquet": "read.parquet_writing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
