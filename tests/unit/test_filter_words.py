"""Filters in words, options and TOML; and what is said of those that are wrong."""

from __future__ import annotations

import argparse
import shlex
import tomllib
from ipaddress import ip_network
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_agent.cli.filter_options import (
    add_filter_options,
    filter_of,
    parse_filter,
)
from latprof_agent.errors import FilterError, LatprofError, UsageError
from latprof_agent.filters import places
from latprof_agent.filters.kinds import KINDS
from latprof_agent.filters.words import filter_of_table, gone, read_words, refreshed
from latprof_agent.probes.filter import KINDS as KERNEL_KINDS
from latprof_agent.probes.filter import Filter, Terms, Word
from latprof_agent.probes.layout import layout_of

DOCKER, PODMAN, CONTAINERD = (64 * digit for digit in "abc")


def _options(*words):
    parser = argparse.ArgumentParser()
    add_filter_options(parser)
    return filter_of(parser.parse_args(words))


values = st.text(
    st.characters(exclude_characters=",\0", exclude_categories=["Cs"]), min_size=1
).filter(lambda text: text == text.strip() and text.split())
words = st.builds(Word, st.sampled_from(sorted(KINDS)), values, st.booleans())


@given(st.lists(words))
def test_a_filters_words_are_read_as_they_are_shown(made):
    # pidof puts blanks between pids
    made = [w for w in made if w.kind != "pid" or len(w.text.split()) == 1]
    assert list(read_words(str(Filter(words=tuple(made))))) == made


@given(st.text())
def test_whatever_is_typed_is_a_filter_or_one_line(text):
    try:
        found = parse_filter(text)
    except LatprofError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert isinstance(found, Filter)


@given(
    st.dictionaries(
        st.sampled_from([*KINDS, "not", "prot"]),
        st.none() | st.text() | st.integers() | st.floats() | st.lists(st.integers()),
    )
)
def test_whatever_a_table_holds_is_a_filter_or_one_line(table):
    try:
        filter_of_table(table, "filter")
    except LatprofError as error:
        assert len(str(error).splitlines()) == 1
        assert str(error).startswith("filter")


def test_options_words_and_a_table_make_the_same():
    text = """
        [filter]
        port = [80, 443]
        local_port = 8080
        remote = ["10.0.0.0/8", "fd00::/8"]
        comm = "nginx"
        uid = 0
        [filter.not]
        comm = ["curl", "Web Content"]
        remote-port = 53
    """
    table = filter_of_table(tomllib.loads(text)["filter"], "filter")
    words = parse_filter(
        "port=80,443 local-port=8080 remote=10.0.0.0/8,fd00::/8 comm=nginx uid=root "
        "not comm=curl,'Web Content' not remote-port=53"
    )
    options = _options(
        *shlex.split(
            "--port 80 --port 443 --local-port 8080 --remote 10.0.0.0/8,fd00::/8 "
            "--comm nginx --uid root --not comm=curl,'Web Content' "
            "--not remote-port=53"
        )
    )
    expected = Filter(
        ports=(80, 443),
        local_ports=(8080,),
        remotes=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")),
        comms=("nginx",),
        uids=(0,),
        but_not=Terms(comms=("curl", "Web Content"), remote_ports=(53,)),
    )
    for found in (table, words, options):
        assert vars(found) | {"words": ()} == vars(expected)


def test_nothing_asked_for_is_everything():
    assert _options() == parse_filter("") == filter_of_table({}, "filter") == Filter()


