"""What is made of the probes' tables of losses."""

from __future__ import annotations

import numpy as np
import pytest
from latprof_agent.capture.histograms import GROUPS
from latprof_agent.monitor.losses import SETTLED_SECONDS, Losses
from latprof_agent.monitor.totals import Drop, Group, GroupTotals
from latprof_agent.probes.drop_reasons import DropReasons, DropVerdict, verdict_of
from latprof_agent.probes.kernel_functions import KernelFunctions
from latprof_agent.probes.layout import layout_of
from latprof_analysis.report.sentences import capability_sentence

# Another kernel's numbers than this one's.
LABELS = {
    "SKB_NOT_DROPPED_YET": 0,
    "SKB_DROP_REASON_NOT_SPECIFIED": 1,
    "SKB_DROP_REASON_NO_SOCKET": 2,
    "SKB_DROP_REASON_QDISC_DROP": 3,
    "SKB_DROP_REASON_TCP_OLD_DATA": 4,
    "SKB_DROP_REASON_NETFILTER_DROP": 5,
    "SKB_DROP_REASON_TCP_LISTEN_OVERFLOW": 6,
}
HIDDEN = "0000000000000000 A fixed_percpu_data\n0000000000000000 T startup_64\n"
SUBSYSTEMS = {"SKB_DROP_REASON_SUBSYS_OPENVSWITCH": 3}
# It begins as Debian's 6.1 does.
SYMBOLS = """\
0000000000000000 A fixed_percpu_data
0000000000000700 A runqueues
0000000000001000 T early
0000000000002000 t middle.constprop.0
0000000000003000 T late
0000000000002800 t of_module	[some]
"""
SERVER = Group(protocol="tcp", role="server", service="80")
NAMES = {2: SERVER}


@pytest.fixture
def functions(tmp_path):
    (tmp_path / "kallsyms").write_text(SYMBOLS)
    found = KernelFunctions(tmp_path / "kallsyms")
    yield found
    found.close()


class Tables:
    """Stands for the kernel's maps, and for a clock."""

    def __init__(self, functions):
        self.layout = layout_of()
        self.rows = []
        self.segments = np.zeros(GROUPS, self.layout.segments)
        self.now = 100.0
        reasons = DropReasons(LABELS, SUBSYSTEMS)
        self.losses = Losses(
            self.layout,
            self.entries,
            lambda: self.segments,
            functions,
            reasons,
            lambda: self.now,
        )

    def drop(self, packets, place="at_sender", **fields):
        self.rows.append((packets, {"place": self.layout.drop_places[place], **fields}))

    def entries(self, name, key, value):
        keys, values = np.zeros(len(self.rows), key), np.zeros(len(self.rows), value)
        for at, (packets, fields) in enumerate(self.rows):
            for field, number in {"group": 2, "protocol": 6, **fields}.items():
                keys[at][field] = number
            values[at]["packets"] = values[at]["buffers"] = packets
            values[at]["bytes"] = packets * 10
            values[at]["device"][:4] = list(b"eth0")
        return keys, values

    def read(self):
        groups = {}
        self.losses.account(1.0, 1.0, 0.0)
        self.losses.add_to(groups, NAMES)
        return groups

    def drops(self):
        return self.read().get(SERVER, GroupTotals()).drops


@pytest.fixture
def tables(functions):
    return Tables(functions)


@pytest.mark.parametrize(
    ("reason", "at_receiver", "verdict"),
    [
        ("QDISC_DROP", False, DropVerdict.LOST),
        ("a reason of a later kernel", True, DropVerdict.LOST),
        ("TCP_OLD_DATA", True, DropVerdict.DUPLICATE),
        ("NO_SOCKET", True, DropVerdict.HARMLESS),
        ("NOT_SPECIFIED", False, DropVerdict.HARMLESS),
        ("QUEUE_PURGE", True, DropVerdict.HARMLESS),
        ("QUEUE_PURGE", False, DropVerdict.LOST),
    ],
)
def test_a_reason_tells_whether_data_was_lost(reason, at_receiver, verdict):
    assert verdict_of(reason, at_receiver=at_receiver) is verdict


def test_names_come_from_the_kernels_own_numbers():
    reasons = DropReasons(LABELS, SUBSYSTEMS)
    assert reasons.name(3) == "QDISC_DROP"
    assert reasons.name(0) == "NOT_DROPPED_YET"
    assert reasons.name(3 << 16 | 2) == "openvswitch 2"
    assert reasons.name(9 << 16 | 1) == "subsystem 9 1"
    assert reasons.name(77) == "reason 77"


def test_addresses_are_in_the_function_before_them(functions):
    names = functions.names([0x1000, 0x1FFF, 0x2004, 0x2900, 0x2A00, 0x3001, 0x800])
    assert names == {
        0x800: "",
        0x1000: "early",
        0x1FFF: "early",
        0x2004: "middle",
        0x2900: "of_module",
        0x2A00: "of_module",
        0x3001: "late",
    }


