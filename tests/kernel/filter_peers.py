"""Two processes whose sockets differ in all that a filter asks for.

Each makes sockets in either namespace as either user, and talks over all of them; what
each socket is, the test knows by having asked for it. `wants` is a filter written
again, on these facts.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path

from latprof_agent.lab.control_group import ControlGroup
from latprof_agent.lab.lab import Lab
from latprof_agent.netns import NETNS_DIRECTORY
from latprof_agent.probes.cgroup import cgroup2_mount

ROUNDS, ASK, REPLY = 7, 300, 200

PROGRAM = f"""
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
TCP, UDP, V4, V6 = 1, 2, 2, 10
def enter(path):
    descriptor = os.open(path, os.O_RDONLY)
    assert libc.setns(descriptor, 0x40000000) == 0
    os.close(descriptor)
def make(path, uid, family, kind, address):
    enter(path)
    os.seteuid(uid)
    made = socket.socket(family, kind)
    os.seteuid(0)
    made.bind((address, 0))
    return made
def accept(listener, uid):
    os.seteuid(uid)
    made, _ = listener.accept()
    os.seteuid(0)
    return made
def port(s):
    return s.getsockname()[1]
def send(s, size, to):
    s.sendto(bytes(size), to) if to else s.send(bytes(size))
def receive(s, size):
    got = 0
    while got < size:
        got += len(s.recv(size - got))
def ask(s, to=None):
    send(s, {ASK}, to)
def answer_to(s, to=None):
    receive(s, {ASK})
    send(s, {REPLY}, to)
def call(address):
    with socket.create_connection(address) as s:
        ask(s)
        receive(s, {REPLY})
def in_child(act, *arguments):
    if not (child := os.fork()):
        act(*arguments)
        os._exit(0)
    os.waitpid(child, 0)
socket.setdefaulttimeout(20)
for line in sys.stdin:
    answer = os.getpid()
    exec(line, globals())
    print(answer, flush=True)
