from .columns import read_columns
from .paths import expand
from .registry import FORMATS, detect, read_samples
from .result import BadRow, ReadError, Samples
from .run_folder import Runs, read_runs

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
