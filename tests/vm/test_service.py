"""The service under systemd itself, with its unit's restrictions, on a stock kernel.

It starts, is scraped, reads its configuration again, is killed by the watchdog when it
hangs, starts again and ends, each as systemd sees it.
"""

import shlex
from pathlib import Path

import pytest
from guest import boot
from latprof_agent.privileges import KEPT

# A guest finds out how fast its clock is when it boots: four times too fast where the
# host had no time for it, and systemd waits by that clock.
pytestmark = [pytest.mark.timed, pytest.mark.thorough]

PACKAGING = Path(__file__).parents[2] / "packaging"
PORT = 7777
MESSAGES = 20
TRAFFIC = f"""
import socket
server = socket.create_server(("127.0.0.1", {PORT}))
client = socket.create_connection(server.getsockname())
served, _ = server.accept()
for _ in range({MESSAGES}):
    client.sendall(b"x")
    served.recv(1)
"""
METRICS = """
import urllib.request
with urllib.request.urlopen("http://127.0.0.1:9989/metrics") as page:
    print(page.read().decode())
"""
# A guest takes a hundred times as long, and what must not be missed is measured whole.
SCRIPT = """
cat >/usr/local/bin/latprof <<END
#!/bin/sh
PYTHONPATH=$PYTHONPATH exec $python -m latprof_agent "\\$@"
END
chmod 755 /usr/local/bin/latprof
units=/etc/systemd/system toml=/etc/latprof/agent.toml
mkdir -p $units/latprof-agent.service.d /etc/latprof
cp %(packaging)s/systemd/latprof-agent.service $units
sed 's/^#max_overhead.*/max_overhead = "100%%"/' %(packaging)s/systemd/agent.toml >$toml
cat >$units/latprof-agent.service.d/slow.conf <<END
[Service]
TimeoutStartSec=240
WatchdogSec=5
TimeoutAbortSec=5
RestartSec=0
END

state() { # NAME: as systemd sees it now
    systemctl show latprof-agent >$1.out; echo 0 >$1.status
}
until_it_is() { # PROPERTY VALUE
    until [ "$(systemctl show -P $1 latprof-agent)" = $2 ]; do sleep 0.2; done
}
until_reloaded() { # 1 or 0, whether it could
    until metrics | grep "^latprof_config_last_reload_successful $1"; do sleep 0.2; done
}
metrics() { /usr/bin/python3 -c %(metrics)s; }

journal() { journalctl -u latprof-agent -o cat --no-pager >journal; }
systemctl start latprof-agent
state started
journal
pid=$(systemctl show -P MainPID latprof-agent)
cp /proc/$pid/status process
/usr/bin/python3 -c %(traffic)s
metrics >scraped
until_it_is NRestarts 0
ping=$(systemctl show -P WatchdogTimestampMonotonic latprof-agent)
while [ $(systemctl show -P WatchdogTimestampMonotonic latprof-agent) = $ping ]; do
    sleep 0.2
done
echo 'by = 1' >$toml
systemctl reload latprof-agent
until_reloaded 0 >reloads
: >$toml
systemctl reload latprof-agent
until_reloaded 1 >>reloads
state reloaded
kill -STOP $pid
until_it_is NRestarts 1
until_it_is ActiveState active
state restarted
systemctl stop latprof-agent
state stopped
sleep 1
journal
"""


@pytest.fixture(scope="module")
def guest(kernel, tmp_path_factory):
    if not Path("/lib/systemd/systemd").exists():
        pytest.skip("no systemd here; apt-get install systemd")
    words = {
        "packaging": PACKAGING,
        "metrics": METRICS,
        "traffic": TRAFFIC,
    }
    script = SCRIPT % {name: shlex.quote(str(word)) for name, word in words.items()}
    return boot(kernel, "real", script, tmp_path_factory.mktemp("service"), systemd="1")


def properties(guest, step):
    return dict(line.split("=", 1) for line in guest.output(step).splitlines())


def text(guest, name):
    return (guest.folder / name).read_text()


def test_it_starts_and_is_ready(guest):
    found = properties(guest, "started")

    assert (found["ActiveState"], found["SubState"]) == ("active", "running")
    assert found["NRestarts"] == "0"
    assert text(guest, "journal").startswith("latprof: as user latprof: http://127.0")


def test_it_is_no_root_and_is_restricted(guest):
    lines = text(guest, "process").splitlines()
    found = dict(line.split(":\t", 1) for line in lines if ":\t" in line)

    assert "0" not in found["Uid"].split()
    kept = f"{sum(1 << capability for capability in KEPT):016x}"
    assert found["CapPrm"] == found["CapEff"] == kept
    assert found["NoNewPrivs"] == "1"
    assert found["Seccomp"] == "2"  # a filter


def test_it_is_scraped(guest):
    sent = 'latprof_messages_total{direction="sent",protocol="tcp",role="client",'
    sent += f'service="{PORT}"}} '
    (counted,) = [x for x in text(guest, "scraped").splitlines() if x.startswith(sent)]

    assert 0 < float(counted.removeprefix(sent)) <= MESSAGES


def test_all_that_the_kernel_offers_is_had(guest):
    lines = text(guest, "scraped").splitlines()
    states = [x for x in lines if x.startswith("latprof_capability{")]

    assert states
    # guests hide the addresses of their functions
    missing = {x for x in states if 'state="unavailable"' in x}
    assert missing <= {x for x in missing if 'quantity="functions that drop"' in x}


def test_a_reload_is_told_and_a_wrong_file_changes_nothing(guest):
    successes = [line.split()[-1] for line in text(guest, "reloads").splitlines()]
    found = properties(guest, "reloaded")

    assert [float(value) for value in successes] == [0, 1]
    assert (found["ActiveState"], found["NRestarts"]) == ("active", "0")
    assert found["MainPID"] == properties(guest, "started")["MainPID"]
    assert "the configuration stays as it was: /etc/latprof" in text(guest, "journal")


def test_what_hangs_is_started_again(guest):
    found = properties(guest, "restarted")

    assert (found["ActiveState"], found["NRestarts"]) == ("active", "1")
    assert found["MainPID"] != properties(guest, "started")["MainPID"]


def test_it_ends_without_a_word(guest):
    found = properties(guest, "stopped")

    assert (found["ActiveState"], found["Result"]) == ("inactive", "success")
    assert found["ExecMainStatus"] == "0"
    last = text(guest, "journal").splitlines()[-1]
    assert last.startswith("latprof: as user latprof")
