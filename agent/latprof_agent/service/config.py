"""The agent's configuration: a file of TOML, over which the command line wins.

Every key is known, or refused with its path; every value is read as on the command
line.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from latprof_analysis import units
from latprof_analysis.text import did_you_mean

from latprof_agent.containers.runtime import runtime_address
from latprof_agent.errors import UsageError, remedy
from latprof_agent.filters.groupings import grouping_of
from latprof_agent.filters.words import filter_of_table
from latprof_agent.foreign_files import read_regular
from latprof_agent.probes.filter import Filter
from latprof_agent.probes.grouping import Grouping
from latprof_agent.service.metrics.buckets import ClassicBuckets
from latprof_agent.service.metrics.families import DEFAULT_EDGES, EdgeSets
from latprof_agent.service.web.passwords import PasswordHash
from latprof_agent.story.story_folder import DEFAULT_BYTES, DEFAULT_COUNT
from latprof_agent.values import (
    DEFAULT_OVERHEAD,
    overhead,
    story_above,
    story_bytes,
    story_count,
    story_group,
)

DEFAULT_PORT = 9989
ALL = "::"  # addresses of this host, those of IPv4 included
_MOST_BUCKETS = 100
_MOST_BYTES = 1 << 20  # of the file

_OF_STORIES = ("story_above", "story_count", "story_bytes", "story_group")
_HOST = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?")


_T = TypeVar("_T")


class Address(NamedTuple):
    """Where to listen; port 0 is any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def address(text: str) -> Address:
    """Read 127.0.0.1:9989, [::1]:9989, or :9989 for all addresses."""
    host, colon, port = text.strip().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host == f"[{bare}]"
    wrong = not colon or not port.isdecimal() or len(port) > 5 or int(port) > 65535
    if wrong or bracketed != (":" in bare):
        raise argparse.ArgumentTypeError(
            f"must be like 127.0.0.1:{DEFAULT_PORT}, [::1]:{DEFAULT_PORT} or "
            f":{DEFAULT_PORT}, got {text!r}"
        )
    return Address(bare or ALL, int(port))


LOOPBACK = Address("127.0.0.1", DEFAULT_PORT)


