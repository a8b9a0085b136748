"""What changed from a baseline to other runs or files, and how surely.

`read_sides` reads what is compared, `compare_sides` compares it group by group and
judges, `document` gives it as one for JSON, which `gate` holds against limits;
`compare_quantile` and `compare_ranks` take arrays.
"""

from latprof_analysis.compare.document import document, gate
from latprof_analysis.compare.effects import (
    FigureChange,
    RankEffect,
    compare_quantile,
    compare_ranks,
)
from latprof_analysis.compare.judgement import (
    Choice,
    Comparison,
    adjusted,
    compare_sides,
)
from latprof_analysis.compare.rates import (
    compare_loss,
    compare_lost,
    compare_rates,
    compare_throughput,
)
from latprof_analysis.compare.sides import Side, read_sides, sides_of

__all__ = [
    "Choice",
    "Comparison",
    "FigureChange",
    "RankEffect",
    "Side",
    "adjusted",
    "compare_loss",
    "compare_lost",
    "compare_quantile",
    "compare_ranks",
    "compare_rates",
    "compare_sides",
    "compare_throughput",
    "document",
    "gate",
    "read_sides",
    "sides_of",
]
