"""What docker and podman say by docker's API: their containers."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

from latprof_agent.containers.container import (
    Container,
    workload_of_container,
    workload_of_pod,
)
from latprof_agent.errors import ContainerError

MOST_BYTES = 16 << 20  # of an answer
# of dockershim and cri-dockerd
_POD = "io.kubernetes.pod."
_CONTAINER_NAME = "io.kubernetes.container.name"


class _Connection(http.client.HTTPConnection):
    """On a socket that is connected already."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__("localhost")
        self.sock = connection


def containers_by_docker(connection: socket.socket) -> list[Container]:
    """List the containers that run.

    Raises ContainerError where the runtime refuses, OSError where it does not answer,
    ValueError for an answer that is none.
    """
    asked = _Connection(connection)
    try:
        asked.request("GET", "/containers/json", headers={"Connection": "close"})
        answer = asked.getresponse()
        body = answer.read(MOST_BYTES + 1)
    except http.client.HTTPException as error:
        raise ValueError(f"it does not speak HTTP ({error!r})") from error
    if answer.status != http.HTTPStatus.OK:
        raise ContainerError(f"it answers {answer.status} {answer.reason}")
    if len(body) > MOST_BYTES:
        raise ValueError(f"its list is larger than {MOST_BYTES >> 20} MB")
    listed = json.loads(body)
    if not isinstance(listed, list) or not all(isinstance(c, dict) for c in listed):
        raise ValueError("its answer is no list of containers")
    return [_container(one) for one in listed]


def _container(one: dict[str, Any]) -> Container:
    labels = one.get("Labels")
    labels = labels if isinstance(labels, dict) else {}
    labels = {str(key): str(value) for key, value in labels.items()}
    names = one.get("Names")
    first = str(names[0]) if isinstance(names, list) and names else ""
    pod = labels.get(f"{_POD}name", "")
    if pod:
        workload = workload_of_pod(pod, labels)
    else:
        workload = workload_of_container(first.removeprefix("/"), labels)
    return Container(
        str(one.get("Id", "")),
        labels.get(_CONTAINER_NAME) or first.removeprefix("/"),
        labels.get(f"{_POD}namespace", ""),
        pod,
        labels.get(f"{_POD}uid", ""),
        workload,
    )
