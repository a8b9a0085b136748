"""Every query of dashboard and rules, by a Prometheus that scrapes a real agent.

The agent watches Redis under redis-benchmark over a link that loses packets, and
iperf3 that overruns the buffer of its UDP socket. What takes minutes of traffic, as
fits do, comes from a second target, with made totals.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from agent_process import FREE, Agent
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec
from latprof_agent.monitor.totals import Group, Quantity, Totals
from made_totals import measured, own
from recording import wait_until
from served import served

PACKAGING = Path(__file__).parents[2] / "packaging"
SHIPPED = PACKAGING / "prometheus"
RULES = SHIPPED / "latprof.rules.yml"
DASHBOARD = json.loads((PACKAGING / "grafana" / "latprof.json").read_text())
PANELS = {p["title"]: p for p in DASHBOARD["panels"] if p["type"] != "row"}
VARIABLES = {v["name"]: v for v in DASHBOARD["templating"]["list"]}

SCRAPES = 5  # one in two seconds
WINDOW = "20s"
# What needs made totals: minutes of traffic, or segments that the link reorders.
MADE = {"Bandwidth", "Fixed delay", "Odd segments by kind"}
# What must be there only when something went wrong.
MAY_BE_EMPTY = {"Unmatched", "Refused requests"}
# Of panels whose queries are about different things, those without any here.
NOT_HERE = {
    ("Messages, and readable ranges", "{{direction}} ranges"),
    ("Mean time of a request, by stage", "{{stage}}, senders elsewhere"),
    ("Mean time of a reply, by stage", "{{stage}}, senders elsewhere"),
}


def filled(expression: str, instance: str = ".*") -> str:
    """An expression with the dashboard's variables as a viewer may choose them."""
    chosen = dict.fromkeys(VARIABLES, ".*")
    chosen |= {"instance": instance, "by": "service, role", "job": "latprof"}
    expression = expression.replace("$__rate_interval", WINDOW)
    return re.sub(r"\$(\w+)", lambda found: chosen[found[1]], expression)


class Load:
    """Redis and iperf3 in a lab whose link loses 1 packet in 100, each way."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        self.lab = Lab(LinkSpec(loss=0.01, delay_ns=200_000, emulator="always"))

    def __enter__(self) -> Load:
        self.lab.__enter__()
        return self

    def __exit__(self, *what: object) -> None:
        for process in self._running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.lab.__exit__(*what)

    def start(self) -> None:
        """Begin; it ends with the block."""
        b = self.lab.b_address
        self._run("b", f"redis-server --bind {b} --save '' --dir {self._folder}")
        self._run("b", "iperf3 -s -p 5201")
        self._run("b", "iperf3 -s -p 5202")
        self._again("a", f"redis-benchmark -h {b} -t get,set -n 5000 -c 20")
        self._again("a", f"iperf3 -c {b} -p 5201 -t 30")
        flood = "iperf3 -c 127.0.0.1 -p 5202 -u -b 2G -l 60000 -w 8K -t 30"
        self._again("b", flood)

    def _again(self, end: str, command: str) -> None:
        # until its server listens, it fails at once
        self._run(end, f"while :; do {command} || sleep 0.2; done")

    def _run(self, end: str, command: str) -> None:
        words = ["ip", "netns", "exec", self.lab.netns_of(end), "sh", "-c", command]
        silent = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        self._running.append(subprocess.Popen(words, start_new_session=True, **silent))


class Scraped(NamedTuple):
    """What was scraped, and by whom."""

    real: str
    made: str
    by: dict[str, Any]
    text: str  # of the real one


@pytest.fixture(scope="module")
def scraped(prometheus, tmp_path_factory):
    """A real agent's address, a made one's, and who scraped both: without and with
    native histograms."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    for program in ("redis-benchmark", "iperf3"):
        if not shutil.which(program):
            pytest.skip(f"no {program} here")
    folder = tmp_path_factory.mktemp("load")
    with Load(folder) as load, served(groups=20) as made:
        ends = f"{load.lab.a_netns},{load.lab.b_netns}"
        agent = Agent(*FREE, "--netns", ends, "--max-overhead", "100%")
        try:
            load.start()
            real = agent.url.removeprefix("http://")
            targets = f"{real},{made.host}:{made.port}"
            found = {
                "classic": prometheus(targets),
                "native": prometheus(targets, native=True),
            }
            for one in found.values():
                one.wait_for_scrapes(SCRAPES)
            yield Scraped(real, f"{made.host}:{made.port}", found, agent.get())
        finally:
            status = agent.end()
        assert (status, agent.err) == (0, "")


