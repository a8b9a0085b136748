"""What each stamp needs of the kernel, and what the running kernel offers.

One row per quantity; its ways are tried in order. The kernel is asked for the
hook in its BTF, then by loading the program: never by its version.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from latprof_agent import _drain
from latprof_agent.errors import CaptureError, remedy
from latprof_agent.probes.cgroup import is_root, widest_mount
from latprof_agent.probes.layout import OLD_OBJECT
from latprof_agent.probes.trial import (
    ANOTHER_CLANG,
    Refusal,
    first_line,
    kernel_object,
    missing_basis,
    missing_counting,
    refusal,
)

State = Literal["exact", "partial", "unavailable"]
TRACEPOINT, FUNCTION, STRUCT, CGROUP = "tracepoint", "function", "struct", "cgroup"
ITERATOR, CLOCK = "iterator", "clock"
CLOCK_HERTZ = 499  # stacks a second of each CPU; no multiple of what timers do

# What slows those who are not watched is attached only while it is needed.
Need = Literal[
    "always",
    "where UDP is watched",
    "while watched UDP sockets send",
    "where watched sockets use a queue or UDP",
    "where tasks are hidden",
    "with --pid, --comm or --cgroup, once",
    "with --pid or --comm",
    "with --pid",
    "in watch and agent, once a second",
    "in watch and agent, also between windows",
    "with --story",
    "also between windows",
]
ALWAYS: Need = "always"
# Before the first of them: what was read until then is in no other place.
UDP_READS: Need = "where UDP is watched"
UDP_SENDS: Need = "while watched UDP sockets send"
QUEUES: Need = "where watched sockets use a queue or UDP"
HIDDEN_TASKS: Need = "where tasks are hidden"
OPEN_SOCKETS: Need = "with --pid, --comm or --cgroup, once"
NEW_SOCKETS: Need = "with --pid or --comm"
NEW_PROCESSES: Need = "with --pid"
IDLE_EXCHANGES: Need = "in watch and agent, once a second"
LOSSES: Need = "in watch and agent, also between windows"
STORIES: Need = "with --story"
RENAMES: Need = "also between windows"
# What chooses the sockets of processes: only where a filter asks for it.
BY_FILTER = frozenset({OPEN_SOCKETS, NEW_SOCKETS, NEW_PROCESSES})
ON_DEMAND = BY_FILTER | {IDLE_EXCHANGES, STORIES}
# What is counted in the kernel, not recorded.
COUNTING = frozenset({IDLE_EXCHANGES, LOSSES})
# What is not worth its first messages: only live traffic is watched without it.
LIVE_ONLY = frozenset({QUEUES})


# Programs of the flight recorder that do another's work, too: a hook is paid for by
# each program that it has, 50 ns and more.
COVERED = {"on_flight_switch": "on_switch", "on_flight_handed": "on_queue"}


@dataclass(frozen=True)
class Way:
    """One way to take a quantity: programs that need certain hooks."""

    programs: tuple[str, ...]
    kind: str
    hooks: tuple[str, ...]
    limit: str = ""  # what keeps it from being exact
    arguments: int = 0  # that a tracepoint must give at least
    need: Need = ALWAYS


@dataclass(frozen=True)
class Probe:
    """One quantity, for one protocol or both."""

    quantity: str
    protocols: tuple[str, ...]
    ways: tuple[Way, ...]
    remedy: str

    def asked_for(self, protocols: tuple[str, ...], needs: frozenset[Need]) -> bool:
        """Whether a recording of these protocols, by a filter's needs, has it."""
        on_demand = {way.need for way in self.ways} & ON_DEMAND
        return bool(set(protocols) & set(self.protocols)) and on_demand <= needs


BOTH, TCP, UDP = ("tcp", "udp"), ("tcp",), ("udp",)


def _tracepoint(
    programs: str,
    hooks: str,
    limit: str = "",
    arguments: int = 0,
    need: Need = ALWAYS,
) -> Way:
    names = tuple(programs.split()), TRACEPOINT, tuple(hooks.split())
    return Way(*names, limit, arguments, need)


def _function(programs: str, hooks: str, limit: str = "") -> Way:
    return Way(tuple(programs.split()), FUNCTION, tuple(hooks.split()), limit)


