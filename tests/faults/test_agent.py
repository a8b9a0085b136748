"""`latprof agent` as a service: its user, its signals, its end; nothing is left."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from agent_process import FREE, Agent
from failures import assert_failed
from latprof_agent.privileges import CAP_PERFMON, KEPT
from latprof_agent.service.web.passwords import PasswordHash
from latprof_process import Latprof, run
from recording import DEADLINE_SECONDS, wait_until


@pytest.fixture
def agents():
    """Makes agents, and ends those that a test left."""
    made = []

    def start(*words, **options):
        where = () if "--listen" in words else FREE
        made.append(Agent(*where, *words, **options))
        return made[-1]

    yield start
    for agent in made:
        if agent.process.poll() is None:
            agent.process.kill()
            agent.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_status_0_and_leaves_nothing(agents, number):
    agent = agents()
    assert agent.get("/-/ready") == "ready\n"
    assert "latprof_coverage_ratio" in agent.get()
    assert agent.bpf  # or there was nothing to leave

    assert agent.end(number) == 0
    assert agent.err == ""


@pytest.mark.thorough
def test_killed_it_leaves_nothing_in_the_way_of_the_next(agents):
    agent = agents()
    assert agent.processes  # the one that switches statistics on

    assert agent.end(signal.SIGKILL) == -signal.SIGKILL
    again = agents("--listen", agent.url.removeprefix("http://"))
    assert again.get("/-/ready") == "ready\n"
    assert again.end() == 0


@pytest.mark.thorough
def test_no_thread_is_roots(agents):
    agent = agents("--user", "nobody")
    found = []
    for task in Path(f"/proc/{agent.process.pid}/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        found.append(dict(line.split(":\t", 1) for line in lines if ":\t" in line))

    assert len(found) > 1
    kept = f"{sum(1 << capability for capability in KEPT):016x}"
    for status in found:
        assert set(status["Uid"].split()) == {"65534"}
        assert status["Groups"].strip() == ""
        assert status["CapPrm"] == status["CapEff"] == kept
        # what a helper of its may have
        assert int(status["CapBnd"], 16) == 1 << CAP_PERFMON
        for none in ("CapInh", "CapAmb"):
            assert int(status[none], 16) == 0
        assert status["NoNewPrivs"] == "1"
    assert agent.end() == 0


# What a service manager does: another user, with the capabilities of the unit.
AS_ANOTHER = """
import sys
from latprof_agent import cli, privileges
from latprof_analysis.calling_user import User
privileges.drop(User(61300, 61300), privileges.LOADING)
sys.exit(cli.main(sys.argv[4:]))
"""
BY_ANOTHER = (sys.executable, "-c", AS_ANOTHER)


@pytest.mark.thorough
def test_who_is_started_as_another_user_stays_that_user(agents):
    agent = agents(before=BY_ANOTHER)
    status = Path(f"/proc/{agent.process.pid}/status").read_text()

    kept = sum(1 << capability for capability in KEPT)
    assert "Uid:\t61300\t61300\t61300\t61300\n" in status
    assert f"CapPrm:\t{kept:016x}\n" in status
    assert agent.end() == 0
    assert agent.err == ""


def test_who_is_not_root_cannot_become_another():
    failed = run("agent", *FREE, "--user", "nobody", before=BY_ANOTHER)

    assert_failed(failed, 2, "--user: only root can become 'nobody'; ")


def with_rights(names):
    """What starts as another user, with these capabilities."""
    kept = ", ".join(f"privileges.{name}" for name in names)
    alone = AS_ANOTHER.replace("privileges.LOADING", f"[{kept}]")
    return sys.executable, "-c", alone


NEEDED = ("CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON")


@pytest.mark.always
@pytest.mark.parametrize("lacks", [*((name,) for name in NEEDED), NEEDED])
def test_the_capabilities_that_are_missing_are_named(lacks):
    kept = [name for name in (*NEEDED, "CAP_SYSLOG") if name not in lacks]
    failed = run("agent", *FREE, before=with_rights(kept))

    assert_failed(failed, 1, "cannot do agent: user 61300 does not have CAP_")
    assert [name for name in NEEDED if name in failed.err] == sorted(lacks)


@pytest.mark.thorough
def test_without_what_costs_and_functions_need_it_says_so_and_measures(agents):
    agent = agents("--max-overhead", "2%", notes=2, before=with_rights(NEEDED))
    metrics = agent.get()

    assert "latprof_probe_seconds_total{" not in metrics
    for quantity in ("cost of the probes", "functions that drop"):
        row = f'latprof_capability{{quantity="{quantity}",state="unavailable"}} 1'
        assert row in metrics
    assert agent.end() == 0
    functions, cost = agent.noted
    assert functions.startswith("latprof: functions that drop: ")
    assert "add CAP_SYSLOG" in functions
    assert cost == (
        "latprof: cost of the probes: kernel refuses its statistics of programs: "
        "--max-overhead bounds the agent's own time only; add CAP_SYS_ADMIN, which "
        "they need"
    )


@pytest.mark.thorough
@pytest.mark.parametrize("before", [(), BY_ANOTHER], ids=["root", "another"])
def test_the_cost_of_programs_is_known_without_root(agents, before):
    agent = agents(before=before)
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        served, _ = server.accept()

        def measured():
            client.sendall(b"x")
            served.recv(1)
            name = 'latprof_probe_seconds_total{program="on_send"}'
            lines = [x for x in agent.get().splitlines() if x.startswith(name)]
            return lines and float(lines[0].split()[-1]) > 0

        wait_until(measured, "CPU time of a program")
        client.close()
        served.close()


@pytest.mark.thorough
def test_another_agents_port_is_one_line_and_status_1(agents):
    first = agents()
    where = first.url.removeprefix("http://")
    second = run("agent", "--listen", where)

    assert_failed(second, 1, f"cannot listen on {where}: Address already in use; ")
    assert first.end() == 0


@pytest.mark.thorough
def test_all_addresses_are_those_of_ipv4_and_ipv6(agents):
    agent = agents("--listen", ":0")
    port = agent.url.rpartition(":")[2]
    for host in ("127.0.0.1", "[::1]"):
        agent.url = f"http://{host}:{port}"
        assert agent.get("/healthz") == "ok\n"
    assert agent.end() == 0


def test_an_address_of_no_interface_is_one_line():
    failed = run("agent", "--listen", "192.0.2.1:9989")

    assert_failed(failed, 1, "cannot listen on 192.0.2.1:9989: Cannot assign ")


def test_a_name_of_no_address_is_one_line():
    assert_failed(
        run("agent", "--listen", "no.invalid:1"), 1, "cannot listen on no.inv"
    )


def test_no_such_user_is_one_line():
    assert_failed(run("agent", *FREE, "--user", "no-such"), 2, "--user: must be a user")


def test_a_certificate_that_is_none_is_one_line(reachable):
    file = reachable / "agent.toml"
    for name in ("crt", "key"):
        (reachable / name).write_text("x")
    file.write_text(
        f'[tls]\ncertificate = "{reachable}/crt"\nkey = "{reachable}/key"\n'
    )
    assert_failed(run("agent", *FREE, "--config", str(file)), 1, "cannot use ")


@pytest.mark.thorough
def test_reloading_a_wrong_file_keeps_the_old_one_and_says_so(agents, reachable):
    file = reachable / "agent.toml"
    file.write_text('[buckets]\nothers = ["1ms"]\n')
    agent = agents("--config", str(file))
    name = "latprof_config_last_reload_successful"
    assert agent.metric(name) == 1

    file.write_text("by = 1\n")
    agent.signal(signal.SIGHUP)
    said = agent.next_line()
    assert said == (
        f"latprof: the configuration stays as it was: {file}: by must be a list, got 1"
    )
    wait_until(lambda: agent.metric(name) == 0, "told by the metric")

    file.write_text(f'[users]\nscraper = "{PasswordHash.of("x")}"\n')
    agent.signal(signal.SIGHUP)

    def refused():
        try:
            agent.get()
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 401
        return False

    wait_until(refused, "a password is asked for")
    assert agent.get("/-/ready") == "ready\n"
    assert agent.end() == 0
    assert agent.err == ""


def test_a_fifo_as_configuration_keeps_nothing_waiting(agents, reachable):
    file = reachable / "agent.toml"
    file.touch()
    agent = agents("--config", str(file))
    file.unlink()
    os.mkfifo(file, 0o644)
    agent.signal(signal.SIGHUP)
    assert agent.next_line() == (
        f"latprof: the configuration stays as it was: cannot read {file}: it is not a "
        "regular file; name a file of TOML that is there"
    )
    assert agent.metric("latprof_config_last_reload_successful") == 0
    assert agent.end() == 0


@pytest.mark.thorough
def test_names_of_the_configuration_are_read_again(agents, reachable):
    file = reachable / "agent.toml"
    file.touch()
    agent = agents("--config", str(file))
    host = {"Host": "node7.example.org:9989"}
    with pytest.raises(urllib.error.HTTPError, match="421") as refused:
        agent.get(**host)
    refused.value.close()
    own = socket.gethostname()
    for name in (own, f"{own}:9989", "localhost:1"):  # a Prometheus on another host
        assert "latprof_build_info" in agent.get(Host=name)

    file.write_text('hosts = ["node7.example.org"]\n')
    agent.signal(signal.SIGHUP)

    def answered():
        try:
            return agent.get(**host)
        except urllib.error.HTTPError as error:
            error.close()
            return None

    wait_until(answered, "the name is known")
    assert agent.end() == 0
    assert agent.err == ""


@pytest.mark.thorough
def test_what_needs_a_restart_is_said(agents, reachable):
    file = reachable / "agent.toml"
    file.touch()
    agent = agents("--config", str(file))
    file.write_text('max_overhead = "5%"\n')
    agent.signal(signal.SIGHUP)

    assert agent.next_line() == "latprof: max_overhead changes with the next start"
    assert agent.end() == 0


@pytest.mark.thorough
def test_another_grouping_is_taken_while_it_runs(agents, reachable):
    file = reachable / "agent.toml"
    file.touch()
    agent = agents("--config", str(file))
    # our own requests are traffic, too
    wait_until(lambda: 'service="' in agent.get(), "told apart by service")
    file.write_text('by = ["comm"]\n')
    agent.signal(signal.SIGHUP)

    def by_comm():
        try:
            text = agent.get()
        except urllib.error.HTTPError as error:
            assert error.code == 503  # while it takes the other one
            return False
        return 'comm="' in text and 'service="' not in text

    wait_until(by_comm, "told apart by comm")
    assert agent.end() == 0
    assert agent.err == ""


@pytest.mark.thorough
def test_a_file_that_the_user_may_not_read_is_said(agents, reachable):
    file = reachable / "agent.toml"
    file.touch(mode=0o600)
    agent = agents("--config", str(file), "--user", "nobody")
    agent.signal(signal.SIGHUP)

    assert f"cannot read {file}: Permission denied; " in agent.next_line()
    assert agent.end() == 0


@pytest.mark.thorough
def test_the_service_manager_is_told(agents, reachable):
    place = reachable / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(place))
        place.chmod(0o777)
        manager.settimeout(DEADLINE_SECONDS)

        def told():
            return manager.recv(1000).decode().split("\n")[0]

        environment = {"NOTIFY_SOCKET": str(place), "WATCHDOG_USEC": "200000"}
        agent = agents(env=os.environ | environment)
        assert told() == "READY=1"
        begun = time.monotonic()
        assert [told() for _ in range(3)] == ["WATCHDOG=1"] * 3
        assert time.monotonic() - begun < DEADLINE_SECONDS / 10
        agent.signal(signal.SIGHUP)
        found = [told() for _ in range(4)]
        assert [x for x in found if x != "WATCHDOG=1"][:2] == ["RELOADING=1", "READY=1"]
        agent.signal(signal.SIGTERM)
        while (last := told()) == "WATCHDOG=1":
            pass
        assert last == "STOPPING=1"
    assert agent.finish() == 0


# What any local user can try: the page of stories, and the token for it.
ANOTHER_USER = """
import sys, urllib.request
for path in (sys.argv[1] + "/stories/", "file://" + sys.argv[2]):
    try:
        urllib.request.urlopen(path, timeout=60)
    except OSError as error:
        print(getattr(error, "code", None) or error)
