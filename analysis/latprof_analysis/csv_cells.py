"""Texts of others as cells of CSV: no spreadsheet runs them, and they come back whole.

A text that begins as a formula does has an apostrophe before it in the file; so has
one that begins with an apostrophe and then as a formula, so that taking one away
gives back what was there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# What spreadsheets take for the beginning of a formula (OWASP, CSV Injection), also
# in the wide forms of East Asian scripts.
FORMULA = "=+\\-@\uff1d\uff0b\uff0d\uff20"
_BEGINS = re.compile(rf"'*(\s*[{FORMULA}]|[\t\r\n])")


def guarded(text: str) -> str:
    """Put an apostrophe before what a spreadsheet would run.

    Examples
    --------
    >>> guarded("=HYPERLINK(0)"), guarded("'=0"), guarded("-bash"), guarded("it's")
    ("'=HYPERLINK(0)", "''=0", "'-bash", "it's")
    """
    return f"'{text}" if _BEGINS.match(text) else text


def unguarded(cell: str) -> str:
    """Return the text that `guarded` made a cell of."""
    return cell[1:] if cell.startswith("'") and _BEGINS.match(cell) else cell


def cell_of(text: str) -> str:
    """Return a text as a cell of CSV, quoted where it needs it."""
    cell = guarded(text)
    if any(c in cell for c in ',;"\t\r\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def text_of(cell: str) -> str:
    """Return the text that `cell_of` made a cell of."""
    quoted = cell.startswith('"')
    return unguarded(cell[1:-1].replace('""', '"') if quoted else cell)


def csv_text(frame: pd.DataFrame) -> str:
    """Write a table as CSV: texts guarded, numbers as they are, blank for none.

    Examples
    --------
    >>> import pandas as pd
    >>> print(csv_text(pd.DataFrame({"run": ["=1+1"], "latency_ns": [-2.5]})), end="")
    run,latency_ns
    '=1+1,-2.5
    """
    import pandas as pd  # the agent, which guards cells, has no need of it

    made = {}
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column):
            made[_in_a_line(name)] = column
        else:
            texts = [_in_a_line(cell) if pd.notna(cell) else "" for cell in column]
            made[_in_a_line(name)] = pd.Series(texts, index=column.index, dtype=object)
    table = pd.DataFrame(made)
    return str(table.to_csv(index=False, lineterminator="\n", float_format="%.7g"))


def _in_a_line(text: object) -> str:
    return guarded(" ".join(str(text).splitlines()))
