"""A lab: hosts, which are network namespaces of random names, and what joins them.

    with Lab(LinkSpec(rate_bps=100_000_000, delay_ns=1_000_000)) as lab:
        server = lab.start("b", ["latprof-load", "echo"])
        client = lab.start("a", ["latprof-load", "pingpong", ...])
        lab.counters()

Two hosts, "a" and "b", are joined by one link. More, "h0", "h1" and so on, have a
link each to one more namespace, the middle, which forwards between them.

Leaving the block removes it, also after an exception, Ctrl-C and SIGTERM; what
SIGKILL left is removed by the next lab.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from latprof_agent import netns
from latprof_agent.errors import (
    LabError,
    LatprofError,
    close_after,
    refusals_in_one_line,
)
from latprof_agent.executables import find_executable
from latprof_agent.interrupts import signals_as_exit, signals_deferred
from latprof_agent.lab import child, interface, middle, netem_path, qdisc
from latprof_agent.lab.emulator import LinkEmulator, pair_options, star_options
from latprof_agent.lab.host import LEAST_HOSTS, Host, check_count, host_names
from latprof_agent.lab.link import LinkKind, LinkSpec
from latprof_agent.lab.netlink import connect
from latprof_agent.lab.registry import (
    REGISTRY,
    Registration,
    clean_dead_labs,
    namespaces_of,
)
from latprof_agent.netns import enter_netns

__all__ = ["Lab", "clean_dead_labs", "enter_netns"]

_T = TypeVar("_T")

# Who ends takes its interfaces away first.
_ENDING_SECONDS = 0.5


class Lab:
    """Joined namespaces, one for each host, for the time of a `with` block.

    `hosts` are their names. Addresses are of the family the link was asked for; all
    hosts have both families where kernel and MTU allow. What is called `a_` and
    `b_` is of the first two hosts. `removed` says what dead labs had left, `known`
    what is known of the way between two hosts from its construction, `settings`
    what was set and what the kernel made of it.
    """

    def __init__(
        self, spec: LinkSpec, *, hosts: int = LEAST_HOSTS, registry: Path = REGISTRY
    ) -> None:
        """Choose the names; nothing is made before the `with` block."""
        check_count(hosts)
        self.spec = spec
        self.hosts = host_names(hosts)
        self.id = secrets.token_hex(4)
        self.name = f"latprof-{self.id}"
        *names, self.middle_netns = namespaces_of(self.id, hosts)
        self._hosts = {
            name: Host(name, number, names[number])
            for number, name in enumerate(self.hosts)
        }
        self._inodes = dict.fromkeys(self.hosts, 0)
        self.a_netns, self.b_netns = names[:2]
        self.a_address, self.b_address = map(self.address_of, self.hosts[:2])
        self.interface = "veth0"
        self.link_kind: LinkKind = "veth"
        self.known: dict[str, object] = {}
        self.settings: dict[str, object] = {}
        self.removed: list[str] = []
        self._folder = registry
        self._registration: Registration | None = None
        self._emulator: LinkEmulator | None = None
        self._children: list[subprocess.Popen[Any]] = []
        self._signals = ExitStack()

    @property
    def registration(self) -> Registration:
        """The entry that names what belongs to this lab, while it lives."""
        if self._registration is None:
            raise LabError(f"lab {self.name} is not open; use it in a with block")
        return self._registration

    def netns_of(self, host: str) -> str:
        """Name the namespace of a host."""
        return self._hosts[host].netns

    def address_of(self, host: str, ipv6: bool | None = None) -> str:
        """Return a host's address, of the family the link was asked for or of this."""
        return self._hosts[host].address(self.spec.ipv6 if ipv6 is None else ipv6)

    def inode_of(self, host: str) -> int:
        """Say by which number probes know a host's namespace; 0 before it is made."""
        return self._inodes[host]

    @property
    def inodes(self) -> tuple[int, ...]:
        """The numbers of all hosts' namespaces, in the hosts' order."""
        return tuple(self._inodes.values())

    @property
    def a_inode(self) -> int:
        """The first host's number."""
        return self.inodes[0]

    @property
    def b_inode(self) -> int:
        """The second host's number."""
        return self.inodes[1]

    @property
    def _is_star(self) -> bool:
        return len(self.hosts) > LEAST_HOSTS

    def __enter__(self) -> Lab:
        """Build the lab, or leave nothing of it."""
        self._signals.enter_context(signals_as_exit())
        try:
            self.removed = clean_dead_labs(self._folder).removed
            with signals_deferred():
                self._build_whole()
        except BaseException as error:
            close_after(error, self.close)
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Remove the lab."""
        close_after(error, self.close)

    def close(self) -> None:
        """End what was started in the lab and remove it; twice does no harm."""
        registration, self._registration = self._registration, None
        try:
            with signals_deferred():
                if self._emulator:
                    self._emulator.close()
                self._emulator = None
                if registration:
                    registration.close()
                for started in self._children:
                    started.poll()
        finally:
            self._signals.close()

    def _build_whole(self) -> None:
        try:
            with refusals_in_one_line("cannot set up the lab"):
                self._build()
        except LatprofError:  # with the emulator its interfaces go too
            self.check(_ENDING_SECONDS)
            raise

    def _build(self) -> None:
        self._registration = Registration(self.id, self._folder, len(self.hosts))
        for name, host in self._hosts.items():
            self._inodes[name] = self._create_namespace(host.netns)
        self.link_kind = netns.run_in(self.a_netns, self._choose_kind)
        self._join()
        ends = {
            host.name: netns.run_in(host.netns, partial(self._finish, host))
            for host in self._hosts.values()
        }
        self._finish_middle()
        self.known = self.spec.known(self.link_kind, len(self.hosts))
        self.settings = {
            "congestion_control": ends[self.hosts[0]]["congestion_control"],
            "interface": self.interface,
            "emulator_options": list(self.spec.emulator_options),
            **ends,
        }

    def _create_namespace(self, name: str) -> int:
        inode = netns.create(name)
        self.registration.add_namespace(name, inode)
        netns.run_in(name, interface.prepare_namespace)
        return inode

    def _choose_kind(self) -> LinkKind:
        if self.spec.ipv6 and not interface.kernel_has_ipv6():
            raise LabError("cannot use IPv6: this kernel has it switched off; use IPv4")
        return self.spec.kind(self.spec.has_path and qdisc.kernel_has("netem"))

    def _join(self) -> None:
        """Make all interfaces, those of the middle too, and bring them up."""
        if self._is_star or self.link_kind == "netem":
            self._create_namespace(self.middle_netns)
        if self.link_kind == "emulator":
            self._start_emulator()
        elif self._is_star:
            self._in_middle(middle.make_bridge)
            self._make_ports()
        elif self.link_kind == "netem":
            self._make_ports()
            self._in_middle(partial(netem_path.bring_up, self.spec.mtu))
        else:
            peer = self.interface, self.b_netns
            netns.run_in(self.a_netns, partial(self._make_veth, *peer))
        if self._is_star:
            emulated = self.link_kind == "emulator"
            join = middle.join_router if emulated else middle.join_bridge
            self._in_middle(partial(join, self._all, self.spec.mtu))
        self._bring_up()

    @property
    def _all(self) -> list[Host]:
        return list(self._hosts.values())

    def _in_middle(self, work: Callable[[], _T]) -> _T:
        return netns.run_in(self.middle_netns, work)

    def _start_emulator(self) -> None:
        self.interface = "tun0"
        executable = find_executable("latprof-link")
        if self._is_star:
            options = star_options(self.spec, self._all, self.middle_netns)
        else:
            options = pair_options(self.spec, self._all)
        self._emulator = LinkEmulator(executable, options)
        self.registration.add_process(self._emulator.pid)
        self._emulator.wait_ready()

    def _make_veth(self, peer_name: str, peer_netns: str) -> None:
        with connect() as ip:
            interface.make_veth(ip, self.interface, peer_name, peer_netns)

    def _make_ports(self) -> None:
        for host in self._all:
            make = partial(self._make_veth, host.name, self.middle_netns)
            netns.run_in(host.netns, make)

    def _bring_up(self) -> None:
        for host in self._all:
            mac = None if self.link_kind == "emulator" else host.mac
            how = self.interface, self.spec.mtu, mac, self._is_star
            netns.run_in(host.netns, partial(interface.bring_up, *how))

    def _finish(self, host: Host) -> dict[str, object]:
        """Set up a host's end of its link, in its namespace; say what was set."""
        spec, name = self.spec, self.interface
        veth = self.link_kind != "emulator"
        others = [one for one in self._all if one != host] if veth else []
        shape = qdisc.shape if self._is_star else qdisc.shape_end
        with connect() as ip:
            congestion = interface.set_congestion(spec.congestion)
            offloads = interface.set_offloads(ip, name, spec.offloads)
            index = interface.wait_for_carrier(ip, name)
            interface.add_addresses(ip, index, host, others, spec.mtu)
            shape(ip, index, spec, self.link_kind)
        return {"congestion_control": congestion, "offloads": offloads}

    def _finish_middle(self) -> None:
        if self._is_star:
            how = self._all, self.spec, self.link_kind
            self._in_middle(partial(middle.finish, *how))
        elif self.link_kind == "netem":
            self._in_middle(partial(netem_path.finish, self.spec))

    def start(
        self, host: str, command: Sequence[str], *steps: child.Step, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a program in the namespace of a host; it ends with the lab.

        `steps` and `options` are as of `child.start`.
        """
        enter = enter_netns(self.netns_of(host))
        with signals_deferred():
            started = child.start(command, enter, *steps, **options)
            self._children.append(started)
            self.registration.add_process(started.pid)
        return started

    def place_emulator(self, cpu: int | None) -> None:
        """Keep the link emulator, if this lab has one, on the CPU of the programs.

        There it is awake when a packet comes; to wake another CPU takes tens of
        microseconds, and the scheduler would choose anew each run. None: anywhere.
        """
        if self._emulator and cpu is not None:
            self._emulator.place(cpu)
            self.settings["emulator_cpu"] = cpu

    def check(self, seconds: float = 0.0) -> None:
        """Raise LabError where the link has ended, or does so within these seconds."""
        if self._emulator:
            self._emulator.check(seconds)

    def counters(self) -> dict[str, Any]:
        """Count packets: on the way, and at interfaces and qdiscs of all hosts.

        The "ports" of the middle are named by the host that each leads to; the
        emulator's "h0 up" is from that host to the middle. Raises LabError where
        the link has ended, or stands still.
        """
        counters: dict[str, Any] = {}
        if self._emulator:  # first, since the interfaces are its own
            counters["emulator"] = self._ways(self._emulator.counters())

        def read() -> dict[str, Any]:
            with connect() as ip:
                index = interface.index_of(ip, self.interface)
                return {
                    "interface": interface.statistics(ip, index),
                    "qdiscs": qdisc.statistics(ip, index),
                }

        for host in self._all:
            counters[host.name] = netns.run_in(host.netns, read)
        if self._is_star:
            read_ports = partial(middle.statistics, self._all)
            counters["ports"] = self._in_middle(read_ports)
        elif self.link_kind == "netem":
            counters["netem"] = self._in_middle(netem_path.statistics)
        return counters

    def _ways(self, counted: Any) -> dict[str, Any]:
        """Name the ways of the emulator's links."""
        if not self._is_star:
            return dict(counted)
        return {
            f"{host} {way}": link[key]
            for host, link in zip(self.hosts, counted, strict=True)
            for way, key in (("up", "ab"), ("down", "ba"))
        }
