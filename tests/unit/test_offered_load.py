"""What a plan offers to a link and loses on it, by arithmetic, against real runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from latprof_analysis.study.setup import (
    expected_losses,
    message_loss,
    offered_load,
    overloads,
)

SUMMARIES = Path(__file__).parent / "summaries"


def summary_of(name: str) -> dict:
    return json.loads((SUMMARIES / f"{name}.json").read_text())


def run_of(interval_ns: int, **changed: object) -> dict:
    """What run.json says of an open loop over a link of 100 Mbit/s."""
    found = summary_of("overload")
    plan = found["workload"]["plan"] | {"interval_ns": interval_ns} | changed
    return {"workload": {"plan": plan}, "lab": found["lab"]}


def test_the_bytes_of_a_message_are_those_that_the_emulator_counted():
    found = summary_of("overload")
    plan, link = found["workload"]["plan"], found["link_counters"]["emulator"]["ab"]
    load = offered_load(plan["sizes"], plan["interval_ns"], found["lab"], "udp")
    warmup = plan["warmup_rounds"] * len(plan["sizes"])
    sent = found["round_trips"]["udp"]["sent"] + warmup
    # the last round was cut short: less than one message of 1000
    assert link["bytes_in"] / sent == pytest.approx(load.mean_bytes, rel=1e-3)


def test_an_overload_names_its_load_and_the_share_that_the_emulator_dropped():
    found = summary_of("overload")
    link = found["link_counters"]["emulator"]["ab"]
    (text,) = overloads(found, ["udp"])
    assert (
        "udp offers 139 Mbit/s each way (mean 17.4 kB with headers every 1 ms)" in text
    )
    assert "to a link of 100 Mbit/s" in text
    dropped = 100 * (1 - link["bytes_out"] / link["bytes_in"])
    # 5 s, of which the queue took 255 ms to fill: 5% less than in the long run
    said = float(text.split("then ")[1].split("%")[0])
    assert dropped == pytest.approx(said * (1 - 0.255 / 5), abs=0.6)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_with_the_interval_that_is_suggested_there_is_no_overload(protocol):
    (text,) = overloads(run_of(1_000_000), [protocol])
    assert "use --interval 2ms or" in text
    assert list(overloads(run_of(2_000_000), [protocol])) == []


def test_trains_offer_all_their_messages_at_an_interval():
    # Half of the turns are trains of 3: on average 2 messages every 2 ms.
    (alone,) = overloads(run_of(1_000_000), ["udp"])
    (trains,) = overloads(run_of(2_000_000, train_messages=3), ["udp"])
    assert "udp offers 139 Mbit/s each way" in alone
    assert "udp offers 139 Mbit/s each way" in trains
    assert "use --interval 5ms or" in trains
    assert list(overloads(run_of(5_000_000, train_messages=3), ["udp"])) == []


def test_replies_that_are_larger_than_requests_overload_the_way_back():
    run = run_of(1_000_000, sizes=[64], reply_bytes=65_000)
    (text,) = overloads(run, ["udp"])
    assert "back from its responder" in text
    run = run_of(1_000_000, reply_bytes=64)
    (text,) = overloads(run, ["udp"])
    assert "to its responder" in text


def test_a_token_bucket_counts_ethernet_headers_too():
    run = run_of(1_000_000, sizes=[1400], reply_bytes=None)
    run["lab"]["known"] |= {"rate_bps": 11_500_000, "link_header_bytes": 14}
    # 1400 + 8 + 20 + 14 bytes each millisecond are 11.536 Mbit/s
    (text,) = overloads(run, ["udp"])
    assert "offers 11.5 Mbit/s" in text
    run["lab"]["known"]["rate_bps"] = 11_537_000
    assert list(overloads(run, ["udp"])) == []


def test_datagrams_behind_a_token_bucket_are_late_and_not_lost():
    run = run_of(1_000_000)
    run["lab"]["known"] |= {"rate_is_token_bucket": True, "kind": "veth"}
    (text,) = overloads(run, ["udp"])
    assert "messages leave 392 ms later" in text  # 139.2 to 100 Mbit/s
    assert "lost" not in text


def test_without_an_interval_or_a_rate_nothing_can_be_too_much():
    assert list(overloads(run_of(0), ["udp"])) == []
    unlimited = run_of(1_000_000)
    unlimited["lab"]["known"]["rate_bps"] = None
    assert list(overloads(unlimited, ["udp"])) == []
    assert list(overloads({"workload": {"plan": None}, "lab": None}, ["tcp"])) == []


@pytest.mark.parametrize("burst", [0.0, 4.0])
def test_message_loss_is_that_of_a_chain_of_two_states(burst):
    loss, packets, messages = 0.05, 12, 60_000
    rng = np.random.default_rng(7)
    draws = rng.random((messages, packets))
    if burst:
        lost = np.empty((messages, packets), bool)
        lost[:, 0] = draws[:, 0] < loss
        begins, stays = loss / ((1 - loss) * burst), 1 - 1 / burst
        for i in range(1, packets):
            lost[:, i] = draws[:, i] < np.where(lost[:, i - 1], stays, begins)
    else:
        lost = draws < loss
    share = lost.any(axis=1).mean()
    # four standard errors of a share
    assert message_loss(packets, loss, burst) == pytest.approx(share, abs=0.008)


def test_losses_expected_of_a_run_are_those_it_had():
    found = summary_of("loss")
    plan, udp = found["workload"]["plan"], found["round_trips"]["udp"]
    (text,) = expected_losses(found, ["udp"])
    assert "1% of packets are lost each way: a udp message of 45 packets" in text
    assert text.endswith("is lost in 36%")
    # 1472 bytes of a datagram fit into one packet, and each has 8 more of header
    packets = [int(np.ceil((size + 8) / 1480)) for size in plan["sizes"]]
    both_ways = [1 - (1 - message_loss(n, 0.01)) ** 2 for n in packets]
    # 420 round trips: two standard errors are 3.8%
    assert udp["loss_ratio"] == pytest.approx(np.mean(both_ways), abs=0.038)


def test_messages_of_one_packet_need_no_arithmetic():
    found = summary_of("loss")
    found["workload"]["plan"]["sizes"] = [18, 1400]
    assert list(expected_losses(found, ["tcp", "udp"])) == []


def test_a_reader_that_works_longer_than_an_interval_is_told_of_with_its_arithmetic():
    slow = {"busy_ns": 1_500_000, "think_ns": 700_000, "sizes": [64]}
    (text,) = overloads(run_of(2_000_000, **slow), ["udp"])
    assert text.startswith(
        "the responder works 2.2 ms for a message, and one is due every 2 ms: each "
        "waits 200 us longer than the one before"
    )
    assert list(overloads(run_of(2_200_000, **slow), ["udp"])) == []
    # half of the turns are trains of 3
    (_,) = overloads(run_of(4_000_000, train_messages=3, **slow), ["udp"])
    assert list(overloads(run_of(0, **slow), ["udp"])) == []