ALREADY_OPEN = "sockets that are open already"
PROBES = (
    Probe(
        "send (tcp)",
        TCP,
        (
            _tracepoint("on_send", "tcp_sendmsg_locked"),
            _function("on_send_fentry", "tcp_sendmsg_locked"),
        ),
        "use Linux 6.16 or later, or a kernel that allows fentry",
    ),
    Probe(
        # fentry first: sys_enter slows every system call of the host
        "send (udp)",
        UDP,
        (
            _function("on_udp_send on_udpv6_send", "udp_sendmsg udpv6_sendmsg"),
            _tracepoint(
                "on_syscall on_send_return",
                "sys_enter sock_send_length",
                "from the entry of the send system call, not seen for io_uring",
                need=UDP_SENDS,
            ),
        ),
        "use Linux 6.3 or later, or a kernel that allows fentry",
    ),
    Probe(
        # what leaves then is in no call of its sender
        "waits for link addresses",
        BOTH,
        (_tracepoint("on_unresolved", "neigh_event_send_done"),),
        "use Linux 5.1 or later",
    ),
    Probe(
        "queue",
        BOTH,
        (_tracepoint("on_queue", "net_dev_queue", need=QUEUES),),
        "none known",
    ),
    Probe("xmit", BOTH, (_tracepoint("on_xmit", "net_dev_start_xmit"),), "none known"),
    Probe(
        "drops before the driver (udp)",
        UDP,
        (_tracepoint("on_drop", "kfree_skb"),),
        "none known",
    ),
    Probe(
        "arrive (tcp)",
        TCP,
        (
            _tracepoint(
                "on_arrive on_segment",
                "netif_receive_skb tcp_probe",
                "missing for segments that TCP merged while their socket was in use",
            ),
        ),
        "none known",
    ),
    Probe(
        "arrive (udp)",
        UDP,
        (_tracepoint("on_arrive", "netif_receive_skb"),),
        "none known",
    ),
    Probe(
        "ready",
        BOTH,
        (
            _tracepoint("on_ready", "sk_data_ready"),
            _function("on_ready_fentry", "sock_def_readable"),
        ),
        "use Linux 6.3 or later, or a kernel that allows fentry",
    ),
    Probe(
        "read (tcp)",
        TCP,
        (_tracepoint("on_read", "tcp_rcv_space_adjust"),),
        "none known",
    ),
    Probe(
        "read (udp)",
        UDP,
        (
            _tracepoint("on_receive_return", "sock_recv_length", need=UDP_READS),
            _function("on_udp_consume", "skb_consume_udp"),
        ),
        "use Linux 6.3 or later, or a kernel that allows fentry",
    ),
    Probe(
        "wakeup",
        BOTH,
        (
            Way(
                (),
                STRUCT,
                ("sched_info",),
                "missing where another thread read the socket than the time before",
            ),
        ),
        "use a kernel with CONFIG_SCHEDSTATS or CONFIG_TASK_DELAY_ACCT",
    ),
    Probe(
        "untraced time",
        BOTH,
        (_tracepoint("on_switch", "sched_switch", need=HIDDEN_TASKS),),
        "none known",
    ),
    Probe(
        "unread at close (udp)",
        UDP,
        (Way(("on_release",), CGROUP, ("sock_release",)),),
        "mount cgroup v2",
    ),
    Probe(
        "messages never sent (tcp)",
        TCP,
        (_tracepoint("on_state on_destroy", "inet_sock_set_state tcp_destroy_sock"),),
        "none known",
    ),
    Probe(
        "retransmits",
        TCP,
        (
            _tracepoint("on_retransmit_attempt", "tcp_retransmit_skb", arguments=3),
            _tracepoint("on_retransmit", "tcp_retransmit_skb"),
        ),
        "none known",
    ),
    Probe(
        "drops at the socket (udp)",
        UDP,
        (
            _tracepoint("on_receive_queue_full", "udp_fail_queue_rcv_skb", arguments=3),
            _tracepoint(
                "on_receive_queue_full_count",
                "udp_fail_queue_rcv_skb",
                "counted, but not which datagram it was",
            ),
        ),
        "use Linux 6.10 or later",
    ),
    Probe(
        "exchanges that are over (tcp)",
        TCP,
        (
            Way(
                ("on_stream_idle",),
                ITERATOR,
                ("bpf_sk_storage_map",),
                need=IDLE_EXCHANGES,
            ),
        ),
        "use Linux 5.9 or later",
    ),
    Probe(
        "exchanges that are over (udp)",
        UDP,
        (
            Way(
                ("on_datagram_idle",),
                ITERATOR,
                ("bpf_map_elem",),
                need=IDLE_EXCHANGES,
            ),
        ),
        "use Linux 5.9 or later",
    ),
    Probe(
        ALREADY_OPEN,
        BOTH,
        (Way(("on_open_file",), ITERATOR, ("task_file",), need=OPEN_SOCKETS),),
        "use --port",
    ),
    Probe(
        "sockets that a process makes",
        BOTH,
        (Way(("on_create",), CGROUP, ("sock_create",), need=NEW_SOCKETS),),
        "mount cgroup v2, or use --port",
    ),
    Probe(
        "children of a process",
        BOTH,
        (
            _tracepoint(
                "on_fork on_exit",
                "sched_process_fork sched_process_exit",
                need=NEW_PROCESSES,
            ),
        ),
        "use --comm",
    ),
    Probe(
        "new names of processes",
        BOTH,
        (_tracepoint("on_rename", "task_rename", need=RENAMES),),
        "none known",
    ),
)

