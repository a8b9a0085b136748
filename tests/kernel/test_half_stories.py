"""Of what has its other end elsewhere a recording keeps what CPUs did meanwhile."""

import json
import signal
import socket
import subprocess
import sys
import time

from elsewhere import DEADLINE_SECONDS, LATPROF, PORT, at, turned
from latprof_analysis.records.recording import NAME, Recording
from recording import socket_in, wait_until

BUSY_SECONDS = 0.1
# Answers at once, but where it is asked for much; then it says by its own clock when.
SERVER = f"""
import socket, time
listener = socket.create_server(("", {PORT + 1}))
print(flush=True)
s, _ = listener.accept()
while asked := s.recv(100):
    begin = time.monotonic_ns()
    if asked == b"much":
        until = time.process_time() + {BUSY_SECONDS}
        while time.process_time() < until:
            pass
        print(begin, time.monotonic_ns(), flush=True)
    s.send(asked)
"""


def test_what_a_server_did_for_a_client_elsewhere_is_kept(make_lab, tmp_path):
    """Also where it was long ago: of the rows of one end none is slow."""
    lab = make_lab()
    # by the address that is translated the client's end is not found
    with turned(lab), socket_in(lab.a_netns) as client:
        server = subprocess.Popen(
            [*at(lab, "b"), sys.executable, "-c", SERVER],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            server.stdout.readline()
            words = ["--port", str(PORT + 1), "--story", "20ms", "--out", "run"]
            run = subprocess.Popen(
                [*LATPROF, "run", "attach", *words, "--quiet"],
                cwd=tmp_path,
                stdout=subprocess.DEVNULL,
            )
            wait_until(lambda: is_attached(tmp_path / "run"), "attached")
            client.settimeout(DEADLINE_SECONDS)
            client.connect((lab.address_of("b"), PORT))
            begin_ns, end_ns = talk(client, server)
            run.send_signal(signal.SIGINT)
            assert run.wait(DEADLINE_SECONDS) == 0
        finally:
            server.kill()
            server.communicate()
    stories = json.loads((tmp_path / "run" / "stories.json").read_text())
    assert stories["stories"] == []
    found, names = samples_between(tmp_path / "run" / NAME, begin_ns, end_ns)
    assert server.pid in found
    assert names


def is_attached(folder):
    try:
        return bool(json.loads((folder / "run.json").read_text())["workload"]["runs"])
    except FileNotFoundError:
        return False


def talk(client, server):
    """Ask once for much, and for little for longer than a copy stays by itself."""
    ask(client, b"little")
    ask(client, b"much")
    times = map(int, server.stdout.readline().split())
    until = time.monotonic() + 13
    while time.monotonic() < until:
        ask(client, b"little")
        time.sleep(0.05)
    return times


def ask(client: socket.socket, what: bytes):
    client.send(what)
    assert client.recv(100) == what


def samples_between(path, begin_ns, end_ns):
    """Processes of which stacks were taken then, and the names that were kept."""
    pids, names = set(), []
    for step in Recording(path).steps():
        for note in step.notes:
            names += note.get("names", {}).get("stacks", [])
        if "samples" in step.rings:
            t_ns = step.rings["samples"]["t_ns"].astype("i8")
            then = (t_ns > begin_ns) & (t_ns < end_ns)
            pids |= set(step.rings["samples"]["pid"][then].tolist())
    return pids, [t_ns for t_ns, *_ in names if begin_ns < t_ns < end_ns]