@pytest.mark.parametrize(
    ("text", "protocols"),
    [
        ("protocol=tcp", ("tcp",)),
        ("protocol=udp,tcp", ("tcp", "udp")),
        ("not protocol=tcp", ("udp",)),
    ],
)
def test_protocols_are_those_that_are_left(text, protocols):
    assert parse_filter(text).protocols == protocols


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [
        ("prot=1", 2, "filter: prot: must be one of pid, comm, "),
        ("prot=1", 2, "; did you mean protocol"),
        ("port=0", 2, "port must be from 1 to 65535, got '0'"),
        ("not port=a", 2, "not port must be a whole number, got 'a'"),
        ("port=", 2, "port must have a value, got ''"),
        ("port", 2, "filter: must be KIND=VALUE, got 'port'"),
        ("port=1 not", 2, "filter: not must stand before KIND=VALUE, got nothing"),
        ("not not port=1", 2, "filter: must be KIND=VALUE, got 'not'"),
        ("comm='a", 2, "filter: no closing quotation in "),
        ("remote=10.0.0.0/40", 2, "remote must be an address or a subnet like 10."),
        ("protocol=icmp", 2, "protocol must be tcp or udp, got 'icmp'"),
        ("protocol=tcp not protocol=tcp", 2, "filter: protocol: leaves neither tcp"),
        ("interface=a/b", 2, "interface must be the name of an interface"),
        ("uid=nobodi", 1, "uid=nobodi: there is no user 'nobodi'; did you mean nobody"),
        ("netns=/etc/passwd", 1, "/etc/passwd is no network namespace; `lsns"),
        ("netns=no-such", 1, "there is no network namespace no-such; `ip netns`"),
        ("interface=nosuch0", 1, "no namespace has an interface nosuch0; "),
    ],
)
def test_what_is_wrong_is_told(text, status, why):
    with pytest.raises(LatprofError) as error:
        parse_filter(text)
    assert why in str(error.value)
    assert error.value.exit_code == status


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"prt": 1}, "a.toml: filter.prt: must be one of "),
        ({"not": {"prt": 1}}, "a.toml: filter.not.prt: must be one of "),
        ({"not": {"not": {}}}, "a.toml: filter.not.not: must be one of "),
        ({"not": 1}, "a.toml: filter.not must be a table, got 1"),
        ({"port": True}, "a.toml: filter.port must be a number, a text, or a list"),
        ({"port": [80, 1.5]}, "a.toml: filter.port must be a number, a text, or a"),
        ({"port": 65536}, "a.toml: filter.port must be from 1 to 65535, got '65536'"),
    ],
)
def test_what_is_wrong_in_a_table_is_told_with_its_path(table, why):
    with pytest.raises(UsageError) as error:
        filter_of_table(table, "a.toml: filter")
    assert str(error.value).startswith(why)


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """A tree as container engines leave it."""
    for path in (
        f"system.slice/docker-{DOCKER}.scope",
        f"docker/{64 * 'd'}",
        f"machine.slice/libpod-{PODMAN}.scope/container",
        f"machine.slice/libpod-conmon-{64 * 'e'}.scope",
        f"kubepods.slice/kubepods-pod1.slice/cri-containerd-{CONTAINERD}.scope",
        f"kubepods.slice/kubepods-pod1.slice/crio-{'c' * 4}{60 * '1'}.scope",
        r"machine.slice/systemd-nspawn@my\x2dbox.service/payload",
        "lxc.payload.web",
        "user.slice/user-0.slice",
    ):
        (tmp_path / path).mkdir(parents=True)
    monkeypatch.setattr(places, "widest_mount", lambda: tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (DOCKER, f"system.slice/docker-{DOCKER}.scope"),
        ("aaaaaaaaaaaa", f"system.slice/docker-{DOCKER}.scope"),
        ("d", f"docker/{64 * 'd'}"),
        ("bb", f"machine.slice/libpod-{PODMAN}.scope"),
        (
            "ccccc",
            f"kubepods.slice/kubepods-pod1.slice/cri-containerd-{CONTAINERD}.scope",
        ),
        ("my-box", r"machine.slice/systemd-nspawn@my\x2dbox.service"),
        ("web", "lxc.payload.web"),
    ],
)
def test_a_container_is_found_by_the_start_of_its_id_or_its_name(groups, text, where):
    found = parse_filter(f"container={text}")
    assert found.cgroups == ((groups / where).stat().st_ino,)
    assert str(found) == f"container={text}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cccc", "2 containers begin with cccc: cccc11111111, cccccccccccc; use more"),
        ("e", "no container e has a cgroup below "),  # conmon watches, and is none
        ("my-bx", "did you mean my-box"),
        ("user", "no container user has a cgroup below "),
    ],
)
def test_a_container_that_is_none_or_several_is_told(groups, text, why):
    with pytest.raises(FilterError) as error:
        parse_filter(f"container={text}")
    assert why in str(error.value)


@pytest.mark.parametrize("text", ["docker", "/docker"])
def test_a_cgroup_is_found_by_its_path(groups, text):
    found = (groups / "docker").stat().st_ino
    assert parse_filter(f"cgroup={text}").cgroups == (found,)
    assert parse_filter(f"cgroup={groups / 'docker'}").cgroups == (found,)


def test_a_netns_may_be_told_by_its_path():
    own = Path("/proc/self/ns/net")
    assert parse_filter(f"netns={own}").netns == (own.stat().st_ino,)
    with pytest.raises(FilterError, match="is no network namespace"):
        parse_filter("netns=/proc/self/ns/mnt")


def test_each_kind_is_one_of_the_kernels():
    kinds = layout_of().term_kinds
    assert set(KERNEL_KINDS.values()) == kinds.keys() - {"TERM_NONE"}
    assert set(KERNEL_KINDS) == set(vars(Terms()))
    assert {kind.field for kind in KINDS.values()} == {*KERNEL_KINDS, "protocols"}


@pytest.mark.parametrize(
    ("text", "value", "mask"),
    [
        ("10.1.0.0/16", "::ffff:10.1.0.0", 96 + 16),
        ("0.0.0.0/0", "::ffff:0.0.0.0", 96),
        ("fd00::/8", "fd00::", 8),
        ("::/0", "::", 0),
    ],
)
def test_a_subnet_is_an_address_and_a_mask_of_ipv6(text, value, mask):
    layout = layout_of()
    record = parse_filter(f"remote={text}").as_record(layout)
    term = np.frombuffer(record, layout.options)[0]["terms"][0]
    assert term["kind"] == layout.term_kinds["TERM_REMOTE"]
    whole = ip_network(f"{value}/{mask}")
    assert term["value"].tobytes() == whole.network_address.packed
    assert term["mask"].tobytes() == whole.netmask.packed


def test_what_may_not_be_looked_at_any_more_is_not_gone(monkeypatch, tmp_path):
    namespace = tmp_path / "net"
    namespace.touch()
    word = Word("netns", str(namespace), values=(7,), paths=(namespace,))

    def refuse(_path):
        raise PermissionError  # an agent is no root

    monkeypatch.setattr(Path, "stat", refuse)
    watched = Filter(netns=(7,), words=(word,))
    assert refreshed(watched) == watched
    assert gone(watched) == []


def test_a_process_that_has_ended_is_not_another_of_its_number():
    path = Path("/proc/self/ns/net")
    word = Word("netns", "123", values=(0,), paths=(path,))
    assert [str(word) for word in gone(Filter(words=(word,)))] == ["netns=123"]


def test_a_filter_without_words_stays_as_it_is():
    watched = Filter(ports=(80,))
    assert refreshed(watched) is watched
