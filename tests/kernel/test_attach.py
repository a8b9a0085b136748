"""`latprof run attach`: what runs, and only that."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from free_ports import free_port
from latprof_agent.filters.words import filter_of_words, read_words
from latprof_agent.lab.control_group import ControlGroup
from latprof_agent.probes.catalogue import BOTH
from latprof_agent.workload.attached import Attached, Target
from latprof_process import Latprof, run
from logged import Calls, assert_inside, assert_stamps_in_order, rows_between
from recording import DEADLINE_SECONDS, recording, wait_until

ROUNDS, ASK, REPLY = 20, 100, 50
AT_LEAST = 2000  # commands while attached

TALK = f"""
import os, socket, sys, threading
def serve(s):
    for _ in range({ROUNDS}):
        assert len(s.recv({ASK}, socket.MSG_WAITALL)) == {ASK}
        s.send(bytes({REPLY}))
def ask(s):
    for _ in range({ROUNDS}):
        s.send(bytes({ASK}))
        assert len(s.recv({REPLY}, socket.MSG_WAITALL)) == {REPLY}
"""
# Executes each line of its input, and answers it with a line.
PEER = f"""
{TALK}
LOCAL = "127.0.0.1", 0
def fork(act, *arguments):
    if not os.fork():
        act(*arguments)
        os._exit(0)
def port(s):
    return s.getsockname()[1]
for line in sys.stdin:
    answer = os.getpid()
    exec(line, globals())
    print(answer, flush=True)
