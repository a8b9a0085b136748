"""Stories under a stock kernel, also of a disk that is slow, which no lab has.

One boot for each kernel. The disk is one in memory behind dm-delay; readers are those
of tests/kernel. What a guest adds is short against what they wait.
"""

import json

import pytest
from guest import HERE, boot
from other_machine import compile_c, machine_of
from told_stories import check_parts, first_parts

pytestmark = pytest.mark.thorough

EVERY, TIMES, SLOW_MS = 3, 20, 200
FILE = {"blkdev_read_iter (kernel)"}
SOURCE = HERE.parent / "kernel" / "slow_reader.c"
SCRIPT = """
modprobe brd rd_nr=1 rd_size=65536
modprobe dm-delay
dmsetup create slow --noudevsync --table '0 131072 delay /dev/ram0 0 {slow_ms}'
slowly() {{
    step $1 run --no-lab --user root --story 50ms --out $1 -- \
        chrt --fifo 10 {reader} $1 {messages} {every} {slow_ms} $2
}}
slowly busy
slowly held
slowly file /dev/dm-0
slowly map /dev/dm-0
"""


@pytest.fixture(scope="module")
def told(kernel, tmp_path_factory):
    """Give the document of a reader that is slow in some way."""
    folder = tmp_path_factory.mktemp("stories")
    reader = folder / "slow_reader"
    compile_c(kernel, SOURCE, reader, "-O1", "-fno-omit-frame-pointer", "-lpthread")
    script = SCRIPT.format(
        reader=reader, slow_ms=SLOW_MS, messages=EVERY * TIMES, every=EVERY
    )
    guest = boot(kernel, "real", script, folder)

    def document_of(how):
        guest.output(how)
        return json.loads((folder / how / "stories.json").read_text())

    return document_of


@pytest.mark.parametrize("how", ["busy", "held", "file", "map"])
def test_each_slow_message_has_a_story_that_sums(told, how):
    stories = told(how)["stories"]
    check_parts(stories)
    assert len(stories) >= TIMES
    for story in stories:
        stages = sum(of["time_ns"] for of in story["stages"].values())
        assert stages == story["message"]["end_to_end_ns"]


@pytest.mark.parametrize(
    ("how", "kind", "what", "within"),
    [
        ("busy", "busy", "count_the_stars", set()),
        ("held", "asleep", "for a lock (mutex)", {"futex_wait (kernel)"}),
        ("file", "asleep", "for a disk or file system (pread64; ", FILE),
        ("map", "asleep", "for a page (page fault; ", {"filemap_fault (kernel)"}),
    ],
)
def test_a_reader_that_is_slow_for_one_reason_is_told_so(
    told, kernel, how, kind, what, within
):
    if machine_of(kernel):
        pytest.skip("on a busy host names of functions come too late there for some")
    parts = first_parts(told(how))
    right = [p for p in parts if p["kind"] == kind and p["what"].startswith(what)]
    assert len(right) >= TIMES - 1, parts
    assert min(p["time_ns"] for p in right[1:]) > 0.8e6 * SLOW_MS
    frames = {frame for p in right for s in p["stacks"] for frame in s["frames"]}
    assert not within or within & frames
