"""Groups of live traffic by pod, container and workload."""

from __future__ import annotations

import numpy as np
import pytest
from latprof_agent.cli.filter_options import parse_filter
from latprof_agent.containers.container import Container
from latprof_agent.containers.container_names import (
    RATE_SECONDS,
    RETRY_SECONDS,
    ContainerNames,
)
from latprof_agent.errors import ContainerError, FilterError
from latprof_agent.filters import places
from latprof_agent.live.names import group_name
from latprof_agent.monitor.groups import GroupNames
from latprof_agent.monitor.totals import Counted, Group, GroupTotals, Totals
from latprof_agent.probes.grouping import Grouping
from latprof_agent.probes.layout import layout_of
from latprof_analysis.stats.kernel_histogram import CoarseHistogram

LAYOUT = layout_of()
UID = "1111aaaa-2222-3333-4444-555566667777"
NGINX, LOGGER, OTHER_POD, REDIS = (64 * digit for digit in "bcde")
POD_GROUP = (
    "kubepods.slice/kubepods-besteffort.slice/"
    f"kubepods-besteffort-pod{UID.replace('-', '_')}.slice"
)
SECOND_UID = "2222aaaa-2222-3333-4444-555566667777"
PATHS = [
    f"{POD_GROUP}/cri-containerd-{NGINX}.scope",
    f"{POD_GROUP}/cri-containerd-{LOGGER}.scope",
    f"kubepods/pod{SECOND_UID}/{OTHER_POD}",
    f"system.slice/docker-{REDIS}.scope",
    "system.slice/sshd.service",
]
WEB = Container(NGINX, "nginx", "shop", "web-5d4f-x2x4z", UID, "web")
KNOWN = [
    WEB,
    WEB._replace(id=LOGGER, name="logger"),
    Container(OTHER_POD, "nginx", "shop", "web-5d4f-abcde", SECOND_UID, workload="web"),
    Container(REDIS, "redis", workload="shop/redis"),
]
BY_SHORT = [("", UID, 12 * "b"), ("", UID, 12 * "c"), ("", SECOND_UID, 12 * "d")]


class Runtime:
    """Says what it is set to; counts how often it was asked."""

    def __init__(self, known):
        self.known = known
        self.asked = 0

    def __call__(self):
        self.asked += 1
        if self.known is None:
            raise ContainerError("cannot ask /run/none.sock: it is made to fail")
        return self.known


class Clock:
    now = 1000.0

    def __call__(self):
        self.now += 0.001  # so that whoever waits by it comes to an end
        return self.now


@pytest.fixture
def mount(tmp_path):
    """Control groups as runtimes leave them."""
    for path in PATHS:
        (tmp_path / path).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def said():
    return []


def names_of(mount, by, runtime, said, clock=None):
    keys = np.zeros(len(PATHS), LAYOUT.group)
    keys["protocol"], keys["role"] = 6, LAYOUT.roles["server"]
    keys["cgroup"] = [(mount / path).stat().st_ino for path in PATHS]
    numbers = np.arange(5, 5 + len(PATHS), dtype="u4")
    containers = ContainerNames(runtime, said.append, clock or Clock())
    entries = keys, numbers
    return GroupNames(LAYOUT, Grouping(by), lambda: entries, containers, mount)


def read(names):
    found = names.read()
    return [found[number] for number in range(5, 5 + len(PATHS))]


def tcp(**named):
    return Group("tcp", **named)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (
            "pod",
            [
                tcp(namespace="shop", pod="web-5d4f-x2x4z"),
                tcp(namespace="shop", pod="web-5d4f-x2x4z"),
                tcp(namespace="shop", pod="web-5d4f-abcde"),
                tcp(pod="no pod"),
                tcp(pod="no pod"),
            ],
        ),
        (
            "container",
            [
                tcp(namespace="shop", pod="web-5d4f-x2x4z", container="nginx"),
                tcp(namespace="shop", pod="web-5d4f-x2x4z", container="logger"),
                tcp(namespace="shop", pod="web-5d4f-abcde", container="nginx"),
                tcp(container="redis"),
                tcp(container="no container"),
            ],
        ),
        (
            "workload",
            [
                *(3 * [tcp(namespace="shop", workload="web")]),
                tcp(workload="shop/redis"),
                tcp(workload="no container"),
            ],
        ),
    ],
)
def test_groups_have_the_names_that_the_runtime_gives(mount, said, by, expected):
    runtime = Runtime(KNOWN)
    assert read(names_of(mount, (by,), runtime, said)) == expected
    assert runtime.asked == 1
    assert said == []


def test_without_a_runtime_ids_and_uids_are_the_names_and_it_is_said_why(mount, said):
    runtime = Runtime(None)
    names = names_of(mount, ("container",), runtime, said)
    found = [(g.namespace, g.pod, g.container) for g in read(names)]
    assert found == [*BY_SHORT, ("", "", 12 * "e"), ("", "", "no container")]
    read(names)
    assert said == [
        "names of containers: cannot ask /run/none.sock: it is made to fail"
    ]


