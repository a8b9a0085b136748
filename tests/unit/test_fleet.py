"""A fleet, held against `latprof join` of the same recordings, and against the truth.

One live recording of both ends is split into two hosts with clocks of their own, which
two servers give away as agents do.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from fleet_process import RECORDED, running_fast
from latprof_agent.fleet import fleet as fleet_module
from latprof_agent.fleet.fleet import Fleet
from latprof_agent.fleet.fleet_document import document, lines_of
from latprof_agent.fleet.fleet_families import fleet_families
from latprof_agent.fleet.fleet_totals import ARRIVED, LOST, PARTS
from latprof_agent.fleet.shards import Shard
from latprof_agent.join.join import JoinOptions, join
from latprof_agent.rebuild.rebuild import rebuild
from latprof_agent.service.metrics.exposition import OPEN_METRICS, PROTOBUF
from latprof_analysis.records.recording import NAME
from latprof_analysis.stats.kernel_histogram import CoarseHistogram
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from served_samples import Asked, SampleServer, packed, send, serving
from split_recording import own_time, split

KEY = ["protocol", "source_port", "destination_port", "sequence", "size_bytes"]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The recording as a whole, split, and joined by `latprof join`."""
    folder = tmp_path_factory.mktemp("known")
    (folder / "run").mkdir()
    shutil.copy(RECORDED, folder / "run" / NAME)
    whole = rebuild(folder / "run", folder / "whole", lambda *_: None)
    halves = split(RECORDED, folder, own_time, running_fast)
    joined = join(halves, folder / "joined", lambda *_: None, JoinOptions())
    found = {
        f"{name}_{table}": pd.read_csv(made.folder / f"{table}.csv")
        for name, made in (("whole", whole), ("joined", joined))
        for table in ("messages", "exchanges")
    }
    return SimpleNamespace(
        **found,
        halves=[packed(half) for half in halves],
        folders=halves,
        clocks=joined.summary["clocks"],
    )


class Said(list[str]):
    """What was said."""

    def __call__(self, text: str) -> None:
        self.append(text)


@contextmanager
def asked(
    *halves: list[bytes], **options
) -> Iterator[tuple[Asked, list[SampleServer]]]:
    """A fleet that asks servers of these."""
    said = Said()
    with serving(*halves) as servers:
        made = Asked(Fleet(said, **options), *(s.address for s in servers))
        made.said = said
        yield made, servers


def everything(*halves: list[bytes]) -> Fleet:
    """What a fleet has of all that there is."""
    with asked(*halves) as (made, _):
        made.ask()
        made.fleet.join()
        made.fleet.end_interval()
    return made.fleet


def by_way(rows: pd.DataFrame, *ends: str) -> dict[tuple[str, str], pd.DataFrame]:
    rows = rows[rows[list(ends)].notna().all(axis=1)]
    return dict(list(rows.groupby(list(ends))))


def histogram(values: pd.Series) -> CoarseHistogram:
    return CoarseHistogram.of(values.dropna().astype("i8").to_numpy())


def assert_same(found: CoarseHistogram, values: pd.Series) -> None:
    wanted = histogram(values)
    assert (found.counts == wanted.counts).all()
    assert found.sum_ns == wanted.sum_ns


def test_its_histograms_are_those_of_a_join(known):
    fleet = everything(*known.halves)
    names = {fleet.name_of(i): i for i in range(2)}
    assert set(names) == {"a", "b"}

    joined = by_way(known.joined_messages, "sender_host", "reader_host")
    assert len(fleet.totals.messages) == len(joined) == 2
    for way, found in fleet.totals.messages.items():
        rows = joined[fleet.name_of(way.source), fleet.name_of(way.destination)]
        assert found.queueing.count > 100
        assert_same(found.transit, rows["transit_ns"])
        assert_same(found.queueing, rows["transit_queueing_ns"])
        assert sum(found.clocks.values()) == len(rows)
        assert way.service == "36655"
    exchanges = by_way(known.joined_exchanges, "client_host", "server_host")
    assert len(fleet.totals.exchanges) == len(exchanges) == 1
    for way, found in fleet.totals.exchanges.items():
        rows = exchanges[fleet.name_of(way.source), fleet.name_of(way.destination)]
        assert found.response.count > 100
        assert_same(found.response, rows["response_ns"])
        for part, column in PARTS.items():
            assert_same(found.parts[part], rows[column])


