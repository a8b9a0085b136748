"""In which stage the messages of a slower mode spend what they take longer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.stages import STAGES, STAMPS, merged_name, missing_code


def name_stages(modes: list[dict[str, Any]], messages: pd.DataFrame) -> None:
    """Add to each mode but the fastest the stage that differs most from the one below.

    Parameters
    ----------
    modes : list of dict
        As `Modes.as_dict` has them, ascending; each but the first gets ``longer_in``:
        ``stage``, the difference ``by_ns`` of its medians in both modes, and ``n``,
        the messages of both.
    messages : DataFrame
        Of the size that the modes are of, seen from end to end. Those are used that
        have the stamps which most of them have.
    """
    if len(modes) < 2:
        return
    stamps = {
        name: messages[f"{name}_ns"].to_numpy("int64", na_value=0) for name in STAMPS
    }
    codes = missing_code(stamps)
    usual = int(np.bincount(codes).argmax())
    there = {name: not usual >> i & 1 for i, name in enumerate(STAMPS)}
    rows = messages[codes == usual]
    took = rows["end_to_end_ns"].to_numpy("float64")
    # a mode ends where the next begins; the outer ones at no value
    which = np.searchsorted([mode["low"] for mode in modes[1:]], took, side="right")
    stages = pd.DataFrame(
        {
            merged_name(stage, there): rows[f"{stage}_ns"].to_numpy(
                "float64", na_value=np.nan
            )
            for stage in STAGES
        }
    ).dropna(axis="columns", how="all")
    medians = stages.groupby(which).median()
    counts = np.bincount(which, minlength=len(modes))
    for i in range(1, len(modes)):
        if counts[i - 1] and counts[i] and len(stages.columns):
            more = medians.loc[i] - medians.loc[i - 1]
            modes[i]["longer_in"] = {
                "stage": str(more.idxmax()),
                "by_ns": float(more.max()),
                "n": int(counts[i - 1] + counts[i]),
            }
