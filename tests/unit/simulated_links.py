"""Exchanges over simulated links, message by message, as rows of messages.csv.

Where `known_links` states round trip times in closed form, here they come about: a
link has a state, and what is left of it depends on what was sent before.
"""

import numpy as np
import pandas as pd
from known_links import ONE_WAY_NS, RATE, TCP, sweep
from latprof_analysis.fit.wire import Packets

UDP = Packets.udp(mtu_bytes=1500)

# 29 sizes up to 65 kB, 30 rounds
SIZES = np.unique(np.geomspace(18, 65_000, 29).astype(int))
ROUNDS = 30
BURST = 32 * 1024
HOST_NS = 4e3  # of a host for a message
COPY_NS = 0.06  # for a byte
QUEUE_NS = 3e3  # mean of what comes on top
CLIENT, SERVER = ("10.0.0.1", 40_000), ("10.0.0.2", 5_000)


class Fifo:
    """Serialises at a rate, then delays."""

    def __init__(self, rate=RATE, delay_ns=ONE_WAY_NS):
        self.byte_ns, self.delay_ns, self.free_ns = 8e9 / rate, delay_ns, 0.0

    def leaves(self, t_ns, wire_bytes):
        """When the last byte is through the queue."""
        self.free_ns = max(t_ns, self.free_ns) + wire_bytes * self.byte_ns
        return self.free_ns


class TokenBucket:
    """Lets a burst by at once, and what is beyond it at a rate."""

    def __init__(self, rate=RATE, burst_bytes=BURST, delay_ns=0.0):
        self.byte_ns, self.burst_bytes, self.delay_ns = (
            8e9 / rate,
            burst_bytes,
            delay_ns,
        )
        self.tokens, self.seen_ns = float(burst_bytes), 0.0

    def leaves(self, t_ns, wire_bytes):
        t_ns = max(t_ns, self.seen_ns)
        refilled = self.tokens + (t_ns - self.seen_ns) / self.byte_ns
        left = min(self.burst_bytes, refilled) - wire_bytes
        self.seen_ns = t_ns + max(0.0, -left) * self.byte_ns
        self.tokens = max(0.0, left)
        return self.seen_ns


class Open:
    """A link that costs nothing."""

    delay_ns = 0.0

    def leaves(self, t_ns, wire_bytes):
        return t_ns


def message(kind, number, size, t_ns, link, extra_ns):
    """One row: a message handed over at `t_ns`."""
    near, far = (CLIENT, SERVER) if kind == "request" else (SERVER, CLIENT)
    host_ns = HOST_NS + COPY_NS * size
    wire = float(TCP.wire_bytes(size))
    queue = t_ns + host_ns / 2
    out = link.leaves(queue, wire)
    # A token bucket's time passes in the qdisc, a serialising link's behind it.
    xmit = out if isinstance(link, TokenBucket) else queue
    arrive = out + link.delay_ns + extra_ns
    return {
        "protocol": "tcp",
        "source_address": near[0],
        "source_port": near[1],
        "destination_address": far[0],
        "destination_port": far[1],
        "kind": kind,
        "sequence": number,
        "size_bytes": size,
        "packets": int(np.ceil(size / TCP.mss_bytes)),
        "retransmits": 0,
        "created_ns": t_ns - 500,
        "send_ns": t_ns,
        "queue_ns": queue,
        "xmit_ns": xmit,
        "arrive_ns": arrive,
        "ready_ns": arrive + 1000,
        "read_ns": arrive + 1000 + host_ns / 2,
    }


def ping_pong(seed, there, back, reply="echo", gap_ns=0.0, sizes=SIZES, rounds=ROUNDS):
    """A closed loop over two links: rows of requests and replies."""
    rng = np.random.default_rng(seed)
    size, _ = sweep(rng, sizes, rounds)
    extra = rng.exponential(QUEUE_NS, (size.size, 2))
    t_ns, rows = 1e9, []
    for i, s in enumerate(size.tolist()):
        rows.append(message("request", i, s, t_ns, there, extra[i, 0]))
        answer = s if reply == "echo" else reply
        t_ns = rows[-1]["read_ns"] + 2000
        rows.append(message("reply", i, answer, t_ns, back, extra[i, 1]))
        t_ns = rows[-1]["read_ns"] + 2000 + gap_ns
    return pd.DataFrame(rows)


