"""What changed from a baseline to other runs or files, and how surely.

`read_sides` reads what is compared, `compare_sides` compares it group by group,
`document` gives that as one for JSON; `compare_quantile` and `compare_ranks` take
arrays.
"""

from latprof_analysis.comparison.change import QuantileChange
from latprof_analysis.comparison.compare import compare_sides, read_sides
from latprof_analysis.comparison.document import document
from latprof_analysis.comparison.families import adjusted
from latprof_analysis.comparison.quantile import compare_quantile
from latprof_analysis.comparison.rank import RankEffect, compare_ranks
from latprof_analysis.comparison.result import Choice, Comparison
from latprof_analysis.comparison.sides import Side, sides_of
from latprof_analysis.comparison.trips import compare_loss, compare_throughput

__all__ = [
    "Choice",
    "Comparison",
    "QuantileChange",
    "RankEffect",
    "Side",
    "adjusted",
    "compare_loss",
    "compare_quantile",
    "compare_ranks",
    "compare_sides",
    "compare_throughput",
    "document",
    "read_sides",
    "sides_of",
]