# Of the object for old kernels. What that keeps of sockets and tasks ends with them:
# these rows are the last, and so are attached first.
ENDS_OF_SOCKETS = "ends of sockets"
OLD_PROBES = (
    Probe(
        ALREADY_OPEN,
        BOTH,
        (
            Way(
                ("on_open_file", "on_open_tcp", "on_open_udp"),
                ITERATOR,
                ("task_file", "tcp", "udp"),
                "missing in network namespaces that have neither a process nor a name, "
                "and by names of threads beyond a process' first 128",
                need=OPEN_SOCKETS,
            ),
        ),
        "use --port",
    ),
    Probe(
        ENDS_OF_SOCKETS,
        BOTH,
        (
            _function(
                "on_socket_free on_socket_clone",
                "bpf_sk_storage_free bpf_sk_storage_clone",
            ),
        ),
        "use Linux 5.17 or later, or a kernel that allows fentry",
    ),
    Probe(
        "ends of threads",
        BOTH,
        (_tracepoint("on_task_free", "sched_process_free"),),
        "use Linux 5.17 or later",
    ),
)


@dataclass(frozen=True)
class Capability:
    """What the running kernel offers of one quantity."""

    quantity: str
    state: State
    source: str  # the hooks it is taken from
    reason: str
    remedy: str
    programs: tuple[str, ...]
    need: Need = ALWAYS
    verifier_log: str = ""  # its end, where the verifier refused a program

    def as_dict(self) -> dict[str, Any]:
        """For run.json and `latprof probes --json`."""
        return asdict(self)


# By program: why it cannot be used, or nothing where it was tried.
Refused = dict[str, Refusal | None]

SOURCE_WORDS = {
    FUNCTION: "fentry ",
    CGROUP: "cgroup/",
    STRUCT: "task's ",
    ITERATOR: "iter/",
    CLOCK: "perf event ",
}


def missing_hook(way: Way) -> str:
    """Return what this kernel lacks of what a way is attached to, or nothing."""
    if way.kind == CGROUP:
        return "" if widest_mount() else "cgroup v2 is not mounted"
    if way.kind == CLOCK:
        return ""  # software has it everywhere; a load shows who may use it
    for hook in way.hooks:
        known = ("struct", f"bpf_iter__{hook}") if way.kind == ITERATOR else None
        if not _drain.kernel_has(*(known or (way.kind, hook)), way.arguments):
            arguments = f" with {way.arguments} arguments" if way.arguments else ""
            return f"kernel has no {way.kind} {hook}{arguments}"
    return ""


def _refusal_on_trial(program: str, way: Way) -> Refusal | None:
    if way.kind == CLOCK:
        return refusal([program], attach=True, hertz=CLOCK_HERTZ)
    mount = widest_mount() if way.kind == CGROUP else None
    if not mount:
        return refusal([program], attach=True)
    group = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return refusal([program], attach=True, cgroup=group)
    finally:
        os.close(group)


def _try_way(way: Way, refused: Refused) -> Refusal | None:
    """Return why a way cannot be taken, or nothing; notes what was refused.

    A function may be there and yet not be ours to take (lockdown).
    """
    if missing := missing_hook(way):
        return Refusal(missing)
    if way.programs and (lacks := missing_basis(way.programs)):
        return lacks
    if way.need in COUNTING and (lacks := missing_counting()):
        return lacks
    for program in way.programs:
        if program not in refused and way.kind in (FUNCTION, CGROUP, CLOCK):
            refused[program] = _refusal_on_trial(program, way)
        if found := refused.get(program):
            who = "the kernel's verifier" if found.verifier_log else "kernel"
            return replace(found, why=f"{who} refuses {program}: {found.why}")
    return None


# What a newer kernel would not change.
_HAS_ALL = "none known: the kernel has it, and does not let it be used"


def _remedy(probe: Probe, refusals: list[Refusal]) -> str:
    if any(one.verifier_log for one in refusals):
        return ANOTHER_CLANG
    if of_all := next((one.remedy for one in refusals if one.remedy), ""):
        return of_all
    return probe.remedy if any(map(missing_hook, probe.ways)) else _HAS_ALL


