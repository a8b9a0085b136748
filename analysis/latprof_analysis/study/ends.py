"""Messages of other programs are told apart by who sent to whom, as kinds are."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from latprof_analysis.scans.by_way import MOST_WAYS, coarser
from latprof_analysis.scans.totals import MESSAGE


def level_of(frames: Iterable[pd.DataFrame]) -> int:
    """Return how coarse ways must be for all of these rows, as in `coarser`."""
    names: set[str] = set()
    for messages in frames:
        if "way" in messages:
            ways = messages.loc[messages["kind"].eq(MESSAGE), ["protocol", "way"]]
            found = ways.dropna().drop_duplicates()
            names |= {" ".join(map(str, way)) for way in found.to_numpy()}
    fine = (n for n in (0, 1) if len({coarser(way, n) for way in names}) <= MOST_WAYS)
    return next(fine, 2)


def by_ends(messages: pd.DataFrame, level: int) -> pd.DataFrame:
    """Put the way of other programs' messages into the place of their kind.

    Parameters
    ----------
    messages : DataFrame
        Columns of `readers.run_schema`; older folders have no ``way``.
    level : int
        How coarse, as in `coarser`.

    Examples
    --------
    >>> rows = pd.DataFrame({
    ...     "protocol": "tcp", "kind": ["message", "request"],
    ...     "way": ["curl -> 10.0.0.1:80", "a -> b:1"]})
    >>> by_ends(rows, level=1)["kind"].tolist()
    ['curl -> elsewhere:80', 'request']
    """
    if messages.empty or "way" not in messages:
        return messages
    foreign = messages["kind"].eq(MESSAGE) & messages["way"].notna()
    if not foreign.any():
        return messages
    ways = messages.loc[foreign, "way"].astype(str)
    group = {way: coarser(f"- {way}", level).partition(" ")[2] for way in ways.unique()}
    kind = messages["kind"].astype(object)
    kind[foreign] = ways.map(group)
    return messages.assign(kind=kind.astype("category"))


def by_ways(exchanges: pd.DataFrame, level: int) -> pd.DataFrame:
    """Make the ways of exchanges so coarse, as `by_ends` does."""
    if not level or exchanges.empty:
        return exchanges
    names = exchanges["way"].cat.categories
    group = {way: coarser(f"- {way}", level).partition(" ")[2] for way in names}
    coarse = exchanges["way"].astype(object).map(group)
    return exchanges.assign(way=coarse.astype("category"))