@pytest.mark.parametrize("text", ["", HIDDEN, "no symbols\n"])
def test_hidden_addresses_are_said_once_and_leave_the_reason(tmp_path, text):
    (tmp_path / "kallsyms").write_text(text)
    functions = KernelFunctions(tmp_path / "kallsyms")
    tables = Tables(functions)
    tables.drop(5, reason=5, location=0x2004)
    assert tables.drops() == {Drop("sender", "NETFILTER_DROP"): 5}
    told = capability_sentence(functions.capability.as_dict())
    assert told.startswith("unavailable: functions that drop: the kernel hides ")
    assert "kptr_restrict" in told
    functions.close()


def test_a_drop_has_its_place_device_and_function(tables, functions):
    assert functions.capability.state == "exact"
    tables.drop(1, reason=3, location=0x2004, qdisc=0x100000)
    tables.drop(2, reason=3, qdisc=0x2)
    tables.drop(4, "between", reason=5)
    tables.drop(8, "at_receiver", reason=5)
    tables.drop(16, "unread")
    tables.drop(32, "refused")
    assert tables.drops() == {
        Drop("qdisc", "QDISC_DROP", "middle", "eth0 10:"): 1,
        Drop("qdisc", "QDISC_DROP", "", "eth0 0:2"): 2,
        Drop("elsewhere", "NETFILTER_DROP"): 4,
        Drop("receiver", "NETFILTER_DROP"): 8,
        Drop("close", "unread"): 16,
        Drop("socket", "refused"): 32,
    }
    (totals,) = tables.read().values()
    assert sum(totals.dropped_bytes.values()) == 630


def test_neither_acknowledgements_nor_what_nobody_wants_are_losses(tables):
    tables.drop(5, reason=3, empty=1)
    tables.drop(5, "at_receiver", reason=2)
    assert tables.read() == {}
    tables.drop(3, "at_receiver", reason=4)
    assert tables.read()[SERVER].arrivals == {"duplicate": 3}
    assert tables.drops() == {}


def test_the_end_of_a_handshake_that_is_refused_counts_once(tables):
    tables.drop(7, "refused")
    tables.drop(3, "at_receiver", reason=6, empty=1)
    assert tables.drops() == {Drop("socket", "refused"): 4}


def test_what_has_no_group_yet_is_of_its_protocol(tables):
    tables.drop(5, reason=3, group=0, protocol=17)
    assert list(tables.read()) == [Group(protocol="udp")]


def transit(tables):
    return tables.drops()[Drop("transit", "unseen")]


def test_transit_is_what_was_sent_again_and_did_not_die_here(tables):
    tables.segments[2]["fast"], tables.segments[2]["timeout"] = 10, 5
    tables.segments[2]["handshake"] = 100
    tables.segments[2]["spurious"], tables.segments[2]["unproven"] = 2, 1
    tables.drop(3, "at_receiver", reason=5, group=0, sender=2)
    assert transit(tables) == 0  # the peer may still report duplicates
    tables.now += SETTLED_SECONDS
    assert transit(tables) == 15 - 2 - 1 - 3
    # what is told later never takes back what was counted
    tables.segments[2]["spurious"] += 5
    assert transit(tables) == 9
    tables.segments[2]["fast"] += 6
    tables.now += SETTLED_SECONDS
    assert transit(tables) == 9
    tables.now += SETTLED_SECONDS
    assert transit(tables) == 10


def test_causes_and_arrivals_are_counted_by_group(tables):
    tables.segments[2]["fast"], tables.segments[2]["early"] = 4, 3
    totals = tables.read()[SERVER]
    assert totals.retransmits == {"fast": 4}
    assert totals.arrivals == {"early": 3}


def test_early_segments_stand_for_those_between_windows(tables):
    tables.segments[2]["early"] = 4
    tables.losses.account(2.0, 2.0, 0.0)  # 2 a second
    tables.segments[2]["early"] += 6
    # of 1 s, attached for 1.5: 4 a second
    tables.losses.account(1.0, 1.5, 2.0)
    tables.losses.stand_for(3.0)
    (totals,) = tables.read().values()
    assert totals.arrivals == {"early": 4 + 2 + 4 + 4 + 3 * 4}


def test_losses_of_a_group_that_is_gone_are_others(tables):
    tables.segments[2]["fast"], tables.segments[2]["early"] = 4, 3
    tables.drop(5, reason=3)
    tables.drop(7, reason=3, group=3)
    before = tables.read()[SERVER]
    taken = []

    def take(name, key):
        taken.append(name)
        (at,) = (i for i, (_, f) in enumerate(tables.rows) if "group" not in f)
        value = tables.entries(name, tables.layout.drop, tables.layout.dropped)[1][at]
        del tables.rows[at]
        return value.tobytes()

    tables.losses.move({2: 1}, take)
    assert taken == ["drops"]
    other = Group(protocol="tcp", role="client", service="other")
    groups = {}
    tables.losses.add_to(groups, NAMES | {1: other})
    assert groups[other].drops == before.drops
    assert groups[other].retransmits == before.retransmits
    assert groups[other].arrivals == before.arrivals
    assert SERVER not in groups


def test_functions_are_looked_up_for_losses_alone(tables, functions, monkeypatch):
    asked = []
    monkeypatch.setattr(
        functions, "names", lambda addresses: asked.extend(addresses) or {}
    )
    tables.drop(5, reason=2, location=0x1234)  # NO_SOCKET: no loss
    tables.drop(5, reason=3, location=0x5678)
    tables.read()
    assert asked == [0x5678]
