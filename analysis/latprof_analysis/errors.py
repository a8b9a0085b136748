"""Expected failures: each text is one line for the user.

LatprofError     exit status 1
└─ UsageError    a value that cannot be used, exit status 2
"""

from __future__ import annotations


class LatprofError(Exception):
    """An expected failure: its text is one line for the user."""

    exit_code = 1


class UsageError(LatprofError):
    """A value that cannot be used."""

    exit_code = 2
