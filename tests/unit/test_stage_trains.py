"""Trains and round trips found among the rows of messages.csv."""

import numpy as np
import pandas as pd
import pytest
from known_links import RATE, TCP
from latprof_analysis.fit.trains import stage_dispersions
from latprof_analysis.fit.trips import pair_round_trips
from simulated_links import Fifo, TokenBucket, message, ping_pong, trips_of

CUT = {"tcp": TCP}


def stream(link, count=3000, size=6000, spacing_ns=1e4, pause_every=100):
    """Messages of several packets in one direction, sent faster than they go."""
    rng = np.random.default_rng(1)
    t_ns, rows = 1e9, []
    for i in range(count):
        t_ns += 8e7 if i % pause_every == 0 else spacing_ns
        rows.append(message("request", i, size, t_ns, link, rng.exponential(2e3)))
    return pd.DataFrame(rows).assign(kind="message")


@pytest.mark.parametrize("link", [Fifo, TokenBucket])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_dispersion_of_messages_at_arrive_is_the_links_rate(link, missing):
    rows = stream(link())
    gone = np.random.default_rng(2).random(len(rows)) < missing
    rows["arrive_ns"] = rows["arrive_ns"].mask(gone)  # a busy socket's backlog
    found = stage_dispersions(rows, packets=CUT)["tcp", "message"]
    assert found.state == "measured"
    assert found.bandwidth_bits_per_second.value == pytest.approx(RATE, rel=0.001)


def test_one_long_stream_is_cut_into_trains():
    rows = stream(Fifo(), pause_every=10_000)
    found = stage_dispersions(rows, packets=CUT)["tcp", "message"]
    assert found.trains == 12  # 3000 messages by 256
    assert found.bandwidth_bits_per_second.value == pytest.approx(RATE, rel=0.001)


def test_trains_with_packets_that_no_row_tells_of_are_left_out():
    rows = stream(Fifo())
    rows.loc[50, "retransmits"] = 1
    rows.loc[250, ["arrive_ns", "read_ns", "ready_ns"]] = np.nan
    found = stage_dispersions(rows, packets=CUT)["tcp", "message"]
    assert found.trains == 28
    assert found.left_out == {"packets were lost or sent again": 2}
    assert "2 trains left out" in found.reason


def test_a_ping_pong_has_no_trains():
    for found in stage_dispersions(ping_pong(1, Fifo(), Fifo(), rounds=10)).values():
        assert found.state == "none"
        assert "fewer than 16 packets" in found.reason


def test_requests_pair_with_the_reply_that_follows_on_their_connection():
    rows = ping_pong(1, Fifo(), Fifo(), 18)
    other = rows.assign(source_port=rows["source_port"] + 1).assign(
        destination_port=rows["destination_port"] + 1
    )
    both = pd.concat([rows, other]).sample(frac=1, random_state=1)
    lost = (both["kind"] == "reply") & (both["sequence"] % 10 == 3)
    found, left_out = pair_round_trips(both[~lost])
    assert left_out == {"no reply before the next request": int(lost.sum())}
    size, rtt, _ = trips_of(rows)
    kept = np.arange(size.size) % 10 != 3
    once = found[found.index.isin(rows.index)].drop_duplicates()
    assert len(found) == 2 * kept.sum()
    assert sorted(once["rtt_ns"]) == pytest.approx(sorted(rtt[kept]))
    assert set(found["reply_bytes"]) == {18}


def test_no_messages_have_no_trains():
    assert stage_dispersions(stream(Fifo(), count=20).iloc[:0]) == {}


def test_a_missing_column_is_named():
    rows = stream(Fifo(), count=20).drop(columns="packets")
    with pytest.raises(ValueError, match="must have the column packets"):
        stage_dispersions(rows)
