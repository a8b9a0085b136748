"""`latprof fleet` as a program, and a recording of both ends for its agents."""

from __future__ import annotations

import json
import select
import signal
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from latprof_process import Latprof
from printed import check_document
from recording import DEADLINE_SECONDS, wait_until

RECORDED = Path(__file__).parent / "recordings" / "sampled.arrows.zst"
AHEAD_NS, SKEW = 3_000_000_000, 20e-6


def running_fast(times: np.ndarray) -> np.ndarray:
    """A clock that is ahead, and by 20 us a second more."""
    return times + AHEAD_NS + times // round(1 / SKEW)


class FleetProcess(Latprof):
    """A running fleet, and where it serves."""

    def __init__(self, *words: str, **options: Any):
        given = ("--listen", "127.0.0.1:0", "--json")
        super().__init__("fleet", *given, *words, bufsize=0, **options)
        line = self.line(self.process.stderr)
        assert line.startswith("latprof: http://127.0.0.1:"), line
        self.url = line.split()[1].removesuffix("/metrics")

    def line(self, stream) -> str:
        """The next line."""
        assert select.select([stream], [], [], DEADLINE_SECONDS)[0], "says nothing"
        return stream.readline().decode()

    def document(self) -> dict:
        """The next document."""
        found = json.loads(self.line(self.process.stdout))
        check_document("fleet", found)
        return found

    def document_with(self, holds) -> dict:
        """The first document of which something holds."""
        return wait_until(
            lambda: (d := self.document()) and holds(d) and d, "a document"
        )

    def get(self, path: str) -> str:
        """What it answers."""
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return answer.read().decode()

    def end(self) -> int:
        """Ask it to end; its status."""
        self.signal(signal.SIGTERM)
        return self.finish()
