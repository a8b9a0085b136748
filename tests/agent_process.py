"""`latprof agent` as a process of its own, and what it serves."""

from __future__ import annotations

import select
import signal
import urllib.request

from latprof_process import Latprof
from recording import DEADLINE_SECONDS, wait_until

FREE = ("--listen", "127.0.0.1:0")


class Agent(Latprof):
    """A running agent; `ready` is what it says once it serves, at `url`.

    `noted` is what it says before, of what it lacks; by default nothing.
    """

    def __init__(self, *words: str, notes: int = 0, **options):
        super().__init__("agent", *words, **options)
        try:
            said = [self.next_line()]
            while len(said) <= notes:  # may have come with the first
                said.append(self.process.stderr.readline().decode().strip())
            *self.noted, line = said
            self.ready = line
            assert line.startswith("latprof: as user "), line
        except BaseException:
            self.process.kill()  # nobody else has it yet
            self.process.communicate()
            raise
        self.url = line.split()[-1].removesuffix("/metrics")
        self.look()

    def next_line(self) -> str:
        """The next line that it says on stderr."""
        stream = self.process.stderr
        assert select.select([stream], [], [], DEADLINE_SECONDS)[0], "says nothing"
        return stream.readline().decode().strip()

    def get(self, path: str = "/metrics", **headers: str) -> str:
        """A page."""
        asked = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.read().decode()

    def metric(self, start: str) -> float:
        """The value of the one line that begins so."""
        (line,) = [x for x in self.get().splitlines() if x.startswith(start)]
        return float(line.split()[-1])

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it, and see that nothing is left."""
        self.signal(number)
        status = self.finish()
        # a child of what was killed is killed soon after
        wait_until(lambda: self.left() == [], "nothing is left")
        return status
