"""Readers: run folders and other tools' files -> samples.

`read` finds out what a file is by its content; `read_runs` gives a run folder's
own tables; each format has its module, with its schema.
"""

from latprof_analysis.readers.columns import read_columns
from latprof_analysis.readers.detection import FORMATS, detect
from latprof_analysis.readers.formats import read
from latprof_analysis.readers.paths import expand
from latprof_analysis.readers.result import BadRow, ReadError, Samples
from latprof_analysis.readers.run_folder import Runs, read_runs

__all__ = [
    "FORMATS",
    "BadRow",
    "ReadError",
    "Runs",
    "Samples",
    "detect",
    "expand",
    "read",
    "read_columns",
    "read_runs",
]
