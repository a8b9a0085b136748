"""Texts as the cells of a CSV file."""

from __future__ import annotations


def csv_text(text: str) -> str:
    """Quote a text for CSV where it needs it."""
    if any(c in text for c in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
