"""Filters: each kind and its not, together, and changed while the probes run."""

from __future__ import annotations

import ctypes
import secrets
import socket
from collections import Counter
from itertools import product

import pytest
from filter_peers import ASK, REPLY, ROUNDS, Talkers
from latprof_agent import netns
from latprof_agent.capture.capture import Capture
from latprof_agent.cli.filter_options import parse_filter
from latprof_agent.errors import UsageError
from latprof_agent.filters.words import gone, refreshed
from latprof_agent.lab.interface import prepare_namespace
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec
from latprof_agent.probes.catalogue import BY_FILTER, capabilities
from latprof_agent.probes.filter import Filter, Terms
from latprof_agent.probes.layout import layout_of
from recording import DEADLINE_SECONDS, socket_in, tcp_pair, udp_pair

UIDS = 61001, 61002
PROTOCOLS = {6: "tcp", 17: "udp"}


class Seen:
    """The probes, and what they record by flow."""

    def __init__(self, capture):
        self.capture = capture
        self.flows = {}

    def take(self):
        """Bytes since the last time, as Conversation.expected gives them."""
        self.capture.drain()
        records = self.capture.read()
        # what has no protocol says that one was accepted, or closed
        for flow in records["flows"][records["flows"]["protocol"] > 0]:
            self.flows[int(flow["flow"])] = (
                PROTOCOLS[int(flow["protocol"])],
                int(flow["source_port"]),
                int(flow["destination_port"]),
            )
        found = Counter()
        for record in records["sent_messages"]:
            found["sent", *self.flows[int(record["flow"])]] += int(record["size_bytes"])
        for record in records["received_ranges"]:
            size = int(record["size_bytes"]) or int(record["end"] - record["start"])
            found["received", *self.flows[int(record["flow"])]] += size
        return found

    def of(self, conversations):
        """The same of these only: others of the host may match a filter, too."""
        pairs = set()
        for conversation in conversations:
            ports = [end.facts.local_port for end in conversation.ends]
            pairs |= {tuple(ports), tuple(reversed(ports))}
        return {key: n for key, n in self.take().items() if key[2:] in pairs}


@pytest.fixture(scope="module")
def lab():
    with Lab(LinkSpec(rate_bps=0)) as lab:
        yield lab


@pytest.fixture(scope="module")
def talkers(lab):
    with Talkers(lab, UIDS) as talkers:
        yield talkers


@pytest.fixture(scope="module")
def conversations(talkers):
    """Older than the probes: of either process, both families, all that there is."""
    ways = ("tcp", "udp", "unconnected")
    return [
        talkers.make(who, protocol, family, place)
        for who, protocol, family, place in (
            *product(("01", "10"), ways, ("V4", "V6"), ("ab",)),
            ("01", "tcp", "V4", "ba"),
            ("00", "tcp", "V4", "a"),
            ("11", "udp", "V4", "b"),
        )
    ]


@pytest.fixture(scope="module")
def seen(conversations):
    with Capture(Filter(ports=(1,)), capabilities(needs=BY_FILTER)) as capture:
        capture.start()
        capture.expect_udp()
        yield Seen(capture)
        counters = capture.counters()
        capture.stop()
    assert {name: n for name, n in counters.items() if n and "lost" in name} == {}


CASES = [
    *(f"{sign}{words}" for sign in ("", "not ") for words in (
        "pid=PID0",
        "comm=COMM0",
        "comm=COMM1,nobody",
        "cgroup=CGROUP0",
        "cgroup=PARENT",
        "netns=NETNSA",
        "netns=NETNSA,NETNSB",
        "interface=lo",
        "interface=DEVICE",
        "local-port=PORT",
        "remote-port=PORT",
        "port=PORT",
        "port=PORT,OTHER",
        "remote=10.203.0.2",
        "remote=10.203.0.0/24",
        "remote=0.0.0.0/0",
        "remote=::/0",
        "remote=fd00:6c61:7470::1",
        "protocol=tcp",
        "uid=UID0",
        "uid=UID0,UID1",
    )),
    "pid=PID0 comm=COMM0",
    "pid=PID0 comm=COMM1",
    "pid=PID0,PID1 not comm=COMM0",
    "cgroup=PARENT not pid=PID1 protocol=udp",
    "netns=NETNSB uid=UID1 protocol=tcp not port=OTHER",
    "netns=NETNSA interface=DEVICE not remote=10.0.0.0/8",
    "port=PORT,OTHER not local-port=PORT",
    "cgroup=CGROUP0,CGROUP1 netns=NETNSA,NETNSB remote=fd00::/8,10.203.0.1 "
    "not protocol=udp not uid=UID1",
]  # fmt: skip