def _groups_not_seen(way: Way) -> str:
    """Say whose sockets a program of control groups does not see, if any."""
    mount = widest_mount() if way.kind == CGROUP else None
    if not mount or is_root(mount):
        return ""
    return (
        f"sees sockets of the control groups below {mount} only, which is not the root "
        "of all: latprof is in a cgroup namespace of its own (containers: mount the "
        "host's /sys/fs/cgroup at /host/sys/fs/cgroup, or use --cgroupns=host)"
    )


def _capability(probe: Probe, refused: Refused) -> Capability:
    refusals = []
    for way in probe.ways:
        found = _try_way(way, refused)
        if not found:
            limits = [*filter(None, (way.limit, _groups_not_seen(way)))]
            state: State = "partial" if limits else "exact"
            kind = SOURCE_WORDS.get(way.kind, "")
            source = ", ".join(kind + hook for hook in way.hooks)
            return Capability(
                *(probe.quantity, state, source, "; ".join(limits)),
                *("", way.programs, way.need),
            )
        refusals.append(found)
    log = next((one.verifier_log for one in refusals if one.verifier_log), "")
    return Capability(
        probe.quantity,
        "unavailable",
        "",
        "; ".join(one.why for one in refusals),
        _remedy(probe, refusals),
        (),
        probe.ways[0].need,
        log,
    )


def _of_object(table: tuple[Probe, ...]) -> tuple[Probe, ...]:
    """Add what is only in the object for old kernels, where this is to take that."""
    if kernel_object() != OLD_OBJECT:
        return table
    return tuple({probe.quantity: probe for probe in (*table, *OLD_PROBES)}.values())


def _ask(
    protocols: tuple[str, ...],
    table: tuple[Probe, ...],
    needs: frozenset[Need],
    refused: Refused,
) -> list[Capability]:
    try:
        return [
            _capability(probe, refused)
            for probe in _of_object(table)
            if probe.asked_for(protocols, needs)
        ]
    except OSError as error:
        needs_btf = (
            "latprof needs a kernel with BTF (CONFIG_DEBUG_INFO_BTF=y), "
            "and /sys/kernel/btf/vmlinux where it runs"
        )
        raise CaptureError(
            f"cannot read the kernel's types: {first_line(error)}; "
            f"{remedy(error.errno, needs_btf)}"
        ) from error


def capabilities(
    protocols: tuple[str, ...] = BOTH,
    table: tuple[Probe, ...] = PROBES,
    needs: frozenset[Need] = frozenset(),
) -> list[Capability]:
    """Ask the running kernel for every quantity of these protocols.

    It has the hooks; the load will show whether it takes the programs. Raises
    CaptureError where the kernel has no BTF at all.
    """
    return _ask(protocols, table, needs, {})


def proven_capabilities(
    protocols: tuple[str, ...] = BOTH,
    table: tuple[Probe, ...] = PROBES,
    needs: frozenset[Need] = frozenset(),
) -> list[Capability]:
    """Do the same, and without the programs that the kernel refuses to load."""
    refused: Refused = {}
    while True:
        found = _ask(protocols, table, needs, refused)
        programs = sorted({p for c in found for p in c.programs})
        first = refusal(programs)
        if not first:
            return found
        if first.program in programs:  # to try each by itself takes seconds
            refused[first.program] = first
            continue
        refused |= {p: refusal([p]) for p in programs if p not in refused}
        if not any(map(refused.get, programs)):
            return found  # no program is at fault: the load itself will say what


def require_counting() -> None:
    """Raise CaptureError where nothing can be counted in the kernel."""
    if lacks := missing_counting():
        raise CaptureError(
            f"cannot count in the kernel, as watch and agent do: {lacks.why}; "
            f"{lacks.remedy}, or record instead (`latprof run attach`)"
        )


# Without these no message is followed from end to end.
NEEDED = ("xmit", "ready", ENDS_OF_SOCKETS)


def require_both_halves(
    found: list[Capability], needs: frozenset[Need] = BY_FILTER
) -> None:
    """Raise CaptureError where no message could be seen to leave and to come.

    Or where the sockets that a filter with these needs asks for cannot be
    distinguished from others.
    """
    lacks = [c for c in found if c.state == "unavailable"]
    for what, missing in (
        ("follow messages", [c for c in lacks if c.quantity in NEEDED]),
        ("attach to processes", [c for c in lacks if c.need in needs]),
    ):
        if missing:
            raise CaptureError(
                f"cannot {what}: {missing[0].quantity}: {missing[0].reason}; "
                f"{missing[0].remedy}"
            )
