"""A Prometheus in a folder of its own, that scrapes by the configuration we ship.

The distribution's, and the newest, of its Go module: what asks for native histograms
differs.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest
from free_ports import free_port
from recording import wait_until

PAUSE_SECONDS = 0.1  # between questions: each costs a busy machine something

SHIPPED = Path(__file__).parents[2] / "packaging" / "prometheus"
RULES = "latprof.rules.yml"
FILE, FILE_BEFORE = "prometheus.yml", "prometheus-before-3.8.yml"
WITH_KEY = (3, 8)  # which has scrape_native_histograms
NEWEST = "3.16.0"
MODULE = "github.com/prometheus/prometheus"
# Go 1.21 is the first that fetches the Go which a module needs.
GO = (1, 21)


class Programs(NamedTuple):
    """Prometheus and its tool, of one version."""

    prometheus: str
    promtool: str
    version: tuple[int, ...]

    @property
    def file(self) -> str:
        """The configuration that we ship for it."""
        return FILE if self.version >= WITH_KEY else FILE_BEFORE

    @property
    def features(self) -> tuple[str, ...]:
        """What asks for native histograms beside its configuration."""
        return () if self.version >= WITH_KEY else ("native-histograms",)

    def promtool_says(self, *words: str, text: str | None = None) -> str:
        """What promtool has to say; fails where it is not content."""
        words = (self.promtool, *words)
        done = subprocess.run(
            words, input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr


class Prometheus:
    """A running Prometheus; `target` is one HOST:PORT or several, with commas.

    With `native` it asks for native histograms as README says; `more` are lines of
    the job, `rules` the file of rules.
    """

    def __init__(
        self,
        programs: Programs,
        folder: Path,
        target: str,
        *features: str,
        native: bool = False,
        more: str = "",
        rules: str = RULES,
    ):
        self.targets = target.split(",")
        file = programs.file if native else FILE_BEFORE
        _configure(folder, file, self.targets, more, rules)
        features += programs.features if native else ()
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    programs.prometheus,
                    f"--config.file={folder}/prometheus.yml",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                    *(f"--enable-feature={feature}" for feature in features),
                ],
                stderr=log,
            )

    def api(self, path: str, **parameters: str):
        """What its API answers; None while it does not."""
        asked = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(
                f"{self.url}/api/v1/{path}?{asked}", timeout=60
            ) as answer:
                return json.load(answer)["data"]
        except (urllib.error.URLError, ConnectionError):
            assert self.process.poll() is None, self.log.read_text()
            return None

    def query(self, expression: str):
        """The series of an expression now."""
        found = self.api("query", query=expression)
        return found["result"] if found else []

    def value(self, expression: str) -> float:
        """The value of the one series of an expression."""
        (series,) = wait_until(
            lambda: self.query(expression), expression, PAUSE_SECONDS
        )
        return float(series["value"][1])

    def wait_for_scrapes(self, count: int = 3) -> None:
        """Wait until it has scraped each target so often, the last time just now."""
        scraped = f"sum_over_time(up[10m]) >= {count} and up == 1"
        wait_until(
            lambda: len(self.query(scraped)) == len(self.targets),
            f"{count} scrapes",
            PAUSE_SECONDS,
        )

    def complaints(self) -> list[str]:
        """What it says against what it scraped."""
        lines = self.log.read_text().splitlines()
        return [x for x in lines if re.search("level=(warn|error)", x, re.IGNORECASE)]

    def end(self) -> None:
        """Kill it: its data is not wanted."""
        self.process.kill()
        self.process.wait()


def _configure(
    folder: Path, file: str, targets: list[str], more: str, rules: str
) -> None:
    """Put there what we ship, with other targets, and all times short."""
    text = (SHIPPED / file).read_text()
    text = text.replace('["localhost:9989"]', json.dumps(targets))
    # as long may a scrape take, on a busy machine
    text = re.sub("(scrape_interval|evaluation_interval): .*", r"\1: 2s", text)
    (folder / "prometheus.yml").write_text(text + more)
    text = (SHIPPED / rules).read_text().replace("interval: 1m", "interval: 1s")
    (folder / RULES).write_text(text)


def _distributions() -> Programs:
    found = [shutil.which(name) for name in ("prometheus", "promtool")]
    if not all(found):
        pytest.skip("no prometheus here; apt-get install prometheus")
    said = subprocess.run(
        [found[0], "--version"], capture_output=True, text=True, check=True
    )
    return Programs(*found, _version("version ([0-9.]+)", said.stdout + said.stderr))


def _version(pattern: str, text: str) -> tuple[int, ...]:
    found = re.search(pattern, text)
    assert found, text
    return tuple(int(part) for part in found[1].split(".")[:2])


def _newest(folder: Path) -> Programs:
    """Build them where they are not there yet: some minutes."""
    programs = [folder / name for name in ("prometheus", "promtool")]
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests of several files run at once
        if not all(program.exists() for program in programs):
            _build(folder, [program.name for program in programs])
    return Programs(*map(str, programs), _version("(.*)", NEWEST))


def _build(folder: Path, names: list[str]) -> None:
    _need_go()
    _, minor, patch = NEWEST.split(".")
    module_version = f"v0.3{minor:0>2}.{patch}"
    subprocess.run(
        # what finds targets in clouds takes most of the time and is not wanted
        ["go", "install", "-tags", "remove_all_sd"]
        + [f"{MODULE}/cmd/{name}@{module_version}" for name in names],
        env={**os.environ, "GOBIN": str(folder), "GOTOOLCHAIN": "auto"},
        check=True,
    )


def _need_go() -> None:
    if not shutil.which("go"):
        pytest.skip("no Go here; install Go 1.21 or newer")
    said = subprocess.run(["go", "version"], capture_output=True, text=True, check=True)
    if _version(r"go([0-9.]+)", said.stdout) < GO:
        pytest.skip("this Go cannot fetch a newer one; install Go 1.21 or newer")


@pytest.fixture(
    scope="session",
    params=["distribution", pytest.param("newest", marks=pytest.mark.thorough)],
)
def programs(request):
    """Each version that is tested."""
    if request.param == "distribution":
        return _distributions()
    return _newest(Path(request.config.cache.mkdir(f"prometheus-{NEWEST}")))


@pytest.fixture(scope="module")
def prometheus(programs, tmp_path_factory):
    """Starts one; ended after the tests of a file, as it goes on scraping."""
    started = []

    def start(target: str, *features: str, **options) -> Prometheus:
        folder = tmp_path_factory.mktemp("prometheus")
        started.append(Prometheus(programs, folder, target, *features, **options))
        return started[-1]

    yield start
    for one in started:
        one.end()
