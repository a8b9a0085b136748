"""Numbers and names as the report writes them.

Names of others become visible characters, in one line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from latprof_analysis.read.result import Samples
from latprof_analysis.stats.quantiles import Quantile
from latprof_analysis.study.analysis import FRAMES, Study
from latprof_analysis.text import duration, printable
from latprof_analysis.text import span as text_span


def duration_text(ns: float | None, digits: int = 3) -> str:
    """Write a duration.

    Examples
    --------
    >>> duration_text(2500.0), duration_text(None)
    ('2.50 µs', 'not told')
    """
    if ns is None:
        return "not told"
    return duration(ns, digits).replace(" us", " µs")


def bytes_text(size: float | None) -> str:
    """Write a number of bytes as it is given to a send call.

    Examples
    --------
    >>> bytes_text(65507), bytes_text(None)
    ('65,507 B', 'a size that is not told')
    """
    return "a size that is not told" if size is None else f"{size:,.0f} B"


def number(n: float) -> str:
    """Write a count."""
    return f"{n:,.0f}"


def bounds(quantile: Quantile) -> str:
    """Write the interval of a latency, and say where a side has no bound.

    Examples
    --------
    >>> bounds(Quantile(0.5, 5e3, 4e3, 6e3, 40, 0.95))
    '4.00 to 6.00 µs'
    """
    made = quantile.as_dict()
    low, high = made["low"], made["high"]
    if low is None or high is None:
        sides = [f"from {duration_text(low)}"] if low is not None else []
        sides += [f"up to {duration_text(high)}"] if high is not None else []
        return (sides or ["no interval"])[0] + f": n {number(quantile.n)} is few"
    return span(low, high)


def span(low: float, high: float, digits: int = 3) -> str:
    """Write a range of durations, the unit once where it is the same.

    Examples
    --------
    >>> span(2e6, 3e6), span(2e3, 3e6)
    ('2.00 to 3.00 ms', '2.00 µs to 3.00 ms')
    """
    return text_span(low, high, duration, digits).replace(" us", " µs")


def slug(name: str) -> str:
    """Make a name of letters, digits and dashes.

    Examples
    --------
    >>> slug("tcp request"), slug("<b>")
    ('tcp-request', 'b')
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "x"


def listed(names: Sequence[Any]) -> str:
    """Join names as a sentence does.

    Examples
    --------
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    texts = [str(name) for name in names]
    if len(texts) < 2:
        return "".join(texts)
    return ", ".join(texts[:-1]) + f" and {texts[-1]}"


def legible(study: Study) -> Study:
    """Return a study in which every text, in figures and in rows, is printable."""
    found = Study(
        _of(study.document),
        samples=_of(study.samples),
        setups=[legible(setup) for setup in study.setups],
        stories=_of(study.stories),
    )
    for name in FRAMES:
        setattr(found, name, _of(getattr(study, name)))
    return found


def _of(value: Any) -> Any:
    """Return a value with printable texts, whatever it is made of."""
    match value:
        case str():
            return printable(value)
        case dict():
            return {_of(key): _of(inner) for key, inner in value.items()}
        case list() | tuple():
            return type(value)(map(_of, value))
        case pd.DataFrame():
            odd = [name for name, column in value.items() if _is_odd(column)]
            return value.assign(**{name: _texts(value[name]) for name in odd})
        case Samples():
            frame, table, meta = map(_of, (value.frame, value.table, value.meta))
            return replace(value, frame=frame, table=table, meta=meta)
        case _:
            return value


def _is_odd(column: pd.Series[Any]) -> bool:
    """Whether a column has categories of which some are not printable."""
    return isinstance(column.dtype, pd.CategoricalDtype) and not all(
        str(label).isprintable() for label in column.cat.categories
    )


def _texts(column: pd.Series[Any]) -> pd.Series[Any]:
    # labels that differ only in what is not printable become one
    texts = column.map(lambda label: printable(str(label)), na_action="ignore")
    return texts.astype("category")
