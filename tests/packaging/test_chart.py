"""The Helm chart: what it makes is what Kubernetes and the Prometheus operator take.

With LATPROF_HELM_TESTS=1, as it fetches the operator's definitions as a Go module, and
helm where PATH has none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PACKAGING = Path(__file__).parents[2] / "packaging"
CHART = PACKAGING / "helm" / "latprof"
HELM = "helm.sh/helm/v3/cmd/helm@v3.16.4"
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.77.1"
POD_MONITOR = "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"
KUBERNETES = ("1.25", "1.34")
EVERY_VALUE = {
    "image": {"repository": "registry.example/latprof", "tag": "1"},
    "imagePullSecrets": [{"name": "secret"}],
    "config": '[filter]\nport = [80]\n"quoted: #" = 1\n',
    "extraArgs": ["--by=comm"],
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "sysAdmin": True,
    "scheme": "HTTPS",
    "hostNetwork": True,
    "priorityClassName": "system-node-critical",
    "nodeSelector": {"disk": "fast"},
    "affinity": {"podAffinity": {}},
    "tolerations": [],
    "podLabels": {"team": "net"},
    "podAnnotations": {"prometheus.io/scrape": "true"},
    "extraVolumes": [{"name": "stories", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "stories", "mountPath": "/stories"}],
    "serviceAccount": {"create": False, "name": "mine"},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
}

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        os.environ.get("LATPROF_HELM_TESTS") != "1",
        reason="fetches helm; set LATPROF_HELM_TESTS=1",
    ),
]


@pytest.fixture(scope="module")
def go_path(tmp_path_factory):
    return tmp_path_factory.mktemp("go")


@pytest.fixture(scope="module")
def go(go_path):
    variables = {"GOPATH": str(go_path), "GOFLAGS": "-modcacherw"}

    def call(*words):
        return subprocess.run(
            ["go", *words],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    return call


@pytest.fixture(scope="module")
def helm(go, go_path):
    """Where helm is: the one of PATH, or one that is built, in minutes."""
    if found := shutil.which("helm"):
        return Path(found).parent
    go("install", HELM)
    return go_path / "bin"


def called(helm, *words, refused=False):
    variables = {"PATH": f"{helm}:{os.environ['PATH']}"}
    ended = subprocess.run(
        words, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert bool(ended.returncode) == refused, ended.stderr
    return ended.stderr if refused else ended.stdout


def made(helm, tmp_path, values):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    words = ("helm", "template", "here", CHART, "--kube-version=1.30.0")
    text = called(helm, *words, f"--values={file}")
    return {one["kind"]: one for one in yaml.safe_load_all(text)}, text


@pytest.fixture(scope="module")
def validator(tmp_path_factory):
    """kubernetes-validate, which has Kubernetes' own schemas."""
    folder = tmp_path_factory.mktemp("validator")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = (folder / "bin" / "pip", "install", "--quiet", "kubernetes-validate")
    subprocess.run(pip, check=True)
    return folder / "bin"


def test_the_daemon_set_is_the_charts(helm, tmp_path):
    called(helm, PACKAGING / "write-daemonset", tmp_path / "daemonset.yaml")

    shipped = (PACKAGING / "kubernetes" / "daemonset.yaml").read_text()
    assert (tmp_path / "daemonset.yaml").read_text() == shipped


@pytest.mark.parametrize("values", [{}, {"runAsRoot": True}, EVERY_VALUE])
def test_kubernetes_takes_what_the_chart_makes(helm, validator, tmp_path, values):
    called(helm, "helm", "lint", "--strict", CHART)
    objects, _ = made(helm, tmp_path, values)
    objects.pop("PodMonitor", None)  # of the operator
    for one in objects.values():
        for version in KUBERNETES:
            file = tmp_path / "one.yaml"
            file.write_text(yaml.safe_dump(one))
            words = (validator / "kubernetes-validate", "--strict", "-k", version, file)
            called(helm, *words)


def test_a_misspelt_field_would_be_refused(helm, validator, tmp_path):
    objects, _ = made(helm, tmp_path, {})
    pod = objects["DaemonSet"]["spec"]["template"]["spec"]
    pod["containers"][0]["securityContext"]["readOnlyRootFileSystem"] = True
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(objects["DaemonSet"]))
    program = validator / "kubernetes-validate"

    called(helm, program, "--strict", tmp_path / "one.yaml", refused=True)


def test_every_value_is_taken(helm, tmp_path):
    objects, text = made(helm, tmp_path, EVERY_VALUE)

    pod = objects["DaemonSet"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert "ServiceAccount" not in objects
    assert pod["serviceAccountName"] == "mine"
    assert pod["hostNetwork"]
    assert "tolerations" not in pod
    assert container["image"] == "registry.example/latprof:1"
    assert container["args"][-1] == "--by=comm"
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert container["securityContext"]["capabilities"]["add"][-1] == "SYS_ADMIN"
    assert objects["ConfigMap"]["data"]["agent.toml"] == EVERY_VALUE["config"]
    for word in (
        "system-node-critical",
        "disk: fast",
        "podAffinity",
        "TZ",
        "team: net",
    ):
        assert word in text
    changed, _ = made(helm, tmp_path, EVERY_VALUE | {"config": ""})
    sums = {
        one["DaemonSet"]["spec"]["template"]["metadata"]["annotations"][
            "checksum/config"
        ]
        for one in (objects, changed)
    }
    assert len(sums) == 2  # so that its pods start again


def test_root_needs_no_files_capabilities(helm, tmp_path):
    objects, _ = made(helm, tmp_path, {"runAsRoot": True})

    (container,) = objects["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1] == "--user=root"
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["runAsUser"] == 0


def unknown_fields(value, schema, path=""):
    """Paths that a structural schema does not have, which Kubernetes would drop."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(value, list):
        for one in value:
            yield from unknown_fields(one, schema.get("items", {}), f"{path}[]")
    elif isinstance(value, dict):
        for key, one in value.items():
            known = schema.get("properties", {}).get(key)
            known = known or schema.get("additionalProperties")
            if not known:
                yield f"{path}.{key}"
            elif isinstance(known, dict):
                yield from unknown_fields(one, known, f"{path}.{key}")


def test_the_operator_knows_each_field_of_the_pod_monitor(go, helm, tmp_path):
    where = json.loads(go("mod", "download", "-json", OPERATOR))["Dir"]
    text = (Path(where) / POD_MONITOR).read_text()
    (version,) = yaml.safe_load(text)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    objects, _ = made(helm, tmp_path, EVERY_VALUE)
    spec = objects["PodMonitor"]["spec"]

    assert (
        objects["PodMonitor"]["apiVersion"]
        == f"monitoring.coreos.com/{version['name']}"
    )
    assert [*unknown_fields(spec, schema)] == []
    assert [*unknown_fields(spec | {"podMetricEndpoints": []}, schema)]  # misspelt
    ports = {
        port["name"]
        for one in objects["DaemonSet"]["spec"]["template"]["spec"]["containers"]
        for port in one["ports"]
    }
    assert {one["port"] for one in spec["podMetricsEndpoints"]} <= ports
