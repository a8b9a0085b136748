"""The sample that a real agent gives away, held against what was sent."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from base64 import b64encode
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from agent_process import FREE, Agent
from latprof_agent.live.sample_recording import KIND
from latprof_agent.monitor.sample_rate import FIRST_HALVINGS, SMALLEST_PERIOD_BITS
from latprof_agent.rebuild.rebuilt import check_fields
from latprof_agent.service.web.passwords import PasswordHash
from latprof_analysis.records.flows import SIDE_RECEIVER, SIDE_SENDER
from latprof_analysis.records.recording import Recording, Step
from recording import wait_until

PERIODS, SIZE = 12, 64
# Of each period one block is chosen, and of it all messages.
CHOSEN = PERIODS * (1 << SMALLEST_PERIOD_BITS - FIRST_HALVINGS) // SIZE
MESSAGES = PERIODS * (1 << SMALLEST_PERIOD_BITS) // SIZE


@contextmanager
def agent(*words):
    made = Agent(*FREE, "--max-overhead", "none", *words)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            assert made.end() == 0


@contextmanager
def connection():
    """A client and a server on loopback, and the server's port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server, _ = listener.accept()
            with server:
                yield client, server, port


def talk(client, server, times) -> None:
    for _ in range(times):
        client.sendall(bytes(SIZE))
        assert len(server.recv(SIZE, socket.MSG_WAITALL)) == SIZE
        server.sendall(bytes(SIZE))
        assert len(client.recv(SIZE, socket.MSG_WAITALL)) == SIZE


class Asker:
    """Asks an agent, and reads what it gives as a recording."""

    def __init__(self, url: str, folder: Path, **headers: str) -> None:
        self._url, self._folder, self._headers = f"{url}/samples", folder, headers
        self._next = ""
        self.lost = 0
        self.recording: Recording
        self.steps: list[Step] = []

    def ask(self) -> None:
        since = f"?since={self._next}" if self._next else ""
        asked = urllib.request.Request(self._url + since, headers=self._headers)
        path = self._folder / "given.arrows.zst"
        with urllib.request.urlopen(asked, timeout=60) as answer:
            path.write_bytes(answer.read())
            self._next = answer.headers["Latprof-Next"]
            self.lost += int(answer.headers["Latprof-Lost-Records"])
        self.recording = Recording(path)
        check_fields(self.recording)
        self.steps += self.recording.steps()

    def sampled(self, ring: str) -> np.ndarray:
        records = np.concatenate([step.rings[ring] for step in self.steps])
        flag = self.recording.layout.flags["RECORD_SAMPLED"]
        return records[(records["flags"] & flag) != 0]

    def keys(self, ring: str) -> list[tuple[int, int]]:
        found = self.sampled(ring)
        return sorted(zip(found["flow"].tolist(), found["end"].tolist(), strict=True))


def test_both_ends_have_the_same_messages_and_as_many_as_were_chosen(tmp_path):
    with connection() as (client, server, port), agent("--port", str(port)) as made:
        talk(client, server, 1)  # the flows are known before anybody asks
        asker = Asker(made.url, tmp_path)
        asker.ask()
        talk(client, server, MESSAGES - 1)

        def all_are_there() -> bool:
            asker.ask()
            return all(
                len(asker.sampled(ring)) >= 2 * CHOSEN
                for ring in ("sent_messages", "received_ranges")
            )

        wait_until(all_are_there, "the sample", pause_seconds=0.5)
        asker.ask()
        handed = made.metric('latprof_sample_records_total{outcome="handed_out"}')

    assert asker.recording.header["kind"] == KIND
    assert {"name", "machine", "boot"} <= asker.recording.header["host"].keys()
    sent = asker.keys("sent_messages")
    assert sent == asker.keys("received_ranges")
    assert len(sent) == len(set(sent)) == 2 * CHOSEN
    assert asker.lost == 0
    assert handed >= len(sent)
    flows = np.concatenate([step.rings["flows"] for step in asker.steps])
    for side in (SIDE_SENDER, SIDE_RECEIVER):
        assert {flow for flow, _ in sent} <= set(
            flows["flow"][flows["side"] == side].tolist()
        )


def test_samples_are_behind_the_agents_password(tmp_path):
    config = tmp_path / "agent.toml"
    config.write_text(f'[users]\nfleet = "{PasswordHash.of("secret")}"\n')
    with agent("--config", str(config)) as made:
        for path in ("/samples", "/metrics"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                made.get(path)
            assert refused.value.code == 401
        known = "Basic " + b64encode(b"fleet:secret").decode()
        Asker(made.url, tmp_path, Authorization=known).ask()


def test_samples_can_be_switched_off(tmp_path):
    config = tmp_path / "agent.toml"
    config.write_text("samples = false\n")
    with agent("--config", str(config)) as made:
        with pytest.raises(urllib.error.HTTPError) as refused:
            made.get("/samples")
        assert refused.value.code == 404
        assert "latprof_sample_records" not in made.get()
