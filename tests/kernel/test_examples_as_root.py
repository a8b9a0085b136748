"""Each example of README.md and of the helps that needs root works as written.

Each has a network namespace of its own as its host, so that ports of one do not
meet those of another.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from examples import AS_ROOT, Example, examples, run_example
from recording import wait_until

ONLINE = [
    example
    for example in examples()
    if example.words[0] in AS_ROOT and not (example.meets_another or example.needs_ssh)
]
# What the agent must say of the web server's messages.
SCRAPED = re.compile(r'^latprof_messages_total\{direction="sent".*service="80"', re.M)
# Options by which `watch` comes to an end of its own.
ENDS = {"--once", "--duration"}
BITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


# Most of their time is waiting for 6 s to pass.
AT_A_TIME = 4


@contextmanager
def host():
    """A namespace with a web server that is asked now and then; how to enter it."""
    up = 'ip link set lo up && exec "$@"'
    words = ("unshare", "--net", "sh", "-c", up, "sh", sys.executable)
    serve = ("-m", "http.server", "80", "--bind", "127.0.0.1")
    devices = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with ExitStack() as stack:
        server = stack.enter_context(subprocess.Popen([*words, *serve], **devices))
        stack.callback(server.kill)
        listens = Path(f"/proc/{server.pid}/net/tcp")
        wait_until(lambda: ":0050 " in listens.read_text(), "the web server")
        enter = ("nsenter", f"--net=/proc/{server.pid}/ns/net")
        ask = "while sleep 0.05; do curl -s http://127.0.0.1/; done"
        asking = [*enter, "sh", "-c", ask]
        asker = stack.enter_context(subprocess.Popen(asking, **devices))
        stack.callback(asker.kill)
        yield enter


class Ran(NamedTuple):
    """What became of an example."""

    status: int
    screen: str
    folder: Path


def run_in_host(example: Example, folder: Path) -> Ran:
    (folder / "agent.toml").write_text('listen = "127.0.0.1:9990"\n')
    with host() as enter:
        if example.words[0] == "agent" and "--check-config" not in example.words:
            return Ran(*serve_and_scrape(example, enter, folder), folder)
        if example.words[0] == "watch" and not ENDS.intersection(example.words):
            return Ran(*watch_for_a_while(example, enter), folder)
        # of a published experiment a twentieth does what all of it does
        short = " --scale 0.05" if "--preset" in example.words else ""
        if "--scale" in example.words:
            short = ""
        if "--find-rate" in example.words:
            short = " --channels 1 --trial 200ms"
        line = example.line.partition(" # ")[0].rstrip() + short
        return Ran(*run_example(line, folder, *enter), folder)


def serve_and_scrape(
    example: Example, enter: tuple[str, ...], folder: Path
) -> tuple[int, str]:
    """Its status once it was ended, and what a scrape said before that."""
    # the host's own /var/lib is not ours
    given = [word.replace("/var/lib", str(folder)) for word in example.words]
    words = [*enter, sys.executable, "-m", "latprof_agent", *given]
    get = [*enter, "curl", "-sf", "http://127.0.0.1:9989/metrics"]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, cwd=folder
    ) as agent:
        try:
            assert agent.stderr and "as user" in agent.stderr.readline()
            scraped = wait_until(lambda: _answer(get), "messages of the web server")
        finally:
            agent.terminate()
    return agent.returncode, scraped


def watch_for_a_while(example: Example, enter: tuple[str, ...]) -> tuple[int, str]:
    """Its status, and what it said until Ctrl-C after the first interval."""
    words = [*enter, sys.executable, "-m", "latprof_agent", *example.words]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout
        first = watch.stdout.readline()
        watch.send_signal(signal.SIGINT)
        rest = watch.stdout.read()
    return watch.returncode, first + rest


def _answer(command: list[str]) -> str:
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return text if SCRAPED.search(text) else ""


@pytest.fixture(scope="module")
def ran(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Ran]]]:
    """All that were chosen, a few at a time."""
    specs = (getattr(item, "callspec", None) for item in request.session.items)
    chosen = [spec.params.get("example") for spec in specs if spec]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {
            each.line: pool.submit(run_in_host, each, tmp_path_factory.mktemp("run"))
            for each in ONLINE
            if each in chosen
        }


def test_there_are_examples_of_every_command_of_root():
    assert {example.words[0] for example in ONLINE} == set(AS_ROOT)
    assert len(ONLINE) >= 14


@pytest.mark.parametrize("example", ONLINE, ids=lambda example: example.line)
def test_an_example_does_what_it_says(example, ran):
    status, screen, folder = ran[example.line].result()
    assert status == 0, screen
    if example.words[0] == "run":
        check_run(example, folder, screen)
    elif example.words[0] == "watch":
        check_watch(example, folder, screen)
    elif example.words[0] == "agent":
        assert SCRAPED.search(screen) or "the configuration is right" in screen
    elif example.words[0] == "probes":
        assert re.search(r"^ *send .*(exact|partial)", screen, re.MULTILINE), screen
    else:
        assert re.search(r"^(removed \S+|nothing to remove)", screen, re.MULTILINE)


def check_watch(example: Example, cwd: Path, screen: str) -> None:
    """The web server is its only traffic, of which a filter may leave nothing."""
    if "--json" in example.words:
        documents = [json.loads(each) for each in screen.splitlines() if each[0] == "{"]
        assert documents
        assert any(document["groups"] for document in documents)
        return
    assert re.search(r"watched \S+ s: ", screen), screen
    if folder := option(example.line, "record"):
        summary = json.loads((cwd / folder / "summary.json").read_text())
        assert summary["groups"]


def check_run(example: Example, cwd: Path, screen: str) -> None:
    """Hold the run against the text of its example, not against our parser."""
    line = example.line.partition(" # ")[0]
    if preset := re.search(r"preset \w+: (latprof run .*?)\s*$", screen, re.MULTILINE):
        line = preset[1]  # as it says itself
    if "--sweep" in line:
        check_sweep(line, cwd, screen)
        return
    folder = cwd / "runs" / "latest"
    told = json.loads((folder / "run.json").read_text())
    summary = json.loads((folder / "summary.json").read_text())
    assert told["state"] == "done"
    if example.written_to:
        assert json.loads((cwd / example.written_to).read_text()) == summary
    else:
        assert str(folder.resolve().relative_to(cwd.resolve())) in screen
    if name := option(line, "name"):
        assert folder.resolve().name == name == told["name"]
    ours = line.partition(" -- ")[0]
    if attached := re.search(r"--(port|comm|cgroup|pid)\b", ours):
        check_attached(attached[1], line, told, summary)
        return
    check_link(line, told, screen)
    if " -- " in line:
        check_command(line, told, summary)
    elif form_of(line) == "ops":
        check_operations(line, told, summary, screen)
    elif form_of(line) == "mesh":
        check_mesh(line, told, summary)
    elif form_of(line) == "bulk":
        check_bulk(line, summary)
    else:
        check_messages(line, told, summary, screen)


def check_sweep(line: str, cwd: Path, screen: str) -> None:
    folder = cwd / "runs" / "latest"
    told = json.loads((folder / "sweep.json").read_text())
    name, _, values = option(line, "sweep").partition("=")
    of = option(line, "protocol") or "tcp"
    found = [row["combination"][name] for row in told["rows"] if row["of"] == of]
    assert found == values.split(",")
    repeats = int(option(line, "repeat") or 1)
    assert [run["state"] for run in told["runs"]] == ["done"] * (repeats * len(found))
    assert all((cwd / run["folder"] / "run.json").exists() for run in told["runs"])
    assert f"folder: {told['folder']}" in screen


def form_of(line: str) -> str:
    """The word behind `latprof run`, or an option."""
    return line.split()[2] if len(line.split()) > 2 else ""


def option(line: str, name: str) -> str:
    """The text behind an option, or nothing."""
    found = re.search(rf"--{name}[ =](\S+)", line.partition(" -- ")[0])
    return found[1] if found else ""


def check_link(line: str, told: dict[str, Any], screen: str) -> None:
    lab = told["lab"]
    if "--no-lab" in line:
        assert lab is None
        return
    known = lab["known"]
    if (rate := option(line, "rate")) not in ("", "0"):
        number, unit = re.fullmatch(r"(\d+)([a-z]+)", rate).groups()
        assert known["rate_bps"] == int(number) * BITS[unit]
        assert f"{number} {unit[0].upper()}bit/s" in screen
    if "--rate 0 --delay 0" in line:
        assert known["kind"] == "veth" and not known["delay_ns"]
    if not {"rate", "delay", "qdisc"} & set(re.findall("--([a-z]+)", line)):
        bare = form_of(line) == "bulk"
        link = (None, 0) if bare else (10**8, 10**6)
        assert (known["rate_bps"], known["delay_ns"]) == link
    if qdisc := option(line, "qdisc"):
        assert known["qdisc"] == qdisc
        kinds = {q["kind"] for q in told["link_counters"]["a"]["qdiscs"]}
        assert qdisc in kinds
    if loss := option(line, "loss"):
        share = float(loss.rstrip("%")) / (100 if loss.endswith("%") else 1)
        assert known["loss"] == pytest.approx(share)
        assert f"{100 * share:g}% of packets lost" in screen
        ways = told["link_counters"].get("emulator", {}).values()
        passed = sum(way["packets_in"] for way in ways)
        lost = sum(way["dropped_loss"] for way in ways)
        # binomial, six deviations
        assert abs(lost - share * passed) <= 6 * (share * passed) ** 0.5 + 6


def check_messages(
    line: str, told: dict[str, Any], summary: dict[str, Any], screen: str
) -> None:
    protocols = {option(line, "protocol")} - {"", "both"} or {"tcp", "udp"}
    assert set(summary["round_trips"]) == protocols
    for protocol in protocols:
        kinds = {f"{protocol} request", f"{protocol} reply"}
        assert kinds <= summary["kinds"].keys()
        assert summary["round_trips"][protocol]["sent"] >= 20
        assert protocol in screen or "--json" in line
    sizes = option(line, "sizes")
    if sizes:
        asked = [int(text.replace("k", "000")) for text in sizes.split(",")]
        assert told["workload"]["plan"]["sizes"] == asked
    if interval := option(line, "interval"):
        each = int(interval.removesuffix("ms")) / 1000
        assert "open loop" in screen
        for trips in summary["round_trips"].values():
            assert trips["open_loop"]
            # all rounds, or as many as the default of 6 s has; the machine may be busy
            planned = int(option(line, "rounds") or 0) * len(sizes.split(","))
            assert trips["sent"] == pytest.approx(planned or 6 / each, rel=0.1)


def check_mesh(line: str, told: dict[str, Any], summary: dict[str, Any]) -> None:
    hosts = int(option(line, "hosts") or 3)
    mesh = summary["mesh"]
    assert len(mesh["hosts"]) == len(told["lab"]["addresses"]) == hosts
    sizes = option(line, "sizes") or "1024,5120,10240,102400,204800"
    tests = int(option(line, "tests") or 2)
    assert [str(cell["size_bytes"]) for cell in mesh["cells"]] == sizes.split(",")
    each = 100 * tests * hosts * (hosts - 1)
    assert [cell["sent"] for cell in mesh["cells"]] == [each] * len(mesh["cells"])


def check_bulk(line: str, summary: dict[str, Any]) -> None:
    if most_loss := option(line, "find-rate"):
        (search,) = summary["bulk"]["searches"]
        assert f"{100 * search['most_loss']:g}%" == most_loss
        link = int(option(line, "rate").removesuffix("gbit")) * 10**9
        assert 0 < search["rate_bps"] < link
        return
    parts = summary["bulk"]["parts"]
    channels = (option(line, "channels") or "1,2,4,8").split(",")
    assert [(part["protocol"], str(part["channels"])) for part in parts] == [
        (option(line, "protocol"), each) for each in channels
    ]
    for part in parts:
        balance = part["balance"]
        if volume := option(line, "volume"):
            assert balance["sent"] == -(-int(volume) // 1400)
        dropped = sum(place["packets"] for place in balance["places"])
        of_data = dropped - balance["session_packets"]
        assert balance["sent"] == balance["received"] + of_data
        assert balance["unexplained"] == 0


def check_operations(
    line: str, told: dict[str, Any], summary: dict[str, Any], screen: str
) -> None:
    units = {"k": 10**3, "m": 10**6}
    sizes = (option(line, "payload-sizes") or "1k,10k,100k,1m,10m").split(",")
    asked = [int(size[:-1]) * units[size[-1]] for size in sizes]
    backends = [run["backend"] for run in told["workload"]["runs"]]
    cells = {
        (cell["backend"], cell["op"], cell["payload_size_bytes"]): cell["n"]
        for cell in summary["ops"]["cells"]
    }
    each = [(op, size) for op in ("GET", "SET") for size in asked]
    each += [("EXISTS", None), ("EVICT", None)]
    rounds = int(option(line, "rounds") or 10)
    assert cells == {(name, *cell): rounds for name in backends for cell in each}
    done = f"{rounds * len(each)} operations"
    assert all(f"{name}: {done}" in screen for name in backends)


def check_attached(
    to: str, line: str, told: dict[str, Any], summary: dict[str, Any]
) -> None:
    assert told["lab"] is None
    assert option(line, to) in told["workload"]["attached"]["to"]
    (run,) = told["workload"]["runs"]
    seconds = float(option(line, "duration").removesuffix("s"))
    assert seconds <= run["seconds"] <= seconds + 2
    # curl asked the web server twenty times a second, or a little less
    found = {way: f["exchanges"] for way, f in summary["exchanges"].items()}
    assert sum(n for way, n in found.items() if "curl -> " in way) >= 5 * seconds


def check_command(line: str, told: dict[str, Any], summary: dict[str, Any]) -> None:
    command = line.partition(" -- ")[2].split()
    assert told["workload"]["command"][0] == command[0]
    assert summary["kinds"], "none of its messages was seen"
    if "--server" in line:
        sent = sum(kind["messages"] for kind in summary["kinds"].values())
        assert sent >= 20
