"""Round trips as CLEAR's own program prints them, for what reads its text.

    Size = 1024 bytes, Count = 100, average latency = 0.083538445 ms

Its experiment measures each size five times in a row and fits a line through the
means. Ours come in rounds of all sizes, so that a line is of a fifth of the rounds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from latprof_analysis.records.message_rows import Ints

TIMES = 5
_NS_PER_MS = 1e6
_FIRST, _LAST = "Testing latency to the server", "All sizes done"


def clear_result(size_bytes: Ints, rtt_ns: Ints) -> str:
    """Write round trips, in the order of sending, as CLEAR's result text.

    Examples
    --------
    >>> times = np.repeat([81_830, 81_832], 5)
    >>> print(clear_result(np.full(10, 18), times).splitlines()[1])
    Size = 18 bytes, Count = 2, average latency = 0.081830000 ms
    """
    return "\n".join([_FIRST, *_lines(size_bytes, rtt_ns), _LAST, ""])


def _lines(size_bytes: Ints, rtt_ns: Ints) -> Iterator[str]:
    for size in np.unique(size_bytes).tolist():
        times = rtt_ns[size_bytes == size]
        for part in np.array_split(times, min(TIMES, len(times))):
            mean = f"average latency = {part.mean() / _NS_PER_MS:.9f} ms"
            yield f"Size = {size} bytes, Count = {len(part)}, {mean}"
