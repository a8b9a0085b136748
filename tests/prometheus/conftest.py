"""A Prometheus of the distribution, in a folder of its own, that scrapes a target."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from free_ports import free_port
from recording import wait_until

CONFIG = """\
global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}
scrape_configs:
- job_name: latprof
  static_configs: [{{targets: {targets}}}]
"""


class Prometheus:
    """A running Prometheus; `target` is one HOST:PORT or several, with commas."""

    def __init__(self, folder: Path, target: str, *features: str, more: str = ""):
        folder.mkdir(exist_ok=True)
        (folder / "prometheus.yml").write_text(
            CONFIG.format(targets=json.dumps(target.split(","))) + more
        )
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
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
        (series,) = wait_until(lambda: self.query(expression), expression)
        return float(series["value"][1])

    def wait_for_scrapes(self, count: int = 3) -> None:
        """Wait until it has scraped."""
        scraped = f"sum_over_time(up[5m]) >= {count}"
        wait_until(lambda: self.query(scraped), f"{count} scrapes")

    def complaints(self) -> list[str]:
        """What it says against what it scraped."""
        lines = self.log.read_text().splitlines()
        return [x for x in lines if "level=warn" in x or "level=error" in x]

    def end(self) -> None:
        """Kill it: its data is not wanted."""
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory):
    """Starts one; ended after all tests."""
    if not shutil.which("prometheus"):
        pytest.skip("no prometheus here; apt-get install prometheus")
    started = []

    def start(target: str, *features: str, more: str = "") -> Prometheus:
        folder = tmp_path_factory.mktemp("prometheus")
        started.append(Prometheus(folder, target, *features, more=more))
        return started[-1]

    yield start
    for one in started:
        one.end()