"""


class Peer:
    """A process that does what it is told."""

    def __init__(self, *before):
        self.process = subprocess.Popen(
            [*before, sys.executable, "-c", PEER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.pid = self.do("pass")
        self.name = Path(f"/proc/{self.pid}/comm").read_text().strip()

    def tell(self, line):
        self.process.stdin.write(f"{line}\n")

    def answer(self):
        return int(self.process.stdout.readline())

    def do(self, line):
        self.tell(line)
        return self.answer()

    def end(self):
        """Its children have ended before it."""
        self.process.communicate()
        assert self.process.returncode == 0


@pytest.fixture
def make_peer():
    peers = []

    def make(*before):
        peers.append(Peer(*before))
        return peers[-1]

    yield make
    for peer in peers:
        peer.end()


def _connect(client, server):
    """Connect two processes; the ports of both ends."""
    to = server.do("l = socket.create_server(LOCAL); answer = port(l)")
    return _accept(client, server, to), to


def _accept(client, server, to):
    at = client.do(
        f"s = socket.create_connection(('127.0.0.1', {to})); answer = port(s)"
    )
    server.do("s, _ = l.accept()")
    return at


def _talk(client, server):
    server.tell("serve(s)")
    client.do("ask(s)")
    server.answer()


@contextmanager
def _attached(folder, words):
    attached = Attached(Target(filter_of_words(read_words(words))))
    with recording(attached.watched(BOTH), folder) as recorded:
        yield recorded
    attached.close()
    assert recorded.lost() == {}


def _conversations(rows):
    """Rows by port of the client, of the server and size; all of them whole."""
    assert rows["end_to_end_ns"].notna().all(), rows[rows["end_to_end_ns"].isna()]
    assert_stamps_in_order(rows)
    ends = rows[["source_port", "destination_port", "size_bytes"]]
    return ends.value_counts().to_dict()


def _conversation(client_port, server_port):
    return {
        (client_port, server_port, ASK): ROUNDS,
        (server_port, client_port, REPLY): ROUNDS,
    }


@pytest.mark.parametrize("end", ["client", "server"])
def test_of_a_process_each_connection_is_seen_at_both_ends(make_peer, tmp_path, end):
    client, server, stranger = make_peer(), make_peer(), make_peer()
    old = _connect(client, server)
    _talk(client, server)
    _connect(stranger, stranger_server := make_peer())
    asked = {"client": client, "server": server}[end]
    with _attached(tmp_path, f"pid={asked.pid}") as recorded:
        _talk(client, server)
        _talk(stranger, stranger_server)
        new = _accept(client, server, old[1]), old[1]
        _talk(client, server)
        _connect(stranger, stranger_server)
        _talk(stranger, stranger_server)

    rows = recorded.messages()
    assert _conversations(rows) == _conversation(*old) | _conversation(*new)
    requests = rows[rows["size_bytes"] == ASK]
    assert set(requests["sender_pid"]) == {client.pid}
    assert set(requests["reader_pid"]) == {server.pid}


def test_connections_that_nobody_had_accepted_are_their_listeners(make_peer, tmp_path):
    client, server = make_peer(), make_peer()
    to = server.do("l = socket.create_server(LOCAL); answer = port(l)")
    ports = []
    for number in range(3):
        ports.append(
            client.do(
                f"s{number} = socket.create_connection(('127.0.0.1', {to}));"
                f"answer = port(s{number})"
            )
        )
    with _attached(tmp_path, f"pid={server.pid}") as recorded:
        for number in range(3):
            server.do("s, _ = l.accept()")
            client.do(f"s = s{number}")
            _talk(client, server)

    expected = {}
    for port in ports:
        expected |= _conversation(port, to)
    assert _conversations(recorded.messages()) == expected


def test_the_children_of_a_process_are_followed_those_of_others_are_not(
    make_peer, tmp_path
):
    """A child from before with a socket of its own, one forked later, its child."""
    server, other, client = make_peer(), make_peer(), make_peer()
    to = client.do("l = socket.create_server(LOCAL); answer = port(l)")
    connect = f"socket.create_connection(('127.0.0.1', {to}))"
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    server.do(f"fork(lambda: (open({str(fifo)!r}).read(), ask({connect})))")
    with _attached(tmp_path, f"pid={server.pid}") as recorded:
        fifo.write_text("on")
        client.do("s, _ = l.accept(); serve(s)")
        server.do(f"fork(lambda: ask({connect}))")
        client.do("s, _ = l.accept(); serve(s)")
        server.do(f"fork(lambda: (fork(lambda: ask({connect})), os.wait()))")
        client.do("s, _ = l.accept(); serve(s)")
        other.do(f"fork(lambda: ask({connect}))")
        client.do("s, _ = l.accept(); serve(s)")

    rows = recorded.messages()
    assert sum(_conversations(rows).values()) == 3 * 2 * ROUNDS
    senders = set(rows[rows["size_bytes"] == ASK]["sender_pid"])
    assert len(senders) == 3
    assert not senders & {server.pid, other.pid, client.pid}


def test_a_forking_server_is_seen_in_each_child(make_peer, tmp_path):
    client, server = make_peer(), make_peer()
    to = server.do("l = socket.create_server(LOCAL); answer = port(l)")
    ports = []
    with _attached(tmp_path, f"pid={server.pid}") as recorded:
        for _ in range(5):
            ports.append(_accept(client, server, to))
            server.do("fork(serve, s); s.close()")
            client.do("ask(s)")

    rows = recorded.messages()
    expected = {}
    for port in ports:
        expected |= _conversation(port, to)
    assert _conversations(rows) == expected
    assert rows[rows["size_bytes"] == ASK]["reader_pid"].nunique() == 5


def test_processes_of_a_name_are_seen_also_those_that_come_later(make_peer, tmp_path):
    name = f"peer-{secrets.token_hex(4)}"
    rename = f"open('/proc/self/comm', 'w').write({name!r})"
    client, server, other = make_peer(), make_peer(), make_peer()
    client.do(rename)
    old = _connect(client, server)
    _connect(other, other_server := make_peer())
    with _attached(tmp_path, f"comm=nobody,{name}") as recorded:
        _talk(client, server)
        _talk(other, other_server)
        later, its_server = make_peer(), make_peer()
        later.do(rename)
        new = _connect(later, its_server)
        _talk(later, its_server)

    assert _conversations(recorded.messages()) == (
        _conversation(*old) | _conversation(*new)
    )


def test_processes_are_found_by_the_name_of_a_thread(make_peer, tmp_path):
    """Its sockets are those of all its threads: they have them together."""
    name = f"pool-{secrets.token_hex(4)}"
    client, server, other = make_peer(), make_peer(), make_peer()
    server.do(
        "b = threading.Barrier(2); done = threading.Event()\n".replace("\n", "; ")
        + "w = lambda: (open(f'/proc/thread-self/comm', 'w').write("
        + f"{name!r}), b.wait(), done.wait()); "
        + "threading.Thread(target=w).start(); b.wait()"
    )
    old = _connect(client, server)
    _connect(other, its_server := make_peer())
    with _attached(tmp_path, f"comm={name}") as recorded:
        _talk(client, server)
        _talk(other, its_server)
        later = _accept(client, server, old[1])
        _talk(client, server)
    server.do("done.set()")

    rows = recorded.messages()
    assert _conversations(rows) == (_conversation(*old) | _conversation(later, old[1]))
    assert set(rows["sender_comm"]) == {client.name, server.name}


def test_a_control_group_is_seen_and_what_is_below_it(make_peer, tmp_path):
    group = ControlGroup(f"latprof-{secrets.token_hex(4)}")
    below = group.path / "below"
    below.mkdir()
    try:
        enter = ("sh", "-c", f'echo 0 > {below}/cgroup.procs; exec "$@"', "sh")
        server, client = make_peer(*enter), make_peer()
        old = _connect(client, server)
        _connect(stranger := make_peer(), stranger_server := make_peer())
        with _attached(tmp_path, f"cgroup={group.path.name}") as recorded:
            _talk(client, server)
            _talk(stranger, stranger_server)
            new = _connect(client, server)
            _talk(client, server)
        server.end()
    finally:
        group.close()

    assert _conversations(recorded.messages()) == (
        _conversation(*old) | _conversation(*new)
    )


def test_what_is_asked_for_must_all_hold(make_peer, tmp_path):
    client, server = make_peer(), make_peer()
    _connect(client, server)
    old = client.do("s1 = s; answer = 0"), server.do("s1 = s; answer = 0")
    assert old == (0, 0)
    wanted = _connect(client, server)
    with _attached(tmp_path, f"pid={server.pid} port={wanted[1]}") as recorded:
        _talk(client, server)
        for end in (client, server):
            end.do("s = s1")
        _talk(client, server)

    assert _conversations(recorded.messages()) == _conversation(*wanted)


def test_what_is_not_asked_for_is_left_out_at_both_ends(make_peer, tmp_path):
    client, server = make_peer(), make_peer()
    left_out = _connect(client, server)
    for end in (client, server):
        end.do("s1 = s")
    wanted = _connect(client, server)
    words = f"pid={server.pid} remote=127.0.0.0/8 protocol=tcp not port={left_out[1]}"
    with _attached(tmp_path, words) as recorded:
        _talk(client, server)
        for end in (client, server):
            end.do("s = s1")
        _talk(client, server)

    assert _conversations(recorded.messages()) == _conversation(*wanted)


def test_datagrams_of_a_process_are_seen_at_its_end(make_peer, tmp_path):
    client, server = make_peer(), make_peer()
    make = "s = socket.socket(type=socket.SOCK_DGRAM); s.bind(LOCAL); answer = port(s)"
    to, at = server.do(make), client.do(make)
    client.do(f"s.connect(('127.0.0.1', {to}))")
    server.do(f"s.connect(('127.0.0.1', {at}))")
    with _attached(tmp_path, f"pid={server.pid}") as recorded:
        _talk(client, server)

    rows = recorded.messages()
    requests, replies = rows_between(rows, at, to), rows_between(rows, to, at)
    assert (len(rows), len(requests), len(replies)) == (2 * ROUNDS, ROUNDS, ROUNDS)
    assert set(requests["reader_pid"]) == set(replies["sender_pid"]) == {server.pid}
    assert requests["send_ns"].isna().all()
    assert replies["read_ns"].isna().all()


def test_of_a_message_that_was_half_sent_nothing_is_guessed(tmp_path):
    """A send call that waits for room, and unread bytes, when the probes come."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, to = listener.accept()[0], listener.getsockname()[1]
    with client, server:
        port, large, pid = client.getsockname()[1], 20_000_000, os.fork()
        if not pid:
            client.sendall(bytes(large))
            os._exit(0)
        wait_until(lambda: _waits_to_send(pid), "a send call that waits")
        sends, reads = Calls(), Calls()
        with _attached(tmp_path, f"port={port}") as recorded:
            left = large
            while left:
                left -= len(server.recv(min(left, 1 << 20)))
            os.waitpid(pid, 0)
            for _ in range(ROUNDS):
                sends.do(client.send, bytes(ASK))
                reads.do(server.recv, ASK, socket.MSG_WAITALL)

    rows = rows_between(recorded.messages(), port, to)
    assert rows["size_bytes"].tolist() == [ASK] * ROUNDS
    assert rows["sequence"].iloc[0] == large + ASK
    assert_stamps_in_order(rows)
    assert rows["end_to_end_ns"].notna().all()
    assert_inside(rows["send_ns"], sends)
    assert_inside(rows["read_ns"], reads)


