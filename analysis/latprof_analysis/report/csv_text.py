"""Tables as CSV that a spreadsheet opens without running anything."""

from __future__ import annotations

import pandas as pd

from latprof_analysis.csv_cells import guarded


def harmless(text: str) -> str:
    """Return a text of one line that no spreadsheet takes for a formula.

    Examples
    --------
    >>> harmless("=HYPERLINK(0)"), harmless("tcp request")
    ("'=HYPERLINK(0)", 'tcp request')
    """
    return guarded(" ".join(text.splitlines()))


def csv_text(frame: pd.DataFrame) -> str:
    """Write a table as CSV: texts harmless, numbers as they are, blank for none.

    Examples
    --------
    >>> print(csv_text(pd.DataFrame({"run": ["=1+1"], "latency_ns": [-2.5]})), end="")
    run,latency_ns
    '=1+1,-2.5
    """
    made = {}
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column):
            made[harmless(str(name))] = column
        else:
            texts = [harmless(str(cell)) if pd.notna(cell) else "" for cell in column]
            made[harmless(str(name))] = pd.Series(
                texts, index=column.index, dtype=object
            )
    table = pd.DataFrame(made)
    return str(table.to_csv(index=False, lineterminator="\n", float_format="%.7g"))