@pytest.mark.parametrize("words", CASES)
def test_a_filter_wants_exactly_the_sockets_that_it_says(
    words, talkers, conversations, seen
):
    words = _filled(words, talkers, conversations)
    wanted = words.replace("not netns=", "").replace("not pid=", "")
    if "netns=" not in wanted and "pid=" not in wanted:
        # what else the machine does would be recorded with it
        words += f" netns={talkers.lab.a_netns},{talkers.lab.b_netns}"
    seen.capture.watch(parse_filter(words))
    seen.take()
    for conversation in conversations:
        conversation.talk()

    expected = {}
    for conversation in conversations:
        expected |= conversation.expected(_asked(words))
    assert seen.of(conversations) == expected


def _filled(words, talkers, conversations):
    one, two = talkers.both
    names = {
        "PID0": one.pid,
        "PID1": two.pid,
        "COMM0": one.comm,
        "COMM1": two.comm,
        "CGROUP0": one.cgroup,
        "CGROUP1": two.cgroup,
        "PARENT": talkers.group.path.name,
        "NETNSA": talkers.lab.a_netns,
        "NETNSB": talkers.lab.b_netns,
        "DEVICE": talkers.lab.interface,
        "PORT": conversations[0].ends[1].facts.local_port,
        "OTHER": conversations[3].ends[0].facts.local_port,
        "UID0": one.uid,
        "UID1": two.uid,
    }
    for name, value in names.items():
        words = words.replace(name, str(value))
    return words


def _asked(words):
    """(kind, value, negated), read again."""
    asked, negated = [], False
    for word in words.split():
        if word == "not":
            negated = True
            continue
        kind, values = word.split("=")
        asked += [(kind, value, negated) for value in values.split(",")]
        negated = False
    return asked


def test_every_kind_tells_these_sockets_apart(talkers, conversations):
    """Or the test above would show nothing of it."""
    for words in CASES:
        asked = _asked(_filled(words, talkers, conversations))
        found = [c.expected(asked) for c in conversations]
        all_of_them = 4 * len(conversations)
        several = "PARENT" in words or "NETNSA,NETNSB" in words or "UID0,UID1" in words
        if not several and words != "pid=PID0 comm=COMM1":
            assert 0 < sum(map(len, found)) < all_of_them, words


def test_sockets_that_come_later_are_decided_alike(talkers, seen):
    words = f"comm={talkers.both[0].comm} not protocol=udp"
    seen.capture.watch(parse_filter(words))
    later = [
        talkers.make(who, protocol, "V4", "ab")
        for who, protocol in product(("01", "10"), ("tcp", "udp"))
    ]
    for conversation in later:
        conversation.talk()
    expected = {}
    for conversation in later:
        expected |= conversation.expected(_asked(words))
    assert seen.of(later) == expected
    assert len(expected) == 4


def test_what_is_not_wanted_any_more_is_forgotten_and_comes_back(
    talkers, conversations, seen
):
    """And what was marked for one process is not for another."""
    for talker in (*talkers.both, *reversed(talkers.both)):
        for kind in ("pid", "comm"):
            words = f"{kind}={getattr(talker, kind)}"
            seen.capture.watch(parse_filter(words))
            conversations[0].talk()
            assert seen.of(conversations) == conversations[0].expected(_asked(words))


@pytest.mark.parametrize("sign", ["", "not "])
def test_children_are_as_their_process(talkers, seen, sign):
    one, two = talkers.both
    seen.capture.watch(
        parse_filter(f"{sign}pid={one.pid} cgroup={talkers.group.path.name}")
    )
    there, here = _place(talkers.lab.b_netns), _place(talkers.lab.a_netns)
    address = talkers.lab.address_of("b", ipv6=False)
    listener, to = two.new(f"make({there}, 0, V4, TCP, {address!r})")
    two.do(f"{listener}.listen()")
    two.tell(f"answer_to({listener}.accept()[0])")
    one.do(f"enter({here}); in_child(call, ({address!r}, {to}))")
    two.answer()

    sides = {(key[0], key[2] == to) for key in seen.take() if to in key}
    of_child = {("sent", False), ("received", True)}
    of_server = {("received", False), ("sent", True)}
    assert sides == (of_server if sign else of_child)


def _place(name):
    """A namespace's path, in quotes."""
    return repr(str(netns.NETNS_DIRECTORY / name))


