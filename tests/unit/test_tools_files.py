"""Files that other tools wrote say here what the tools print themselves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from latprof_analysis.cli import OFFLINE, VERSION
from latprof_analysis.cli.program import run_program
from latprof_analysis.read import ReadError, detect, read_samples
from latprof_analysis.read.result import Losses

DATA = Path(__file__).parent.parent / "data"
TOOLS = DATA / "tools"


def text_of(name: str) -> str:
    return (TOOLS / name).read_text()


def each_of(samples, kind=None):
    """The single latencies in ns, of a kind or of all."""
    frame = samples.frame
    frame = frame[(frame["statistic"] == "each") & ~frame["lost"]]
    return (
        frame["latency_ns"]
        if kind is None
        else frame["latency_ns"][frame["kind"] == kind]
    )


def given_of(samples, kind):
    """The statistics of a kind in ns by name."""
    frame = samples.frame[samples.frame["kind"] == kind]
    frame = frame[frame["statistic"] != "each"]
    return dict(zip(frame["statistic"].astype(str), frame["latency_ns"], strict=True))


def screen_of(path, capsys) -> str:
    assert run_program(OFFLINE, VERSION, ["analyze", str(path)]) == 0
    return capsys.readouterr().out


def ping_prints(text):
    """What was sent and received, and min, mean, max in ms."""
    sent, received = re.search(r"(\d+) packets transmitted, (\d+) ", text).groups()
    times = re.search(r"min/avg/max\S* = ([\d.]+)/([\d.]+)/([\d.]+)", text).groups()
    return int(sent), int(received), tuple(map(float, times))


@pytest.mark.parametrize(
    "name",
    ["ping", "ping_D_6", "ping_O", "ping_lost", "ping_busybox", "capture_icmp_ping"],
)
def test_ping_lines_and_losses_are_as_its_last_lines_count_them(name):
    sent, received, (least, mean, most) = ping_prints(text_of(f"{name}.txt"))
    samples = read_samples(TOOLS / f"{name}.txt")
    ms = each_of(samples) / 1e6
    assert (len(samples.frame), len(ms)) == (sent, received)
    assert list(samples.losses.values()) == [Losses(sent, sent - received)]
    assert (ms.min(), ms.max()) == (pytest.approx(least), pytest.approx(most))
    assert ms.mean() == pytest.approx(mean, abs=1e-3)


def test_ping_rows_that_are_lost_stand_where_their_numbers_are_missing():
    numbers = [
        int(n) for n in re.findall(r"icmp_seq=(\d+) ttl", text_of("ping_lost.txt"))
    ]
    lost = read_samples(TOOLS / "ping_lost.txt").frame["lost"]
    assert (lost[lost].index + 1).tolist() == sorted(set(range(1, 21)) - set(numbers))


def test_ping_flood_has_its_statistics_and_no_single_latency():
    sent, received, times = ping_prints(text_of("ping_flood.txt"))
    samples = read_samples(TOOLS / "ping_flood.txt")
    given = given_of(samples, "127.0.0.1")
    assert [given[n] / 1e6 for n in ("min", "mean", "max")] == list(
        map(pytest.approx, times)
    )
    assert samples.losses == {"127.0.0.1": Losses(sent, sent - received)}


def ping_of(*lines: str) -> str:
    return "\n".join(["PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.", *lines, ""])


def reply(number, ms, more=""):
    return f"64 bytes from 10.0.0.2: icmp_seq={number} ttl=64 time={ms} ms{more}"


def test_ping_duplicates_count_once_and_late_replies_stand_in_the_order_sent(tmp_path):
    path = tmp_path / "a"
    counts = (
        "3 packets transmitted, 3 received, +2 duplicates, 0% packet loss, time 9ms"
    )
    path.write_text(
        ping_of(
            *(reply(1, 1), reply(1, 5, " (DUP!)"), reply(3, 3), reply(2, 2)),
            *(reply(2, 9, " (DUP!)"), "", "--- 10.0.0.2 ping statistics ---", counts),
        )
    )
    samples = read_samples(path)
    assert (samples.frame["latency_ns"] / 1e6).tolist() == [1, 2, 3]
    assert samples.meta["duplicates"] == 2
    assert samples.losses == {"10.0.0.2": Losses(3, 0)}


def test_ping_numbers_run_on_where_16_bits_end(tmp_path):
    path = tmp_path / "a"
    numbers = [65534, 65535, 1, 2]
    path.write_text("\n".join(reply(number, 1) for number in numbers) + "\n")
    samples = read_samples(path)
    assert samples.frame["lost"].tolist() == [False, False, True, False, False]


def test_ping_that_was_cut_says_that_the_end_is_not_known(tmp_path, capsys):
    path = tmp_path / "a"
    path.write_text(ping_of(reply(1, 1), reply(2, 2), reply(4, 4)))
    assert read_samples(path).losses == {"10.0.0.2": Losses(4, 1)}
    assert "last lines are missing" in screen_of(path, capsys)


def test_ping_in_german_is_read(tmp_path):
    path = tmp_path / "a"
    line = "64 Bytes von 10.0.0.2: icmp_seq=1 ttl=64 Zeit=0,054 ms"
    path.write_text(f"{line}\n2 Pakete übertragen, 1 empfangen, 50% packet loss\n")
    samples = read_samples(path)
    assert each_of(samples).tolist() == [54_000]
    assert list(samples.losses.values()) == [Losses(2, 1)]


def test_fping_lines_are_as_its_lines_of_targets_count_them():
    pattern = r"(\S+) : xmt/rcv/%loss = (\d+)/(\d+)/\S+ min/avg/max = (\S+)/(\S+)/(\S+)"
    for name in ("fping_lost.txt", "fping_D.txt"):
        samples = read_samples(TOOLS / name)
        for target, sent, received, *times in re.findall(pattern, text_of(name)):
            ms = each_of(samples, target) / 1e6
            assert samples.losses[target] == Losses(
                int(sent), int(sent) - int(received)
            )
            assert len(ms) == int(received)
            got = [ms.min(), ms.mean(), ms.max()]
            assert got == [pytest.approx(float(time), abs=1e-3) for time in times]
    quiet = read_samples(TOOLS / "fping_q.txt")
    (target, *_, least, mean, most), _ = re.findall(pattern, text_of("fping_q.txt"))
    found = given_of(quiet, target)
    assert [found[n] / 1e6 for n in ("min", "mean", "max")] == [
        pytest.approx(float(time)) for time in (least, mean, most)
    ]
    times = read_samples(TOOLS / "fping_C.txt")
    for line in text_of("fping_C.txt").splitlines():
        target, _, *ms = line.split()
        assert (each_of(times, target) / 1e6).tolist() == list(
            map(pytest.approx, map(float, ms))
        )


def test_fping_without_any_reply_says_what_was_lost(tmp_path, capsys):
    path = tmp_path / "a"
    path.write_text("10.0.0.9 : - - -\n")
    assert "10.0.0.9: 3 of 3 lost (100.0%)" in screen_of(path, capsys)


def test_mtr_has_each_hop_in_every_form():
    hub = json.loads(text_of("mtr.json"))["report"]["hubs"][0]
    found = given_of(read_samples(TOOLS / "mtr.json"), "hop 1 127.0.0.1")
    names = {"mean": "Avg", "min": "Best", "max": "Wrst"}
    assert {k: found[k] for k in names} == {
        k: pytest.approx(1e6 * hub[name]) for k, name in names.items()
    }
    head, row = (line.split(",") for line in text_of("mtr.csv").splitlines())
    cells = dict(zip(head, row, strict=False))
    samples = read_samples(TOOLS / "mtr.csv")
    found = given_of(samples, "hop 1 127.0.0.1")
    assert {k: found[k] for k in names} == {
        k: pytest.approx(1e6 * float(cells[name])) for k, name in names.items()
    }
    assert samples.losses == {"hop 1 127.0.0.1": Losses(5, 0)}
    assert read_samples(TOOLS / "mtr.report").losses == samples.losses
    raw = [line.split() for line in text_of("mtr.raw").splitlines()]
    us = [float(word[2]) for word in raw if word[:2] == ["p", "0"]]
    read = each_of(read_samples(TOOLS / "mtr.raw"), "hop 1 127.0.0.1")
    assert (read / 1e3).tolist() == us


def test_mtr_hop_that_never_answers_is_lost_and_has_no_time(tmp_path):
    document = json.loads(text_of("mtr.json"))
    hub = {"count": 2, "host": "???", "Loss%": 100.0, "Snt": 5, "Avg": 0, "Best": 0}
    document["report"]["hubs"].append({**hub, "Wrst": 0})
    path = tmp_path / "a"
    path.write_text(json.dumps(document))
    samples = read_samples(path)
    assert samples.losses["hop 2 ???"] == Losses(5, 5)
    assert given_of(samples, "hop 2 ???") == {}


IPERF3 = DATA / "iperf3_tcp.json"


def stream_of(document) -> str:
    events = [("start", document["start"])]
    events += [("interval", interval) for interval in document["intervals"]]
    events += [("end", document["end"])]
    return "\n".join(json.dumps({"event": e, "data": d}) for e, d in events)


@pytest.mark.parametrize(
    ("write", "times"),
    [
        (lambda text: stream_of(json.loads(text)), 1),
        (lambda text: text + text, 2),
        (lambda text: text.rstrip() + "\niperf3: error - broken pipe\n", 1),
        (lambda text: "warning: JSON data length overflow\n" + text, 1),
    ],
    ids=["stream", "twice", "trailing", "leading"],
)
@pytest.mark.always
def test_iperf3_json_is_read_in_a_stream_several_times_and_with_text(
    write, times, tmp_path
):
    path = tmp_path / "a"
    path.write_text(write(IPERF3.read_text()))
    alone, found = read_samples(IPERF3), read_samples(path)
    assert found.format == "iperf3"
    assert (
        found.frame["latency_ns"].tolist() == times * alone.frame["latency_ns"].tolist()
    )
    files = found.meta.get("files", [found.meta])
    assert [meta["transfers"] for meta in files] == times * [alone.meta["transfers"]]


@pytest.mark.parametrize("spoiled", ["-nan", "-111", "nan", "inf"])
def test_iperf3_figure_that_is_no_number_is_missing_and_the_rest_holds(
    spoiled, tmp_path
):
    path = tmp_path / "a"
    text = (DATA / "iperf3_udp.json").read_text()
    path.write_text(re.sub(r'("jitter_ms":\s*)[\d.]+', rf"\g<1>{spoiled}", text))
    (transfer,) = read_samples(path).meta["transfers"]
    (whole,) = read_samples(DATA / "iperf3_udp.json").meta["transfers"]
    assert transfer == whole | {"jitter_ns": None}


def test_iperf3_that_was_interrupted_has_its_intervals_and_says_so(capsys):
    document = json.loads(text_of("iperf3_interrupted.json"))
    rtts = [i["streams"][0]["rtt"] for i in document["intervals"]]
    samples = read_samples(TOOLS / "iperf3_interrupted.json")
    assert (samples.frame["latency_ns"] / 1e3).tolist() == rtts
    assert samples.meta["transfers"][0]["received_bytes"] is None
    screen = screen_of(TOOLS / "iperf3_interrupted.json", capsys)
    assert "interrupted: 'interrupt - the client has terminated'" in screen


def test_iperf3_that_failed_says_why_in_full(tmp_path):
    why = "unable to connect to server - it may have stopped or use a different port"
    path = tmp_path / "a"
    path.write_text(json.dumps({"start": {}, "intervals": [], "end": {}, "error": why}))
    with pytest.raises(ReadError, match=why):
        read_samples(path)


def test_sockperf_counts_what_was_dropped_and_older_versions_print_avg_lat(tmp_path):
    path = tmp_path / "a"
    text = (DATA / "sockperf_under_load.csv").read_text()
    n = int(re.search(r"Total (\d+) observations", text)[1])
    path.write_text(text.replace("dropped messages = 0", "dropped messages = 28"))
    assert read_samples(path).losses == {"ping": Losses(n + 28, 28)}
    text = (DATA / "sockperf_ping_pong.txt").read_text()
    mean = float(re.search(r"avg-latency=(\S+)", text)[1])
    path.write_text(text.replace("avg-latency=", "avg-lat="))
    assert given_of(read_samples(path), "server 0")["mean"] == pytest.approx(1e3 * mean)


# what tells no losses: nothing is said of them
@pytest.mark.parametrize("name", ["clear_result.txt", "proxystore_remote_ops.csv"])
def test_a_format_without_losses_gets_no_word_of_them(name, capsys):
    assert read_samples(DATA / name).losses == {}
    assert "lost" not in screen_of(DATA / name, capsys)


FORMS = {
    **dict.fromkeys(("ping.txt", "ping_flood.txt", "ping_busybox.txt"), "ping"),
    **{f"fping_{name}.txt": "fping" for name in ("C", "D", "q", "lost")},
    **{f"mtr.{name}": "mtr" for name in ("json", "csv", "raw", "report")},
    "iperf3_interrupted.json": "iperf3",
}


@pytest.mark.parametrize(("name", "form"), FORMS.items())
def test_a_tools_file_is_known_by_its_content(name, form):
    assert detect(TOOLS / name) == form
