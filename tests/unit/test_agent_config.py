"""The agent's configuration: what is read, what is refused, and what wins."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path

import pytest
from latprof_agent import cli
from latprof_agent.errors import UsageError
from latprof_agent.filters.groupings import GROUPINGS, grouping_of
from latprof_agent.monitor.totals import Counted
from latprof_agent.probes.grouping import BY_CONTAINER, NONE, Grouping
from latprof_agent.probes.layout import layout_of
from latprof_agent.service.config import Address, Config, address, read_config
from latprof_agent.service.metrics.families import DEFAULT_EDGES
from refusals import refused

HASH = "$scrypt$ln=14,r=8,p=5$aM15713r3Xsvxbi31lqr1Q$nFNh2CVHVjNldFVKDHDlmw"
WHOLE = f"""\
listen = "[::1]:9000"
user = "nobody"
max_overhead = "1%"
story_dir = "/a/stories"
story_above = "20ms"
story_count = 7
story_bytes = "1MB"
story_group = "root"
by = ["cgroup", "comm"]
hosts = ["Node7.example.org.", "node7"]
[containers]
runtime = "unix:///run/k3s/containerd/containerd.sock"
[buckets]
stages = ["1us", "2.5ms"]
[tls]
certificate = "/a/crt"
key = "/a/key"
[users]
prometheus = "{HASH}"
"""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "agent.toml"


def test_every_key_is_read(file):
    file.write_text(WHOLE)
    config = read_config(file, {})

    assert config.listen == Address("::1", 9000)
    assert (config.user, config.max_overhead) == ("nobody", 0.01)
    assert str(config.story_dir) == "/a/stories"
    assert config.story_above == 20_000_000
    assert (config.story_count, config.story_bytes) == (7, 1_000_000)
    assert config.story_group == 0
    assert config.by == Grouping(("cgroup", "comm"))
    assert str(config.runtime) == "/run/k3s/containerd/containerd.sock"
    assert config.hosts == ("node7.example.org", "node7")
    assert config.edges.stages.upper_ns == (1000, 2_500_000)
    assert config.edges.others == DEFAULT_EDGES.others
    assert str(config.tls.key) == "/a/key"
    assert str(config.users["prometheus"]) == HASH


def test_an_empty_file_is_the_default(file):
    file.touch()

    assert read_config(file, {}) == read_config(None, {}) == Config()
    assert Config().listen.host == "127.0.0.1"


def test_no_limit_is_a_limit(file):
    file.write_text('max_overhead = "none"')

    assert read_config(file, {}).max_overhead == math.inf


def test_the_command_line_wins(file):
    file.write_text(WHOLE)
    config = read_config(file, {"listen": Address("::", 1), "max_overhead": 0.5})

    assert (config.listen, config.max_overhead) == (Address("::", 1), 0.5)
    assert config.user == "nobody"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("listn = 'x'", "listn is no key of the configuration; did you mean listen"),
        ("[tls]\ncert = '/a'", "tls.cert is no key of the configuration; did you mean"),
        ("[a.b]\nc = 1", "a is no key of the configuration; see latprof agent --help"),
        ("listen = 9000", "listen must be a string, got 9000"),
        ("listen = 'x'", "listen must be like 127.0.0.1:9989, "),
        ("max_overhead = '2'", "max_overhead must be none or a share like 1% or 0.01"),
        ("max_overhead = '101%'", "max_overhead must be none or from 0.1% to 100%"),
        ("story_dir = 'stories'", "story_dir must be an absolute path, got 'stories'"),
        ("story_above = 20", "story_above must be a string, got 20"),
        ("story_above = 'p99'", "story_above must be a time like 250us, 5ms or 2s, "),
        ("story_above = '1us'", "story_above must be from 10us to 1h, got '1us', or p"),
        ("story_count = '5'", "story_count must be a whole number, got '5'"),
        ("story_count = 0", "story_count must be from 1 to 100000, got '0'"),
        ("story_bytes = '1k'", "story_bytes must be from 100k to 100GB, got '1k'"),
        ("max_overhead = 0.02", "max_overhead must be a string, got 0.02"),
        ("by = 'comm'", "by must be a list, got 'comm'"),
        ("containers = {runtime = 'a.sock'}", "containers.runtime must be like unix:"),
        ("containers = {socket = '/a'}", "containers.socket is no key"),
        ("by = ['pid']", "by must be of service, cgroup, pod, "),
        ("by = ['comm', 'remote', 'cgroup']", "by must be one or 2 of service, "),
        ("by = ['comm', 'none']", "by must be none or others, got 'comm,none'"),
        ("by = []", "by must be one or 2 of"),
        ("by = ['comm', 'comm']", "by must be different kinds, got 'comm,comm'"),
        ("hosts = 'a'", "hosts must be a list, got 'a'"),
        ("hosts = ['a:9989']", "hosts must be names like node7.example.org, without"),
        ("hosts = ['*']", "hosts must be names like node7.example.org, without a port"),
        ("hosts = ['a b', 'c']", "hosts must be names like"),
        ("buckets = 1", "buckets must be a table, got 1"),
        ("[buckets]\nstages = ['1ms', '1us']", "buckets.stages must be 1 to 100 times"),
        ("[buckets]\nothers = ['0']", "buckets.others must be 1 to 100 times above 0"),
        ("[buckets]\nothers = ['5']", "buckets.others must be a time like 250us"),
        ("[tls]\nkey = '/a/key'", "tls.certificate must be given, too"),
        ("[tls]\nkey = 'key'", "tls.key must be an absolute path, got 'key'"),
        ("[users]\na = 'secret'", "users.a must be a hash of `latprof agent --hash-p"),
        (f"[users]\n'a:b' = '{HASH}'", "users.a:b must be a name without a colon"),
        ("listen = 'x", "is not TOML: "),
        ("a = 1\na = 2", "is not TOML: "),
        ("\udcff", "is not TOML: "),
        ("a = " + "[" * 5000, "is not TOML: "),
    ],
)
def test_what_is_wrong_is_one_line_with_its_path_and_status_2(file, capsys, text, told):
    file.write_text(text, errors="surrogateescape")

    assert cli.main(["agent", "--config", str(file), "--check-config"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith(f"latprof: {file}")
    assert told in line


def test_a_group_that_is_none_is_refused(file):
    file.write_text('story_dir = "/a"\nstory_group = "no such group"\n')
    with pytest.raises(UsageError, match="story_group must be a group's name or num"):
        read_config(file, {})


def test_no_file_is_one_line(tmp_path, capsys):
    missing = tmp_path / "none.toml"

    assert cli.main(["agent", "--config", str(missing), "--check-config"]) == 2
    assert capsys.readouterr().err == (
        f"latprof: cannot read {missing}: No such file or directory; "
        "name a file of TOML that is there\n"
    )


def test_a_right_configuration_is_said_to_be_right(file, capsys):
    file.write_text(WHOLE)

    assert cli.main(["agent", "--config", str(file), "--check-config"]) == 0
    assert capsys.readouterr() == ("the configuration is right\n", "")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--listen", "9989"], "--listen must be like 127.0.0.1:9989"),
        (["--listen", "::1:9989"], "--listen must be like"),
        (["--listen", "x:70000"], "--listen must be like"),
        (["--max-overhead", "0%"], "--max-overhead must be none or from 0.1% to 100%"),
        (["--check-config", "--hash-password"], "not allowed with"),
    ],
)
def test_wrong_options_are_one_line_and_status_2(capsys, words, text):
    assert text in refused(capsys, "agent", *words)


@pytest.mark.parametrize("name", ["above = 'p99.9'", "count = 1", "bytes = '1MB'"])
def test_what_is_of_stories_needs_their_folder(file, name):
    file.write_text(f"story_{name}")
    with pytest.raises(UsageError, match="must come with story_dir"):
        read_config(file, {})
    assert read_config(file, {"story_dir": Path("/a")}).story_dir == Path("/a")


def test_stories_are_of_p999_unless_told(file):
    file.write_text("story_dir = '/a'")
    config = read_config(file, {})
    assert (config.story_above, config.story_count) == (0, 200)


@pytest.mark.parametrize("subcommand", ["agent", "watch"])
@pytest.mark.parametrize(
    ("by", "text"),
    [
        ("port", "must be of service, cgroup, "),
        ("remote/33", "must be like remote/16 or remote/16/48, got 'remote/33'"),
        ("remote/16/129", "must be like remote/16 or"),
        ("remote/1/2/3", "must be like remote/16 or"),
        ("comm/16", "must be of service, cgroup, "),
        ("", "must be of service, cgroup, "),
        ("none,comm", "must be none or others, got 'none,comm'"),
        ("comm,comm", "must be different kinds, got 'comm,comm'"),
        ("comm,remote,cgroup", "must be one or 2 of service, "),
    ],
)
def test_both_refuse_the_same_groupings(capsys, subcommand, by, text):
    assert f"--by {text}" in refused(capsys, subcommand, "--by", by)


@pytest.mark.parametrize(
    ("words", "prefixes"),
    [("remote", (24, 64)), ("remote/16", (16, 64)), ("comm,remote/8/0", (8, 0))],
)
def test_subnets_are_as_wide_as_they_are_told(words, prefixes):
    found = grouping_of(words.split(","))

    assert "remote" in found.by
    assert (found.prefix_ipv4, found.prefix_ipv6) == prefixes
    assert grouping_of(["remote"], found) == replace(found, by=("remote",))


def test_what_is_counted_of_a_group_is_what_the_probes_count():
    assert set(Counted) == set(layout_of().group_counts.names)


@pytest.mark.parametrize(
    ("text", "read", "shown"),
    [
        ("127.0.0.1:1", ("127.0.0.1", 1), "127.0.0.1:1"),
        ("[::1]:1", ("::1", 1), "[::1]:1"),
        (":1", ("::", 1), "[::]:1"),
        ("localhost:0", ("localhost", 0), "localhost:0"),
    ],
)
def test_addresses_are_read_and_shown(text, read, shown):
    assert address(text) == read
    assert str(address(text)) == shown


@pytest.mark.parametrize("text", ["", ":", "a", "a:b", "[::1]", "::1:1", "[a]:1"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"must be like .*, got"):
        address(text)


def test_the_options_name_the_groupings_that_the_probes_know():
    assert set(GROUPINGS) - set(BY_CONTAINER) == {*layout_of().groupings, NONE}


def test_what_waits_for_a_restart_stays(file):
    before = read_config(None, {})
    file.write_text(WHOLE)
    config, waiting = before.fixed_in(read_config(file, {}))

    stories = [f"story_{name}" for name in ("dir", "above", "count", "bytes", "group")]
    assert waiting == ["listen", "user", "max_overhead", *stories, "runtime"]
    assert config.listen == before.listen
    assert config.users and config.tls


def test_errors_of_the_configuration_are_of_usage(file):
    file.write_text("x = 1")

    with pytest.raises(UsageError):
        read_config(file, {})