# Of messages each way, in ns; no two sums of some of them are the same.
MEANS = {
    role: {quantity: first << i for i, quantity in enumerate(Quantity)}
    for role, first in (("client", 1000), ("server", 1001))
}


@contextmanager
def growing(*quantities: Quantity):
    """Serve a client and a server of a service, with more of each at each scrape."""
    with served() as made:

        def make() -> Totals:
            made.made += 1
            groups = {
                Group("tcp", role, "80"): measured(
                    **{q: [MEANS[role][q]] * made.made for q in quantities}
                )
                for role in MEANS
            }
            return Totals(time.monotonic_ns(), time.time(), groups, own())

        made.make = make
        yield f"{made.host}:{made.port}"


class Stacked(NamedTuple):
    """Who scraped made ones, with both ends on watched hosts or without clients."""

    here: str
    elsewhere: str
    asked: Any


@pytest.fixture(scope="module", params=[False, True], ids=["classic", "native"])
def stacked(request, prometheus):
    """Means that are known."""
    ranges = [q for q in Quantity if q.startswith("range_")]
    with growing(*Quantity) as here, growing(*ranges) as elsewhere:
        found = prometheus(f"{here},{elsewhere}", native=request.param)
        found.wait_for_scrapes(SCRAPES)
        yield Stacked(here, elsewhere, found)


@pytest.fixture(params=["classic", "native"])
def asked(request, scraped):
    """Who is asked, once without and once with native histograms."""
    return scraped.by[request.param]


def answer(asked, expression):
    """What an expression gives; fails where Prometheus does not take it."""
    found = asked.api("query", query=expression)
    assert found is not None, expression
    return found["result"]


def queries(title):
    """The queries of a panel, by their legends."""
    return [(t["legendFormat"], t["expr"]) for t in PANELS[title]["targets"]]


@pytest.mark.parametrize("title", list(PANELS))
def test_every_panel_shows_what_there_is(scraped, asked, title):
    instance = scraped.made if title in MADE else scraped.real
    for legend, expression in queries(title):
        ask = partial(answer, asked, filled(expression, instance))
        if title in MAY_BE_EMPTY or (title, legend) in NOT_HERE:
            ask()
        else:
            wait_until(ask, f"{title}: {expression}", 0.1)


@pytest.mark.parametrize("by", [o["value"] for o in VARIABLES["by"]["options"]])
def test_every_choice_of_what_to_tell_apart_is_taken(asked, by):
    for panel in PANELS.values():
        for target in panel["targets"]:
            if "$by" in target["expr"]:
                answer(asked, filled(target["expr"].replace("$by", by)))


LABEL_VALUES = re.compile(r"label_values\((.*), (\w+)\)")
QUERY_RESULT = re.compile(r"query_result\((.*)\)")


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, variable in VARIABLES.items()
        if variable["type"] == "query" and name != "buckets"
    ],
)
def test_every_variable_has_something_to_choose(asked, name):
    series, label = LABEL_VALUES.fullmatch(VARIABLES[name]["query"]["query"]).groups()
    found = asked.api(f"label/{label}/values", **{"match[]": filled(series)})

    assert found


def test_titles_name_the_kind_of_buckets(request, asked):
    kind = request.node.callspec.params["asked"]
    variable = VARIABLES["buckets"]
    (query,) = QUERY_RESULT.fullmatch(variable["query"]["query"]).groups()
    wanted = re.compile(variable["regex"].strip("/"))
    series = [s["metric"] for s in answer(asked, filled(query))]
    shown = [",".join(f'{name}="{v}"' for name, v in s.items()) for s in series]
    values = [wanted.search(text)[1] for text in shown]

    assert variable["sort"] == 2  # the first of the alphabet last
    assert max(values).startswith(kind)
    for title, panel in PANELS.items():
        of_buckets = any(
            text in target["expr"]
            for target in panel["targets"]
            for text in ("histogram_quantile", "_bucket")
        )
        assert of_buckets == ("$buckets" in title + panel["description"]), title


