"""One container as its runtime knows it, and the workload that it is a part of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_HASH_LABEL = "pod-template-hash"
_REVISION_LABEL = "controller-revision-hash"
_STATEFUL_LABEL = "statefulset.kubernetes.io/pod-name"
_JOB_LABELS = ("batch.kubernetes.io/job-name", "job-name")
_NAME_LABELS = ("app.kubernetes.io/name", "k8s-app", "app")
_SWARM_LABEL = "com.docker.swarm.service.name"
_COMPOSE_LABELS = ("com.docker.compose.project", "com.docker.compose.service")


class Container(NamedTuple):
    """What it is called; without a pod where it is of no pod."""

    id: str
    name: str = ""
    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""
    workload: str = ""


def workload_of_pod(name: str, labels: Mapping[str, str]) -> str:
    """Name what a pod is one of, by labels that controllers set; else the pod itself.

    A Deployment, DaemonSet, StatefulSet or Job where its own label shows which part of
    the pod's name is added to each pod; else what the labels of its author call it. A
    suffix that no label stands for is never cut off.

    Examples
    --------
    >>> workload_of_pod("web-5d4f8c7b9-x2x4z", {"pod-template-hash": "5d4f8c7b9"})
    'web'
    >>> workload_of_pod("node-exporter-x2x4z", {"controller-revision-hash": "6c"})
    'node-exporter'
    >>> workload_of_pod("backup-x2x4z", {"job-name": "backup"})
    'backup'
    >>> workload_of_pod("etcd-node-1", {}), workload_of_pod("a-1", {"app": "a"})
    ('etcd-node-1', 'a')
    """
    own = name.rpartition("-")[0]
    template = labels.get(_HASH_LABEL)
    if template and own.endswith(f"-{template}"):
        return own.removesuffix(f"-{template}")
    if own and (_STATEFUL_LABEL in labels or labels.get(_REVISION_LABEL)):
        return own
    known = (
        labels[label] for label in (*_JOB_LABELS, *_NAME_LABELS) if label in labels
    )
    return next(filter(None, known), name)


def workload_of_container(name: str, labels: Mapping[str, str]) -> str:
    """Name what a container outside of pods is one of: a service of Swarm or Compose.

    Examples
    --------
    >>> project = {"com.docker.compose.project": "shop"}
    >>> service = {"com.docker.compose.service": "db"}
    >>> workload_of_container("shop-db-1", project | service)
    'shop/db'
    >>> workload_of_container("redis", project)
    'redis'
    """
    compose = [labels.get(label, "") for label in _COMPOSE_LABELS]
    return labels.get(_SWARM_LABEL) or ("/".join(compose) if all(compose) else name)
