"""Stock Debian kernels in QEMU: the objects load, messages are complete, and
in exact mode, where time is the count of instructions, a known delay reads true.

Opt in with LATPROF_VM=1; LATPROF_VM_KERNELS names the series, separated by blanks.
The guest runs what packaging/latprof has installed, or the virtual environment that
LATPROF_VENV names (and PYTHONPATH), such as a developer's.
"""

import json
import re
import shlex
from collections import Counter
from itertools import product

import pytest
from conftest import RECORDS_ONLY
from guest import HERE, TWO_ENDS, boot
from latprof_agent.probes.flight_probes import FLIGHT_PROBES
from other_machine import compile_c

STAGES = (
    *("application", "send_queue", "qdisc", "transit"),
    *("receive_stack", "receive_queue"),
)
STAMPS = ("created", "send", "queue", "xmit", "arrive", "ready", "read")
PROTOCOLS = ("tcp", "udp")
# A datagram of one byte more than one packet, and the largest.
SIZES_BYTES = (64, 1473, 65507)
ROUNDS = 20
DELAY_NS = 10_000_000
TOLERANCE_NS = 100_000
# From netem's time to the driver's hook: its timer, and its dequeue.
OWN_TOLERANCE_NS = 20_000
OWN_MESSAGES = 100

TALK = shlex.quote(str(HERE.parent / "recordings" / "talk.py"))
# Of no more than it takes to load all programs, and to read what is sent: a guest
# without KVM is slow, and loading is most of what it does.
LOADED = f"""
step probes probes --json
step run run --rate 0 --delay 0 --json --out run -- python3 {TALK} encrypted
step watch watch --json --duration 2
find /sys/fs/cgroup -name 'latprof-*' >groups.left
"""
REFUSED = """
step probes probes --json
step run run --no-lab --json --out run -- sleep 1
find /sys/fs/cgroup -name 'latprof-*' >groups.left
"""
SWEEP = """
step sweep run --protocol both --sizes 64,1473,65507 --rounds 20 --warmup 0 \
    --rate 0 --delay 0 --json --out sweep
"""
# The first run also brings the programs into memory: while the guest waits for the
# host's files, a clock that skips idle time runs far ahead.
EXACT = f"""
bare="--protocol tcp --sizes 64 --rounds 300 --rate 0 --delay 0"
step off run $bare --no-probes --json --out off
step on run $bare --json --out on
step netem run --protocol both --sizes 64 --rounds 20 --warmup 0 --rate 0 \
    --delay 10ms --emulator never --json --out netem
{TWO_ENDS}
ip netns exec a tc qdisc add dev v root netem delay 10ms
cp %(counted)s /dev/shm/counted
cat >sends.sh <<'END'
exec >/dev/shm/out/sent
for n in 1 2; do
    for protocol in {" ".join(PROTOCOLS)}; do
        /dev/shm/counted $protocol a b 10.0.0.2 700$n {OWN_MESSAGES} 1 64
    done
done
END
step own run --no-lab --json --out own -- bash sends.sh
"""


@pytest.fixture(scope="module")
def loaded(recording_kernel, tmp_path_factory):
    return boot(recording_kernel, "real", LOADED, tmp_path_factory.mktemp("loaded"))


@pytest.fixture(scope="module")
def swept(recording_kernel, tmp_path_factory):
    return boot(recording_kernel, "real", SWEEP, tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="module")
