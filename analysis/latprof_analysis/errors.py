"""Expected failures: each text is one line for the user.

LatprofError     exit status 1
└─ UsageError    a value that cannot be used, exit status 2
"""

from __future__ import annotations

from latprof_analysis.text import printable


class LatprofError(Exception):
    """An expected failure: its text is one line for the user."""

    exit_code = 1

    def __str__(self) -> str:
        return printable(super().__str__())


class UsageError(LatprofError):
    """A value that cannot be used."""

    exit_code = 2
