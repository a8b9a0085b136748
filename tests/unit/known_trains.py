"""Trains of messages, event by event, over links and hosts whose figures are known."""

from dataclasses import dataclass, field

import numpy as np
from known_links import ONE_WAY_NS
from simulated_links import Fifo

BYTE_NS = 80.0
SINGLE = (1, 0.0)


@dataclass
class Hosts:
    """What sender and responder do with a message; `queue_ns`: the mean of noise."""

    send_ns: float = 1000.0
    receive_ns: float = 700.0
    gap_ns: float = 3000.0  # that the link keeps between messages
    queue_ns: float = 3000.0


@dataclass
class Turns:
    """Columns of `fit_loggp`, one entry for each train."""

    rows: list = field(default_factory=list)

    def columns(self):
        size, messages, spacing, train, rounds, send, receive = np.array(self.rows).T
        told = {"send_ns": send, "receive_ns": receive}
        return (size, messages, spacing, train, rounds), told


class Way:
    """A link with a gap between messages."""

    def __init__(self, link, gap_ns):
        self.link, self.gap_ns, self.free_ns = link, gap_ns, 0.0

    def arrives(self, t_ns, size):
        begins = max(t_ns, self.free_ns)
        out = self.link.leaves(begins, size - 1)
        self.free_ns = out + self.gap_ns
        return out + self.link.delay_ns


def prtt(make_link, hosts, n, spacing_ns, size, reply_bytes):
    """PRTT(n, d, s): from the first send to when the last reply is read."""
    there, back = (Way(make_link(), hosts.gap_ns) for _ in range(2))
    sender = responder = reader = 0.0
    for i in range(n):
        sender = max(sender, i * spacing_ns) + hosts.send_ns
        come = there.arrives(sender, size)
        responder = max(come, responder) + hosts.receive_ns + hosts.send_ns
        reader = max(back.arrives(responder, reply_bytes), reader) + hosts.receive_ns
    return reader


def trains(seed, kinds, sizes, *, link=Fifo, hosts=None, rounds=40, reply="echo"):
    """Each kind (messages, spacing) of each size once a round, in random order."""
    rng = np.random.default_rng(seed)
    hosts = hosts or Hosts()
    turns = Turns()
    times = {
        (n, d, s): prtt(link, hosts, n, d, s, s if reply == "echo" else reply)
        for n, d in kinds
        for s in np.asarray(sizes).tolist()
    }
    keys = list(times)
    for index in range(rounds):
        for k in rng.permutation(len(keys)).tolist():
            n, d, s = keys[k]
            late, *calls = rng.exponential([hosts.queue_ns, 200.0, 200.0])
            took = [hosts.send_ns + calls[0], hosts.receive_ns + calls[1]]
            turns.rows.append((s, n, d, times[keys[k]] + late, index, *took))
    return turns.columns()


# The 10th percentile of exponential noise, in its means.
LOW_NOISE = -np.log(0.9)


def truths(hosts, delay_ns=ONE_WAY_NS):
    """What the model's letters are, at the 10th percentile of the noise."""
    call_ns = 200 * LOW_NOISE
    send_ns, receive_ns = hosts.send_ns + call_ns, hosts.receive_ns + call_ns
    way_ns = delay_ns + hosts.send_ns + hosts.receive_ns
    return {
        "latency_ns": way_ns + LOW_NOISE * hosts.queue_ns / 2 - send_ns - receive_ns,
        "send_overhead_ns": send_ns,
        "receive_overhead_ns": receive_ns,
        "gap_ns": hosts.gap_ns,
        "gap_per_byte_ns": BYTE_NS,
    }
