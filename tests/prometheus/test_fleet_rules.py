"""Every query of the fleet's dashboard and rules, by a Prometheus that scrapes one.

The fleet is real; its agents are servers that give two halves of a recording.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fleet_process import RECORDED, FleetProcess, running_fast
from recording import wait_until
from served_samples import packed, serving
from split_recording import own_time, split

PACKAGING = Path(__file__).parents[2] / "packaging"
RULES = PACKAGING / "prometheus" / "latprof-fleet.rules.yml"
TESTS = Path(__file__).parent / "latprof-fleet.test.yml"
DASHBOARD = json.loads((PACKAGING / "grafana" / "latprof-fleet.json").read_text())
PANELS = {p["title"]: p for p in DASHBOARD["panels"] if p["type"] != "row"}
VARIABLES = {v["name"]: v for v in DASHBOARD["templating"]["list"]}
MAY_BE_EMPTY = {"Segments sent again"}  # nothing was lost
FIRST_FRAMES = 9
SCRAPES = 3
WINDOW = "20s"


def filled(expression: str) -> str:
    """An expression with the dashboard's variables as a viewer may choose them."""
    chosen = dict.fromkeys(VARIABLES, ".*") | {"__rate_interval": WINDOW}
    return re.sub(r"\$(\w+)", lambda found: chosen[found[1]], expression)


@pytest.fixture(scope="module", params=["classic", "native"])
def asked(request, prometheus, tmp_path_factory):
    """Who scraped it: some of all there is, and then the rest."""
    folder = tmp_path_factory.mktemp("halves")
    halves = split(RECORDED, folder, own_time, running_fast)
    with serving(*map(packed, halves)) as servers:
        for server in servers:
            server.released = FIRST_FRAMES
        addresses = [str(server.address) for server in servers]
        fleet = FleetProcess(*addresses, stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: "clocks=" in fleet.get("/metrics"), "messages")
            target = fleet.url.removeprefix("http://")
            is_native = request.param == "native"
            found = prometheus(target, native=is_native, rules=RULES.name)
            found.wait_for_scrapes(SCRAPES)
            for server in servers:
                server.released = len(server.frames)
            found.wait_for_scrapes(2 * SCRAPES)
            yield found
        finally:
            assert fleet.end() == 0


@pytest.mark.parametrize("title", list(PANELS))
def test_every_panel_of_a_fleet_shows_what_there_is(asked, title):
    for target in PANELS[title]["targets"]:
        expression = filled(target["expr"])
        if title in MAY_BE_EMPTY:
            assert asked.api("query", query=expression) is not None, expression
        else:
            wait_until(lambda e=expression: asked.query(e), expression, 0.1)


@pytest.mark.parametrize(
    "name", [n for n, v in VARIABLES.items() if v["type"] == "query"]
)
def test_every_variable_of_a_fleet_has_something_to_choose(asked, name):
    query = VARIABLES[name]["query"]["query"]
    series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
    assert asked.api(f"label/{label}/values", **{"match[]": filled(series)})


def test_every_rule_of_a_fleet_is_well_and_records(asked):
    def evaluated():
        groups = asked.api("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return all(rule["health"] != "unknown" for rule in rules) and rules

    rules = wait_until(evaluated, "every rule has been evaluated", 0.1)
    assert {rule.get("lastError", "") for rule in rules} == {""}
    recorded = [rule["name"] for rule in rules if rule["type"] == "recording"]
    assert len(recorded) == 2
    for name in recorded:
        wait_until(lambda n=name: asked.query(n), name, 0.1)


def test_promtool_finds_nothing_wrong_with_a_fleets_rules(programs):
    programs.promtool_says("check", "rules", str(RULES))


def test_every_alert_of_a_fleet_comes_when_it_should(programs, tmp_path):
    for file in (RULES, TESTS):
        shutil.copy(file, tmp_path)
    programs.promtool_says("test", "rules", str(tmp_path / TESTS.name))

    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    assert alerts == set(re.findall(r"alertname: (\w+)", TESTS.read_text()))


def test_panels_of_a_fleet_have_places_and_numbers_of_their_own():
    panels = DASHBOARD["panels"]
    places = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert max(x for x, _ in places) < 24
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(PANELS) == sum(panel["type"] != "row" for panel in panels)