def delayed(kernel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exact")
    counted = folder / "counted"
    compile_c(kernel, HERE / "counted.c", counted)
    script = EXACT % {"counted": shlex.quote(str(counted))}
    return boot(kernel, "exact", script, folder)


def test_every_program_that_is_to_be_used_loads(loaded):
    offered = {c["quantity"]: c for c in json.loads(loaded.output("probes"))}
    # what another program stands for, too: with none it is "unavailable"
    assert {q: c["reason"] for q, c in offered.items() if c["verifier_log"]} == {}
    states = {c["state"] for c in offered.values() if c["programs"]}
    assert states <= {"exact", "partial"}, offered
    used = {c["quantity"]: c for c in json.loads(loaded.output("run"))["capabilities"]}
    assert offered.items() >= used.items()
    # a run in the lab asks for no processes and stories, and is neither watch nor agent
    stories = {probe.quantity for probe in FLIGHT_PROBES}
    stories.add("cost of the probes")  # nor does it say what is of no message
    needs = {offered[q]["need"] for q in offered.keys() - used.keys() - stories}
    assert needs == {
        need for need in needs if "with --" in need or "in watch and agent" in need
    }


def test_what_is_unavailable_has_a_reason_in_words(loaded):
    """Of the kernel, not of a library's calls."""
    for one in json.loads(loaded.output("probes")):
        assert not re.search(r"failed to create|strerror|\(-\d+\)", one["reason"]), one


def test_a_kernel_without_fentry_is_refused_by_that(kernel_without_fentry, tmp_path):
    guest = boot(kernel_without_fentry, "real", REFUSED, tmp_path)
    asked = json.loads(guest.output("probes"))
    lacking = {one["quantity"] for one in asked if "ENOTSUPP" in one["reason"]}
    assert lacking == {"send (tcp)", "send (udp)", "ready", "read (udp)"}
    assert not {one["verifier_log"] for one in asked} - {""}
    (line,) = (tmp_path / "run.err").read_text().splitlines()
    assert line == (
        "latprof: cannot follow messages: ready: kernel has no tracepoint"
        " sk_data_ready; kernel refuses on_ready_fentry: libbpf: prog"
        " 'on_ready_fentry': failed to attach: Operation not supported (ENOTSUPP);"
        " use a kernel that has fentry (on arm64 Linux 6.4 or later)"
    )
    assert (tmp_path / "run.status").read_text() == "1\n"
    assert (tmp_path / "groups.left").read_text() == ""


def test_a_live_view_measures(loaded, recording_kernel):
    """It has room for histograms, which it makes itself; or it says what lacks."""
    if recording_kernel in RECORDS_ONLY:
        assert (loaded.folder / "watch.err").read_text() == (
            "latprof: cannot count in the kernel, as watch and agent do: kernel has no"
            " bpf_loop (of Linux 5.17); use Linux 5.17 or later, or record instead"
            " (`latprof run attach`)\n"
        )
        assert (loaded.folder / "watch.status").read_text() == "1\n"
        return
    last = json.loads(loaded.output("watch").splitlines()[-1])
    assert last["seconds"] > 0
    assert not any(last["lost_records"].values())


def test_what_a_message_begins_with_is_read(loaded):
    """A handshake is none of the exchanges, nor are tickets."""
    found = loaded.json("run")
    said = (loaded.folder / "run.err").read_text().splitlines()
    (known,) = [json.loads(line) for line in said if line.startswith("{")]
    (exchanges,) = found["exchanges"].values()
    assert exchanges["exchanges"] == known["exchanges"]
    (handshakes,) = found["handshakes"].values()
    assert handshakes["n"] == known["handshakes"]


def test_no_control_group_of_a_command_is_left(loaded):
    """Also where the kernel has no cgroup.kill, and whatever a run ended with."""
    assert (loaded.folder / "groups.left").read_text() == ""


def measured(machine, folder):
    """The rows of requests and replies, without those that open a session."""
    return [row for row in machine.rows(folder) if row["kind"] != "warmup"]


@pytest.mark.thorough
def test_every_message_has_one_row(swept):
    rows = Counter(
        (row["protocol"], row["kind"], int(row["size_bytes"]))
        for row in measured(swept, "sweep")
    )
    kinds = product(PROTOCOLS, ("request", "reply"), SIZES_BYTES)
    assert rows == dict.fromkeys(kinds, ROUNDS)


@pytest.mark.thorough
def test_stamps_never_run_backwards(swept):
    for row in swept.rows("sweep"):
        taken = [int(row[f"{stamp}_ns"]) for stamp in STAMPS if row[f"{stamp}_ns"]]
        assert taken == sorted(taken), row


@pytest.mark.thorough
def test_stages_sum_to_end_to_end(swept):
    for row in swept.rows("sweep"):
        stages = [int(row[f"{stage}_ns"]) for stage in STAGES if row[f"{stage}_ns"]]
        assert sum(stages) == int(row["end_to_end_ns"]), row


@pytest.mark.thorough
def test_a_known_delay_reads_true_in_transit(delayed):
    rows = measured(delayed, "netem")
    assert Counter(row["protocol"] for row in rows) == dict.fromkeys(
        PROTOCOLS, 2 * ROUNDS
    )
    late = sorted(int(row["transit_ns"]) - DELAY_NS for row in rows)
    assert late[0] >= 0
    # while the guest waits for its files its clock jumps to the next timer: a
    # message on its way just then is late
    assert late[len(late) * 9 // 10] <= TOLERANCE_NS, late
    assert sorted(int(r["qdisc_ns"]) for r in rows)[len(rows) * 9 // 10] <= TOLERANCE_NS


@pytest.mark.thorough
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_netem_of_the_senders_own_device_is_in_qdisc(delayed, protocol):
    """All of it, and nothing else: of the second time, when all is in memory.

    A flow's first message may be later by ten more (18 us on arm64's 7.3).
    """
    rows = [r for r in delayed.rows("own") if r["protocol"] == protocol]
    rows = [r for r in rows if r["destination_port"] == "7002"]
    rows.sort(key=lambda row: int(row["send_ns"]))
    late = [int(row["qdisc_ns"]) - DELAY_NS for row in rows]
    assert len(late) == OWN_MESSAGES
    assert min(late) >= 0
    assert max(late[1:]) <= OWN_TOLERANCE_NS, late


@pytest.mark.thorough
def test_the_cost_of_the_probes_is_told(delayed, kernel, capsys):
    off, on = (delayed.round_trip_ns(step) for step in ("off", "on"))
    assert on > off
    with capsys.disabled():
        print(
            f"\nLinux {kernel}, 64 B over TCP, at 2 ns an instruction: a round trip"
            f" takes {off:.0f} ns without probes, and {on - off:.0f} ns more with them"
        )
