"""Stories told live: by the agent's folder, page and exemplars, and on the screen."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_process import FREE, Agent
from free_ports import free_port
from latprof_process import COMMAND, Latprof, run
from live_terminal import LiveTerminal
from recording import wait_until
from told_stories import check_parts

pytestmark = pytest.mark.timed

MS = 1_000_000
SLOW_MS, EVERY, TIMES = 20, 3, 8
READERS = 3  # of each a group tells 8 slow ones in 10 s
SOURCE = Path(__file__).with_name("slow_reader.c")
ALWAYS = ("--max-overhead", "none")


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    """The slow reader by several names: by comm each is a group."""
    folder = tmp_path_factory.mktemp("readers")
    first = folder / "reader0"
    flags = ["-O1", "-fno-omit-frame-pointer", "-lpthread"]
    subprocess.run(["gcc", SOURCE, "-o", first, *flags], check=True)
    for i in range(1, READERS):
        shutil.copy(first, folder / f"reader{i}")
    return sorted(folder.iterdir())


@contextmanager
def agent(*words, **options):
    made = Agent(*FREE, *ALWAYS, "--by", "comm", *words, **options)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            assert made.end() == 0


def read_slowly(readers, how):
    """Run them beside each other; their pids."""
    words = how, str(EVERY * TIMES), str(EVERY), str(SLOW_MS)
    running = [
        subprocess.Popen([reader, *words], stdout=subprocess.DEVNULL)
        for reader in readers
    ]
    assert [process.wait() for process in running] == [0] * len(running)
    return {process.pid for process in running}


def told(made):
    """How many stories have been written."""
    text = made.get()
    found = re.search(r'latprof_stories_total\{outcome="told"\} (\S+)', text)
    return float(found[1])


def stories_of(folder, pids):
    found = json.loads(run("story", str(folder), "--above=1ms", "--json").out)
    check_parts(found["stories"])
    return [s for s in found["stories"] if s["message"]["reader_pid"] in pids]


def causes(stories):
    firsts = [story["stages"]["receive_queue"]["parts"][0] for story in stories]
    # of a machine that is busy itself others may have had the CPU for some of it
    assert all(part["time_ns"] > 0.5 * SLOW_MS * MS for part in firsts)
    return [(part["kind"], part["what"].partition("+")[0]) for part in firsts]


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("lock", ("asleep", "for a lock (mutex)")),
        # whose file the agent's user may not open
        ("busy", ("busy", "reader0")),
    ],
)
def test_an_agent_beside_slow_readers_keeps_what_slowed_them(
    readers, tmp_path, how, cause
):
    folder = tmp_path / "kept"
    # several that compute share the CPUs, and wait for each other
    some = readers if how == "lock" else readers[:1]
    words = ("--story-dir", str(folder), "--story", "10ms")
    with agent(*words, "--comm", ",".join(r.name for r in some)) as made:
        pids = read_slowly(some, how)
        wait_until(lambda: told(made) >= TIMES * len(some) - 1, "all stories")
        names = {file.stem for file in folder.glob("*.json")}
        page = made.get("/", **key(folder))
        assert all(f'href="stories/{name}"' in page for name in names)
    right = causes(stories_of(folder, pids)).count(cause)
    assert right >= TIMES * len(some) - 1


WRITES_TWICE = """
import socket, threading
with socket.create_server(("127.0.0.1", PORT)) as listener:
    client = socket.create_connection(("127.0.0.1", PORT))
    server, _ = listener.accept()
def answer():
    for _ in range(20):
        server.recv(200, socket.MSG_WAITALL)
        server.send(b"!")
threading.Thread(target=answer).start()
for _ in range(20):
    client.send(bytes(100))
    client.send(bytes(100))
    client.recv(1)
