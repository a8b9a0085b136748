"""Names of containers and pods by the paths of their control groups, kept.

The runtime is asked when a control group is not known, in a thread that nobody waits
for longer than WAIT_SECONDS, and not more often than RATE_SECONDS. Until it answers,
and where it does not know, a container is called by the start of its id, and a pod by
its uid.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from latprof_agent.containers.container import Container
from latprof_agent.containers.control_groups import Place, place_of_group, short_id
from latprof_agent.containers.runtime import List
from latprof_agent.errors import ContainerError
from latprof_agent.watched_thread import Apart

WAIT_SECONDS = 0.3
RATE_SECONDS = 2.0
RETRY_SECONDS = 60.0  # for what the runtime did not know, or where it did not answer
_ASKED_SECONDS = 20.0
# A blank, so that nothing can have these as its name.
NO_POD, NO_CONTAINER = "no pod", "no container"


class Named(NamedTuple):
    """What a control group is called; the workload is a pod's, or a container's."""

    namespace: str
    pod: str
    container: str
    workload: str


class ContainerNames:
    """Keeps what the runtime said last.

    `ask` raises ContainerError; `notice` takes why it did, once.
    """

    def __init__(
        self,
        ask: List,
        notice: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._notice = notice
        self._clock = clock
        self._containers: dict[str, Container] = {}
        self._pods: dict[str, Container] = {}
        self._asking: Apart[list[Container]] | None = None
        self._missing: set[Place] = set()  # when it was asked last
        self._next = 0.0
        self._said = ""

    def named(self, path: str) -> Named:
        """Name a control group, by what is known now; a path of none is its own."""
        place = place_of_group(path)
        of_pod = self._pods.get(place.pod_uid)
        own = self._containers.get(place.container) or of_pod or Container("")
        if not place.pod_uid and not place.container:
            return Named("", NO_POD, NO_CONTAINER, NO_CONTAINER)
        container = short_id(place.container) or NO_CONTAINER
        if own.id == place.container and own.name:
            container = own.name
        pod = own.pod or place.pod_uid or NO_POD
        within = pod if pod != NO_POD else container
        return Named(own.namespace, pod, container, own.workload or within)

    def look_up(self, paths: list[str]) -> None:
        """Ask about these where they are not known, and take in what was answered."""
        missing = {place_of_group(path) for path in paths if not self.knows(path)}
        now = self._clock()
        if self._asking is None and missing:
            due = self._next - RETRY_SECONDS + RATE_SECONDS
            if now >= (due if missing - self._missing else self._next):
                self._missing, self._next = missing, now + RETRY_SECONDS
                self._asking = Apart("asking the runtime", _ASKED_SECONDS, self._ask)
                until = now + WAIT_SECONDS
                while not self._asking.is_over and self._clock() < until:
                    time.sleep(0.002)
        self._take_in()

    def knows(self, path: str) -> bool:
        """Whether `named` will say the same later."""
        place = place_of_group(path)
        if place.container and place.is_hexadecimal:
            return place.container in self._containers
        return not place.pod_uid or place.pod_uid in self._pods

    def _take_in(self) -> None:
        if not self._asking or not self._asking.is_over:
            return
        asking, self._asking = self._asking, None
        try:
            found = asking.result()
        except (ContainerError, TimeoutError) as error:
            if str(error) != self._said:
                self._said = str(error)
                self._notice(f"names of containers: {error}")
            return
        self._said = ""
        self._containers = {one.id: one for one in found}
        self._pods = {one.pod_uid: one for one in found if one.pod_uid}
