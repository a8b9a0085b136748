"""Lost datagrams, against the emulator's counters and the socket's own drops."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from pathlib import Path

import pytest
from latprof_agent import netns
from logged import Calls, assert_inside
from recording import recording, udp_pair, wait_until
from system_calls import receive_nowhere

COUNT = 200
SO_RCVBUFFORCE = 33
SO_MEMINFO, SK_MEMINFO_RMEM, SK_MEMINFO_DROPS = 55, 0, 8
NO_RECEIVER = "sent, no receiver's half"

both_families = pytest.mark.parametrize("ipv6", [False, True], ids=["v4", "v6"])


def send_numbered(sender, count, size=100):
    """Send datagrams that begin with their number, from 1."""
    for number in range(1, count + 1):
        sender.send(number.to_bytes(8, "big") + bytes(size - 8))


def receive_all(receiver):
    """Receive what is there and return the numbers."""
    numbers = []
    receiver.settimeout(0)
    with contextlib.suppress(BlockingIOError):
        while True:
            numbers.append(int.from_bytes(receiver.recv(65536)[:8], "big"))
    return numbers


def emulated_exchange(lab, folder, size=100):
    """Send datagrams through the emulator and receive what is left of them."""
    client, server = udp_pair(lab)
    server.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    with recording(lab, folder, ("udp",)) as recorded, client, server:
        send_numbered(client, COUNT, size)

        def verdicts():
            ab = lab.counters()["emulator"]["ab"]
            lost = ab["dropped_loss"] + ab["dropped_listed"] + ab["dropped_queue"]
            over = lost + ab["packets_out"] == ab["packets_in"] >= COUNT
            return {**ab, "lost": lost} if over else None

        counted = wait_until(verdicts, "the emulator has sent or dropped all")
        return recorded, receive_all(server), counted


def check_rows(recorded, numbers, lost):
    """All sent datagrams have a row; those lost have no end and no figure."""
    rows = recorded.messages()
    assert recorded.lost() == {}
    assert sorted(rows["sequence"]) == list(range(1, COUNT + 1))
    gone = rows[rows["arrive_ns"].isna()]
    assert len(gone) == lost == COUNT - len(numbers)
    assert set(rows["sequence"]) - set(gone["sequence"]) == set(numbers)
    assert gone[["send_ns", "queue_ns", "xmit_ns"]].notna().all().all()
    assert gone["end_to_end_ns"].isna().all() and gone["transit_ns"].isna().all()
    (totals,) = recorded.totals.messages.kinds.values()
    assert (totals.messages, totals.complete) == (COUNT, len(numbers))
    assert recorded.recorder.joiner.unmatched == {NO_RECEIVER: lost}


@both_families
def test_listed_datagrams_are_the_rows_without_a_receiver(make_lab, tmp_path, ipv6):
    lost = [1, 2, 50, 51, 52, 120, COUNT]
    options = ("--drop-a=" + ",".join(map(str, lost)),)
    lab = make_lab(ipv6=ipv6, emulator_options=options)
    recorded, numbers, counted = emulated_exchange(lab, tmp_path)
    assert counted["dropped_listed"] == counted["lost"] == len(lost)
    assert set(range(1, COUNT + 1)) - set(numbers) == set(lost)
    check_rows(recorded, numbers, len(lost))


def silence_ipv6(lab):
    """Leave the link to IPv4, so that all that is lost there is the test's."""
    setting = Path(f"/proc/sys/net/ipv6/conf/{lab.interface}/disable_ipv6")
    for end in ("a", "b"):
        netns.run_in(lab.netns_of(end), lambda: setting.write_text("1"))


def test_random_loss_is_the_emulators_to_the_packet(make_lab, tmp_path):
    lab = make_lab(loss=0.2, loss_burst=3.0, seed=5)
    silence_ipv6(lab)
    before = lab.counters()["emulator"]["ab"]["dropped_loss"]
    recorded, numbers, counted = emulated_exchange(lab, tmp_path)
    lost = counted["dropped_loss"] - before
    assert 0 < lost < COUNT
    check_rows(recorded, numbers, lost)


