"""What TCP knew of a socket that held a slow message back, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latprof_analysis.report.story_queue import size_words
from latprof_analysis.text import duration, plural, rate


def tcp_words(timeline: Sequence[dict[str, Any]]) -> str:
    """Say what it knew at the end of the longest span; "" where there is none."""
    spans = [span for span in timeline if "tcp" in span]
    if not spans:
        return ""
    tcp = max(spans, key=lambda span: span["time_ns"])["tcp"]
    ssthresh, pacing = tcp["ssthresh_packets"], tcp["pacing_bytes_per_second"]
    told = [
        f"cwnd {plural(tcp['cwnd_packets'], 'packet')}"
        + ("" if ssthresh is None else f" (ssthresh {ssthresh})"),
        f"{tcp['in_flight_packets']} in flight",
        f"{size_words(tcp['unsent_bytes'])} not sent",
        f"the peer's window {size_words(tcp['window_bytes'])}",
        f"RTO {duration(1000 * tcp['rto_us'])}",
        *([] if pacing is None else [f"paced at {rate(8 * pacing)}"]),
    ]
    return ", ".join(told)
