"""Text of the kernel, as /proc has it: a line ends at a newline byte, nowhere else.

Names of files, devices and mounts in it are their owners' words. What Python takes for
the end of a line beside that (a form feed, U+2028, in text mode a carriage return) and
for a blank (U+2003) may stand in them: lines are bytes, and are split as bytes.
"""

from __future__ import annotations

from pathlib import Path


def lines_of(path: Path) -> list[bytes]:
    """Read all lines of a file of the kernel; raises OSError."""
    return split_lines(path.read_bytes())


def split_lines(text: bytes) -> list[bytes]:
    """Split text of the kernel into its lines.

    Examples
    --------
    >>> split_lines(b"1\\f2\\r3\\n4\\n")
    [b'1\\x0c2\\r3', b'4']
    """
    return text.removesuffix(b"\n").split(b"\n") if text else []