def test_what_comes_bit_by_bit_has_the_same_messages(known):
    with asked(*known.halves) as (made, servers):
        for released in range(2, 1 + max(map(len, known.halves))):
            for server in servers:
                server.released = min(released, len(server.frames))
            made.ask()
            made.fleet.join()
            made.fleet.end_interval()
        fleet = made.fleet
    joined = by_way(known.joined_messages, "sender_host", "reader_host")
    for way, found in fleet.totals.messages.items():
        rows = joined[fleet.name_of(way.source), fleet.name_of(way.destination)]
        assert sum(found.clocks.values()) == len(rows)
    (exchanges,) = fleet.totals.exchanges.values()
    assert exchanges.response.count == len(
        known.joined_exchanges["client_host"].dropna()
    )


@pytest.mark.parametrize("at_once", [True, False])
def test_intervals_hold_the_true_transit(known, at_once, monkeypatch):
    taken = []
    add = fleet_module.FleetTotals.add_messages

    def keep(self, rows, service, resent):
        taken.append(pd.DataFrame({n: rows.numbers[n] for n in columns}))
        add(self, rows, service, resent)

    names = ("transit_ns", "transit_low_ns", "transit_high_ns")
    columns = (*KEY[1:], *names)
    monkeypatch.setattr(fleet_module.FleetTotals, "add_messages", keep)
    with asked(*known.halves) as (made, servers):
        for released in [99] if at_once else range(2, 99):
            for server in servers:
                server.released = min(released, len(server.frames))
            made.ask()
            made.fleet.join()
    rows = pd.concat(taken)
    both = known.whole_messages.merge(rows, on=KEY[1:], suffixes=("", "_f"))
    sure = both[both["transit_low_ns"] >= 0]
    assert len(sure) > 0.9 * known.whole_messages["transit_ns"].notna().sum()
    assert (sure["transit_low_ns"] <= sure["transit_ns"]).all()
    assert (sure["transit_ns"] <= sure["transit_high_ns"]).all()


@pytest.mark.parametrize(
    ("since", "after_ns", "why"),
    [("xmit_ns", 1_000, LOST), ("ready_ns", 50_000_000, ARRIVED)],
)
def test_segments_that_were_sent_again_are_counted_by_why(known, since, after_ns, why):
    """Of every tenth message of a's: before it came, and long behind that."""
    messages = known.whole_messages
    when = messages.dropna(subset=["ready_ns", "xmit_ns"]).set_index("sequence")[since]

    def sent_again(rings) -> None:
        sent = rings["sent_messages"]
        sent = sent[(sent["end"] % 640 == 0) & np.isin(sent["end"], when.index)]
        again = np.zeros(len(sent), rings["retransmits"].dtype)
        again["flow"], again["end"] = sent["flow"], sent["end"]
        again["start"] = sent["end"] - sent["size_bytes"]
        again["t_ns"] = [when.loc[end].max() + after_ns for end in sent["end"]]
        rings["retransmits"] = again
        count[0] += len(again)

    count = [0]
    first = packed(known.folders[0], change_rings=sent_again)
    fleet = everything(first, known.halves[1])
    (resent,) = (m.resent for m in fleet.totals.messages.values() if m.resent)
    assert resent == {why: count[0]}
    assert count[0] > 10
    text = OPEN_METRICS.write(fleet_families(fleet)).decode()
    families = {f.name: f for f in text_string_to_metric_families(text)}
    (sample,) = families["latprof_fleet_resent_segments"].samples
    assert (sample.labels["why"], sample.value) == (why, count[0])
    line = next(
        line
        for line in lines_of(document(fleet, fleet.totals, 1.0))
        if f"{count[0]} segments sent again" in line
    )
    assert ("had arrived before" in line) == (why == ARRIVED)


def test_wall_clocks_are_as_far_apart_as_they_were_set(known):
    found = document(everything(*known.halves), fleet_module.FleetTotals(), 1.0)
    (pair,) = found["pairs"]
    (joined,) = known.clocks["pairs"]
    assert pair["hosts"] == joined["hosts"] == ["a", "b"]
    assert pair["state"] == joined["state"]
    # the recording took 20 s, in which that grew by 20 us a second
    assert abs(pair["wall_offset_ns"] - joined["wall_offset_ns"]) < 20 * 20_000
    last_ns = int(known.whole_messages["read_ns"].max())
    true_ns = int(running_fast(np.array([last_ns]))[0]) - last_ns
    assert pair["low_ns"] - 20_000 <= true_ns <= pair["high_ns"] + 20_000
    text = "\n".join(lines_of(found))
    assert "2 of 2 agents heard of" in text
    assert "a <-> b: offset " in text


