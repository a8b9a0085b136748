"""Two containers with the same service, told apart: each has its own messages."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from containers import TwoContainers
from latprof_agent.cli.filter_options import parse_filter
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec
from latprof_agent.monitor.totals import Counted, Group
from latprof_agent.probes.grouping import Grouping
from latprof_process import Latprof
from monitored import monitored
from recording import wait_until
from test_exchanges import need

PORT = 6379  # of both
SERVER = f"redis-server --port {PORT} --save '' --bind 0.0.0.0 --protected-mode no"
# who asks whom how often: each itself, and the first the second
ASKED = {(0, 0): 900, (1, 1): 1500, (0, 1): 400}


@pytest.fixture(scope="module")
def talkers(tmp_path_factory):
    """Containers, and what makes them talk."""
    for program in ("crun", "redis-benchmark"):
        need(program)
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(LinkSpec(rate_bps=0, delay_ns=0)))
        folder = tmp_path_factory.mktemp("containers")
        containers = stack.enter_context(TwoContainers(lab, folder))
        for container in containers.both:
            start_redis(container)
        yield Talkers(containers, ("127.0.0.1", lab.b_address))


def start_redis(container):
    """It can be asked for its counts past the sockets that are watched."""
    container.do(f"{{ {SERVER} --unixsocket /control >/dev/null & }}")
    ready = "redis-cli -s /control ping 2>&1 || true"
    wait_until(lambda: "PONG" in container.do(ready), "redis answers")


class Talkers:
    """They talk as told, and count what they answer."""

    def __init__(self, containers, addresses):
        self.both = containers.both
        self.parent = containers.parent
        self._own, self._second = addresses

    def _answered(self, container):
        """Exchanges as its server counts: it asks for two settings at once first."""
        told = container.do("redis-cli -s /control info commandstats")
        calls = dict(re.findall(r"cmdstat_([^:]+):calls=(\d+)", told))
        return int(calls.get("get", 0)) + int(calls.get("config|get", 0)) // 2

    def talk(self):
        """Exchanges by container and role, as the servers count them."""
        found = Counter()
        for (one, other), n in ASKED.items():
            address = self._own if one == other else self._second
            before = self._answered(self.both[other])
            load = f"redis-benchmark -h {address} -p {PORT} -c 10 -t get -n {n} --csv"
            assert '"GET"' in self.both[one].do(load)
            answered = self._answered(self.both[other]) - before
            assert answered == n + 1
            found[one, "client"] += answered
            found[other, "server"] += answered
        return found

    def words(self, text):
        """A filter about the first, or about both."""
        one = self.both[0]
        return text.format(
            parent=self.parent, cgroup=one.cgroup, id=one.id[:12], netns=one.netns
        )


BOTH, FIRST, SECOND = (0, 1), (0,), (1,)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "by", "wanted"),
    [
        ("cgroup={parent}", ("cgroup",), BOTH),
        ("cgroup={parent}", ("cgroup", "service"), BOTH),
        ("cgroup={cgroup}", ("service",), FIRST),
        ("container={id}", ("cgroup", "service"), FIRST),
        ("cgroup={parent} not container={id}", ("service",), SECOND),
        ("netns={netns}", ("service",), FIRST),
    ],
)
def test_each_has_exactly_its_own_messages(talkers, text, by, wanted):
    with monitored(parse_filter(talkers.words(text)), Grouping(by)) as counted:
        answered = talkers.talk()

    expected = Counter()
    for (number, role), exchanges in answered.items():
        if number in wanted:
            parts = {"cgroup": talkers.both[number].cgroup} if "cgroup" in by else {}
            if "service" in by:
                parts |= {"role": role, "service": str(PORT)}
            expected[Group(protocol="tcp", **parts)] += exchanges
    assert counted.names() == set(expected)
    for group, exchanges in expected.items():
        found = counted.totals.groups[group].counted
        assert found[Counted.EXCHANGES] == exchanges
        assert found[Counted.SENT_MESSAGES] == exchanges
        received = found[Counted.RECEIVED_MESSAGES] + found[Counted.RECEIVED_RANGES]
        assert received == exchanges


@pytest.mark.thorough
def test_watch_tells_them_apart_by_their_names(talkers):
    options = ("--json", "--interval", "500ms", "--max-overhead", "none")
    chosen = ("--by", "cgroup,service", "--cgroup", talkers.parent)
    watch = Latprof("watch", *options, *chosen)
    with ThreadPoolExecutor() as pool:
        try:
            told = watch.process.stdout.readline()  # it measures
            rest = pool.submit(watch.process.stdout.read)
            answered = talkers.talk()
            watch.signal(signal.SIGINT)
            told += rest.result()
            assert watch.finish() == 0, watch.err
        finally:
            watch.process.kill()
    found = Counter()
    for document in map(json.loads, told.splitlines()):
        for group in document["groups"]:
            found[group["name"]] += group["messages"]
    assert found == {
        f"tcp {role} {PORT} {talkers.both[number].id[:12]}": exchanges
        for (number, role), exchanges in answered.items()
    }