@dataclass(frozen=True)
class Tls:
    """Files of the server's certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Config:
    """All that can be configured; what stands before `by` needs a restart."""

    listen: Address = LOOPBACK
    user: str | None = None
    max_overhead: float = DEFAULT_OVERHEAD
    story_dir: Path | None = None
    story_above: int = 0  # ns; 0: the running p99.9 of each group
    story_count: int = DEFAULT_COUNT
    story_bytes: int = DEFAULT_BYTES
    story_group: int | None = None
    samples: bool = True  # are given to who asks
    runtime: Path | None = None  # who has names of containers; None: who is found
    by: Grouping = field(default_factory=Grouping)
    watched: Filter = field(default_factory=lambda: Filter(older=True))
    edges: EdgeSets = DEFAULT_EDGES
    hosts: tuple[str, ...] = ()  # names, in small letters
    tls: Tls | None = None
    users: Mapping[str, PasswordHash] = field(default_factory=dict)

    def fixed_in(self, later: Config) -> tuple[Config, list[str]]:
        """Give a later configuration without what needs a restart, and what that is."""
        names = [f.name for f in fields(self)]
        fixed = names[: names.index("by")]
        kept = {name: getattr(self, name) for name in fixed}
        changed = [name for name in fixed if getattr(later, name) != kept[name]]
        return replace(later, **kept), changed


class ConfigTable:
    """A table of the file, whose keys are taken one by one."""

    def __init__(
        self,
        file: Path,
        entries: Mapping[str, Any],
        path: str = "",
        command: str = "agent",
    ) -> None:
        self._file = file
        self._command = command
        self._path = path
        self._entries = dict(entries)
        self._known: list[str] = []

    def take(self, key: str, read: Callable[[Any], _T]) -> _T | None:
        """Read a value and take it out; None where there is none."""
        self._known.append(key)
        if key not in self._entries:
            return None
        try:
            return read(self._entries.pop(key))
        except (argparse.ArgumentTypeError, ValueError) as error:
            raise self.refusal(key, str(error)) from error

    def table(self, key: str) -> ConfigTable:
        """Take a table out of this one; an empty one where there is none."""
        entries = self.take(key, _table) or {}
        return ConfigTable(self._file, entries, f"{self._path}{key}.", self._command)

    def names(self) -> list[str]:
        """Name what is there."""
        return list(self._entries)

    def end(self) -> None:
        """Raise UsageError where something is left."""
        for key in self._entries:
            see = f"; see latprof {self._command} --help"
            hint = did_you_mean(key, self._known) or see
            raise self.refusal(key, f"is no key of the configuration{hint}")

    def refusal(self, key: str, why: str) -> UsageError:
        """Say what is wrong with a key."""
        return UsageError(f"{self._file}: {self._path}{key} {why}")


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a table, got {value!r}")
    return value


def _filter(value: Any, runtime: Path | None) -> Filter:
    return replace(filter_of_table(_table(value), "filter", runtime), older=True)


def plain_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, got {value!r}")
    return value


def of_text(read: Callable[[str], _T]) -> Callable[[Any], _T]:
    return lambda value: read(plain_text(value))


def absolute_path(value: Any) -> Path:
    path = Path(plain_text(value))
    if not path.is_absolute():
        raise ValueError(f"must be an absolute path, got {value!r}")
    return path


def _whole(read: Callable[[str], int]) -> Callable[[Any], int]:
    """Read a whole number as on the command line."""

    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"must be a whole number, got {value!r}")
        return read(str(value))

    return convert


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, got {value!r}")
    return value


def read_list(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list, got {value!r}")
    return [plain_text(entry) for entry in value]


def read_hosts(value: Any) -> tuple[str, ...]:
    names = tuple(name.lower().removesuffix(".") for name in read_list(value))
    if not all(map(_HOST.fullmatch, names)):
        raise ValueError(
            f"must be names like node7.example.org, without a port, got {value!r}"
        )
    return names


def _grouping(value: Any) -> Grouping:
    return grouping_of(read_list(value))


def _buckets(value: Any) -> ClassicBuckets:
    upper = tuple(units.time_ns(entry) for entry in read_list(value))
    if not 1 <= len(upper) <= _MOST_BUCKETS or list(upper) != sorted({*upper} - {0}):
        raise ValueError(
            f"must be 1 to {_MOST_BUCKETS} times above 0, ascending, got {value!r}"
        )
    return ClassicBuckets(upper)


def read_tls(table: ConfigTable) -> Tls | None:
    certificate, key = (
        table.take("certificate", absolute_path),
        table.take("key", absolute_path),
    )
    table.end()
    if not certificate and not key:
        return None
    if not (certificate and key):
        missing = "key" if certificate else "certificate"
        raise table.refusal(missing, "must be given, too")
    return Tls(certificate, key)


def read_users(table: ConfigTable) -> dict[str, PasswordHash]:
    found = {}
    for name in table.names():
        read = table.take(name, of_text(PasswordHash.read))
        if ":" in name:
            raise table.refusal(name, "must be a name without a colon")
        assert read
        found[name] = read
    return found


def read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_regular(file, _MOST_BYTES).decode())
    except OSError as error:
        todo = remedy(error.errno, "name a file of TOML that is there")
        raise UsageError(f"cannot read {file}: {error.strerror}; {todo}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file} is not TOML: {error}; mend it") from error


def read_config(file: Path | None, given: Mapping[str, Any]) -> Config:
    """Read the file, if any, and put what was given on the command line over it.

    `given` is by the names of the fields of Config. Raises UsageError.
    """
    found: dict[str, Any] = {}
    if file:
        table = ConfigTable(file, read_toml(file))
        buckets = table.table("buckets")
        edges = EdgeSets(
            buckets.take("stages", _buckets) or DEFAULT_EDGES.stages,
            buckets.take("others", _buckets) or DEFAULT_EDGES.others,
        )
        buckets.end()
        containers = table.table("containers")
        runtime = containers.take("runtime", of_text(runtime_address))
        containers.end()
        found = {
            "listen": table.take("listen", of_text(address)),
            "user": table.take("user", plain_text),
            "max_overhead": table.take("max_overhead", of_text(overhead)),
            "story_dir": table.take("story_dir", absolute_path),
            "story_above": table.take("story_above", of_text(story_above)),
            "story_count": table.take("story_count", _whole(story_count)),
            "story_bytes": table.take("story_bytes", of_text(story_bytes)),
            "story_group": table.take("story_group", of_text(story_group)),
            "samples": table.take("samples", _switch),
            "runtime": runtime,
            "by": table.take("by", _grouping),
            "watched": table.take("filter", partial(_filter, runtime=runtime)),
            "edges": edges,
            "hosts": table.take("hosts", read_hosts),
            "tls": read_tls(table.table("tls")),
            "users": read_users(table.table("users")),
        }
        table.end()
    found = {k: v for k, v in {**found, **given}.items() if v is not None}
    alone = [name for name in _OF_STORIES if name in found]
    if alone and "story_dir" not in found:
        raise UsageError(f"{alone[0]} must come with story_dir, where stories are kept")
    return Config(**found)
