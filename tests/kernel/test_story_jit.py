"""Code that a just-in-time compiler made is named by its own map: Node.js, Java."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from told_stories import told_of

pytestmark = pytest.mark.timed

TIMES = 20
MS = 1_000_000

# Two datagrams at a time; it reads them when it has counted for 30 ms. It stays for a
# while: of a process that has ended nobody can see where its code was.
NODE = """
const dgram = require('dgram');
const reading = dgram.createSocket('udp4');
const asking = dgram.createSocket('udp4');
let stars = 0;
let turns = TIMES;

function countTheStars(until) {
  while (Date.now() < until)
    for (let i = 0; i < 100000; i++) stars = (stars * 31 + i) % 1000003;
}

function turn() {
  if (!turns--) return setTimeout(process.exit, 500, 0);
  let sent = 0;
  const send = () => {
    if (++sent < 2) return;
    countTheStars(Date.now() + 30);
    setTimeout(turn, 10);
  };
  for (let i = 0; i < 2; i++)
    asking.send(Buffer.alloc(64), reading.address().port, '127.0.0.1', send);
}

countTheStars(Date.now() + 1000);
reading.bind(0, '127.0.0.1', () => setTimeout(turn, 500));
"""

JAVA = """
import java.net.*;

public class Reader {
    static long stars;

    static void countTheStars(long nanoseconds) {
        long begin = System.nanoTime();
        while (System.nanoTime() - begin < nanoseconds)
            for (int i = 0; i < 1000; i++)
                stars = (stars * 31 + i) % 1000003;
    }

    public static void main(String[] words) throws Exception {
        InetAddress here = InetAddress.getLoopbackAddress();
        DatagramSocket reading = new DatagramSocket(0, here);
        DatagramSocket asking = new DatagramSocket();
        byte[] bytes = new byte[64];
        int port = reading.getLocalPort();
        for (int i = 0; i < 100; i++)
            countTheStars(20_000_000);
        String pid = Long.toString(ProcessHandle.current().pid());
        new ProcessBuilder("jcmd", pid, "Compiler.perfmap")
            .redirectOutput(ProcessBuilder.Redirect.DISCARD).start().waitFor();
        for (int turn = 0; turn < TIMES; turn++) {
            for (int i = 0; i < 2; i++)
                asking.send(new DatagramPacket(bytes, 64, here, port));
            countTheStars(30_000_000);
            for (int i = 0; i < 2; i++)
                reading.receive(new DatagramPacket(bytes, 64));
        }
        Thread.sleep(500);
    }
}
"""


@pytest.mark.parametrize(
    ("source", "name", "command", "needs", "package"),
    [
        (NODE, "reader.js", ("node", "--perf-basic-prof"), "node", "nodejs"),
        # 115 MB, which the test command does not install by itself
        (JAVA, "Reader.java", ("java",), "jcmd", "default-jdk-headless"),
    ],
)
def test_a_function_that_a_jit_compiled_is_named(
    tmp_path, source, name, command, needs, package
):
    if not shutil.which(needs):
        pytest.skip(f"needs {needs} (apt-get install {package})")
    script = tmp_path / name
    script.write_text(source.replace("TIMES", str(TIMES)))
    # before others; and there, where node leaves a log of its own
    first = ("nice", "-n", "-20", "env", f"--chdir={tmp_path}")
    document, _ = told_of(tmp_path / "run", *first, *command, script)
    for story in document["stories"]:
        pid = story["message"]["reader_pid"]
        Path(f"/tmp/perf-{pid}.map").unlink(missing_ok=True)
    # whoever else had the CPU for some of it: what it was busy with itself
    waits = [story["stages"]["receive_queue"]["parts"] for story in document["stories"]]
    busy = [part for parts in waits for part in parts if part["kind"] == "busy"]
    longer = [part for part in busy if part["time_ns"] > 5 * MS]
    assert len(longer) >= 1.5 * TIMES
    right = [part for part in longer if "countTheStars" in part["what"]]
    assert len(right) >= 0.95 * len(longer), longer