def test_all_is_served_in_every_format(known):
    fleet = everything(*known.halves)
    text = OPEN_METRICS.write(fleet_families(fleet)).decode()
    found = {f.name: f for f in text_string_to_metric_families(text)}
    (low, at, high) = (
        found[f"latprof_clock_offset{part}_seconds"].samples[0].value
        for part in ("_low", "", "_high")
    )
    assert low < at < high
    states = found["latprof_clock_state"].samples
    (joined,) = known.clocks["pairs"]
    assert [s.labels["state"] for s in states if s.value] == [joined["state"]]
    counts = {
        (s.labels["source_host"], s.labels["destination_host"]): s.value
        for s in found["latprof_fleet_transit_seconds"].samples
        if s.name.endswith("_count")
    }
    joined = by_way(known.joined_messages, "sender_host", "reader_host")
    assert counts == {w: rows["transit_ns"].count() for w, rows in joined.items()}
    assert PROTOBUF.write(fleet_families(fleet))
    json.dumps(document(fleet, fleet.totals, 1.0))


def garbage(request) -> None:
    send(request, b"garbage" * 1000, {"Latprof-Next": "1"})


def huge(request) -> None:
    request.send_response(200)
    request.send_header("Content-Length", str(10 << 30))
    request.end_headers()


def broken_off(request) -> None:
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b"x" * 10)


def no_http(request) -> None:
    request.wfile.write(b"SSH-2.0-OpenSSH\r\n\r\n\r\n\r\n")


def refused(request) -> None:
    request.send_error(401)


def bomb(request) -> None:
    import zstandard

    data = zstandard.ZstdCompressor(level=1).compress(bytes(1 << 30))
    send(request, data, {})


LIES = [garbage, huge, broken_off, no_http, refused, bomb]


@pytest.mark.parametrize("lie", LIES)
def test_an_agent_that_lies_costs_its_own_figures_only(known, lie):
    third = packed(known.folders[0], lambda header: header["host"].update(name="c"))
    with asked(*known.halves, third) as (made, servers):
        servers[2].answer = lie
        made.ask()
        made.ask()
        made.fleet.join()
        made.fleet.end_interval()
        assert len(made.said) == 1  # once
        assert str(servers[2].address) in made.said[0]
        assert "\n" not in made.said[0]
        liar = made.fleet.hosts[servers[2].address]
        assert liar.pulls["ok"] == 0
        assert sum(liar.pulls.values()) == 2
    whole = everything(*known.halves)
    found = [
        sum(m.transit.count for m in f.totals.messages.values())
        for f in (made.fleet, whole)
    ]
    assert found[0] == found[1] > 0


@pytest.mark.parametrize("seed", range(8))
def test_damage_costs_the_damaged_agent_only(known, seed):
    random = np.random.default_rng(seed)
    damaged = [bytearray(frame) for frame in known.halves[1]]
    for _ in range(4):
        frame = damaged[int(random.integers(1, len(damaged)))]
        frame[int(random.integers(0, len(frame)))] ^= int(random.integers(1, 256))
    with asked(known.halves[0], [bytes(frame) for frame in damaged]) as (made, servers):
        made.ask()
        made.fleet.join()
        assert made.fleet.hosts[servers[0].address].pulls == {"ok": 1}
        for line in made.said:
            assert "\n" not in line


def test_one_that_does_not_answer_is_said_to_be_slow(known):
    import threading

    never = threading.Event()
    with serving(*known.halves) as servers:
        said = Said()
        made = Asked(Fleet(said), *(s.address for s in servers), timeout=0.2)
        servers[1].answer = lambda _request: never.wait()
        made.ask()
        assert made.fleet.hosts[servers[1].address].pulls == {"slow": 1}
        never.set()


def test_one_that_is_gone_is_said_to_be(known):
    with asked(*known.halves) as (made, servers):
        made.ask()
        servers[1].server.server_close()
        made.ask()
    gone = made.fleet.hosts[servers[1].address]
    assert gone.pulls == {"ok": 1, "unreachable": 1}
    text = "\n".join(lines_of(document(made.fleet, made.fleet.totals, 1.0)))
    assert "2 of 2 agents heard of" in text  # a moment ago


def test_figures_of_the_silent_age_and_say_so(known, monkeypatch):
    with asked(*known.halves) as (made, _):
        made.ask()
        made.fleet.join()
        monkeypatch.setattr(fleet_module, "SILENT_SECONDS", -1.0)
        from latprof_agent.fleet import fleet_document

        monkeypatch.setattr(fleet_document, "SILENT_SECONDS", -1.0)
        lines = list(lines_of(document(made.fleet, made.fleet.totals, 1.0)))
        assert lines[0] == "0 of 2 agents heard of, no figures yet"
        assert "a: silent for" in lines[1]