def test_a_runtime_that_comes_later_gives_names_to_what_is_there(mount, said):
    runtime, clock = Runtime(None), Clock()
    names = names_of(mount, ("pod",), runtime, said, clock)
    before = read(names)
    runtime.known = KNOWN
    read(names)
    assert runtime.asked == 1  # not at once again
    clock.now += RETRY_SECONDS
    assert [g.pod for g in read(names)][:3] == 2 * ["web-5d4f-x2x4z"] + [
        "web-5d4f-abcde"
    ]
    assert names.renamed[before[0]] == tcp(namespace="shop", pod="web-5d4f-x2x4z")


def test_a_name_that_was_known_stays_when_the_container_has_ended(mount, said):
    runtime, clock = Runtime(KNOWN), Clock()
    names = names_of(mount, ("container",), runtime, said, clock)
    before = read(names)
    runtime.known = []
    clock.now += RETRY_SECONDS
    assert read(names) == before


def test_what_is_new_is_asked_for_soon_and_not_at_once(mount, said):
    runtime, clock = Runtime(KNOWN[:1]), Clock()
    containers = ContainerNames(runtime, said.append, clock)
    containers.look_up([f"/{PATHS[0]}"])
    containers.look_up([f"/{PATHS[1]}"])
    assert runtime.asked == 1
    clock.now += RATE_SECONDS
    containers.look_up([f"/{PATHS[1]}"])
    containers.look_up([f"/{PATHS[1]}"])
    assert runtime.asked == 2
    containers.look_up([f"/{PATHS[4]}"])  # no container: nobody is asked
    clock.now += 2 * RETRY_SECONDS
    containers.look_up([f"/{PATHS[0]}", "/lxc.payload.web"])
    assert runtime.asked == 2


def test_what_a_group_had_goes_to_another_of_its_name(mount, said):
    names = names_of(mount, ("pod",), Runtime(KNOWN), said)
    read(names)
    assert names.heirs([5]) == {5: 6}
    assert names.heirs([5, 6]) == {5: names.other(5), 6: names.other(6)}


@pytest.mark.parametrize("by", ["pod", "container", "workload"])
def test_what_has_no_room_is_found_as_the_other_of_its_name(mount, said, by):
    names = names_of(mount, (by, "service"), Runtime(KNOWN), said)
    for number, group in enumerate(read(names), 5):
        assert group.as_other() == names.read()[names.other(number)]


@pytest.fixture
def pods(mount, monkeypatch):
    """They are there, and the runtime knows them, and one more that has ended."""
    runtime = Runtime([*KNOWN, WEB._replace(id=64 * "f", pod="old", pod_uid="old")])
    monkeypatch.setattr(places, "widest_mount", lambda: mount)
    monkeypatch.setattr(places, "list_containers", lambda _: runtime())
    return runtime


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("pod=web-5d4f-x2x4z", [POD_GROUP]),
        ("pod=shop/web-5d4f-abcde", [f"kubepods/pod{SECOND_UID}"]),
        ("namespace=shop", [POD_GROUP, f"kubepods/pod{SECOND_UID}"]),
    ],
)
def test_a_filter_has_pods_by_their_names(mount, pods, text, where):
    found = set(parse_filter(text).cgroups)
    assert found == {(mount / path).stat().st_ino for path in where}


def test_a_uid_needs_no_runtime(mount, pods):
    pods.known = None
    found = parse_filter(f"pod={SECOND_UID}").cgroups
    assert found == ((mount / f"kubepods/pod{SECOND_UID}").stat().st_ino,)
    assert pods.asked == 0
    with pytest.raises(FilterError, match="a pod's uid needs no runtime"):
        parse_filter("pod=web-5d4f-x2x4z")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("pod=web-5d4f-x2x4", "no pod web-5d4f-x2x4 here; did you mean web-5d4f-x2x4z"),
        ("pod=old", "there is no pod old here"),
        ("pod=shop/twin", "2 pods are called shop/twin: shop/twin, shop/twin; use"),
        ("namespace=stop", "no pod of the namespace stop is here; did you mean shop"),
    ],
)
def test_a_pod_that_is_none_or_several_is_said(pods, text, why):
    if "twin" in text:
        pods.known = [one._replace(pod="twin") for one in pods.known]
    with pytest.raises(FilterError) as error:
        parse_filter(text)
    assert why in str(error.value)


def totals_of(n):
    found = GroupTotals({"qdisc": CoarseHistogram.of([1000] * n)})
    found.counted[Counted.EXCHANGES] = n
    return found


def test_a_window_over_a_new_name_has_what_came_in_it():
    before, after = Group(pod=UID), Group(namespace="shop", pod="web")
    earlier = Totals(groups={before: totals_of(5)})
    later = Totals(groups={after: totals_of(7)}, renamed={before: after})
    window = later.since(earlier)
    assert window.groups[after].counted[Counted.EXCHANGES] == 2
    assert window.groups[after].histograms["qdisc"].count == 2


def test_a_group_is_shown_as_kubectl_writes_it():
    group = Group("tcp", "server", "80", namespace="shop", pod="web-0", container="x")
    assert group_name(group) == "tcp server 80 shop/web-0/x"
    assert group_name(Group("tcp", pod="no pod")) == "tcp no pod"
