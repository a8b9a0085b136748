"""The study of other tools' files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.fit import fit_round_trips
from latprof_analysis.fit_result import ReplyMode
from latprof_analysis.histogram import Histogram
from latprof_analysis.kind_totals import percentiles
from latprof_analysis.readers.result import Samples
from latprof_analysis.study import Study, findings
from latprof_analysis.study.messages import above_usual, floats

_EACH = "each"
_NO_SIZE = "any"


def study_samples(samples: Samples, reply_mode: ReplyMode | None) -> Study:
    """Say what samples hold, by kind and size.

    Parameters
    ----------
    samples : Samples
    reply_mode : 'echo' or int or None
        How the responder answered; None where nobody told, and then there is no
        bandwidth.
    """
    frame = samples.frame
    each = frame[(frame["statistic"] == _EACH) & ~frame["lost"]]
    kinds = {
        str(kind): _kind(rows, reply_mode)
        for kind, rows in frame.groupby("kind", observed=True)
    }
    document = {
        "format": 1,
        "input": samples.as_dict(),
        "latency": samples.meta.get("latency", ""),
        "samples": {"n": len(each), "lost": int(frame["lost"].sum()), "kinds": kinds},
        "fit": next((k["fit"] for k in kinds.values() if "model" in k["fit"]), None),
        "notes": list(samples.meta.get("notes", [])),
        "skipped_rows": samples.skipped_rows,
        "skipped": [str(row) for row in samples.skipped],
        "warnings": [],
    }
    return Study(document, samples=samples)


def _kind(rows: pd.DataFrame, reply_mode: ReplyMode | None) -> dict[str, Any]:
    lost = rows["lost"].to_numpy(bool)
    each = rows[(rows["statistic"] == _EACH).to_numpy() & ~lost]
    times = floats(each["latency_ns"])
    found = {
        "n": len(each),
        "lost": int(lost.sum()),
        "sizes": {
            _NO_SIZE if pd.isna(size) else str(size): _percentiles(of_size)
            for size, of_size in each.groupby("size_bytes", dropna=False)
        },
        "given": _given(rows),
        "fit": findings.or_reason(lambda: _fit(each, reply_mode)),
    }
    if len(each):
        sizes = each["size_bytes"].fillna(0)
        found["tail"] = findings.tail(times, sizes)
        found["time"] = findings.over_time(above_usual(sizes, times))
    if (rows["statistic"] == _EACH).any():
        found["loss"] = findings.losses(lost)
    return found


def _percentiles(rows: pd.DataFrame) -> dict[str, Any]:
    histogram = Histogram()
    histogram.record(np.round(floats(rows["latency_ns"])).astype(np.int64))
    return percentiles(histogram)


def _given(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Put together statistics that the file gives instead of single latencies."""
    told = rows[(rows["statistic"] != _EACH).to_numpy()]
    groups = told.groupby(["size_bytes", "statistic"], dropna=False, observed=True)
    return [
        {
            "size_bytes": None if pd.isna(size) else int(size),
            "statistic": str(statistic),
            "rows": len(of_both),
            "messages": _sum(of_both["count"]),
            "median_ns": findings.finite(of_both["latency_ns"].median()),
            "min_ns": findings.finite(of_both["latency_ns"].min()),
            "max_ns": findings.finite(of_both["latency_ns"].max()),
        }
        for (size, statistic), of_both in groups
    ]


def _sum(counts: pd.Series[Any]) -> int | None:
    """How many messages are behind statistics; None where one does not tell."""
    return None if counts.isna().any() else int(counts.sum())


def _fit(each: pd.DataFrame, reply_mode: ReplyMode | None) -> dict[str, Any]:
    sized = each[each["size_bytes"].notna()]
    if sized["size_bytes"].nunique() < 2:
        raise ValueError("a line needs latencies of more than one size")
    if reply_mode is None:
        raise ValueError(
            "how the responder answered is not in the file, so a line would be off by "
            "a factor of 2: say --reply echo or --reply BYTES"
        )
    rounds = sized.groupby("size_bytes").cumcount()
    return fit_round_trips(
        floats(sized["size_bytes"]),
        floats(sized["latency_ns"]),
        floats(rounds),
        reply_mode=reply_mode,
    ).as_dict()