"""


def test_stories_are_not_for_other_local_users(agents, reachable):
    token = reachable / "kept" / "token"
    agent = agents("--story-dir", str(token.parent))
    assert f", stories with the token in {token}: http://" in agent.ready
    key = {"Authorization": f"Bearer {token.read_text().strip()}"}
    assert "0 stories of what was slow" in agent.get("/stories/", **key)

    tried = subprocess.run(
        [sys.executable, "-I", "-c", ANOTHER_USER, agent.url, token],
        user="nobody",
        capture_output=True,
        text=True,
        check=True,
    )
    page, file = tried.stdout.splitlines()
    assert page == "401"
    assert "Permission denied" in file
    assert agent.end() == 0


@pytest.mark.parametrize("seconds", [0.4, 0.7, 1.0, 1.5])
def test_ended_while_it_loads_it_leaves_nothing(seconds):
    loading = Latprof("agent", *FREE)
    until = time.monotonic() + seconds
    while time.monotonic() < until and loading.process.poll() is None:
        loading.look()
    loading.signal(signal.SIGTERM)
    status = loading.finish()

    assert status in (0, -signal.SIGTERM), loading.err
    assert "Traceback" not in loading.err
    wait_until(lambda: loading.left() == [], "nothing is left")


def test_a_password_is_hashed_from_standard_input():
    hashed = Latprof("agent", "--hash-password", stdin=-1)
    out, err = hashed.process.communicate(b"secret\n", timeout=DEADLINE_SECONDS)

    assert err == b""
    assert PasswordHash.read(out.decode().strip()).fits("secret")


@pytest.mark.thorough
def test_promtool_finds_nothing_wrong(agents):
    if not shutil.which("promtool"):
        pytest.skip("no promtool here")
    text = agents().get()
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=text.encode(),
        capture_output=True,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, b"")
