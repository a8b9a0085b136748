"""Names of containers: what runtimes say by the CRI and by docker's API."""

from __future__ import annotations

import argparse
import json
import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import UnixStreamServer

import pytest
from fake_runtime import CONTAINERS, PODS, FakeRuntime, container, sandbox
from latprof_agent.containers import cri, runtime
from latprof_agent.containers.container import Container
from latprof_agent.containers.listing_child import ListingChild
from latprof_agent.containers.runtime import list_containers, runtime_address
from latprof_agent.errors import ContainerError
from latprof_analysis.calling_user import find_user

UID = "1111aaaa-2222-3333-4444-555566667777"
POD, NGINX = 64 * "a", 64 * "b"


@pytest.fixture(autouse=True)
def ours(monkeypatch):
    """What is root's is ours, whoever we are."""
    monkeypatch.setattr(runtime, "ROOT", os.getuid())


@pytest.fixture
def fake(tmp_path):
    with FakeRuntime(tmp_path / "containerd.sock") as found:
        found.pods = [
            sandbox(
                POD, "web-5d4f8c7b9-x2x4z", "shop", UID, pod_template_hash="5d4f8c7b9"
            )
        ]
        found.containers = [container(NGINX, POD, "nginx")]
        yield found


def refusal_of(path):
    with pytest.raises(ContainerError) as error:
        list_containers(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_pods_and_containers_have_their_names_by_the_cri(fake):
    of_pod = ("shop", "web-5d4f8c7b9-x2x4z", UID, "web")
    assert list_containers(fake.path) == [
        Container(POD, "", *of_pod),
        Container(NGINX, "nginx", *of_pod),
    ]


def test_nothing_but_the_two_lists_is_asked(fake):
    list_containers(fake.path)
    assert fake.asked == [PODS, CONTAINERS]


def test_a_list_larger_than_any_window_of_http2_comes_whole(fake):
    names = {f"{n:064x}": f"container-{n}" for n in range(1000)}
    fake.containers = [container(id_, POD, name) for id_, name in names.items()]
    assert sum(map(len, fake.containers)) > 65535
    found = {one.id: one.name for one in list_containers(fake.path)}
    assert found == names | {POD: ""}


def test_a_list_without_end_is_refused(fake, monkeypatch):
    monkeypatch.setattr(cri, "MOST_BYTES", 1 << 20)
    fake.pods *= 4000
    assert "its list is larger than 1 MB" in refusal_of(fake.path)


def test_who_does_not_answer_is_left(fake, monkeypatch):
    monkeypatch.setattr(runtime, "ANSWER_SECONDS", 0.2)
    fake.silent = True
    assert "cannot ask " in refusal_of(fake.path)
    assert fake.asked == [PODS]


@pytest.mark.parametrize(
    ("status", "why"),
    [("12", "it has no CRI (runtime.v1)"), ("7", "ListPodSandbox: no such thing")],
)
def test_a_refusal_has_its_reason(fake, status, why):
    fake.status = status
    assert why in refusal_of(fake.path)


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", 99 * b"\0"])
def test_what_does_not_speak_grpc_is_said_to_be_none(fake, raw):
    fake.raw = raw
    refusal_of(fake.path)


@pytest.mark.parametrize("message", [b"\x0a\xff\x01", b"\x0b\x01", b"\xff" * 12])
def test_a_list_that_is_none_is_refused(message):
    with pytest.raises(ValueError, match=r"."):
        cri._read(message, b"")


def test_only_a_socket_of_root_is_opened(tmp_path, fake, monkeypatch):
    file = tmp_path / "file.sock"
    file.touch()
    assert "it is no socket" in refusal_of(file)
    assert "No such file" in refusal_of(tmp_path / "none.sock")
    monkeypatch.setattr(runtime, "ROOT", os.getuid() + 1)
    assert "belongs to user" in refusal_of(fake.path)
    assert fake.asked == []


def test_a_folder_to_which_everybody_writes_is_refused(tmp_path, fake):
    tmp_path.chmod(0o777)
    assert "everybody may write" in refusal_of(fake.path)
    assert fake.asked == []


def test_the_known_runtimes_are_asked_together(tmp_path, fake, monkeypatch):
    monkeypatch.setattr(runtime, "KNOWN", (tmp_path / "none", fake.path))
    assert len(list_containers()) == 2
    fake.status = "12"
    assert "it has no CRI" in refusal_of(None)
    monkeypatch.setattr(runtime, "KNOWN", (tmp_path / "none",))
    assert "no runtime of containers is known here" in refusal_of(None)


def test_a_child_asks_for_who_may_not(fake):
    user = find_user(str(os.getuid()))
    child = ListingChild(user, lambda: list_containers(fake.path))
    try:
        assert child.list_containers() == list_containers(fake.path)
        fake.status = "12"
        with pytest.raises(ContainerError, match="it has no CRI"):
            child.list_containers()
        fake.status = "0"
        assert len(child.list_containers()) == 2
    finally:
        child.close()


DOCKERS = [
    {
        "Id": 64 * "d",
        "Names": ["/shop-db-1"],
        "Labels": {
            "com.docker.compose.project": "shop",
            "com.docker.compose.service": "db",
        },
    },
    {
        "Id": 64 * "e",
        "Names": ["/k8s_nginx_web_shop_0"],
        "Labels": {
            "io.kubernetes.container.name": "nginx",
            "io.kubernetes.pod.name": "web-0",
            "io.kubernetes.pod.namespace": "shop",
            "io.kubernetes.pod.uid": UID,
            "statefulset.kubernetes.io/pod-name": "web-0",
        },
    },
]


@contextmanager
def docker(path, body, status=200):
    """Docker's API as its reference has it; the paths that were asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def address_string(self):
            return "unix"

        def log_message(self, *_):
            pass

    with UnixStreamServer(str(path), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield asked
        server.shutdown()


def test_dockers_containers_have_their_names_by_its_api(tmp_path):
    path = tmp_path / "docker.sock"
    with docker(path, json.dumps(DOCKERS).encode()) as asked:
        assert list_containers(path) == [
            Container(64 * "d", "shop-db-1", workload="shop/db"),
            Container(64 * "e", "nginx", "shop", "web-0", UID, "web"),
        ]
    assert asked == ["/containers/json"]


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"{}", 200, "no list of containers"),
        (b"[", 200, "cannot ask"),
        (b"[]", 403, "it answers 403"),
    ],
)
def test_an_answer_of_docker_that_is_none_is_refused(tmp_path, body, status, why):
    path = tmp_path / "docker.sock"
    with docker(path, body, status):
        assert why in refusal_of(path)


def test_a_runtime_is_named_by_an_absolute_path():
    path = runtime_address("unix:///run/x.sock")
    assert runtime_address("/run/x.sock") == path
    for wrong in ("x.sock", "tcp://127.0.0.1:2375", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="must be like unix://"):
            runtime_address(wrong)
