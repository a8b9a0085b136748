"""Where a segment was lost, in words, by what the kernel says."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from latprof_agent.capture.drop_names import DropNames
from latprof_agent.probes.drop_reasons import DropReasons
from latprof_agent.probes.layout import layout_of

FUNCTION = 0xFFFF_FFFF_8100_0010


@pytest.fixture
def reasons():
    """The running kernel's numbers by name."""
    found = DropReasons()
    return {found.name(number): number for number in range(200)}


def dropped_of(*records, function="tcp_v4_rcv"):
    """Told of (time, reason, device)."""
    made = np.zeros(len(records), layout_of().rings["freed_segments"])
    for row, (t_ns, reason, device) in zip(made, records, strict=True):
        row["t_ns"], row["reason"], row["location"] = t_ns, reason, FUNCTION
        row["device"][: len(device)] = np.frombuffer(device.encode(), "u1")
    functions = SimpleNamespace(names=lambda at: dict.fromkeys(at, function))
    return DropNames(functions).of(made)


@pytest.mark.parametrize(
    ("reason", "function", "where"),
    [
        ("NETFILTER_DROP", "nft", "at a packet filter (NETFILTER_DROP in nft)"),
        ("QDISC_DROP", "f", "in the queue of eth9 (QDISC_DROP in f)"),
        ("TC_INGRESS", "", "at tc of eth9 (TC_INGRESS)"),
        # a socket's queue keeps other things where the device was
        ("SOCKET_RCVBUFF", "f", "at its reader's socket (SOCKET_RCVBUFF in f)"),
        ("NEIGH_FAILED", "f", "at neighbour resolution (NEIGH_FAILED in f)"),
        (
            *("NOT_SPECIFIED", "ndisc_error_report"),
            "at neighbour resolution (ndisc_error_report)",
        ),
        ("TCP_CSUM", "f", "in the kernel (TCP_CSUM in f)"),
        ("NO_SOCKET", "f", "in the kernel (NO_SOCKET in f)"),
        ("NOT_SPECIFIED", "f", "in the kernel (f)"),
        ("NOT_SPECIFIED", "", "in the kernel"),
    ],
)
def test_the_place_is_what_the_kernel_says(reasons, reason, function, where):
    (death,) = dropped_of((5, reasons[reason], "eth9"), function=function)
    assert (death.t_ns, death.where) == (5, where)
    assert death.sure == (reason != "NOT_SPECIFIED")


@pytest.mark.parametrize("family", [4, 6])
def test_a_cookie_for_which_there_is_no_room_is_told_as_that(reasons, family):
    function = f"cookie_v{family}_check"
    (death,) = dropped_of((5, reasons["NO_SOCKET"], ""), function=function)
    assert death.where == (
        f"at a listener that takes no more connections (NO_SOCKET in {function})"
    )


@pytest.mark.parametrize(
    "reason", ["TCP_OLD_DATA", "TCP_OFOMERGE", "OTHERHOST", "PACKET_SOCK_ERROR"]
)
def test_what_had_arrived_or_was_a_copy_did_not_die(reasons, reason):
    assert dropped_of((5, reasons[reason], "eth9")) == []