def _waits_to_send(pid):
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat[stat.rindex(")") + 2] == "S"


def _resp(port, *words):
    """What a redis answers to a command."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.settimeout(DEADLINE_SECONDS)
        sock.sendall((" ".join(words) + "\r\n").encode())
        head, _, body = sock.recv(1 << 16).partition(b"\r\n")
        length = int(head[1:])
        while len(body) < length:
            body += sock.recv(1 << 16)
    return body.decode()


def _sets(port):
    """How many SET commands a redis has counted."""
    for line in _resp(port, "INFO", "commandstats").splitlines():
        if line.startswith("cmdstat_set:"):
            return int(line.split("calls=")[1].split(",")[0])
    return 0


def _settled(port):
    """The count, when it does not move any more: its clients were stopped."""
    counts = [-1]
    wait_until(
        lambda: counts.append(_sets(port)) or counts[-1] == counts[-2] > 0, "quiet"
    )
    return counts[-1]


@contextmanager
def _redis_under_load(folder):
    """A redis of an own name with clients that are stopped; both connected."""
    program, port = folder / f"rs-{secrets.token_hex(4)}", free_port()
    shutil.copy(shutil.which("redis-server"), program)
    words = [program, "--port", str(port), "--save", "", "--bind", "127.0.0.1"]
    benchmark = ["redis-benchmark", "-p", str(port), "-c", "5", "-n", "1000000000"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, cwd=folder, **quiet) as server:
        try:
            wait_until(lambda: _answers(port), "redis")
            with subprocess.Popen([*benchmark, "-t", "set"], **quiet) as clients:
                try:
                    wait_until(lambda: _sets(port) > AT_LEAST, "load")
                    clients.send_signal(signal.SIGSTOP)
                    yield program.name, port, server.pid, clients
                finally:
                    clients.kill()
        finally:
            server.kill()


def _answers(port):
    try:
        return _resp(port, "INFO")
    except OSError:
        return False


@pytest.mark.skipif(not shutil.which("redis-benchmark"), reason="needs redis-benchmark")
@pytest.mark.parametrize("by", ["pid", "comm", "port"])
def test_redis_counts_the_requests_of_connections_that_are_older(tmp_path, by):
    folder = tmp_path / "run"
    with _redis_under_load(tmp_path) as (name, port, pid, clients):
        told = {"pid": pid, "comm": name, "port": port}[by]
        # replies that nobody has read wait in the clients' sockets
        before = _settled(port)
        latprof = Latprof(
            *("run", "--quiet", "--json", "--out", str(folder), f"--{by}", str(told))
        )
        latprof.wait_for(lambda: _runs(folder), "the probes")
        clients.send_signal(signal.SIGCONT)
        wait_until(lambda: _sets(port) > before + AT_LEAST, "more load")
        clients.send_signal(signal.SIGSTOP)
        counted = _settled(port) - before
        latprof.signal(signal.SIGINT)
        assert latprof.finish() == 0, latprof.err
    assert latprof.left() == []

    summary = json.loads(latprof.out)
    assert summary["state"] == "done"
    assert not any(summary["lost_records"].values())
    rows = pd.read_csv(folder / "messages.csv", low_memory=False)
    requests = rows[rows["sender_pid"] == clients.pid]
    replies = rows[(rows["sender_pid"] == pid) & (rows["size_bytes"] == len("+OK\r\n"))]
    assert set(requests["destination_port"]) == {port}
    assert (len(requests), len(replies)) == (counted, counted)
    assert_stamps_in_order(rows)
    assert requests["end_to_end_ns"].notna().all()
    assert set(requests["reader_pid"]) == {pid}
    # the clients were stopped before they read their last replies
    unread = replies["end_to_end_ns"].isna()
    assert unread.sum() <= 5
    assert set(replies[~unread]["reader_pid"]) == {clients.pid}


def _runs(folder):
    """What is known of a run since its probes are attached."""
    try:
        return json.loads((folder / "run.json").read_text())["workload"]["runs"]
    except FileNotFoundError:
        return []


def test_a_run_ends_with_the_processes_it_is_attached_to(make_peer, tmp_path):
    client, server = make_peer(), make_peer()
    ports = _connect(client, server)
    latprof = Latprof(
        *("run", "attach", "--quiet", "--out", str(tmp_path / "run")),
        *("--pid", f"{client.pid},{server.pid}"),
    )
    latprof.wait_for(lambda: _runs(tmp_path / "run"), "the probes")
    _talk(client, server)
    client.end()
    assert latprof.process.poll() is None
    server.end()
    assert latprof.finish() == 0, latprof.err

    description = json.loads((tmp_path / "run" / "run.json").read_text())
    assert description["state"] == "done"
    attached = description["workload"]["attached"]
    assert attached["filter"] == f"pid={client.pid},{server.pid}"
    assert latprof.out.startswith(f"attached to {client.name} (pid {client.pid}), ")
    rows = pd.read_csv(tmp_path / "run" / "messages.csv")
    assert _conversations(rows) == _conversation(*ports)


def test_a_run_that_saw_nothing_says_why(make_peer, tmp_path):
    client, server = make_peer(), make_peer()
    _connect(client, server)
    words = ("--quiet", "--duration", "0.2", "--out", str(tmp_path / "run"))
    latprof = run("run", "attach", *words, "--pid", str(server.pid))

    assert latprof.process.returncode == 0, latprof.err
    (why,) = [line for line in latprof.out.splitlines() if line.startswith("warning")]
    # it listens, and has one connection
    assert why.startswith(
        f"warning: nothing was seen: {server.name} (pid {server.pid}) had 2 open "
        "sockets when the run began, and neither they nor any made since sent or "
        "received in 2"
    )
    assert why.endswith("`latprof run attach --port` with their port would show it")


def test_who_waits_for_a_process_is_told_its_nearest_name(make_peer, tmp_path):
    make_peer().do("open('/proc/self/comm', 'w').write('qxz-server')")
    words = ("--quiet", "--duration", "0.1", "--out", str(tmp_path / "run"))
    latprof = run("run", "attach", *words, "--comm", "qxz-serve")

    assert latprof.process.returncode == 0
    assert latprof.err == (
        "latprof: no process is named qxz-serve yet (there is qxz-server); "
        "waiting for one\n"
    )


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        ("--pid 4194304", 1, "--pid=4194304: there is no process with pid 4194304"),
        ("--pid 2", 1, "--pid=2: pid 2 is a thread of the kernel (kthreadd)"),
        ("--pid self", 2, "--pid must be a process's number, got 'self'"),
        ("", 2, "attach: needs which traffic, by --port, --comm, --pid or others"),
        ("--cgroup no/such", 1, "--cgroup=no/such: there is no cgroup no/such below /"),
        ("--cgroup /etc", 1, "--cgroup=/etc: there is no cgroup /etc below /"),
        ("--port 0", 2, "--port must be from 1 to 65535, got '0'"),
        ("--not port=0", 2, "--not port must be from 1 to 65535, got '0'"),
        ("--port 1 --protocol sctp", 2, "--protocol must be tcp or udp, got 'sctp'"),
        (
            "--port 1 --loss 0.5",
            2,
            "unrecognized arguments: --loss 0.5; it is of",
        ),
        (
            "--comm a --rounds 3",
            2,
            "unrecognized arguments: --rounds 3; it is of",
        ),
        (
            "--comm a --no-probes",
            2,
            "unrecognized arguments: --no-probes; it is of",
        ),
    ],
)
def test_what_cannot_be_attached_to_is_told_in_one_line(tmp_path, words, status, why):
    latprof = run("run", "attach", "--out", str(tmp_path / "run"), *words.split())

    assert latprof.process.returncode == status
    (line,) = latprof.err.splitlines()
    assert line.startswith(f"latprof: {why}")
    assert not (tmp_path / "run").exists()


def test_a_thread_of_a_process_is_told_whose_it_is(make_peer, tmp_path):
    peer = make_peer()
    thread = peer.do(
        "b = threading.Barrier(2); t = threading.Thread(target=b.wait); t.start(); "
        "answer = t.native_id"
    )
    latprof = run("run", "attach", "--out", str(tmp_path / "run"), f"--pid={thread}")
    peer.do("b.wait()")

    assert latprof.process.returncode == 1
    assert latprof.err == (
        f"latprof: --pid={thread}: {thread} is a thread of process {peer.pid}; "
        f"use --pid {peer.pid}\n"
    )


def test_the_server_of_a_command_without_a_lab_is_seen_too(make_peer, tmp_path):
    server, stranger, its_server = make_peer(), make_peer(), make_peer()
    _connect(stranger, its_server)
    to = server.do("l = socket.create_server(LOCAL); answer = port(l)")
    server.tell("s, _ = l.accept(); serve(s)")
    line = f"ask(socket.create_connection(('127.0.0.1', {to})))"
    words = ("run", "--quiet", "--no-lab", "--out", str(tmp_path / "run"), "--")
    latprof = Latprof(*words, sys.executable, "-c", f"{TALK}\n{line}")
    server.answer()
    _talk(stranger, its_server)
    assert latprof.finish() == 0, latprof.err

    rows = pd.read_csv(tmp_path / "run" / "messages.csv")
    assert set(rows["source_port"]) | set(rows["destination_port"]) > {to}
    assert len(rows) == 2 * ROUNDS
    assert rows["end_to_end_ns"].notna().all()
    assert set(rows[rows["size_bytes"] == ASK]["reader_pid"]) == {server.pid}


def test_without_processes_no_probe_more_is_attached(tmp_path):
    """Neither a run in the lab nor a command asks for what chooses processes."""
    words = ("run", "--quiet", "--json", "--protocol", "tcp", "--duration", "0.1")
    lab = run(*words, "--rate", "0", "--delay", "0", "--out", str(tmp_path / "lab"))
    command = run(
        *words[:5], "--no-lab", "--out", str(tmp_path / "command"), "--", "true"
    )
    for found in (lab, command):
        programs = {
            program
            for capability in json.loads(found.out)["capabilities"]
            for program in capability["programs"]
        }
        assert not programs & {"on_open_file", "on_create", "on_fork", "on_exit"}
