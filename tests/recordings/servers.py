"""Servers in C, Go, JavaScript and Java, as of causes.py: their answers wait.

`python servers.py NAME`, as `c-mutex`. They are compiled where they are recorded.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from causes import HELD_SECONDS, ROUNDS
from talk import Truth, exactly

SOURCES = Path(__file__).parent / "servers"
COMPILE = {
    "c": "gcc -O1 -g -fno-omit-frame-pointer -pthread -o {into}/c-causes {of}/causes.c",
    "go": "go build -o {into}/go-causes {of}/causes.go",
    "js": "cp {of}/causes.js {into}",
    "java": "javac -d {into} {of}/Causes.java",
}
RUN = {
    "c": "{into}/c-causes",
    "go": "{into}/go-causes",
    "js": "node {into}/causes.js",
    "java": "java -cp {into} Causes",
}
OTHER_THREAD = "for another thread (condition variable or the like, futex)"
# Of each: kind of part, what it says (of busy in which function), who ended a sleep.
CAUSES = {
    "c-rest": ("asleep", "on a timer (clock_nanosleep)"),
    "c-work": ("busy", "crunch_numbers"),
    "c-mutex": ("asleep", "for a lock (mutex)", "holder"),
    "c-busy-mutex": ("asleep", "for a lock (mutex)", "holder"),
    "c-lock": ("asleep", OTHER_THREAD, "holder"),
    "c-condition": ("asleep", OTHER_THREAD, "holder"),
    "c-semaphore": ("asleep", OTHER_THREAD, "holder"),
    "c-pipe": ("asleep", "in read (anon_pipe_read)", "holder"),
    "c-counter": ("asleep", "in read (eventfd_read)", "holder"),
    "c-event": ("asleep", "in epoll_wait", "holder"),
    "c-timer": ("asleep", "in read (timerfd_read_iter)"),
    "c-child": ("asleep", "in wait4 (kernel_wait4)", "c-causes"),
    "c-busy-child": ("asleep", "in wait4 (kernel_wait4)", "c-causes"),
    "c-program": ("asleep", "in wait4 (kernel_wait4)", "sleep"),
    "c-file-lock": ("asleep", "in flock", "c-causes"),
    "c-calls": ("busy", ""),
    "go-rest": ("asleep", "in epoll_pwait"),
    "go-work": ("busy", "main.crunchNumbers"),
    "go-mutex": ("asleep", "in epoll_pwait"),
    "go-goroutine": ("busy", "main.crunchNumbers"),
    "go-program": ("asleep", "in waitid (kernel_waitid)", "sleep"),
    "js-rest": ("asleep", "in epoll_pwait"),
    "js-work": ("busy", ""),
    "js-pool": ("asleep", "in epoll_pwait", "node"),
    "js-hash": ("busy", ""),
    "js-atomic": ("asleep", "on a timer (futex with a timeout)"),
    "js-program": ("asleep", "in epoll_pwait", "sleep"),
    "js-program-at-once": ("asleep", "in epoll_pwait", "sleep"),
    "java-rest": ("asleep", "on a timer (futex with a timeout)"),
    "java-work": ("busy", ""),
    "java-monitor": ("asleep", OTHER_THREAD, "holder"),
    "java-pool": ("asleep", OTHER_THREAD, "pool-"),
    "java-program": ("asleep", OTHER_THREAD, "process reaper"),
}


def slow_server(name: str) -> Truth:
    """Each request is read at once, and answered after a wait."""
    language, _, cause = name.partition("-")
    with tempfile.TemporaryDirectory() as into:
        places = {"into": into, "of": SOURCES}
        subprocess.run(COMPILE[language].format(**places).split(), check=True)
        command = [*RUN[language].format(**places).split(), cause, str(ROUNDS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout
            port = int(server.stdout.readline())
            with socket.create_connection(("127.0.0.1", port)) as client:
                for _ in range(ROUNDS):
                    client.sendall(b"q" * 100)
                    exactly(client, 50)
    kind, what, *who = CAUSES[name]
    found = {"stage": "server", "kind": kind, "what": what, "messages": ROUNDS}
    if who:
        found["who"] = who[0]
    found["least_ms"] = HELD_SECONDS * 1e3 * 0.9
    return {"exchanges": ROUNDS, "sent": 2 * ROUNDS, "cause": found}


SERVERS = {name: partial(slow_server, name) for name in CAUSES}

if __name__ == "__main__":
    print(json.dumps(SERVERS[sys.argv[1]]()))
