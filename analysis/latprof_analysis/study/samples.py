"""The study of other tools' files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.errors import LatprofError
from latprof_analysis.fit.estimates import ReplyMode
from latprof_analysis.fit.line import fit_round_trips
from latprof_analysis.fit.natural import WHOLE, Natural, are_free, fit_natural
from latprof_analysis.fit.rounds import Floats
from latprof_analysis.read.buckets import Buckets
from latprof_analysis.read.result import Losses, Samples
from latprof_analysis.stages import BLANK
from latprof_analysis.study import findings
from latprof_analysis.study.analysis import Study
from latprof_analysis.study.grouped import Grouped
from latprof_analysis.study.messages import above_usual

# Each takes 10 ms. iperf3 has 128 streams at most, other tools a few kinds.
MOST_KINDS = 1000
_EACH = "each"
_NO_SIZE = "any"


def study_samples(samples: Samples, reply_mode: ReplyMode | None) -> Study:
    """Say what samples hold, by kind and size.

    Parameters
    ----------
    samples : Samples
    reply_mode : 'echo' or int or None
        How the responder answered, where the format does not have it; None where
        nobody did, and then there is no bandwidth.
    """
    frame = samples.frame
    count = frame["kind"].nunique()
    if count > MOST_KINDS:
        raise LatprofError(
            f"cannot tell {count} kinds of latencies apart: {MOST_KINDS} at most; is "
            f"the file ({samples.format}) what it looks like?"
        )
    modes = samples.meta.get("reply_modes", {})
    each = frame[(frame["statistic"] == _EACH) & ~frame["lost"]]
    of_kinds = {str(kind): rows for kind, rows in frame.groupby("kind", observed=True)}
    where = samples.meta.get("lost_where", {})
    kinds = {
        kind: {
            **_losses(rows, samples.losses.get(kind)),
            "lost_where": where.get(kind),
            **_kind(rows, modes.get(kind, reply_mode), kind in modes),
            **_histogram(rows, samples.histograms.get(kind)),
        }
        for kind in dict.fromkeys((*of_kinds, *samples.losses))
        for rows in (of_kinds.get(kind, frame[:0]),)
    }
    document = {
        "format": 1,
        "input": samples.as_dict(),
        "latency": samples.meta.get("latency", ""),
        "samples": {"n": len(each), "lost": samples.lost, "kinds": kinds},
        "transfers": _transfers(samples),
        "fit": next((k["fit"] for k in kinds.values() if "model" in k["fit"]), None),
        "notes": list(samples.meta.get("notes", [])),
        "skipped_rows": samples.skipped_rows,
        "skipped": [str(row) for row in samples.skipped],
        "warnings": [],
    }
    return Study(document, samples=samples)


def _transfers(samples: Samples) -> list[dict[str, Any]]:
    """Say what was transferred in each direction, of each file that has it."""
    files = samples.meta.get("files") or [samples.meta]
    return [
        {"protocol": meta.get("protocol", ""), **transfer}
        for meta in files
        for transfer in meta.get("transfers", [])
    ]


def size_groups(sizes: pd.Series[Any]) -> tuple[list[str], NDArray[np.intp]]:
    """Name the groups of sizes that are kept apart, and say which is each row's.

    Each size is one as long as there are few of them, else each octave.

    Examples
    --------
    >>> size_groups(pd.Series([64, None, 1024, 64], dtype="Int64"))
    (['any', '64', '1024'], array([1, 0, 2, 1]))
    """
    values = sizes.to_numpy("int64", na_value=BLANK)
    grouped = Grouped()
    groups, index = grouped.admit(values)
    names = [
        _NO_SIZE if low == BLANK else grouped.label(low) for low in groups.tolist()
    ]
    return names, index


def floats(column: pd.Series[Any]) -> Floats:
    """Return a column as doubles, NaN where it is missing."""
    values: Floats = column.to_numpy("float64", na_value=np.nan)
    return values


def _by_size(each: pd.DataFrame) -> dict[str, Any]:
    names, index = size_groups(each["size_bytes"])
    times = floats(each["latency_ns"])
    return {
        name: findings.figures_of_times(times[index == i])
        for i, name in enumerate(names)
    }


def _kind(
    rows: pd.DataFrame, reply_mode: ReplyMode | None, known: bool
) -> dict[str, Any]:
    each = rows[((rows["statistic"] == _EACH) & ~rows["lost"]).to_numpy()]
    times = floats(each["latency_ns"])
    found = {
        "n": len(each),
        "sizes": _by_size(each),
        **_fits(each if len(each) else _means(rows), reply_mode, known),
    }
    if len(each):
        sizes = each["size_bytes"].fillna(0)
        found["tail"] = findings.tail(times, sizes)
        alike = size_groups(each["size_bytes"])[1]
        found["time"] = findings.over_time(above_usual(alike, times), times=times)
    return found


def _losses(rows: pd.DataFrame, losses: Losses | None) -> dict[str, Any]:
    """Say what was lost of a kind, as far as the file says it.

    A model needs the order, of a file in which each of what was lost has its row.
    """
    if losses is None:
        return {"sent": None, "lost": None}
    found: dict[str, Any] = {"sent": losses.sent, "lost": losses.lost}
    lost = rows["lost"].to_numpy(bool)[(rows["statistic"] == _EACH).to_numpy()]
    if lost.size and Losses(lost.size, int(lost.sum())) == losses:
        found["loss"] = findings.losses(lost)
    return found


def _histogram(rows: pd.DataFrame, buckets: Buckets | None) -> dict[str, Any]:
    """Return where percentiles of a histogram lie, and what else the file gives."""
    if buckets is None:
        return {"histogram": None, "given": _given(rows)}
    found = buckets.percentiles()
    ends = {
        name: {end: findings.finite(value) for end, value in band._asdict().items()}
        for name, band in found.items()
    }
    others = rows[~rows["statistic"].isin(list(found)).to_numpy()]
    return {
        "histogram": {"n": buckets.n, "percentiles": ends},
        "given": _given(others),
    }


def _given(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Put together statistics that the file gives instead of single latencies."""
    given = rows[(rows["statistic"] != _EACH).to_numpy()]
    groups = given.groupby(["size_bytes", "statistic"], dropna=False, observed=True)
    return [
        {
            "size_bytes": None if pd.isna(size) else int(size),
            "statistic": str(statistic),
            "rows": len(of_both),
            "messages": _sum(of_both["count"]),
            "mean_ns": _mean_of_means(of_both) if statistic == "mean" else None,
            "median_ns": findings.finite(of_both["latency_ns"].median()),
            "min_ns": findings.finite(of_both["latency_ns"].min()),
            "max_ns": findings.finite(of_both["latency_ns"].max()),
        }
        for (size, statistic), of_both in groups
    ]