"""


@dataclass(frozen=True)
class Facts:
    """What is asked of a socket."""

    pid: int
    comm: str
    cgroup: str
    netns: str
    interface: str  # or none
    local_port: int
    remote_port: int  # 0: it is not connected
    remote: str
    protocol: str
    uid: int


def wants(asked: list[tuple[str, str, bool]], facts: Facts) -> bool:
    """Whether these (kind, value, negated) want such a socket."""
    if any(_holds(kind, value, facts) for kind, value, negated in asked if negated):
        return False
    positive = [(kind, value) for kind, value, negated in asked if not negated]
    return all(
        any(_holds(kind, value, facts) for other, value in positive if other == kind)
        for kind, _ in positive
    )


def _holds(kind: str, value: str, facts: Facts) -> bool:
    if kind == "port":
        return int(value) in (facts.local_port, facts.remote_port)
    if kind == "remote":
        if not facts.remote_port:
            return False
        remote, subnet = ip_address(facts.remote), ip_network(value)
        return remote.version == subnet.version and remote in subnet
    if kind == "cgroup":
        return f"{facts.cgroup}/".startswith(f"{value}/")
    return str(getattr(facts, kind.replace("-", "_"))) == value


class Talker:
    """A process that does what it is told, in a control group and with a name."""

    def __init__(self, group: Path, uid: int) -> None:
        enter = f'echo 0 > {group}/cgroup.procs; exec "$@"'
        words = ["sh", "-c", enter, "sh", sys.executable, "-c", PROGRAM]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, text=True, bufsize=1
        )
        self.uid = uid
        self.comm = f"talk-{secrets.token_hex(4)}"
        self.cgroup = str(group.relative_to(cgroup2_mount() or "/"))
        self.pid = self.do(f"open('/proc/self/comm', 'w').write({self.comm!r})")
        self.sockets = 0

    def tell(self, line: str) -> None:
        """Do not wait until it is done."""
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")

    def answer(self) -> int:
        """Of the oldest line that was not answered."""
        assert self.process.stdout
        return int(self.process.stdout.readline())

    def do(self, line: str) -> int:
        """Tell, and wait."""
        self.tell(line)
        return self.answer()

    def new(self, expression: str) -> tuple[str, int]:
        """Make a socket; its name there, and its port."""
        self.sockets += 1
        name = f"s{self.sockets}"
        return name, self.do(f"{name} = {expression}; answer = port({name})")

    def end(self) -> None:
        """It ends with its input."""
        self.process.communicate(timeout=20)


@dataclass(frozen=True)
class End:
    """One end of a conversation."""

    talker: Talker
    name: str  # there
    facts: Facts
    to: str = ""  # address and port of each send, where it is not connected


@dataclass(frozen=True)
class Conversation:
    """The two ends; the first asks."""

    ends: tuple[End, End]

    def talk(self) -> None:
        """Each round is a question and an answer."""
        first, second = self.ends
        for _ in range(ROUNDS):
            first.talker.do(f"ask({first.name}, {first.to or None})")
            second.talker.do(f"answer_to({second.name}, {second.to or None})")
            first.talker.do(f"receive({first.name}, {REPLY})")

    def expected(self, wanted: list[tuple[str, str, bool]]) -> dict[tuple, int]:
        """Messages and bytes by (sent or received, protocol, from port, to port)."""
        found: dict[tuple, int] = {}
        for end, other, sent, got in (
            (*self.ends, ASK, REPLY),
            (*reversed(self.ends), REPLY, ASK),
        ):
            if wants(wanted, end.facts):
                ports = end.facts.local_port, other.facts.local_port
                found["sent", end.facts.protocol, *ports] = ROUNDS * sent
                found["received", end.facts.protocol, *reversed(ports)] = ROUNDS * got
        return found


class Talkers:
    """Two of them in a lab, and what they talk over."""

    def __init__(self, lab: Lab, uids: tuple[int, int]) -> None:
        self._stack = ExitStack()
        self.lab = lab
        name = f"latprof-{secrets.token_hex(4)}"
        self.group = ControlGroup(name)
        self._stack.callback(self.group.close)
        below = [self.group.path / end for end in ("one", "two")]
        for path in below:
            path.mkdir()
        self.both = tuple(map(Talker, below, uids))
        for talker in self.both:
            self._stack.callback(talker.end)

    def __enter__(self) -> Talkers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def make(self, who: str, protocol: str, family: str, place: str) -> Conversation:
        """`who` asks whom ("01"); place is ab, ba, or a: both ends in one."""
        first, second = (self.both[int(number)] for number in who)
        here, there = place[0], place[-1]
        at = [self.lab.address_of(end, family != "V4") for end in (here, there)]
        ways = {"tcp": self._tcp, "udp": self._udp, "unconnected": self._unconnected}
        names, ports, to = ways[protocol](
            (first, f"{str(self._path(here))!r}, {first.uid}, {family}", at[0]),
            (second, f"{str(self._path(there))!r}, {second.uid}, {family}", at[1]),
        )
        device = "lo" if here == there else self.lab.interface
        facts = [
            Facts(
                talker.pid,
                talker.comm,
                talker.cgroup,
                self.lab.netns_of(end),
                device if not to else "",
                ports[i],
                ports[1 - i] if not to else 0,
                at[1 - i],
                "tcp" if protocol == "tcp" else "udp",
                talker.uid,
            )
            for i, (talker, end) in enumerate(((first, here), (second, there)))
        ]
        sends = [f"({at[1 - i]!r}, {ports[1 - i]})" if to else "" for i in (0, 1)]
        return Conversation(
            (
                End(first, names[0], facts[0], sends[0]),
                End(second, names[1], facts[1], sends[1]),
            )
        )

    def _path(self, end: str) -> Path:
        return NETNS_DIRECTORY / self.lab.netns_of(end)

    def _tcp(self, first, second):
        talker, how, address = second
        listener, to = talker.new(f"make({how}, TCP, {address!r})")
        talker.do(f"{listener}.listen()")
        asking, words, at = first
        name, port = asking.new(f"make({words}, TCP, {at!r})")
        asking.do(f"{name}.connect(({address!r}, {to}))")
        server, _ = talker.new(f"accept({listener}, {talker.uid})")
        return (name, server), (port, to), False

    def _udp(self, first, second):
        names, ports, _ = self._unconnected(first, second)
        for i, end in enumerate((first, second)):
            peer = (second, first)[i][2], ports[1 - i]
            end[0].do(f"{names[i]}.connect({peer!r})")
        return names, ports, False

    def _unconnected(self, first, second):
        made = [
            talker.new(f"make({how}, UDP, {address!r})")
            for talker, how, address in (first, second)
        ]
        names, ports = zip(*made, strict=True)
        return names, ports, True
