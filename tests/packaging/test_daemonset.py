"""The plain DaemonSet: the agent takes what it says, and needs what it gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from latprof_agent import privileges
from latprof_agent.cli import SUBCOMMANDS, agent
from latprof_agent.service.config import (
    ALL,
    DEFAULT_PORT,
    Address,
    Config,
    read_config,
)
from latprof_analysis.cli.program import build_parser

PACKAGING = Path(__file__).parents[2] / "packaging"
MAKE_IMAGE = PACKAGING / "make-image"
# of include/uapi/linux/capability.h
NUMBERS = {"NET_ADMIN": 12, "SYS_ADMIN": 21, "SYSLOG": 34, "PERFMON": 38, "BPF": 39}


@pytest.fixture(scope="module")
def objects():
    text = (PACKAGING / "kubernetes" / "daemonset.yaml").read_text()
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def pod(objects):
    return objects["DaemonSet"]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod):
    (one,) = pod["containers"]
    return one


@pytest.fixture
def config(objects, container, tmp_path):
    """What the agent makes of the words that it is started with."""
    (file,) = objects["ConfigMap"]["data"].items()
    (tmp_path / file[0]).write_text(file[1])
    mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    words = [
        word.replace(mounted["config"], str(tmp_path)) for word in container["args"]
    ]
    assert f"--config={tmp_path / file[0]}" in words
    parser = build_parser(SUBCOMMANDS, "", ["agent"])
    return agent._config(parser.parse_args(words))


def test_the_agent_takes_its_words_and_its_configuration(config):
    assert config == Config(listen=Address(ALL, DEFAULT_PORT))


def test_its_configuration_shows_what_the_agent_would_take(objects, tmp_path):
    text = objects["ConfigMap"]["data"]["agent.toml"]
    (tmp_path / "agent.toml").write_text(re.sub("^#", "", text, flags=re.MULTILINE))

    assert read_config(tmp_path / "agent.toml", {}) == Config()


def test_it_is_asked_where_it_listens(container, config):
    (port,) = container["ports"]
    assert port["containerPort"] == config.listen.port
    probed = {
        one["httpGet"]["path"]: one["httpGet"]["port"]
        for one in (container["readinessProbe"], container["livenessProbe"])
    }
    assert probed == dict.fromkeys(("/-/ready", "/healthz"), port["name"])


def test_it_has_the_capabilities_that_the_agent_keeps_and_no_others(container):
    context = container["securityContext"]
    given = context["capabilities"]

    assert given["drop"] == ["ALL"]
    assert {NUMBERS[name] for name in given["add"]} == set(privileges.KEPT)


def test_the_image_hands_on_what_the_agent_keeps_or_has_on_request():
    text = (PACKAGING / "image" / "start").read_text()
    handed_on = {int(number) for number in re.findall(r"\b[a-z_]+:(\d+)", text)}
    names = re.search("^CAPABILITIES=(.*)$", MAKE_IMAGE.read_text(), re.MULTILINE)

    assert handed_on == {*privileges.KEPT, privileges.CAP_SYS_ADMIN}
    assert {
        NUMBERS[one.removeprefix("cap_").upper()] for one in names[1].split(",")
    } == (handed_on)


def test_nothing_of_the_host_can_be_written(pod, container):
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"]
    assert context["runAsNonRoot"]
    assert context["runAsUser"] == 65534
    assert all(one["readOnly"] for one in container["volumeMounts"])
    assert not pod["automountServiceAccountToken"]
    hosts = {one["hostPath"]["path"] for one in pod["volumes"] if "hostPath" in one}
    assert hosts == {"/sys/fs/cgroup", "/proc"}
