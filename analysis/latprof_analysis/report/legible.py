"""Names of others as a report may show them: visible characters, in one line."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pandas as pd

from latprof_analysis.readers.result import Samples
from latprof_analysis.study import Study
from latprof_analysis.text import printable


def legible(study: Study) -> Study:
    """Return a study in which every text, in figures and in rows, is printable."""
    return replace(
        study, **{f.name: _of(getattr(study, f.name)) for f in fields(study)}
    )


def _of(value: Any) -> Any:
    """Return a value with printable texts, whatever it is made of.

    Examples
    --------
    >>> _of({"a\\x1b[2J": ["b\\n", 3, None]})
    {'a?[2J': ['b?', 3, None]}
    """
    match value:
        case str():
            return printable(value)
        case dict():
            return {_of(key): _of(inner) for key, inner in value.items()}
        case list() | tuple():
            return type(value)(map(_of, value))
        case pd.DataFrame():
            return value.assign(**{name: _texts(value[name]) for name in _odd(value)})
        case Samples():
            frame, table, meta = map(_of, (value.frame, value.table, value.meta))
            return replace(value, frame=frame, table=table, meta=meta)
        case _:
            return value


def _odd(frame: pd.DataFrame) -> list[str]:
    """Name the columns of categories of which some are not printable."""
    return [
        name
        for name, column in frame.items()
        if isinstance(column.dtype, pd.CategoricalDtype)
        and not all(str(label).isprintable() for label in column.cat.categories)
    ]


def _texts(column: pd.Series[Any]) -> pd.Series[Any]:
    labels = [printable(str(label)) for label in column.cat.categories]
    return (
        column.cat.rename_categories(range(len(labels)))
        .map(dict(enumerate(labels)), na_action="ignore")
        .astype("category")
    )