"""


def test_an_agent_tells_what_held_a_senders_socket(tmp_path):
    """Who writes twice and waits: Nagle, until the first one's ACK, which is late."""
    folder, port = tmp_path / "kept", free_port()
    words = ("--story-dir", str(folder), "--story", "10ms", "--port", str(port))
    with agent(*words) as made:
        program = WRITES_TWICE.replace("PORT", str(port))
        subprocess.run([sys.executable, "-c", program], check=True)
        wait_until(lambda: told(made) >= 3, "stories")
    found = json.loads(run("story", str(folder), "--above=1ms", "--json").out)
    check_parts(found["stories"])
    queues = [s["stages"].get("send_queue") for s in found["stories"]]
    firsts = [of["parts"][0] for of in queues if of and of["time_ns"] > 10 * MS]
    assert len(firsts) >= 3
    assert {part["what"] for part in firsts} == {"Nagle until a delayed ACK"}
    # the timer of a delayed ACK ends on a tick
    assert all(part["time_ns"] > 36 * MS for part in firsts)


SERVER = """
import socket, time
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
connection, _ = listening.accept()
while got := connection.recv(4):
    time.sleep(int(got) / 1000)
    connection.sendall(b"x")
"""


class SlowServer:
    """Answers on loopback; a request says how many ms it sleeps before.

    It comes before all others: they make no sleep half a millisecond longer.
    """

    def __init__(self):
        words = ["chrt", "--fifo", "10", sys.executable, "-c", SERVER]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())
        self.client = socket.create_connection(("127.0.0.1", self.port))

    def ask(self, *times_ms):
        for milliseconds in times_ms:
            self.client.sendall(b"%4d" % milliseconds)
            assert self.client.recv(1) == b"x"

    def end(self):
        self.client.close()
        assert self.process.wait() == 0
        self.process.stdout.close()


def only(server):
    return "--port", str(server.port)


@pytest.fixture
def server():
    made = SlowServer()
    yield made
    made.end()


def key(folder):
    """A header for who may read the folder."""
    return {"Authorization": f"Bearer {(folder / 'token').read_text().strip()}"}


def openmetrics(made):
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    asked = urllib.request.Request(f"{made.url}/metrics", headers=accept)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return answer.read().decode()


def test_an_exemplar_and_the_page_lead_to_the_story_of_a_slow_server(server, tmp_path):
    folder = tmp_path / "kept"
    words = ("--story-dir", str(folder), "--story", "10ms")
    with agent(*words, *only(server)) as made:
        server.ask(0, 30)
        label = re.compile(r'latprof_server_seconds_bucket.* # \{.*story="([^"]+)"\}')
        name = wait_until(lambda: label.search(openmetrics(made)), "a label")[1]
        text = made.get(f"/stories/{name}", **key(folder))
        assert "from request to reply at" in text
        assert "which slept on a timer (clock_nanosleep) for 30" in text
        document = json.loads(made.get(f"/stories/{name}.json", **key(folder)))
        assert document == json.loads((folder / f"{name}.json").read_text())
        (story,) = document["stories"]
        (part, *_) = story["stages"]["server"]["parts"]
        assert 30 * MS <= part["time_ns"] <= story["stages"]["server"]["time_ns"]
        assert folder.stat().st_uid == (folder / f"{name}.json").stat().st_uid != 0
    shown = run("story", str(folder / f"{name}.json")).out
    assert "slept on a timer (clock_nanosleep)" in shown


def test_nothing_slow_is_no_story(server, tmp_path):
    folder = tmp_path / "kept"
    words = ("--story-dir", str(folder), "--story", "200ms")
    with agent(*words, *only(server)) as made:
        server.ask(20, *[0] * 200)
        assert told(made) == 0
        assert 'latprof_stories_total{outcome="no_copy"}' not in made.get()
    assert [file.name for file in folder.iterdir()] == ["token"]


def test_on_the_screen_enter_tells_why(server):
    words = ("watch", "--story=10ms", "--interval=500ms", *ALWAYS, *only(server))
    with LiveTerminal([*COMMAND, *words], 120, 30) as terminal:
        terminal.wait_for("own: ")
        server.ask(0, 30)
        terminal.type("e")
        terminal.wait_for("30ms server time")
        terminal.type("p\r")  # as it was told in the interval that is shown
        terminal.wait(lambda: _tells(terminal), "a story")
        screen = " ".join(" ".join(terminal.screen).split())
        assert "slept on a timer (clock_nanosleep) for 30" in screen
        terminal.type("q")
        assert terminal.finish() == 0
        assert terminal.is_restored


