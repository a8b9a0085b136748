"""Stories of messages whose connection nobody had accepted when they came."""

from __future__ import annotations

import selectors
import shutil
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from free_ports import free_port
from latprof_agent import netns
from latprof_analysis.story.sockets import LOST
from latprof_process import run
from network_counters import kernel_counter
from recording import DEADLINE_SECONDS, recording, socket_in
from told_stories import check_parts, told_of

pytestmark = pytest.mark.timed

MS = 1_000_000
CLIENTS, STOPPED_MS, EACH_MS = 20, 100, 5

NGINX = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid;
error_log /dev/null; events {{}}
http {{
  access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;
  fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{port} backlog={backlog}; return 200 "yes"; }}
}}
"""

# Sends requests on connections that are all there before; first to a server that is
# stopped meanwhile, if it is to be, and says how many ss sees in its listen queue.
CLIENT = """
import os, signal, socket, subprocess, sys, time
seen = sys.argv[1]
port, clients, stopped_ms, request = *map(int, sys.argv[2:5]), sys.argv[5].encode()
server = subprocess.Popen(sys.argv[6:], stdout=subprocess.DEVNULL)

def connected():
    return socket.create_connection(("127.0.0.1", port))

def begin():
    found = [connected() for _ in range(clients)]
    for one in found:
        one.sendall(request)
    return found

def end(found):
    for one in found:
        assert one.recv(1000)
        one.close()

while True:
    try:
        one = connected()
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
one.sendall(request)
end([one])
if stopped_ms:
    os.kill(server.pid, signal.SIGSTOP)
    os.waitpid(server.pid, os.WUNTRACED)
    found = begin()
    until = time.monotonic() + stopped_ms / 1000
    listeners = ["ss", "-Hlnt", "sport", "=", str(port)]
    said = subprocess.run(listeners, capture_output=True, text=True).stdout.split()
    with open(seen, "w") as file:
        print(*said[1:3], file=file)
    time.sleep(max(until - time.monotonic(), 0))
    os.kill(server.pid, signal.SIGCONT)
    end(found)
end(begin())
server.terminate()
server.wait()
"""

# Takes one connection after the other, and computes for each before the next one; asks
# accept() for its peer's address or not.
SERVER = """
import ctypes, socket, sys, time
accept = ctypes.CDLL(None).accept
with socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64) as s:
    while True:
        if sys.argv[2] == "address":
            one, _ = s.accept()
        else:
            one = socket.socket(fileno=accept(s.fileno(), None, None))
        one.recv(100)
        until = time.thread_time() + 0.005
        while time.thread_time() < until:
            pass
        one.sendall(b"yes")
        one.close()
"""


def stories_at(port, document):
    """Of what was sent to a server's port."""
    return [
        story
        for story in document["stories"]
        if story["message"]["destination_port"] == port
    ]


def test_a_server_that_is_stopped_has_not_accepted_what_fills_its_listen_queue(
    tmp_path,
):
    if not shutil.which("nginx"):
        pytest.skip("needs nginx")
    port = free_port()
    settings = tmp_path / "nginx.conf"
    settings.write_text(NGINX.format(folder=tmp_path, port=port, backlog=CLIENTS - 1))
    request = "GET / HTTP/1.0\r\n\r\n"
    document, _ = told_of(
        tmp_path / "run",
        *(
            sys.executable,
            "-c",
            CLIENT,
            tmp_path / "seen",
            port,
            CLIENTS,
            STOPPED_MS,
            request,
        ),
        *("nginx", "-e", "/dev/null", "-c", settings),
        limit="50ms",
    )
    # as ss has it: all of them waited to be accepted, and one more would not have room
    seen = (tmp_path / "seen").read_text().split()
    assert [*map(int, seen)] == [CLIENTS, CLIENTS - 1]
    stories = stories_at(port, document)
    # and none of those that came when it was not stopped
    assert len(stories) == CLIENTS
    stages = [story["stages"]["receive_queue"] for story in stories]
    told = [of["accept"]["waited_ns"] for of in stages]
    assert len([ns for ns in told if ns]) >= CLIENTS - 1
    waited_ns = np.array([ns for ns in told if ns])
    whole_ns = np.array([of["time_ns"] for of in stages if of["accept"]["waited_ns"]])
    assert (waited_ns <= whole_ns).all()
    # it was stopped until then
    assert (waited_ns >= 0.9 * STOPPED_MS * MS).all()
    assert np.median(waited_ns / whole_ns) > 0.9
    assert {of["parts"][0]["kind"] for of in stages} == {"asleep"}
    text = run("story", str(tmp_path / "run"), "--slowest=1").out.splitlines()[0]
    assert "in the receive queue of nginx (pid " in text
    assert ", whose connection was not accepted for " in text
    assert ": it slept stopped" in text


@pytest.mark.parametrize("how", ["address", "none"])
def test_a_server_that_takes_one_after_the_other_is_told_so(tmp_path, how):
    """The time is known where accept() asks for an address, else only that it was."""
    port = free_port()
    document, _ = told_of(
        tmp_path / "run",
        *(sys.executable, "-c", CLIENT, tmp_path / "seen", port, CLIENTS, 0, "request"),
        *(sys.executable, "-c", SERVER, port, how),
        limit="20ms",
    )
    stories = stories_at(port, document)
    assert len(stories) >= CLIENTS - 20 // EACH_MS - 1
    stages = [story["stages"]["receive_queue"] for story in stories]
    assert all("accept" in of for of in stages)
    waited = [of["accept"]["waited_ns"] for of in stages]
    if how == "none":
        assert set(waited) == {None}
    else:
        # it reads at once what it has accepted
        shares = [
            (ns or 0) / of["time_ns"] for ns, of in zip(waited, stages, strict=True)
        ]
        assert np.median(shares) > 0.98


