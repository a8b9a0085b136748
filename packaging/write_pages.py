#!/usr/bin/env python3
"""Write what pages have of the code: the columns of a run folder. `make pages`."""

from pathlib import Path

from latprof_analysis.read.schema import EXCHANGES, MESSAGES, ROUND_TRIPS, Schema

PAGE = Path(__file__).parents[1] / "analysis" / "RUN_FOLDER.md"
MARK = "<!-- written by `make pages` -->\n"
TABLES = {
    "messages.csv": MESSAGES,
    "exchanges.csv, other_turns.csv": EXCHANGES,
    "round_trips.csv": ROUND_TRIPS,
}


def columns(name: str, schema: Schema) -> str:
    """A table of one file's columns."""
    rows = (
        f"| `{column.name}` | {column.kind} | {column.about.replace('|', ' ')} |"
        for column in schema.columns
    )
    return "\n".join([f"\n### {name}\n", "| column | | |", "|---|---|---|", *rows, ""])


def written() -> str:
    """The page with its tables as they are to be."""
    before, mark, _ = PAGE.read_text().partition(MARK)
    return before + mark + "".join(columns(*table) for table in TABLES.items())


if __name__ == "__main__":
    PAGE.write_text(written())