def test_figures_are_as_old_as_the_oldest_answer_that_is_in_them(known):
    now = [100.0]

    def age(made, at: float) -> float | None:
        now[0] = at
        return made.fleet.figures_age_seconds()

    def answered(made, at: float, *released: int) -> None:
        now[0] = at
        for server, count in zip(servers, released, strict=True):
            server.released = count
        made.ask()

    with asked(*known.halves, now=lambda: now[0]) as (made, servers):
        answered(made, 101.0, 7, 7)
        assert age(made, 102.0) is None
        made.fleet.join()
        assert age(made, 104.0) == 3.0
        answered(made, 105.0, 9, 9)
        assert age(made, 106.0) == 5.0  # these are not joined yet
        made.fleet.join()
        assert age(made, 106.0) == 1.0
        answered(made, 109.0, 13, 9)  # of the second nothing is new
        made.fleet.join()
        assert age(made, 111.0) == 6.0
        found = document(made.fleet, made.fleet.totals, 1.0)
        assert found["figures_age_seconds"] == 6.0
        assert next(lines_of(found)).endswith("figures are 6 s old")
        text = OPEN_METRICS.write(fleet_families(made.fleet)).decode()
        assert "latprof_fleet_figures_age_seconds 6.0" in text
        assert age(made, 120.5) == 11.5  # the second is silent: nobody waits for it


def test_hosts_that_were_started_again_go_on_with_new_clocks(known):
    with asked(*known.halves) as (made, servers):
        counts = []
        for released, boot in ((7, "first"), (99, "second")):
            for server, folder in zip(servers, known.folders, strict=True):
                change = lambda header: header["host"].update(boot=f"{boot} {folder}")  # noqa: E731, B023 - used at once
                server.frames = packed(folder, change)
                server.released = min(released, len(server.frames))
            made.ask()
            made.fleet.join()
            over = made.fleet.end_interval().messages.values()
            counts.append(sum(sum(m.clocks.values()) for m in over))
            assert len(made.fleet.clocks.pairs) == 1
        assert made.said == []
    whole = everything(*known.halves).totals.messages.values()
    assert min(counts) > 100
    # of a boot before no half is joined with one of this
    assert sum(counts) <= sum(sum(m.clocks.values()) for m in whole)


def test_what_was_given_before_is_not_counted_again(known):
    with asked(*known.halves) as (made, servers):
        made.ask()
        for server in servers:
            made.fleet.forget(server.address)
        made.ask()
        made.fleet.join()
        found = made.fleet.end_interval()
    once = everything(*known.halves).totals
    assert {w: m.clocks for w, m in found.messages.items()} == {
        w: m.clocks for w, m in once.messages.items()
    }


def test_two_agents_of_one_name_are_apart_by_their_addresses(known):
    named = [
        packed(folder, lambda header: header["host"].update(name="same"))
        for folder in known.folders
    ]
    with asked(*named) as (made, servers):
        made.ask()
        made.ask()
        names = [made.fleet.name_of(i) for i in range(2)]
        assert names == [f"same ({server.address})" for server in servers]
        assert len(made.said) == 1
        assert "several agents have this name" in made.said[0]


def test_one_host_by_two_addresses_is_counted_once(known):
    with asked(known.halves[0], known.halves[1], known.halves[1]) as (made, servers):
        made.ask()
        made.fleet.join()
        assert made.fleet.hosts[servers[2].address].pulls == {"garbage": 1}
        assert "it is the same host as" in made.said[0]
        found = made.fleet.end_interval()
    once = everything(*known.halves).totals
    assert sum(m.transit.count for m in found.messages.values()) == sum(
        m.transit.count for m in once.messages.values()
    )


def test_shards_have_each_pair_once(known):
    counts = []
    with serving(*known.halves) as servers:
        for number in range(3):
            fleet = Fleet(Said(), Shard(number, 3))
            Asked(fleet, *(server.address for server in servers)).ask()
            fleet.join()
            found = fleet.end_interval()
            counts.append(
                (
                    sum(m.transit.count for m in found.messages.values()),
                    sum(e.response.count for e in found.exchanges.values()),
                    len(fleet.clocks.pairs),
                )
            )
    whole = everything(*known.halves)
    mine = [each for each in counts if each != (0, 0, 0)]
    assert mine == [
        (
            sum(m.transit.count for m in whole.totals.messages.values()),
            sum(e.response.count for e in whole.totals.exchanges.values()),
            1,
        )
    ]


def test_a_clock_that_was_set_is_said_to_be_broken(known, tmp_path):
    middle_ns = int(known.whole_messages["send_ns"].median())

    def was_set(times: np.ndarray) -> np.ndarray:
        return times + np.where(times > middle_ns, 50_000_000, 0)

    halves = split(RECORDED, tmp_path, own_time, was_set)
    fleet = everything(*map(packed, halves))
    (pair,) = document(fleet, fleet.totals, 1.0)["pairs"]
    assert pair["state"] == "broken"
