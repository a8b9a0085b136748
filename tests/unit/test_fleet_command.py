"""`latprof fleet` as a program: what it asks, serves and refuses; it needs no root."""

from __future__ import annotations

import signal

import pytest
from fleet_process import RECORDED, FleetProcess, running_fast
from latprof_agent.cli import main
from latprof_agent.fleet.fleet_config import FleetConfig, agents_in, read_fleet_config
from latprof_agent.service.config import Address
from served_samples import packed, serving
from split_recording import own_time, split


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> list[list[bytes]]:
    folder = tmp_path_factory.mktemp("halves")
    return [packed(half) for half in split(RECORDED, folder, own_time, running_fast)]


def test_it_joins_serves_and_ends(halves, tmp_path):
    agents = tmp_path / "agents"
    with serving(*halves) as servers:
        agents.write_text(f"# both\n{servers[0].address}\n\n{servers[1].address} # b\n")
        made = FleetProcess("--agents", str(agents), "--interval", "1s")
        try:
            found = made.document_with(lambda d: d["exchanges"])
            text, page = made.get("/metrics"), made.get("/")
            agents.write_text(f"{servers[0].address}\n")
            made.signal(signal.SIGHUP)
            later = made.document_with(lambda d: len(d["agents"]) == 1)
        finally:
            made.signal(signal.SIGTERM)
            status = made.finish()
    assert (status, made.err) == (0, "")
    assert [agent["name"] for agent in found["agents"]] == ["a", "b"]
    assert {m["source_host"] for m in found["messages"]} == {"a", "b"}
    (exchanges,) = found["exchanges"]
    assert exchanges["response"]["n"] > 100
    assert 'latprof_clock_state{host="b",reference="a",state="good"} 1' in text
    assert "a &lt;-&gt; b: offset" in page
    assert later["agents"][0]["name"] == "a"


def test_all_addresses_of_a_name_are_asked(halves):
    with serving(halves[0]) as (server,):
        made = FleetProcess("--dns", f"localhost:{server.address.port}")
        try:
            found = made.document_with(
                lambda d: any(agent["name"] for agent in d["agents"])
            )
        finally:
            made.signal(signal.SIGTERM)
            status = made.finish()
    assert status == 0
    (heard,) = (agent for agent in found["agents"] if agent["name"])
    assert (heard["address"], heard["name"]) == (str(server.address), "a")


def test_a_configuration_that_became_wrong_changes_nothing(halves, tmp_path):
    agents = tmp_path / "agents"
    with serving(*halves) as servers:
        agents.write_text(f"{servers[0].address}\n")
        made = FleetProcess("--agents", str(agents), "--interval", "1s")
        try:
            agents.write_text("host:70000\n")
            made.signal(signal.SIGHUP)
            line = made.line(made.process.stderr)
            assert len(made.document()["agents"]) == 1
        finally:
            made.signal(signal.SIGINT)
            status = made.finish()
    assert status == 0
    assert line.startswith("latprof: the configuration stays as it was: ")
    assert "line 1: must be an agent like" in line


def refused(capfd, *words: str) -> str:
    """The line that stderr has."""
    assert main(["fleet", *words]) == 2
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert line.startswith("latprof: ")
    return line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name agents, or give --agents FILE"),
        (["host:0"], "must be an agent like"),
        (["--dns", "a b"], "--dns must be an agent like"),
        (["a/b"], "must be an agent like"),
        (["a", "--listen", "9990"], "--listen must be like"),
        (["a", "--shard", "0/3"], "--shard must be like 1/4"),
        (["a", "--shard", "4/3"], "--shard must be like 1/4"),
        (["--agents", "/nowhere/agents"], "cannot read /nowhere/agents"),
        (["--config", "/nowhere/fleet.toml"], "cannot read /nowhere/fleet.toml"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(capfd, words, said):
    assert said in refused(capfd, *words)


WRONG = {
    'agent = ["a"]': "agent is no key of the configuration; did you mean agents",
    "agents = 1": "agents must be a list",
    'agents = ["a b"]': "agents must be an agent like",
    'interval = "1ms"': "interval must be",
    '[access]\nuser = "fleet"': "access.user must come with password_file",
    '[access]\ncertificates = "/nowhere"': "cannot read /nowhere",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_keys_are_said_by_their_names(capfd, tmp_path, text):
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    assert WRONG[text] in refused(capfd, "a", "--config", str(file))


def test_the_configuration_is_read_and_the_command_line_wins(tmp_path):
    password, file = tmp_path / "password", tmp_path / "fleet.toml"
    password.write_text("secret\n")
    file.write_text(
        'agents = ["node7", "[::1]:9000"]\nlisten = ":9990"\ninterval = "5s"\n'
        'hosts = ["Fleet.example.org"]\n'
        f'[access]\nuser = "fleet"\npassword_file = "{password}"\ntimeout = "3s"\n'
    )
    found = read_fleet_config(file, {"interval_seconds": 3.0, "listen": None})
    assert found.agents == (Address("node7", 9989), Address("::1", 9000))
    assert (found.listen, found.interval_seconds) == (Address("::", 9990), 3.0)
    assert found.hosts == ("fleet.example.org",)
    assert (found.access.user, found.access.password) == ("fleet", "secret")
    assert found.access.timeout_seconds == 3.0
    assert found.access.tls is None
    assert read_fleet_config(None, {}) == FleetConfig()


def test_an_agent_that_is_named_twice_is_asked_once(tmp_path):
    file = tmp_path / "agents"
    file.write_text("a\nb:9989\n# c\nB\n")
    assert list(agents_in(file)) == [Address("a", 9989), *2 * [Address("b", 9989)]]
    config = FleetConfig(agents=(Address("a", 9989),), agents_file=file)
    assert config.all_agents() == [Address("a", 9989), Address("b", 9989)]
