"""The workloads under a stock kernel, and the queues that only such a kernel has.

One boot for each kernel. The link is so slow that what its queue holds up is long
against what a guest adds, on a busy host, too.
"""

import json
import os
import statistics
from collections import Counter

import pytest
from guest import boot
from latprof_analysis.report.load_text import load_sentences

pytestmark = pytest.mark.thorough

RATE_BPS = 4_000_000
QUEUE_BYTES = 40_000
FULL_PACKET_BYTES = 1514
LIMIT_PACKETS = QUEUE_BYTES // FULL_PACKET_BYTES
# A datagram of 1400 bytes as a qdisc counts it.
DATAGRAM_BYTES = 1442
# What fq_codel holds up, whose target is 5 ms, is far from it on any host.
FULL_NS = 8e9 * QUEUE_BYTES / RATE_BPS
HOSTS, MESSAGES = 3, 20
PAIRS = HOSTS * (HOSTS - 1)
VOLUME_BYTES, NETEM_BYTES = 3_000_000, 1_500_000
ROUNDS, WARMUP = 20, 2
REQUEST, REPLY = "loaded", "loaded reply"
OPS = ("GET", "SET", "EXISTS", "EVICT")

# What tc says at last is of a queue that is empty.
SCRIPT = f"""
plain="--rate 0 --delay 0 --json"
step mesh run mesh --hosts {HOSTS} --protocol udp --sizes 1024 \
    --messages {MESSAGES} --tests 1 --interval 20ms $plain --out mesh
step bulk run bulk --protocol udp --channels 2 --volume {VOLUME_BYTES} \
    --send-way gso --receive-way gro $plain --out bulk
step netem run bulk --protocol udp --channels 1 --volume {NETEM_BYTES} \
    --offer 20mbit --rate 10mbit --delay 1ms --loss 1% --emulator never --queue 40000 \
    --json --out netem
step ops run ops --backend floor --payload-sizes 1000,100000 \
    --rounds {ROUNDS} $plain --out ops

$python -m latprof_agent echo --port 7107 --json >echo.out 2>echo.err &
until grep -q listens echo.err; do sleep 0.1; done
step to run --to 127.0.0.1:7107 --sizes 64 --rounds {ROUNDS} --warmup {WARMUP} \
    --json --out to
kill $!
wait $!; echo $? >echo.status

watch_tc() {{
    until ls /run/netns | grep -q -- '-a$'; do sleep 0.2; done
    ip netns exec "$(ls /run/netns | grep -- '-a$')" bash -c '
        until tc qdisc show dev veth0 | grep -q tbf; do sleep 0.2; done
        while tc -s -j qdisc show dev veth0; do sleep 0.3; done' >$1.tc 2>tc.err
}}
loaded() {{
    local name=$1; shift
    step $name run --qdisc tbf --rate {RATE_BPS} --queue {QUEUE_BYTES} --leaf "$@" \
        --protocol udp --sizes 64 --interval 25ms --duration 1 \
        --json --out $name
}}
for leaf in pfifo fq_codel; do
    watch_tc $leaf &
    loaded $leaf $leaf --load tcp:16
    wait $!
done
loaded down fq_codel --load udp:1:down:5mbit
loaded both fq_codel --load udp:1:both:5mbit
"""


@pytest.fixture(scope="module")
def guest(kernel, tmp_path_factory):
    if os.environ.get("LATPROF_VM_PATHS") != "1":
        pytest.skip("three minutes a kernel: set LATPROF_VM_PATHS=1")
    return boot(kernel, "real", SCRIPT, tmp_path_factory.mktemp("workloads"))


def beside_load(guest, step):
    """What the summary says of the ping-pong beside a load."""
    return guest.json(step)["load"]["protocols"]["udp"]


def waits_ns(guest, step, kind):
    """The median wait in the sender's queue of messages beside the load.

    Of all rows: a guest is so slow that figures leave many out, in which the kernel
    counted what probes cost.
    """
    rows = [row for row in guest.rows(step) if row["kind"] == kind]
    waits = [int(row["qdisc_ns"]) for row in rows if row["qdisc_ns"]]
    assert len(waits) >= 10
    return statistics.median(waits)


def queue_of(guest, step, end, kind):
    """What was seen of one qdisc while the load was there."""
    (queue,) = (
        queue
        for queue in beside_load(guest, step)["queues"]
        if (queue["place"], queue["kind"]) == (end, kind)
    )
    return queue


def held_bytes(guest, step, end, kind):
    """Its median backlog."""
    return queue_of(guest, step, end, kind)["median_bytes"]


def tc_rows(guest, step, kind):
    """What tc said of a qdisc of a's end, one look after the other."""
    lines = (guest.folder / f"{step}.tc").read_text().splitlines()
    looks = [json.loads(line) for line in lines]
    return [row for rows in looks for row in rows if row["kind"] == kind]


def test_a_message_waits_in_a_full_pfifo_for_its_size_over_the_rate(guest):
    looks = [row for row in tc_rows(guest, "pfifo", "pfifo") if row["backlog"]]
    assert {row["options"]["limit"] for row in looks} == {LIMIT_PACKETS}
    assert max(row["qlen"] for row in looks) >= 0.9 * LIMIT_PACKETS
    held = held_bytes(guest, "pfifo", "a", "pfifo")
    # some looks each, at a queue that TCP leaves a part of for a while
    assert held == pytest.approx(
        statistics.median(row["backlog"] for row in looks), rel=0.25
    )
    # a packet of TCP may be of two segments, so that more fit in
    waits = waits_ns(guest, "pfifo", REQUEST)
    # those that came when it was quite full are lost
    assert 0.5 < waits / (8e9 * held / RATE_BPS) < 1.2
    assert waits > 0.6 * FULL_NS
    assert waits_ns(guest, "pfifo", REPLY) < FULL_NS / 10


