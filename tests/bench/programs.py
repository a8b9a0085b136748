"""What the measurements run: latprof itself, its generator, C programs of theirs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latprof_agent.executables import find_executable
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec

HERE = Path(__file__).parent
LATPROF = [sys.executable, "-m", "latprof_agent"]
# Of a program that is asked on standard input.
ASKED: dict[str, Any] = {
    "stdin": subprocess.PIPE,
    "stdout": subprocess.PIPE,
    "text": True,
}
PLAIN_VETH = ["--rate", "0", "--delay", "0"]


def compiled(name: str, folder: Path) -> str:
    """Compile a C program of this folder, the way anybody would."""
    program = folder / name
    command = ["gcc", "-O2", "-o", str(program), str(HERE / f"{name}.c")]
    subprocess.run(command, check=True)
    return str(program)


def generator() -> str:
    """Find latprof's own generator."""
    return str(find_executable("latprof-load"))


def plain_lab() -> Lab:
    """Make two namespaces joined by veth, nothing shaped."""
    return Lab(LinkSpec(rate_bps=0, delay_ns=0))


@dataclass(frozen=True)
class Run:
    """What one `latprof run` left."""

    folder: Path
    summary: dict[str, Any]


def latprof_run(folder: Path, *words: str) -> Run:
    """Run latprof quietly in a new run folder."""
    command = [*LATPROF, "run", *words, "--quiet", "--json", "--out", str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return Run(folder, json.loads(done.stdout))


@dataclass(frozen=True)
class Summary:
    """What a recording of a command told at its end."""

    figures: dict[str, Any]

    def require_messages(self, count: int) -> None:
        """Refuse a recording that missed messages, and so was too cheap."""
        kinds = self.figures["kinds"].values()
        complete = sum(int(kind["complete"]) for kind in kinds)
        if complete + self.lost_records < count:
            raise RuntimeError(f"{count} messages were sent, {complete} recorded whole")

    @property
    def lost_records(self) -> int:
        """Of all rings."""
        return sum(self.figures["lost_records"].values())


class Recording:
    """`latprof run` of a command, which can be read while it runs."""

    def __init__(
        self, folder: Path, words: Sequence[str], command: Sequence[str]
    ) -> None:
        """Start it; its run folder lasts until the summary is taken."""
        self._folder = folder
        run = [*LATPROF, "run", *words, "--quiet", "--out", str(folder)]
        # what the command prints comes on latprof's standard error
        self._process = subprocess.Popen(
            [*run, "--", *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, beginning: str) -> str:
        """Return the command's next line that begins so."""
        assert self._process.stderr
        said = ""
        for line in self._process.stderr:
            if line.startswith(beginning):
                return line
            said += line
        self._process.wait()
        raise RuntimeError(f"the command must print {beginning}, printed {said}")

    def require_probes(self, attached: bool) -> bool:
        """Refuse a comparison in which nothing, or all, is attached.

        Returns whether other programs have probes of theirs attached, which slow
        both states.
        """
        held = probes_held_by(self._process.pid)
        if bool(held) != attached:
            raise RuntimeError(f"latprof holds {held} attached probes")
        return probes_of_all() > held

    def interrupt(self) -> None:
        """End it by Ctrl-C; without probes nothing was recorded, which it says."""
        self._process.send_signal(signal.SIGINT)
        self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    def summary(self) -> Summary:
        """Wait for the end, and remove the run folder."""
        _, said = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"latprof must end well, said {said}")
        figures = json.loads((self._folder / "summary.json").read_text())
        shutil.rmtree(self._folder)
        return Summary(figures)


@dataclass(frozen=True)
class Usage:
    """What an agent took until now."""

    cpu_seconds: float
    resident_bytes: int


class Agent:
    """`latprof agent` in its default state, while a block runs."""

    def __init__(self, *words: str) -> None:
        """What it watches, and so on."""
        self._words = words
        self.ready_seconds = 0.0

    def __enter__(self) -> Agent:
        """Start it, and wait until it measures and answers."""
        begun = time.monotonic()
        self._process = subprocess.Popen(
            [*LATPROF, "agent", "--listen", "127.0.0.1:0", *self._words],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr
        said = self._process.stderr.readline()
        self.ready_seconds = time.monotonic() - begun
        self._url = said.split()[-1] if said else ""
        if not self._url.startswith("http"):
            raise RuntimeError(f"the agent must serve, said {said}")
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.terminate()
        self._process.communicate()

    def usage(self) -> Usage:
        """Look at the process."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().split(") ")[1]
        ticks = sum(map(int, fields.split()[11:13]))  # utime and stime
        pages = int(fields.split()[21])
        return Usage(
            ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")
        )

    def on_cpu_seconds(self) -> float:
        """What its threads ran for, by the scheduler: finer than clock ticks."""
        told = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[0]) for each in told) / 1e9

    @contextmanager
    def stopped(self, held: int) -> Iterator[None]:
        """Stop it while it holds no more than so many attached programs."""
        self._process.send_signal(signal.SIGSTOP)
        while self.held() > held:
            self._process.send_signal(signal.SIGCONT)
            time.sleep(0.01)
            self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def held(self) -> int:
        """Tell how many attached programs it holds now."""
        return probes_held_by(self._process.pid)

    def messages_sent(self) -> float:
        """Scrape it: each message counts once."""
        sent = [
            line
            for line in self._scraped()
            if line.startswith("latprof_messages_total{") and 'direction="sent"' in line
        ]
        return sum(float(line.split()[-1]) for line in sent)

    def coverage(self) -> float:
        """Scrape it: the share of time that it measured."""
        (line,) = (x for x in self._scraped() if x.startswith("latprof_coverage_ratio"))
        return float(line.split()[-1])

    def _scraped(self) -> list[str]:
        with urllib.request.urlopen(self._url) as answer:
            return list(answer.read().decode().splitlines())


class PingPong:
    """roundtrip.c, asking in windows."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Of a process that reads a byte for each window."""
        self._process = process

    def p50_us(self) -> float:
        """Give the median of one window."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("x")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline())["p50_ns"]) / 1e3


@contextmanager
def ping_pong(
    roundtrip: str, protocol: str, address: str, client: int, server: int
) -> Iterator[PingPong]:
    """Both ends in one process tree, at CPUs `client` and `server`."""
    words = [roundtrip, "pair", protocol, address, str(server), str(client), "windows"]
    process = subprocess.Popen(words, **ASKED)
    try:
        yield PingPong(process)
    finally:
        process.kill()
        process.communicate()


def probes_held_by(pid: int | str) -> int:
    """How many attached BPF programs a process holds."""
    held = 0
    for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            held += "bpf_link" in str(descriptor.readlink())
    return held


def probes_of_all() -> int:
    """How many attached BPF programs the machine's processes hold, ours too."""
    return sum(probes_held_by(p.name) for p in Path("/proc").glob("[0-9]*"))


def cpus() -> list[int]:
    """Which CPUs the measurements may use."""
    return sorted(os.sched_getaffinity(0))


def placements() -> dict[str, tuple[int, int]]:
    """Where client and server may stand to each other, by a name for it."""
    found = cpus()
    one = {"both ends on one CPU": (found[0], found[0])}
    if len(found) == 1:
        return one
    return one | {"an end on each CPU": (found[0], found[1])}


@contextmanager
def responder(lab: Lab, *words: str) -> Iterator[str]:
    """Run a program at the lab's end b; give the first line that it prints."""
    process = lab.start("b", words, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


@contextmanager
def repeated(lab: Lab, *words: str) -> Iterator[Callable[[], None]]:
    """Give what runs a program at the lab's end a each time that it is called.

    A shell starts it: a fork of ours would make each page of memory that is written
    afterwards a fault.
    """
    loop = 'while read -r line; do "$@" || exit; echo "$line"; done'
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = lab.start("a", ["sh", "-c", loop, "sh", *words], text=True, **pipes)

    def run() -> None:
        process.stdin.write("done\n")
        process.stdin.flush()
        while (said := process.stdout.readline()) != "done\n":
            if not said:
                raise RuntimeError(f"{words[0]} must end well")

    try:
        yield run
    finally:
        process.communicate()  # it ends with its input


def output_of(lab: Lab, *words: str) -> str:
    """Run a program at the lab's end a to its end; give what it printed."""
    process = lab.start("a", words, stdout=subprocess.PIPE, text=True)
    text, _ = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)
    return str(text)
