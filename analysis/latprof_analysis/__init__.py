"""Pure functions of arrays: no root, no clock, no agent.

Names are looked up on first use, so that importing the package loads neither
numpy nor scipy.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Estimate": "fits.fit_result",
    "Fit": "fits.fit_result",
    "Histogram": "histogram",
    "Packets": "wire",
    "Quantile": "quantiles",
    "ReadError": "readers",
    "Runs": "readers",
    "Samples": "readers",
    "Study": "study",
    "analyze": "study",
    "autocorrelation": "series",
    "ccdf": "distribution",
    "choose_loss_model": "loss_models",
    "compare_estimators": "fits.estimators",
    "compare_quantile": "comparison",
    "compare_ranks": "comparison",
    "compare_sides": "comparison",
    "detect": "readers",
    "find_modes": "modes",
    "fit_dispersion": "fits.dispersion",
    "fit_loggp": "fits.trains",
    "fit_means_of_five": "fits.least_squares",
    "fit_one_way": "fits.one_way",
    "fit_round_trips": "fits.fit",
    "fit_stages": "fits.stage_fits",
    "ipdv": "series",
    "level_changes": "changepoint",
    "link_rates": "fits.link_choice",
    "loss_episodes": "loss",
    "loss_pattern": "loss",
    "loss_share": "loss",
    "pair_round_trips": "fits.trips",
    "pdv": "series",
    "percentiles": "percentile",
    "percentiles_by_group": "waiting",
    "percentiles_in_order": "percentile",
    "quantile_ci": "quantiles",
    "read": "readers",
    "read_batches": "readers.batches",
    "read_columns": "readers",
    "read_runs": "readers",
    "read_sides": "comparison",
    "samples_needed": "quantiles",
    "scan_runs": "scans.scan",
    "stage_dispersions": "fits.stage_trains",
    "three_pieces": "distribution",
    "wait_by_queue": "waiting",
    "write_parquet": "readers.parquet_writing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
