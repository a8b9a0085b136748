# The names of the package, for `lazy_loader` and for type checkers alike.
from .clocks import (
    HostClocks,
    PairClock,
    Sightings,
    pair_clock,
    relate_hosts,
    resolution_of,
)
from .compare import compare_quantile, compare_ranks, compare_sides, read_sides
from .fit.by_stage import fit_stages, link_rates
from .fit.estimates import Estimate, Fit
from .fit.line import fit_one_way, fit_round_trips
from .fit.loggp import LogGP, fit_loggp
from .fit.rivals import compare_estimators, fit_means_of_five
from .fit.trains import fit_dispersion, stage_dispersions
from .fit.trips import pair_round_trips
from .fit.wire import Packets
from .read import (
    ReadError,
    Runs,
    Samples,
    detect,
    read_columns,
    read_runs,
    read_samples,
)
from .read.batches import read_batches
from .read.run_folder import write_parquet
from .stats.change_points import level_changes
from .stats.distribution import (
    ccdf,
    percentiles,
    percentiles_by_group,
    percentiles_in_order,
    three_pieces,
)
from .stats.histogram import Histogram
from .stats.loss import choose_loss_model, loss_episodes, loss_pattern, loss_share
from .stats.modes import find_modes
from .stats.quantiles import Quantile, quantile_ci, samples_needed
from .stats.series import autocorrelation, ipdv, pdv
from .stats.waiting import wait_by_queue
from .study.analysis import Study, analyze
from .study.scan import scan_runs

__all__ = [
    "Estimate",
    "Fit",
    "Histogram",
    "HostClocks",
    "LogGP",
    "Packets",
    "PairClock",
    "Quantile",
    "ReadError",
    "Runs",
    "Samples",
    "Sightings",
    "Study",
    "analyze",
    "autocorrelation",
    "ccdf",
    "choose_loss_model",
    "compare_estimators",
    "compare_quantile",
    "compare_ranks",
    "compare_sides",
    "detect",
    "find_modes",
    "fit_dispersion",
    "fit_loggp",
    "fit_means_of_five",
    "fit_one_way",
    "fit_round_trips",
    "fit_stages",
    "ipdv",
    "level_changes",
    "link_rates",
    "loss_episodes",
    "loss_pattern",
    "loss_share",
    "pair_clock",
    "pair_round_trips",
    "pdv",
    "percentiles",
    "percentiles_by_group",
    "percentiles_in_order",
    "quantile_ci",
    "read_batches",
    "read_columns",
    "read_runs",
    "read_samples",
    "read_sides",
    "relate_hosts",
    "resolution_of",
    "samples_needed",
    "scan_runs",
    "stage_dispersions",
    "three_pieces",
    "wait_by_queue",
    "write_parquet",
]