@pytest.mark.parametrize("whose", ["listener", "worker"])
def test_who_accepts_is_the_user_also_of_what_came_before(talkers, seen, whose):
    """As nginx's master listens as root, and its workers accept as another."""
    one, two = talkers.both
    there, here = _place(talkers.lab.b_netns), _place(talkers.lab.a_netns)
    a, b = (talkers.lab.address_of(end, ipv6=False) for end in "ab")
    listener, to = two.new(f"make({there}, 0, V4, TCP, {b!r})")
    two.do(f"{listener}.listen()")
    name, at = one.new(f"make({here}, {one.uid}, V4, TCP, {a!r})")
    seen.capture.watch(parse_filter(f"uid={0 if whose == 'listener' else two.uid}"))
    one.do(f"{name}.connect(({b!r}, {to})); ask({name})")
    server, _ = two.new(f"accept({listener}, {two.uid})")
    two.do(f"answer_to({server})")
    one.do(f"receive({name}, {REPLY})")

    found = {key: n for key, n in seen.take().items() if to in key}
    workers = {("received", "tcp", at, to): ASK, ("sent", "tcp", to, at): REPLY}
    assert found == (workers if whose == "worker" else {})


def test_a_datagram_socket_is_asked_again_when_its_ends_change(lab, seen):
    sender, receiver = (
        socket_in(name, socket.AF_INET, socket.SOCK_DGRAM)
        for name in (lab.a_netns, lab.b_netns)
    )
    receiver.bind((lab.b_address, 0))
    receiver.settimeout(DEADLINE_SECONDS)
    address = receiver.getsockname()
    seen.capture.watch(parse_filter(f"remote-port={address[1]}"))

    def sent_bytes():
        sender.sendto(bytes(ASK), address)
        assert len(receiver.recv(ASK)) == ASK
        found = seen.take()
        return sum(n for key, n in found.items() if key[3] == address[1])

    with sender, receiver:
        # without an end of its own it is asked by where it sends
        assert sent_bytes() == ASK
        sender.connect((address[0], address[1] ^ 1))
        assert sent_bytes() == 0
        _disconnect(sender)
        assert sent_bytes() == ASK
        sender.connect(address)
        assert sent_bytes() == ASK


def _disconnect(sock):
    """To AF_UNSPEC, which Python cannot name."""
    nowhere = bytes(16)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.connect(sock.fileno(), nowhere, len(nowhere)) == 0


def test_an_interface_that_comes_later_is_known_by_its_name(lab, seen):
    """And one of another name is not, in the same new namespaces."""
    for name, rounds in ((lab.interface, ROUNDS), ("nosuch0", 0)):
        seen.capture.watch(Filter(interfaces=(name,)))
        with Lab(LinkSpec(rate_bps=0)) as later:
            for connect in (tcp_pair, udp_pair):
                client, server = connect(later)
                port = server.getsockname()[1]
                with client, server:
                    for _ in range(ROUNDS):
                        client.send(bytes(ASK))
                        assert len(server.recv(ASK)) == ASK
                found = {key: n for key, n in seen.take().items() if port in key}
                assert set(found.values()) == ({rounds * ASK} if rounds else set())
                assert len(found) == (2 if rounds else 0)


def test_a_namespace_that_goes_and_comes_is_known_by_its_name(seen):
    name = f"latprof-{secrets.token_hex(4)}"
    netns.create(name)
    try:
        watched = parse_filter(f"netns={name}")
        assert refreshed(watched) == watched
        assert gone(watched) == []
        netns.remove(name)
        without = refreshed(watched)
        assert without.netns == (0,)
        assert [str(word) for word in gone(watched)] == [f"netns={name}"]
        seen.capture.watch(without)
        netns.create(name)
        again = refreshed(without)
        assert gone(again) == []
        seen.capture.watch(again)
        size = netns.run_in(name, _talk_to_itself)
    finally:
        netns.remove(name)
    assert sum(n for key, n in seen.take().items() if key[0] == "sent") == size


def _talk_to_itself():
    """Over loopback, in the namespace of the caller."""
    prepare_namespace()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        server, _ = listener.accept()
        with server:
            client.sendall(bytes(ASK))
            assert len(server.recv(ASK, socket.MSG_WAITALL)) == ASK
    return ASK


def test_more_values_than_there_is_room_for_are_refused():
    most = Filter(ports=tuple(range(1, 64)), pids=tuple(range(1, 1000)))
    assert most.as_record(layout_of())
    more = Filter(ports=most.ports, pids=most.pids, but_not=Terms(comms=("x",)))
    with pytest.raises(UsageError, match=r"a filter has 64 values at most.* got 65"):
        more.as_record(layout_of())


def test_addresses_of_both_families_are_in_the_talk(talkers, conversations):
    """The oracle's own ground: both families, in both namespaces."""
    remotes = {end.facts.remote for c in conversations for end in c.ends}
    address_of = talkers.lab.address_of
    assert remotes == {address_of(end, six) for end in "ab" for six in (False, True)}
