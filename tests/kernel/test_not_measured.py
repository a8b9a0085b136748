"""What latprof does not measure is counted, each socket and packet once."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pandas as pd
import pytest
from latprof_agent.netns import run_in_new
from latprof_process import run
from monitored import monitored
from recording import DEADLINE_SECONDS, recording, socket_in, udp_pair

CONNECTIONS, MESSAGES, SENDS = 4, 30, 25
IPPROTO_MPTCP, UDP_SEGMENT = 262, 103
SIZE, PIECES = 100, 10


def multipath(lab):
    """Connections by MPTCP, and as many messages each way on each."""
    path = Path("/proc/sys/net/mptcp/enabled")
    if not run_in_new(path.exists):
        pytest.skip("needs CONFIG_MPTCP")
    kind = socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP
    listener = socket_in(lab.b_netns, *kind)
    with listener:
        listener.bind((lab.b_address, 0))
        listener.listen()
        for _ in range(CONNECTIONS):
            with socket_in(lab.a_netns, *kind) as client:
                client.settimeout(DEADLINE_SECONDS)
                client.connect(listener.getsockname())
                server, _ = listener.accept()
                with server:
                    for _ in range(MESSAGES):
                        client.send(bytes(SIZE))
                        server.recv(SIZE, socket.MSG_WAITALL)
                        server.send(bytes(SIZE))
                        client.recv(SIZE, socket.MSG_WAITALL)


def segmented(client, server):
    client.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, SIZE)
    for _ in range(SENDS):
        client.send(bytes(SIZE * PIECES))
        for _ in range(PIECES):
            server.recv(SIZE)


def test_each_socket_of_mptcp_is_counted_once(make_lab, tmp_path):
    lab = make_lab()
    with recording(lab, tmp_path) as recorded:
        multipath(lab)
    assert recorded.counters["multipath_sockets"] == 2 * CONNECTIONS
    assert len(recorded.messages()) == 0


def test_live_they_are_counted_once_too(make_lab):
    lab = make_lab()
    with monitored(lab) as counted:
        multipath(lab)
    unmatched = counted.totals.own.unmatched
    assert unmatched["multipath_sockets"] == 2 * CONNECTIONS


def test_each_packet_that_the_kernel_cuts_is_counted_once(make_lab, tmp_path):
    lab = make_lab()
    client, server = udp_pair(lab)
    with recording(lab, tmp_path, ("udp",)) as recorded, client, server:
        segmented(client, server)
    assert recorded.counters["segmented_sends"] == SENDS


PROGRAM = f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 0))
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
c.connect(s.getsockname())
for _ in range({SENDS}):
    c.send(bytes({SIZE})), s.recv({SIZE})
c.setsockopt(socket.IPPROTO_UDP, {UDP_SEGMENT}, {SIZE})
for _ in range({SENDS}):
    c.send(bytes({SIZE * PIECES}))
    for _ in range({PIECES}):
        s.recv({SIZE})
"""


def test_a_run_names_its_share_on_the_screen_and_in_json(tmp_path):
    words = ("run", "--quiet", "--no-lab", "--protocol", "udp", "--out")
    command = ("--", "python3", "-c", PROGRAM)
    latprof = run(*words, str(tmp_path / "run"), *command, env=os.environ)
    assert latprof.process.returncode == 0, latprof.err
    said = " ".join(latprof.out.split())
    # beside other runs a part may be taken for an older datagram: then it is a row
    rows = pd.read_csv(tmp_path / "run" / "messages.csv")
    assert rows["xmit_ns"].notna().sum() == SENDS
    share = 100 * SENDS / (SENDS + len(rows))
    assert f"{SENDS} ({share:.1f}%) packets of UDP_SEGMENT (GSO)" in said
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    found = {one["name"]: one["messages"] for one in summary["incomplete"]}
    assert found["segmented_sends"] == SENDS