# A connection that stands, and a reader that does something else for 50 ms.
ACCEPTED = """
import socket, sys, time
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
mine = socket.create_connection(s.getsockname())
one, _ = s.accept()
mine.sendall(b"request")
time.sleep(0.05)
one.recv(100)
"""


def test_what_comes_to_an_accepted_connection_is_not_told_so(tmp_path):
    port = free_port()
    command = (sys.executable, "-c", ACCEPTED, port)
    document, _ = told_of(tmp_path / "run", *command, limit="20ms")
    (story,) = stories_at(port, document)
    assert "accept" not in story["stages"]["receive_queue"]
    assert "accepted" not in run("story", str(tmp_path / "run")).out


BACKLOG, ONE_WAY_MS, DEAF_MS = 3, 10, 300


@dataclass(frozen=True)
class Overflow:
    """How connections come to listeners that have room for one more than BACKLOG."""

    listeners: int
    at_once: tuple[int, ...]  # those of each, one group after the other
    cookies: bool  # without, SYNs that find a full queue are refused, too
    where: str

    @property
    def refused(self) -> int:
        return self.listeners * (sum(self.at_once) - BACKLOG - 1)


OVERFLOWS = {
    "queue": Overflow(
        *(5, (BACKLOG, 4), False),
        "at a full listen queue (TCP_LISTEN_OVERFLOW in tcp_v4_rcv)",
    ),
    "cookies": Overflow(
        *(1, (BACKLOG + 21,), True),
        "at a listener that takes no more connections (NO_SOCKET in cookie_v4_check)",
    ),
}


def connect_at_once(lab, listener, count, writable):
    """Begin so many connections, which send as soon as they can."""
    found = []
    for _ in range(count):
        client = socket_in(lab.a_netns, socket.AF_INET, socket.SOCK_STREAM)
        client.setblocking(False)
        client.connect_ex(listener.getsockname())
        writable.register(client, selectors.EVENT_WRITE)
        found.append(client)
    return found


def send_for(seconds, writable):
    """Send a request on each connection that stands by then."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and writable.get_map():
        for key, _ in writable.select(left):
            key.fileobj.send(b"request")
            writable.unregister(key.fileobj)
    assert not writable.get_map()
    time.sleep(max(until - time.monotonic(), 0))


@pytest.mark.parametrize("how", OVERFLOWS)
def test_what_a_full_listen_queue_refuses_is_told_as_lost_there(
    make_lab, tmp_path, how
):
    """The last ACK of a handshake finds no room, and the bytes after it no socket."""
    overflow = OVERFLOWS[how]
    lab = make_lab(delay_ns=ONE_WAY_MS * MS, congestion="reno")
    setting = Path("/proc/sys/net/ipv4/tcp_syncookies")
    netns.run_in(lab.b_netns, lambda: setting.write_text(str(int(overflow.cookies))))
    clients = {}
    with (
        recording(lab, tmp_path, ("tcp",), story_ns=5 * ONE_WAY_MS * MS) as recorded,
        selectors.DefaultSelector() as writable,
    ):
        for _ in range(overflow.listeners):
            listener = socket_in(lab.b_netns, socket.AF_INET, socket.SOCK_STREAM)
            listener.bind((lab.b_address, 0))
            listener.listen(BACKLOG)
            clients[listener] = []
        for count in overflow.at_once:
            for listener, mine in clients.items():
                mine.extend(connect_at_once(lab, listener, count, writable))
            send_for(DEAF_MS / 1000, writable)
        refused = netns.run_in(
            lab.b_netns, lambda: kernel_counter("netstat", "TcpExt", "ListenOverflows")
        )
        # else all come again at once, and most find no room again, for seconds
        for listener, mine in clients.items():
            listener.listen(len(mine))
            listener.settimeout(DEADLINE_SECONDS)
        for listener, mine in clients.items():
            for client in mine:
                server, _ = listener.accept()
                with server:
                    assert server.recv(100)
                client.close()
            listener.close()
    # an ACK of each, its bytes, and these once more
    assert refused >= 3 * overflow.refused
    check_parts(recorded.stories)
    assert len(recorded.stories) == overflow.listeners * sum(overflow.at_once)
    lost = {
        story["message"]["source_port"]: of["parts"]
        for story in recorded.stories
        for of in story["stages"].values()
        if LOST in {part["kind"] for part in of["parts"] or ()}
    }
    assert len(lost) == overflow.refused
    for parts in lost.values():
        assert {part["what"] for part in parts if part["kind"] == LOST} <= {
            f"{overflow.where}, sent again by a tail loss probe",
            f"{overflow.where}, sent again by a retransmission timeout",
        }
        (way,) = (part for part in parts if part["kind"] != LOST)
        assert ONE_WAY_MS * MS <= way["time_ns"] < 2 * ONE_WAY_MS * MS
    # and those that had room, of what is not lost
    waited_ns = [
        story["stages"]["receive_queue"]["accept"]["waited_ns"]
        for story in recorded.stories
        if story["message"]["source_port"] not in lost
    ]
    assert min(waited_ns) > (DEAF_MS - 3 * ONE_WAY_MS) * MS
