"""The programs of one part of a bulk run: a responder, and who asks it."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from latprof_agent.errors import WorkloadError
from latprof_agent.executables import find_executable
from latprof_agent.lab.child import END_SECONDS, ask_to_end, last_output
from latprof_agent.lab.lab import Lab
from latprof_agent.workload.programs import (
    STARTED,
    Ending,
    ending_words,
    ready_words,
)
from latprof_agent.workload.responder import Limits


class BulkClient:
    """`latprof-load bulk`, of a responder that listens already.

    `seconds` are gone since it began. `result` is what it said, also where it failed:
    then an end that did not report has null.
    """

    def __init__(
        self,
        start: Callable[..., subprocess.Popen[Any]],
        words: list[str],
        cpu: int | None = None,
    ) -> None:
        """Start it by `start`, which starts a program where it is to be."""
        self.result: dict[str, Any] = {}
        self._ending = Ending()
        # what it says is more than a pipe holds
        self._said, self._complaint = (_new_file() for _ in range(2))
        self._client = start(
            [str(find_executable("latprof-load")), "bulk", *words, *_at(cpu)],
            **STARTED
            | {"stdout": self._said, "stderr": self._complaint, "text": False},
        )
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it runs."""
        return time.monotonic() - self._began

    def running(self) -> bool:
        """Whether the client is still at work."""
        return self._client.poll() is None

    def stop(self) -> None:
        """Ask it to end: it then says what it has measured. After a while end it."""
        self._ending.ask([self._client])

    def finish(self) -> None:
        """Take in the result.

        Raises WorkloadError with the client's own words where it failed.
        """
        with suppress(subprocess.TimeoutExpired):
            self._client.wait(END_SECONDS)
        self.stop()
        self._client.wait()
        said, complaint = (_text(one) for one in (self._said, self._complaint))
        with suppress(json.JSONDecodeError):  # of a client that was killed
            self.result = json.loads(said)
        if self._client.returncode and not self._ending.ended_unbegun(self._client):
            raise WorkloadError(ending_words(complaint, "the generator", self._client))


class BulkPair(BulkClient):
    """Both ends of a lab: the client at a, and `latprof-load echo` at b."""

    def __init__(
        self,
        lab: Lab,
        words: list[str],
        limits: Limits,
        client_cpu: int | None = None,
        server_cpu: int | None = None,
    ) -> None:
        """Start both; raises WorkloadError where the responder does not come up."""
        load = str(find_executable("latprof-load"))
        echo = ["echo", "--address", lab.b_address, *limits.words()]
        self._responder = lab.start("b", [load, *echo, *_at(server_cpu)], **STARTED)
        port, *_ = ready_words(self._responder)
        to = ["--address", lab.b_address, "--port", port]
        super().__init__(partial(lab.start, "a"), [*to, *words], client_cpu)

    def finish(self) -> None:
        """Take in the result and end the responder.

        Raises WorkloadError with the client's own words where it failed.
        """
        try:
            super().finish()
        finally:
            ask_to_end(self._responder)
            last_output(self._responder)


def _new_file() -> Any:
    return tempfile.TemporaryFile()  # closed by `_text`


def _at(cpu: int | None) -> list[str]:
    words = ["--die-with-parent"]
    return words if cpu is None else [*words, "--cpu", str(cpu)]


def _text(file: Any) -> str:
    with file:
        file.seek(0)
        return str(file.read(), "utf-8", "replace")
