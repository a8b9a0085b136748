"""The image, run by crun as Kubernetes would with the DaemonSet.

Not as root, in a control group and namespaces of its own, with a root file system that
cannot be written.

With LATPROF_IMAGE=FILE, which packaging/make-image has made.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
import yaml

DAEMON_SET = Path(__file__).parents[2] / "packaging" / "kubernetes" / "daemonset.yaml"
MOST_BYTES = 110_000_000
ROUND_TRIPS = 300
DEADLINE_SECONDS = 60
ALL_THE_TIME = ["--max-overhead=none"]
GROUPS = "/sys/fs/cgroup"
COUNTED = re.compile(r'latprof_messages_total({.*service="(\d+)"}) (\S+)')
RUN = f'mount -t cgroup2 none {GROUPS} && exec crun "$@"'
METRICS = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:%d%s').read().decode())"

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        "LATPROF_IMAGE" not in os.environ,
        reason="needs an image: set LATPROF_IMAGE to its file",
    ),
]


@pytest.fixture(scope="module")
def image():
    return Path(os.environ.get("LATPROF_IMAGE", ""))


@pytest.fixture(scope="module")
def unpacked(image, tmp_path_factory):
    """Its root file system and its configuration."""
    folder = tmp_path_factory.mktemp("image")
    subprocess.run(["tar", "-C", folder, "-xf", image], check=True)

    def blob(digest):
        return folder / "blobs" / Path(digest.replace(":", "/"))

    index = json.loads((folder / "index.json").read_text())
    manifest = json.loads(blob(index["manifests"][0]["digest"]).read_text())
    root = folder / "root"
    root.mkdir()
    for layer in manifest["layers"]:
        words = ["--xattrs", "--xattrs-include=security.capability"]
        file = blob(layer["digest"])
        subprocess.run(["tar", "-C", root, *words, "-xf", file], check=True)
    return root, json.loads(blob(manifest["config"]["digest"]).read_text())["config"]


@pytest.fixture(scope="module")
def shipped():
    objects = {one["kind"]: one for one in yaml.safe_load_all(DAEMON_SET.read_text())}
    return objects


@pytest.fixture
def mounted(shipped, tmp_path):
    """The volumes of the pod, and what each container has beside them."""
    config = tmp_path / "config"
    config.mkdir()
    for name, text in shipped["ConfigMap"]["data"].items():
        (config / name).write_text(text)
    pod = shipped["DaemonSet"]["spec"]["template"]["spec"]
    sources = {
        one["name"]: one["hostPath"]["path"] if "hostPath" in one else str(config)
        for one in pod["volumes"]
    }
    own = [
        {"destination": "/proc", "source": "proc", "type": "proc"},
        {"destination": "/dev", "source": "tmpfs", "type": "tmpfs"},
        {"destination": "/sys", "source": "sysfs", "type": "sysfs", "options": ["ro"]},
        {
            "destination": GROUPS,
            "source": "cgroup",
            "type": "cgroup",
            "options": ["ro"],
        },
    ]
    return own + [
        {
            "destination": one["mountPath"],
            "source": sources[one["name"]],
            "type": "bind",
            "options": ["rbind", "ro"] if one["readOnly"] else ["rbind"],
        }
        for one in pod["containers"][0]["volumeMounts"]
    ]


@pytest.fixture
def start(unpacked, shipped, mounted, tmp_path):
    """A function that starts the agent, with capabilities; gives its process."""
    (container,) = shipped["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    context = container["securityContext"]
    nobody = {"uid": context["runAsUser"], "gid": context["runAsGroup"]}
    started = []

    def start(capabilities, root_too=False):
        root, image = unpacked
        name = f"latprof-{secrets.token_hex(8)}"
        names = [f"CAP_{one}" for one in capabilities]
        made = {
            "ociVersion": "1.0.0",
            "process": {
                "args": [*image["Entrypoint"], *container["args"], *ALL_THE_TIME]
                + ["--user=root"] * root_too,
                "env": [
                    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
                ],
                "cwd": "/",
                "user": {"uid": 0, "gid": 0} if root_too else nobody,
                # as containerd has it: none that a program of another user would keep
                "capabilities": dict.fromkeys(
                    ("bounding", "permitted", "effective"), names
                ),
                "noNewPrivileges": root_too or not context["allowPrivilegeEscalation"],
            },
            "root": {
                "path": str(root),
                "readonly": context["readOnlyRootFilesystem"],
            },
            "mounts": mounted,
            "linux": {
                "cgroupsPath": f"/{name}",
                "namespaces": [
                    {"type": one}
                    for one in ("pid", "mount", "network", "ipc", "uts", "cgroup")
                ],
            },
        }
        (tmp_path / "config.json").write_text(json.dumps(made))
        pid_file = tmp_path / "pid"
        crun = ["--root", str(tmp_path / "state"), "run", "-b", str(tmp_path)]
        crun += [f"--pid-file={pid_file}", name]
        words = ["unshare", "--mount", "sh", "-c", RUN, "sh", *crun]
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True)
        started.append((process, pid_file))
        return process, pid_file

    yield start
    for process, pid_file in started:
        if process.poll() is None:
            os.kill(int(pid_file.read_text()), 15)
        process.communicate(timeout=DEADLINE_SECONDS)


def asked(pid_file, path, process):
    """What it answers, in its own network; waits until it does."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read()
        if pid_file.exists() and pid_file.read_text():
            pid = pid_file.read_text().strip()
            words = ["nsenter", f"--target={pid}", "--net"]
            up = [*words, "ip", "link", "set", "lo", "up"]
            subprocess.run(up, check=False, stderr=subprocess.DEVNULL)
            python = [*words, "python3", "-Ic", METRICS % (9989, path)]
            ended = subprocess.run(python, capture_output=True, text=True, check=False)
            if ended.returncode == 0:
                return ended.stdout
        time.sleep(0.2)
    raise AssertionError(f"no answer to {path}")


