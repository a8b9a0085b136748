"""A lab: two network namespaces of random names, joined by one link.

    with Lab(LinkSpec(rate_bps=100_000_000, delay_ns=1_000_000)) as lab:
        server = lab.start("b", ["latprof-load", "echo"])
        client = lab.start("a", ["latprof-load", "pingpong", ...])
        lab.counters()

Leaving the block removes it, also after an exception, Ctrl-C and SIGTERM; what
SIGKILL left is removed by the next lab.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from latprof_agent.errors import LabError, refusals_told
from latprof_agent.executables import find_executable
from latprof_agent.interrupts import signals_as_exit, signals_deferred
from latprof_agent.lab import child, interface, netem_path, netns, qdisc
from latprof_agent.lab.emulator import LinkEmulator
from latprof_agent.lab.link import LinkKind, LinkSpec
from latprof_agent.lab.netlink import connect
from latprof_agent.lab.netns import enter_netns
from latprof_agent.lab.registry import (
    REGISTRY,
    Registration,
    clean_dead_labs,
    namespaces_of,
)

__all__ = ["Lab", "clean_dead_labs", "enter_netns"]

# Who ends takes its interfaces away first.
_ENDING_SECONDS = 0.5


class Lab:
    """Two joined namespaces, `a` and `b`, for the time of a `with` block.

    `a_address` and `b_address` are of the family the link was asked for; both ends
    have both families where kernel and MTU allow. `removed` says what dead labs
    had left, `known` what is known of the link from its construction, `settings`
    what was set and what the kernel made of it.
    """

    def __init__(self, spec: LinkSpec, *, registry: Path = REGISTRY) -> None:
        """Choose the names; nothing is made before the `with` block."""
        self.spec = spec
        self.id = secrets.token_hex(4)
        self.name = f"latprof-{self.id}"
        names = namespaces_of(self.id)
        self.a_netns, self.b_netns, self._middle_netns = names
        addresses = interface.IPV6_ADDRESS if spec.ipv6 else interface.IPV4_ADDRESS
        self.a_address, self.b_address = addresses["a"], addresses["b"]
        self.a_inode = self.b_inode = 0
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

    def netns_of(self, end: str) -> str:
        """Name the namespace of end "a" or "b"."""
        return {"a": self.a_netns, "b": self.b_netns}[end]

    def __enter__(self) -> Lab:
        """Build the lab, or leave nothing of it."""
        self._signals.enter_context(signals_as_exit())
        try:
            self.removed = clean_dead_labs(self._folder).removed
            with signals_deferred():
                self._build_whole()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Remove the lab."""
        self.close()

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
            with refusals_told("cannot set up the lab"):
                self._build()
        except LabError:
            self.check(_ENDING_SECONDS)
            raise

    def _build(self) -> None:
        self._registration = Registration(self.id, self._folder)
        for name in (self.a_netns, self.b_netns):
            self._create_namespace(name)
        self.a_inode = netns.inode(self.a_netns)
        self.b_inode = netns.inode(self.b_netns)
        self.link_kind = netns.run_in(self.a_netns, self._choose_kind)
        if self.link_kind == "emulator":
            self._start_emulator()
        elif self.link_kind == "netem":
            self._make_path()
        else:
            peer = self.interface, self.b_netns
            netns.run_in(self.a_netns, partial(self._make_veth, *peer))
        self._bring_up()
        ends = {
            end: netns.run_in(self.netns_of(end), partial(self._finish, end))
            for end in ("a", "b")
        }
        if self.link_kind == "netem":
            netns.run_in(self._middle_netns, partial(netem_path.finish, self.spec))
        self.known = self.spec.known(self.link_kind)
        self.settings = {
            "congestion_control": ends["a"]["congestion_control"],
            "interface": self.interface,
            "emulator_options": list(self.spec.emulator_options),
            **ends,
        }

    def _create_namespace(self, name: str) -> None:
        self.registration.add_namespace(name, netns.create(name))
        netns.run_in(name, interface.prepare_namespace)

    def _choose_kind(self) -> LinkKind:
        if self.spec.ipv6 and not interface.kernel_has_ipv6():
            raise LabError("cannot use IPv6: this kernel has it switched off; use IPv4")
        return self.spec.kind(self.spec.has_path and qdisc.kernel_has("netem"))

    def _start_emulator(self) -> None:
        self.interface = "tun0"
        executable = find_executable("latprof-link")
        names = self.a_netns, self.b_netns
        self._emulator = LinkEmulator(executable, *names, self.spec)
        self.registration.add_process(self._emulator.pid)
        self._emulator.wait_ready()

    def _make_veth(self, peer_name: str, peer_netns: str) -> None:
        with connect() as ip:
            interface.make_veth(ip, self.interface, peer_name, peer_netns)

    def _make_path(self) -> None:
        self._create_namespace(self._middle_netns)
        for end in ("a", "b"):
            make = partial(self._make_veth, end, self._middle_netns)
            netns.run_in(self.netns_of(end), make)
        netns.run_in(self._middle_netns, partial(netem_path.bring_up, self.spec.mtu))

    def _bring_up(self) -> None:
        for end in ("a", "b"):
            known_as = None if self.link_kind == "emulator" else end
            how = self.interface, self.spec.mtu, known_as
            netns.run_in(self.netns_of(end), partial(interface.bring_up, *how))

    def _finish(self, end: str) -> dict[str, object]:
        """Set up one end of the link, in its namespace; say what was set."""
        spec, name = self.spec, self.interface
        with connect() as ip:
            congestion = interface.set_congestion(spec.congestion)
            offloads = interface.set_offloads(ip, name, spec.offloads)
            index = interface.wait_for_carrier(ip, name)
            veth = self.link_kind != "emulator"
            interface.add_addresses(ip, index, end, spec.mtu, veth)
            qdisc.shape(ip, index, spec, self.link_kind)
        return {"congestion_control": congestion, "offloads": offloads}

    def start(
        self, end: str, command: Sequence[str], *steps: child.Step, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a program in the namespace of an end; it ends with the lab.

        `steps` and `options` are as of `child.start`.
        """
        enter = enter_netns(self.netns_of(end))
        with signals_deferred():
            started = child.start(command, enter, *steps, **options)
            self._children.append(started)
            self.registration.add_process(started.pid)
        return started

    def place_emulator(self, cpu: int | None) -> None:
        """Keep the link emulator, if this lab has one, on the CPU of both ends.

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
        """Count packets: on the way, and at interfaces and qdiscs of both ends.

        Raises LabError where the link has ended, or stands still.
        """
        counters: dict[str, Any] = {}
        if self._emulator:  # first, since the interfaces are its own
            counters["emulator"] = self._emulator.counters()

        def read() -> dict[str, Any]:
            with connect() as ip:
                index = interface.index_of(ip, self.interface)
                return {
                    "interface": interface.statistics(ip, index),
                    "qdiscs": qdisc.statistics(ip, index),
                }

        for end in ("a", "b"):
            counters[end] = netns.run_in(self.netns_of(end), read)
        if self.link_kind == "netem":
            counters["netem"] = netns.run_in(self._middle_netns, netem_path.statistics)
        return counters
