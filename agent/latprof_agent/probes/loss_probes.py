"""What only counts: losses of live traffic (`watch`, `agent`), by place and cause.

They are rare, so they are counted all the time, also where messages are not.
"""

from __future__ import annotations

from latprof_agent.probes.catalogue import (
    BOTH,
    ITERATOR,
    LOSSES,
    TCP,
    TRACEPOINT,
    Probe,
    Way,
)


def _counted(programs: str, hooks: str, limit: str = "", arguments: int = 0) -> Way:
    names = tuple(programs.split()), TRACEPOINT, tuple(hooks.split())
    return Way(*names, limit, arguments, LOSSES)


LOSS_PROBES = (
    Probe(
        "drops by place",
        BOTH,
        (
            _counted("on_freed_for", "kfree_skb", arguments=4),
            _counted(
                "on_freed",
                "kfree_skb",
                "the socket that refused a packet is found by its port",
                arguments=3,
            ),
        ),
        "use Linux 5.17 or later",
    ),
    Probe(
        "retransmits by cause",
        TCP,
        (
            _counted(
                "on_retransmit_attempt on_retransmit_synack",
                "tcp_retransmit_skb tcp_retransmit_synack",
                arguments=3,
            ),
            _counted(
                "on_retransmit on_retransmit_synack",
                "tcp_retransmit_skb tcp_retransmit_synack",
            ),
        ),
        "none known",
    ),
    Probe(
        "connections that listeners refuse",
        TCP,
        (Way(("on_listener",), ITERATOR, ("bpf_sk_storage_map",), need=LOSSES),),
        "use Linux 5.9 or later",
    ),
    Probe(
        "unread at close (tcp)",
        TCP,
        (
            _counted(
                "on_connection on_stream_end",
                "inet_sock_set_state tcp_destroy_sock",
            ),
        ),
        "none known",
    ),
)
# What these rows count instead.
REPLACED = frozenset({"retransmits", "drops at the socket (udp)"})
