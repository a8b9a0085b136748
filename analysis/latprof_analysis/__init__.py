"""Latencies of messages: files of many tools -> figures with intervals.

Pure functions of arrays and files: no root, no clock, no agent. DataFrames and
arrays go in and come out; times are nanoseconds where a name ends in ``_ns``.

`analyze` does what the command of that name does. Beneath it: `read_samples` and
`read_runs` read, `scan_runs` sums up what does not fit into memory,
`percentiles`, `find_modes`, `level_changes` and others each answer one question,
`fit_round_trips` and `fit_one_way` fit D = aS + b, `compare_sides` finds what
changed. Names are loaded when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