def test_in_fq_codel_a_message_passes_what_waits_of_others(guest):
    assert waits_ns(guest, "fq_codel", REQUEST) < FULL_NS / 3
    assert tc_rows(guest, "fq_codel", "fq_codel")[-1]["drops"] > 0


@pytest.mark.parametrize("kind", ["pfifo", "fq_codel"])
def test_the_summary_counts_as_tc_and_names_the_queue(guest, kind):
    summary = guest.json(kind)
    for row in summary["link_counters"]["a"]["qdiscs"]:
        at_last = tc_rows(guest, kind, row["kind"])[-1]
        assert (row["handle"], row["backlog_bytes"]) == (at_last["handle"], 0)
        names = ("dropped_packets", "sent_packets", "sent_bytes")
        said = [at_last[name] for name in ("drops", "packets", "bytes")]
        assert [row[name] for name in names] == said
    (sentence,) = load_sentences(summary)
    if kind == "pfifo":  # in fq_codel a message waits so little that all else counts
        assert f"in qdisc of requests: {kind} 2: at a's veth0 holds" in sentence
    assert queue_of(guest, kind, "a", kind)["handle"] == "2:"


@pytest.mark.parametrize(
    ("step", "ways"),
    [("fq_codel", {"up"}), ("down", {"down"}), ("both", {"up", "down"})],
)
def test_the_direction_that_is_loaded_is_named(guest, step, ways):
    (flows,) = beside_load(guest, step)["flows"]
    assert {way for way in ("up", "down") if flows[way]} == ways
    for way in ways:
        moved = flows[way]
        assert moved["sent"] == moved["received"] + moved.get("lost", 0)
    ends = {"up": ("a", REQUEST), "down": ("b", REPLY)}
    for way, (end, messages) in ends.items():
        held = held_bytes(guest, step, end, "fq_codel")
        assert (held >= DATAGRAM_BYTES) == (way in ways)
        assert waits_ns(guest, step, messages) < FULL_NS / 3


def test_every_message_of_a_mesh_has_its_echo(guest):
    guest.output("mesh")
    described = json.loads((guest.folder / "mesh" / "run.json").read_text())
    workload = described["workload"]
    clients = [told for run in workload["runs"] for told in run["clients"].values()]
    assert sum(told["sent"] for told in clients) == MESSAGES * PAIRS
    every = sum(
        of[name]
        for told in clients
        for of in (told, told["heartbeats"])
        for name in ("sent", "warmup")
    )
    responders = workload["mesh"]["responders"].values()
    assert sum(told["messages"] for told in responders) == every
    kinds = Counter((row["kind"], row["size_bytes"]) for row in guest.rows("mesh"))
    assert kinds["request", "1024"] == kinds["reply", "150"] == MESSAGES * PAIRS


def test_of_datagrams_in_large_packets_none_is_unexplained(guest):
    (part,) = guest.json("bulk")["bulk"]["parts"]
    balance = part["balance"]
    died = sum(place["packets"] for place in balance["places"])
    assert balance["sent"] == -(-VOLUME_BYTES // 1400)
    assert balance["sent"] == balance["received"] + died
    assert (balance["unexplained"], balance["session_packets"]) == (0, 0)


def test_what_a_netem_path_loses_is_apart_from_what_does_not_fit_into_its_queue(guest):
    (part,) = guest.json("netem")["bulk"]["parts"]
    balance = part["balance"]
    died = {place["place"]: place["packets"] for place in balance["places"]}
    sent = balance["sent"]
    assert balance["unexplained"] == 0
    # 1% of n, within 4 standard deviations of a binomial
    lost = died["link's loss, a to b"]
    assert abs(lost - 0.01 * sent) < 4 * (0.01 * 0.99 * sent) ** 0.5
    # of twice its rate, but for what the bucket and the queue take at first
    refused = (1 - 10 / 20 * 1400 / DATAGRAM_BYTES) * sent
    assert 0.8 * refused < died["link's queue, a to b"] < refused


def test_the_floor_has_every_operation_of_every_size(guest):
    rows = guest.rows("ops", "operations.csv")
    found = Counter(
        (row["op"], row["payload_size_bytes"])
        for row in rows
        if row["phase"] == "measured"
    )
    assert {op for op, _ in found} == set(OPS)
    assert set(found.values()) == {ROUNDS}
    assert {size for op, size in found if op in ("GET", "SET")} == {"1000", "100000"}


def test_a_responder_answers_every_message_of_a_run_to_it(guest):
    served, summary = guest.json("echo"), guest.json("to")
    assert served["sessions"] == 2
    assert served["messages"] == 2 * (ROUNDS + WARMUP)
    for protocol in ("tcp", "udp"):
        trips = summary["round_trips"][protocol]
        assert (trips["sent"], trips["lost"]) == (ROUNDS, 0)
        kind = summary["kinds"][f"{protocol} request"]
        assert (kind["messages"], kind["complete"]) == (ROUNDS, ROUNDS)
