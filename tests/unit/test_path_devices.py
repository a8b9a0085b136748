"""Which devices packets passed is told where any of them hides the last one."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from halves import DRAIN_NS, LAYOUT, SENDER, UDP, announcements, batch_of, record
from latprof_analysis.records import path_devices
from latprof_analysis.records.flows import IPPROTO_TCP
from latprof_analysis.records.joiner import Joiner
from latprof_analysis.records.path_devices import (
    MOST_CHAINS,
    MOST_FLOWS,
    Device,
    last_devices,
    with_last_devices,
)

ETH0, WG0 = Device("eth0", ""), Device("wg0", "wireguard")
VXLAN0, BR0 = Device("vxlan0", "vxlan"), Device("br0", "bridge")


def told(flow: int, *chain: Device, begin_ns: int = 100) -> np.ndarray:
    """What a flow tells of its first packet."""
    made = np.zeros(len(chain), LAYOUT.rings["path_devices"])
    made["flow"] = flow
    for i, device in enumerate(chain):
        made[i]["t_ns"], made[i]["lower"] = begin_ns + i, i > 0
        made[i]["ifindex"] = zlib.crc32(device.name.encode())
        for name in ("name", "kind"):
            raw = getattr(device, name).encode().ljust(16, b"\0")
            made[i][name] = np.frombuffer(raw, "u1")
    return made


def path(*chain: Device, protocol: str = "tcp", flows: int = 1) -> dict:
    devices = [{"name": device.name, "kind": device.kind} for device in chain]
    return {"protocol": protocol, "devices": devices, "flows": flows}


def paths_of(*batches: np.ndarray, protocols: dict[int, int] | None = None) -> list:
    """What a joiner counts of records in these batches, by flows' protocols."""
    joiner = Joiner(LAYOUT)
    flows = [
        record("flows", 0, 0, flow=flow, side=SENDER, protocol=protocol)
        for flow, protocol in (protocols or {1: IPPROTO_TCP}).items()
    ]
    for i, records in enumerate(batches):
        batch = batch_of(flows if i == 0 else [])
        batch["path_devices"] = records
        joiner.feed(batch, (i + 1) * DRAIN_NS)
    return joiner.path_devices.as_list()


def test_flows_are_counted_by_the_chain_of_devices_that_they_pass():
    chain = VXLAN0, BR0, ETH0
    found = paths_of(
        np.concatenate([told(1, *chain), told(2, ETH0), told(3, *chain)]),
        told(4, *chain),
        protocols={1: IPPROTO_TCP, 2: UDP, 3: IPPROTO_TCP, 4: UDP},
    )
    assert found == [
        path(*chain, flows=2),
        path(ETH0, protocol="udp"),
        path(*chain, protocol="udp"),
    ]


def test_what_a_flow_tells_again_or_out_of_turn_is_one_chain():
    chain = VXLAN0, BR0, ETH0
    again = told(1, *chain, begin_ns=500)[1:]
    records = np.concatenate([told(1, *chain)[::-1], again, again])
    assert paths_of(records, again) == [path(*chain)]
    assert paths_of(again, told(1, *chain)) == [path(*chain)]


def test_a_flow_that_came_to_pass_other_devices_is_told_by_the_newest():
    before, after = told(1, VXLAN0, ETH0), told(1, WG0, begin_ns=900)
    assert paths_of(before, after) == [path(WG0)]


def test_a_flow_whose_announcement_was_lost_has_no_protocol():
    assert paths_of(told(9, ETH0)) == [path(ETH0, protocol="")]


def test_a_device_below_of_which_the_first_is_not_known_is_no_chain():
    assert paths_of(told(1, BR0, ETH0)[1:]) == []


def test_memory_is_bounded_and_no_flow_is_counted_twice():
    joiner, count = Joiner(LAYOUT), MOST_FLOWS // 2
    for i in range(5):
        records = np.repeat(told(0, VXLAN0, ETH0), count)
        records["flow"] = np.tile(np.arange(i * count, (i + 1) * count), 2)
        batch = batch_of(announcements(1, SENDER) if i == 0 else [])
        batch["path_devices"] = records
        joiner.feed(batch, (i + 1) * DRAIN_NS)
        assert len(joiner.path_devices._passed) <= MOST_FLOWS
    # of all but one the announcement was lost
    flows = {one["protocol"]: one["flows"] for one in joiner.path_devices.as_list()}
    assert flows == {"": 5 * count - 1, "tcp": 1}


def test_chains_beyond_a_number_are_counted_together():
    count = MOST_CHAINS + 50
    chains = [told(i, Device(f"br{i}", "bridge")) for i in range(count)]
    found = paths_of(np.concatenate(chains))
    assert found[0] == path(protocol="", flows=50)
    assert len(found) == path_devices.SHOWN


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        ((ETH0,), None),
        ((Device("eth0", "veth"),), None),
        ((), None),
        ((VXLAN0, ETH0), "xmit (tcp): at the driver of eth0, below vxlan0 (vxlan)"),
        (
            (VXLAN0, BR0, Device("eth0", "veth")),
            "xmit (tcp): at the driver of eth0, below vxlan0 (vxlan) and br0 (bridge)",
        ),
        ((WG0,), "xmit (tcp): at wg0 (wireguard); what is below it counts as transit"),
        (
            (Device("gre1", "gretap"),),
            "xmit (tcp): at gre1 (gretap); what is below it counts as transit",
        ),
        (
            (BR0, Device("tun0", "tun")),
            "xmit (tcp): at tun0 (tun), below br0 (bridge); "
            "what is below it counts as transit",
        ),
        ((Device("mv0", "macvlan"),), "xmit (tcp): at mv0 (macvlan)"),
    ],
)
def test_where_xmit_was_taken_is_said_where_a_device_hides_others(chain, words):
    assert last_devices([path(*chain)]) == ([words] if words else [])


def test_the_device_of_a_labs_link_hides_nothing():
    tun0 = Device("tun0", "tun")
    assert last_devices([path(tun0)], "tun0") == []
    assert last_devices([path(VXLAN0, tun0)], "tun0") == [
        "xmit (tcp): at the driver of tun0, below vxlan0 (vxlan)"
    ]
    assert last_devices([path(tun0)], "veth0") == last_devices([path(tun0)])


def test_the_capability_of_xmit_says_it_and_no_other_does():
    capabilities = [{"quantity": "queue"}, {"quantity": "xmit"}]
    assert with_last_devices(capabilities, [path(ETH0)], "") == capabilities
    paths = [path(WG0)]
    assert with_last_devices(capabilities, paths, "") == [
        {"quantity": "queue"},
        {"quantity": "xmit", "taken": last_devices(paths)},
    ]


def test_what_holds_for_both_protocols_is_said_once():
    both = [path(VXLAN0, ETH0), path(VXLAN0, ETH0, protocol="udp"), path(ETH0)]
    assert last_devices(both) == ["xmit: at the driver of eth0, below vxlan0 (vxlan)"]
