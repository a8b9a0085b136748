"""Names of processes and devices as the kernel keeps them: bytes of any kind."""

from __future__ import annotations


def name_of(raw: bytes) -> str:
    """Return what is before the first NUL; bytes that are no UTF-8 are escaped.

    Examples
    --------
    >>> print(name_of(b"\\xc3\\xa9lan\\0\\0rest"), name_of(b"\\xff2"))
    élan \\xff2
    """
    return raw.split(b"\0", 1)[0].decode(errors="backslashreplace")
