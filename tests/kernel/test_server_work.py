"""What a server's thread did for its answer, held against its own accounts.

It reads its CPU time, its run delay and its sleeps from the kernel, within the time
that the exchange shows; so each of our parts is as long as its own, and longer by no
more than what lies between its clocks and the stamps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pandas as pd
import pytest
from free_ports import free_port
from latprof_agent.monitor.totals import SERVER_TIME, Quantity
from latprof_agent.probes.filter import Filter
from monitored import monitored
from other_load import HOG
from recording import recording

pytestmark = pytest.mark.timed

EXCHANGES = 40
DEADLINE_SECONDS = 60
# Counts are of 16 ns; what interrupts took since the last tick is in no account.
COUNT_NS, TICK_NS = 64, 100_000
PARTS = ["server_cpu_ns", "server_cpu_wait_ns", "server_sleep_ns"]

SERVER = """
import json, os, resource, socket, sys, time

port, exchanges = int(sys.argv[1]), int(sys.argv[2])
delays = os.open("/proc/thread-self/schedstat", os.O_RDONLY)


def accounts():
    sleeps = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    delay = int(os.pread(delays, 100, 0).split()[1])
    return time.monotonic_ns(), time.thread_time_ns(), delay, sleeps


def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


work = [
    lambda: None,
    lambda: burn(0.005),
    lambda: time.sleep(0.007),
    lambda: (burn(0.003), time.sleep(0.004), burn(0.003)),
]
with socket.create_server(("127.0.0.1", port)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
own = []
for number in range(exchanges):
    connection.recv(64)
    before = accounts()
    work[number % len(work)]()
    after = accounts()
    connection.sendall(bytes(64))
    own.append([late - early for early, late in zip(before, after)])
print(json.dumps(own))
"""

CLIENT = """
import socket, sys

with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    for _ in range(int(sys.argv[2])):
        connection.sendall(bytes(64))
        connection.recv(64)
"""


def accounts_of_a_server(cpu, port):
    """What a server itself says of each exchange, which it has on this CPU."""
    words = str(port), str(EXCHANGES)
    command = ["taskset", "-c", str(cpu), sys.executable, "-c", SERVER, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "ready\n"
        client = [sys.executable, "-c", CLIENT, *words]
        subprocess.run(client, check=True, timeout=DEADLINE_SECONDS)
        own = json.loads(server.communicate(timeout=DEADLINE_SECONDS)[0])
    return pd.DataFrame(own, columns=["whole_ns", "cpu_ns", "wait_ns", "sleeps"])


def exchanges_and_accounts(folder, cpu):
    port = free_port()
    with recording(Filter(ports=(port,), protocols=("tcp",)), folder) as recorded:
        own = accounts_of_a_server(cpu, port)
    return pd.read_csv(recorded.folder.path / "exchanges.csv"), own


def check(rows, own):
    assert len(rows) == len(own) == EXCHANGES
    assert rows[PARTS].notna().all(axis=None)
    assert (rows[PARTS].sum(axis=1) == rows["server_work_ns"]).all()
    between_ns = rows["server_work_ns"] - own["whole_ns"]
    assert (between_ns > 0).all()
    slept = own["sleeps"] > 0
    # in none of its accounts: sleep, and interrupts
    other_ns = own["whole_ns"] - own["cpu_ns"] - own["wait_ns"]
    taken_ns = other_ns.clip(lower=0).where(~slept, TICK_NS)
    for part, name in (("server_cpu_ns", "cpu_ns"), ("server_cpu_wait_ns", "wait_ns")):
        more_ns = rows[part] - own[name]
        assert (more_ns >= -COUNT_NS).all()
        assert (more_ns <= between_ns + taken_ns + COUNT_NS).all()
    assert (rows["server_sleep_ns"] <= between_ns)[~slept].all()


def test_a_servers_run_and_sleep_are_as_it_accounts_for_them_itself(tmp_path):
    rows, own = exchanges_and_accounts(tmp_path, min(os.sched_getaffinity(0)))
    check(rows, own)
    for number in range(EXCHANGES):
        slept_ns = rows["server_sleep_ns"][number]
        assert (slept_ns > 1_000_000) == (number % 4 >= 2), number


def test_its_waits_for_a_cpu_are_apart_from_its_run(tmp_path):
    cpu = min(os.sched_getaffinity(0))
    with subprocess.Popen(
        ["taskset", "-c", str(cpu), sys.executable, "-c", HOG]
    ) as hog:
        try:
            rows, own = exchanges_and_accounts(tmp_path, cpu)
        finally:
            hog.kill()
    check(rows, own)
    # half of them compute, beside another that wants the CPU as much
    assert rows["server_cpu_wait_ns"].sum() > 1_000_000


def test_live_the_time_of_all_its_exchanges_is_split():
    port = free_port()
    with monitored(Filter(ports=(port,), protocols=("tcp",))) as counted:
        own = accounts_of_a_server(min(os.sched_getaffinity(0)), port)
    server = counted.group(role="server")
    run_ns, wait_ns, rest_ns = (server.counted[state] for state in SERVER_TIME)
    whole_ns = server.histograms[Quantity.SERVER].sum_ns
    known_ns = run_ns + wait_ns + rest_ns
    # a histogram has units of 64 ns
    assert known_ns == pytest.approx(whole_ns, abs=64 * EXCHANGES)
    between_ns = whole_ns - own["whole_ns"].sum()
    least_ns, taken_ns = COUNT_NS * EXCHANGES, TICK_NS * EXCHANGES
    for part_ns, name in ((run_ns, "cpu_ns"), (wait_ns, "wait_ns")):
        assert -least_ns <= part_ns - own[name].sum() <= between_ns + taken_ns
    # half of them sleep for 4 ms or longer
    assert rest_ns > EXCHANGES / 2 * 3_000_000
