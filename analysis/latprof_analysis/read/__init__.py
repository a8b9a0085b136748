"""Readers: run folders and other tools' files -> samples.

`read_samples` finds out what a file is by its content; `read_runs` gives a run folder's
own tables; each format has its module, with its schema.
"""

from latprof_analysis.read.columns import read_columns
from latprof_analysis.read.paths import expand
from latprof_analysis.read.registry import FORMATS, detect, read_samples
from latprof_analysis.read.result import BadRow, ReadError, Samples
from latprof_analysis.read.run_folder import Runs, read_runs

__all__ = [
    "FORMATS",
    "BadRow",
    "ReadError",
    "Runs",
    "Samples",
    "detect",
    "expand",
    "read_columns",
    "read_runs",
    "read_samples",
]