def cut_through(seed, sizes=SIZES, rounds=ROUNDS):
    """A server that sends each segment back as it comes, over two FIFO links.

    Requests as rows, and of each reply a row for each of its segments.
    """
    rng = np.random.default_rng(seed)
    size, _ = sweep(rng, sizes, rounds)
    extra = rng.exponential(QUEUE_NS, (size.size, 2))
    there, back = Fifo(), Fifo()
    t_ns, rows = 1e9, []
    for i, s in enumerate(size.tolist()):
        rows.append(message("request", i, s, t_ns, there, extra[i, 0]))
        behind = float(TCP.wire_bytes(s))
        came = rows[-1]["arrive_ns"] - behind * there.byte_ns
        for start in range(0, s, TCP.mss_bytes):
            segment = min(TCP.mss_bytes, s - start)
            came += float(TCP.wire_bytes(segment)) * there.byte_ns
            rows.append(message("reply", i, segment, came, back, extra[i, 1]))
        t_ns = rows[-1]["read_ns"] + 2000
    return pd.DataFrame(rows)


# Sizes of a run by default
FEW_SIZES = np.array([18, 256, 1024, 4096, 16_384, 32_768, 65_507])


def busy_trips(seed, rounds=140):
    """Datagrams echoed between hosts whose CPUs, by spells, others want, too.

    In a spell, which has some tens of exchanges, one in five is stalled for a few
    ms; copying takes 2.4 ns a byte; and whoever slept while a long message crossed
    wakes later, and is stalled more often. Returns sizes, round trip times, rounds,
    and what hosts took for a byte at each crossing.
    """
    rng = np.random.default_rng(seed)
    size, index = sweep(rng, FEW_SIZES, rounds)
    turns = np.cumsum(rng.random(size.size) < 1 / 40)
    spell = (turns + seed) % 2 == 0
    after_long = np.append(0, size[:-1] >= 16_384)
    copy_ns = 2.4
    stalled = rng.random(size.size) < np.where(spell, 0.2, 0.02) * (1 + after_long)
    hosts_ns = 40e3 + 15e3 * after_long + stalled * rng.uniform(5e5, 4e6, size.size)
    link_ns = 2 * (ONE_WAY_NS + UDP.wire_bytes(size) * 8e9 / RATE)
    noise_ns = rng.exponential(np.where(spell, 3 * QUEUE_NS, QUEUE_NS))
    rtt_ns = link_ns + 2 * copy_ns * size + hosts_ns + noise_ns
    return size, rtt_ns, index, copy_ns


def trips_of(messages):
    """Sizes, round trip times and rounds of requests, by their sequence."""
    requests = messages[messages["kind"] == "request"].set_index("sequence")
    replies = messages[messages["kind"] == "reply"].groupby("sequence")["read_ns"].max()
    size = requests["size_bytes"]
    rtt = replies - requests["send_ns"]
    return size.to_numpy(), rtt.to_numpy(), size.groupby(size).cumcount().to_numpy()


def arrivals(
    seed,
    make_link,
    trains,
    packets=200,
    wire_bytes=1442,
    stamp_ns=2e3,
    spacing_ns=1500.0,
):
    """Train, arrival, wire bytes and departure of packets sent as fast as can be."""
    rng = np.random.default_rng(seed)
    rows = []
    for train in range(trains):
        link, t0 = make_link(), 1e9 * train
        for i in range(packets):
            sent = t0 + i * spacing_ns
            out = link.leaves(sent, wire_bytes) + link.delay_ns
            rows.append((train, out + rng.exponential(stamp_ns), wire_bytes, sent))
    return np.array(rows).T


PAUSE_NS = 5e6
LONG = np.unique(np.geomspace(18, 200_000, 29).astype(int))
# Name: reply mode, and the exchange for a seed.
LINKS = {
    "serial, echo": ("echo", lambda seed: ping_pong(seed, Fifo(), Fifo())),
    "serial, short reply": (18, lambda seed: ping_pong(seed, Fifo(), Fifo(), 18)),
    "serial, cut-through": ("echo", cut_through),
    "buckets, echo, no pause": (
        "echo",
        lambda seed: ping_pong(seed, TokenBucket(), TokenBucket()),
    ),
    "buckets, long echo, no pause": (
        "echo",
        lambda seed: ping_pong(seed, TokenBucket(), TokenBucket(), sizes=LONG),
    ),
    "one bucket, echo, no pause": (
        "echo",
        lambda seed: ping_pong(seed, TokenBucket(), Open()),
    ),
    "buckets, short reply, no pause": (
        18,
        lambda seed: ping_pong(seed, TokenBucket(), TokenBucket(), 18),
    ),
    "buckets, echo, pause": (
        "echo",
        lambda seed: ping_pong(seed, TokenBucket(), TokenBucket(), gap_ns=PAUSE_NS),
    ),
    "one bucket, echo, pause": (
        "echo",
        lambda seed: ping_pong(seed, TokenBucket(), Open(), gap_ns=PAUSE_NS),
    ),
    "buckets, short reply, pause": (
        18,
        lambda seed: ping_pong(seed, TokenBucket(), TokenBucket(), 18, PAUSE_NS),
    ),
}