def _sum(counts: pd.Series[Any]) -> int | None:
    """Count the messages behind statistics; None where one has no count."""
    return None if counts.isna().any() else int(counts.sum())


def _mean_of_means(rows: pd.DataFrame) -> float | None:
    """Return the mean of all messages behind means; None where one has no count."""
    messages = _sum(rows["count"])
    if not messages:
        return None
    counts = rows["count"].to_numpy("float64")
    return findings.finite(rows["latency_ns"].to_numpy("float64") @ counts / messages)


def _means(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[(rows["statistic"] == "mean").to_numpy()]


def _fits(
    timed: pd.DataFrame, reply_mode: ReplyMode | None, known: bool
) -> dict[str, Any]:
    """Draw a line through latencies, or through means where a file has only those.

    `known`: the format has the reply mode, where None is that of no payload.
    """
    if known and reply_mode is None:
        return {"fit": {"reason": "no payload is sent either way"}}
    sized = timed[timed["size_bytes"].notna()]
    if sized["size_bytes"].nunique() < 2:
        return {"fit": {"reason": "a line needs latencies of more than one size"}}
    if reply_mode is None:
        reason = (
            "how the responder answered is not in the file, so a line would be off by "
            "a factor of 2: say --reply echo or --reply BYTES"
        )
        return {"fit": {"reason": reason}}
    sizes, times = floats(sized["size_bytes"]), floats(sized["latency_ns"])
    rounds = floats(sized.groupby("size_bytes").cumcount())
    mode = reply_mode

    def least_squares() -> dict[str, Any]:
        from latprof_analysis.fit.rivals import fit_means_of_five

        return fit_means_of_five(sizes, times, reply_mode=mode).as_dict()

    if are_free(sizes):
        return {"fit": findings.or_reason(lambda: _free_fit(sizes, times, mode))}
    fit = findings.or_reason(
        lambda: fit_round_trips(sizes, times, rounds, reply_mode=mode).as_dict()
    )
    if len(timed) and (timed["statistic"] == _EACH).any():
        return {"fit": fit}
    return {"fit": fit, "least_squares": findings.or_reason(least_squares)}


def _free_fit(sizes: Floats, times: Floats, reply_mode: ReplyMode) -> dict[str, Any]:
    """Draw a line through latencies of sizes that hardly repeat."""
    some = (sizes > 0) & (times > 0)
    count = int(some.sum())
    messages = Natural(
        sizes[some],
        np.arange(float(count)),
        {WHOLE: times[some]},
        np.full(count, np.nan),
        np.zeros(count, bool),
        stream=False,
    )
    return fit_natural(messages, reply_mode=reply_mode).as_dict()