def test_where_both_kinds_are_native_ones_are_shown(programs, prometheus):
    if programs.version < (3, 0):
        pytest.skip("this Prometheus keeps one kind of a histogram")
    both = "  always_scrape_classic_histograms: true\n"
    with growing(*Quantity) as target:
        found = prometheus(target, native=True, more=both)
        found.wait_for_scrapes(SCRAPES)
        assert found.query("latprof_response_seconds_bucket")
        for title, panel in PANELS.items():
            for _, expression in queries(title) if "$buckets" in str(panel) else ():
                native = filled(expression).partition(" or ")[0]
                shown = answer(found, filled(expression))
                assert shown, title
                assert labels(shown) == labels(answer(found, native)), title


def labels(series):
    """The series of an answer, without their values."""
    return sorted(tuple(sorted(one["metric"].items())) for one in series)


def test_what_the_stage_variable_begins_with_is_there(asked):
    (stage,) = VARIABLES["stage"]["current"]["value"]

    found = asked.api("label/stage/values")
    assert stage in found


def mean_by_stage(title, asked, instance):
    """What a panel stacks: seconds by stage."""
    found = [
        series
        for _, expression in queries(title)
        for series in answer(asked, filled(expression, instance))
    ]
    means = {s["metric"]["stage"]: float(s["value"][1]) for s in found}
    assert len(means) == len(found)
    return means


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("title", "sender", "reader"),
    [
        ("Mean time of a request, by stage", "client", "server"),
        ("Mean time of a reply, by stage", "server", "client"),
    ],
)
def test_stages_of_a_message_sum_to_its_time(stacked, title, sender, reader):
    by_stage = mean_by_stage(title, stacked.asked, stacked.here)

    assert by_stage == pytest.approx(
        {q: MEANS[sender][q] / 1e9 for q in ("send_queue", "qdisc", "transit")}
        | {q: MEANS[reader][q] / 1e9 for q in ("receive_stack", "receive_queue")}
    )


@pytest.mark.thorough
def test_of_senders_elsewhere_readable_ranges_are_stacked(stacked):
    title = "Mean time of a request, by stage"
    by_stage = mean_by_stage(title, stacked.asked, stacked.elsewhere)

    ranges = "range_receive_stack", "range_receive_queue"
    assert by_stage == pytest.approx({q: MEANS["server"][q] / 1e9 for q in ranges})


def test_every_rule_is_well_and_records(asked):
    def evaluated():
        groups = asked.api("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return all(rule["health"] != "unknown" for rule in rules) and rules

    rules = wait_until(evaluated, "every rule has been evaluated", 0.1)
    assert {rule.get("lastError", "") for rule in rules} == {""}
    recorded = {rule["name"] for rule in rules if rule["type"] == "recording"}
    assert recorded
    for name in recorded:
        assert answer(asked, name), name


def test_losses_are_told_as_an_alert_would(asked, scraped):
    of_flood = f'instance="{scraped.real}", service="5202", place="socket"'
    (found,) = answer(asked, f"latprof:dropped_packets:ratio_5m{{{of_flood}}}")

    assert 0 < float(found["value"][1]) < 1


def test_promtool_finds_nothing_wrong_with_what_was_scraped(programs, scraped):
    assert programs.promtool_says("check", "metrics", text=scraped.text) == ""


def test_promtool_finds_nothing_wrong_with_rules_and_configuration(programs):
    programs.promtool_says("check", "rules", str(RULES))
    programs.promtool_says("check", "config", str(SHIPPED / programs.file))


@pytest.mark.thorough
def test_every_alert_comes_when_it_should(programs, tmp_path):
    tests = Path(__file__).parent / "latprof.test.yml"
    for file in (RULES, tests):
        shutil.copy(file, tmp_path)
    programs.promtool_says("test", "rules", str(tmp_path / tests.name))

    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    assert alerts == set(re.findall(r"alertname: (\w+)", tests.read_text()))


def test_panels_have_places_and_numbers_of_their_own():
    panels = DASHBOARD["panels"]
    places = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in places, panel["title"]
                places.add((x, y))
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
