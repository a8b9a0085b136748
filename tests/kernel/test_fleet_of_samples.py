"""A real agent's sample of one-sided TCP, split by host, as a fleet joins it."""

from __future__ import annotations

import threading
from pathlib import Path

from agent_process import FREE, Agent
from fleet_process import running_fast
from latprof_agent.fleet.fleet import Fleet
from latprof_agent.fleet.fleet_document import document
from recording import tcp_pair, wait_until
from served_samples import Asked, packed, serving
from split_recording import own_time, split
from test_agent_samples import Asker

MESSAGE_BYTES = 1000
ENOUGH = 50  # ACKs of what is sampled


def sample_of_one_way(lab, folder: Path) -> Path:
    """What an agent gives of a stream whose receiver says nothing but ACKs."""
    client, server = tcp_pair(lab)
    client.setblocking(True)
    ended = threading.Event()

    def read() -> None:
        while server.recv(1 << 16):
            pass

    def send() -> None:
        while not ended.wait(0.001):
            client.sendall(bytes(MESSAGE_BYTES))
        client.close()

    words = ("--netns", f"{lab.a_netns},{lab.b_netns}", "--max-overhead", "none")
    made = Agent(*FREE, *words)
    threads = [threading.Thread(target=work) for work in (read, send)]
    try:
        for thread in threads:
            thread.start()
        asker = Asker(made.url, folder)

        def are_there() -> bool:
            asker.ask()
            return sum(len(s.rings["acknowledgements"]) for s in asker.steps) > ENOUGH

        wait_until(are_there, "ACKs of what is sampled", pause_seconds=0.5)
        Asker(made.url, folder).ask()  # all of it
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        server.close()
        assert made.end() == 0
    return folder / "given.arrows.zst"


def test_clocks_are_known_where_nothing_but_acks_comes_back(make_lab, tmp_path):
    given = sample_of_one_way(make_lab(delay_ns=200_000), tmp_path)
    halves = split(given, tmp_path, own_time, running_fast)
    said: list[str] = []
    fleet = Fleet(said.append)
    with serving(*map(packed, halves)) as servers:
        asked = Asked(fleet, *(server.address for server in servers))
        asked.ask()
        fleet.join()
    found = document(fleet, fleet.end_interval(), 1.0)
    assert said == []
    (pair,) = found["pairs"]
    assert min(pair["packets"]) > ENOUGH / 2
    assert pair["state"] in ("good", "approximate")
    # 200 us each way, and what an ACK is delayed by
    assert pair["base_round_trip_ns"] >= 400_000
    (way,) = found["messages"]
    assert way["transit"]["n"] > 0