def test_a_datagram_is_lost_with_any_of_its_fragments(make_lab, tmp_path):
    # three packets each: first of the 1st, middle of the 11th, last of the 21st
    lab = make_lab(emulator_options=("--drop-a=1,32,63",))
    recorded, numbers, _ = emulated_exchange(lab, tmp_path, size=4000)
    assert set(range(1, COUNT + 1)) - set(numbers) == {1, 11, 21}
    check_rows(recorded, numbers, 3)


def meminfo(sock):
    """SO_MEMINFO: a socket's memory, in bytes, and the datagrams that it dropped."""
    return struct.unpack("9I", sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36))


def socket_drops(sock):
    """Count the datagrams that this socket has dropped."""
    return meminfo(sock)[SK_MEMINFO_DROPS]


@both_families
def test_what_overflows_the_receive_buffer_arrived_and_is_never_read(
    make_lab, tmp_path, ipv6
):
    lab = make_lab(ipv6=ipv6)
    client, server = udp_pair(lab)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
    with recording(lab, tmp_path, ("udp",)) as recorded, client, server:
        send_numbered(client, COUNT, 1000)
        numbers, dropped = receive_all(server), socket_drops(server)

    rows = recorded.messages()
    assert recorded.lost() == {}
    assert 0 < dropped == COUNT - len(numbers)
    assert recorded.counters["datagrams_dropped_at_socket"] == dropped
    assert sorted(rows["sequence"]) == list(range(1, COUNT + 1))
    assert sorted(rows["sequence"][rows["read_ns"].notna()]) == numbers
    gone = rows[rows["read_ns"].isna()]
    assert gone["arrive_ns"].notna().all() and gone["transit_ns"].notna().all()
    assert gone["end_to_end_ns"].isna().all()
    (totals,) = recorded.totals.messages.kinds.values()
    assert (totals.messages, totals.complete) == (COUNT, len(numbers))


@pytest.mark.parametrize("waiting", [1, 5])
def test_reads_are_their_datagrams_after_some_were_taken_unseen(
    make_lab, tmp_path, waiting
):
    """A call that fails takes its datagram all the same, and tells no length."""
    lab, rounds = make_lab(), 20
    client, server = udp_pair(lab)
    reads = Calls()
    with recording(lab, tmp_path, ("udp",)) as recorded, client, server:
        for _ in range(rounds):
            send_numbered(client, waiting)
            with pytest.raises(OSError, match="Bad address"):
                receive_nowhere(server)
            for _ in range(waiting - 1):
                reads.do(server.recv, 1000)
            send_numbered(client, 1)
            reads.do(server.recv, 1000)

    rows = recorded.messages().sort_values("sequence")
    number = (rows["sequence"].to_numpy() - 1) % (waiting + 1)
    assert rows[number == 0]["read_ns"].isna().all()
    assert_inside(rows[number > 0]["read_ns"], reads)


def test_a_read_that_shutdown_wakes_read_no_datagram(make_lab, tmp_path):
    """It returns 0, as a read of an empty one; such are messages, also after it."""
    lab = make_lab()
    client, server = udp_pair(lab)
    with recording(lab, tmp_path, ("udp",)) as recorded, client, server:
        client.send(b"x")
        assert server.recv(10) == b"x"
        server.settimeout(None)
        reader = threading.Thread(target=server.recv, args=(10,))
        reader.start()
        state = Path(f"/proc/self/task/{reader.native_id}/stat")
        wait_until(lambda: ") S " in state.read_text(), "a reader that waits")
        server.shutdown(socket.SHUT_RD)
        reader.join()
        assert server.recv(10) == b""
        client.send(b"")
        # readable it is in any case: what waits takes memory
        wait_until(lambda: meminfo(server)[SK_MEMINFO_RMEM], "a datagram")
        assert server.recv(10) == b""

    rows = recorded.messages()
    assert rows["size_bytes"].tolist() == [1, 0]
    assert rows["read_ns"].notna().all()
    assert not recorded.counters["unmatched_datagram_reads"]