def _tells(terminal):
    """The page of a story; of an older picture without it, the newest again."""
    if any("which slept" in line for line in terminal.screen):
        return True
    terminal.type("p\x1bp\r" if "PAUSED" in terminal.screen[0] else "p")
    terminal.look(0.5)
    return False


def test_killed_it_leaves_nothing_that_keeps_the_next_from_starting(server, tmp_path):
    folder = tmp_path / "kept"
    words = ("--story-dir", str(folder), "--story", "10ms")
    with agent(*words, *only(server)) as made:
        server.ask(0, 30)
        wait_until(lambda: told(made) > 0, "a story")
        before = sorted(folder.iterdir())
        assert made.end(signal.SIGKILL) == -signal.SIGKILL
    (folder / f".{before[0].name}.new").touch()  # as if in the middle of it
    with agent(*words) as made:
        assert before[0].stem in made.get("/", **key(folder))
        assert sorted(folder.iterdir()) == before
        assert made.err == ""


def test_a_full_disk_is_one_line_and_stories_go_on_when_there_is_room(server, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = f'mount -t tmpfs -o size=64k,mode=755 none {disk} && exec "$@"'
    words = ("--story-dir", str(disk / "kept"), "--story", "10ms")
    before = ("unshare", "-m", "sh", "-c", mounted, "sh")
    with agent(*words, *only(server), before=before) as made:
        seen = Path(f"/proc/{made.process.pid}/root{disk}")
        with pytest.raises(OSError, match="No space left"):
            (seen / "full").write_bytes(bytes(128 << 10))
        failed = re.compile(r'outcome="not_written"\} ([1-9].*)')
        server.ask(0, 30)
        wait_until(lambda: failed.search(made.get()), "a story without room")
        line = made.next_line()
        assert line.startswith(f"latprof: cannot keep stories in {disk / 'kept'}: ")
        assert "no space left on device; " in line
        kept = len(list((seen / "kept").iterdir()))
        (seen / "full").unlink()
        server.ask(30)
        wait_until(lambda: len(list((seen / "kept").iterdir())) > kept, "room again")
        assert not list((seen / "kept").glob("*.new"))
    assert made.err == ""  # the line was the only one


def test_two_recorders_at_once_both_tell_the_truth(readers, tmp_path):
    folder, out = tmp_path / "kept", tmp_path / "run"
    words = ("--story-dir", str(folder), "--story", "10ms")
    with agent(*words, "--comm", readers[0].name) as made:
        run_words = ("run", "--quiet", "--no-lab", "--user=root", "--story=10ms")
        reader = (readers[0], "lock", EVERY * TIMES, EVERY, SLOW_MS)
        latprof = Latprof(*run_words, f"--out={out}", "--", *map(str, reader))
        assert latprof.finish() == 0, latprof.err
        wait_until(lambda: told(made) >= TIMES - 1, "all stories")
    document = json.loads((out / "stories.json").read_text())
    cause = "asleep", "for a lock (mutex)"
    assert causes(document["stories"]).count(cause) >= TIMES - 1
    pids = {story["message"]["reader_pid"] for story in document["stories"]}
    assert causes(stories_of(folder, pids)).count(cause) >= TIMES - 1


def test_a_folder_that_its_user_may_not_write_is_one_line(tmp_path):
    (tmp_path / "roots").mkdir()
    words = ("agent", *FREE, "--story-dir", str(tmp_path / "roots"))
    failed = Latprof(*words, stdin=subprocess.DEVNULL)
    assert failed.finish() == 2
    (line,) = failed.err.splitlines()
    assert "story_dir: cannot use" in line
    assert "Permission denied; name one that user" in line