def exchange():
    """As many round trips as promised, outside of the container; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server, _ = listener.accept()

            def answer():
                while data := server.recv(64):
                    server.sendall(data)

            thread = threading.Thread(target=answer)
            thread.start()
            for _ in range(ROUND_TRIPS):
                client.sendall(b"x" * 64)
                assert client.recv(64)
            client.shutdown(socket.SHUT_WR)
            thread.join()
            server.close()
    return port


def test_it_is_small_and_its_user_is_not_root(image, unpacked):
    assert image.stat().st_size <= MOST_BYTES
    assert unpacked[1]["User"] == "65534:65534"


def test_the_daemon_set_starts_what_the_image_would(unpacked, shipped):
    (container,) = shipped["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert "command" not in container
    assert [word for word in container["args"] if "config" not in word] == unpacked[1][
        "Cmd"
    ]


@pytest.mark.parametrize("root_too", [False, True])
def test_it_counts_what_others_on_the_host_say(start, shipped, root_too):
    (container,) = shipped["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    given = container["securityContext"]["capabilities"]["add"]
    process, pid_file = start(given, root_too)
    assert asked(pid_file, "/-/ready", process).strip() == "ready"

    status = Path("/proc", pid_file.read_text().strip(), "status").read_text()
    uid = 0 if root_too else 65534
    assert re.search(rf"^Uid:\t{uid}\t{uid}\t{uid}", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\t1", status, re.MULTILINE)
    port = exchange()
    counted = {}
    deadline = time.monotonic() + DEADLINE_SECONDS
    # each end sends and receives
    while time.monotonic() < deadline and sum(counted.values()) < 4 * ROUND_TRIPS:
        counted = {
            labels: float(count)
            for labels, service, count in COUNTED.findall(
                asked(pid_file, "/metrics", process)
            )
            if service == str(port)
        }
    assert [*counted.values()] == [ROUND_TRIPS] * 4


def test_without_a_capability_it_says_so_and_ends(start, shipped):
    (container,) = shipped["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    given = container["securityContext"]["capabilities"]["add"]
    process, _ = start([name for name in given if name != "PERFMON"])
    process.wait(timeout=DEADLINE_SECONDS)

    (line,) = process.stderr.read().splitlines()
    assert process.returncode == 1
    assert line.startswith("latprof: ")
