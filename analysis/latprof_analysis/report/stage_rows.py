"""The stages of messages under the names that their stamps allow."""

from __future__ import annotations

import numpy as np
import pandas as pd

from latprof_analysis.fits.rounds import Floats
from latprof_analysis.stages import STAGES, STAMPS, merged_name, missing_code


def named_stages(messages: pd.DataFrame) -> dict[str, Floats]:
    """Return the time of each message in each stage, in ns.

    Where a stamp is missing two stages are one, of which the later has the time:
    here it is told under both names, ``transit+receive_stack``.

    Parameters
    ----------
    messages : DataFrame, n rows
        Columns of `readers.run_schema`, at least the stamps and the stages.

    Returns
    -------
    dict of str to ndarray, shape (n,)
        In the order of the path; NaN where a message has no such stage.

    Examples
    --------
    >>> stamps = dict.fromkeys((f"{name}_ns" for name in STAMPS), [7])
    >>> stages = dict.fromkeys((f"{name}_ns" for name in STAGES), [1])
    >>> cut = stamps | stages | {"arrive_ns": [pd.NA], "transit_ns": [pd.NA]}
    >>> list(named_stages(pd.DataFrame(cut, dtype="Int64")))[3:]
    ['transit+receive_stack', 'receive_queue']
    """
    stamps = {
        name: messages[f"{name}_ns"].to_numpy("int64", na_value=0) for name in STAMPS
    }
    code = missing_code(stamps)
    found: dict[str, Floats] = {}
    for stage in STAGES:
        times = messages[f"{stage}_ns"].to_numpy("float64", na_value=np.nan)
        for lacking in np.unique(code):
            # a stage that has no beginning and no end is none of theirs
            rows = (code == lacking) & ~np.isnan(times)
            if rows.any():
                there = {name: not lacking >> i & 1 for i, name in enumerate(STAMPS)}
                name = merged_name(stage, there)
                found.setdefault(name, np.full(len(times), np.nan))[rows] = times[rows]
    return dict(sorted(found.items(), key=lambda item: _place(item[0])))


def _place(name: str) -> tuple[int, str]:
    return STAGES.index(name.rsplit("+", maxsplit=1)[-1]), name
