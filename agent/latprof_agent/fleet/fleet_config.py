"""The configuration of a fleet: TOML as of the agent, and agents one a line."""

from __future__ import annotations

import argparse
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from latprof_analysis import units

from latprof_agent.errors import UsageError, remedy
from latprof_agent.fleet.pulls import Access
from latprof_agent.fleet.shards import Shard
from latprof_agent.foreign_files import read_regular
from latprof_agent.service.config import (
    DEFAULT_PORT,
    Address,
    ConfigTable,
    Tls,
    absolute_path,
    address,
    of_text,
    plain_text,
    read_hosts,
    read_list,
    read_tls,
    read_toml,
    read_users,
)
from latprof_agent.service.web.passwords import PasswordHash

LISTEN = Address("127.0.0.1", 9990)
INTERVAL_SECONDS = 2.0
_MOST_BYTES = 1 << 20  # of a file
_AGENT = re.compile(
    r"(?P<host>[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?|\[[0-9A-Fa-f:.]+\])"
    r"(:(?P<port>\d{1,5}))?",
    re.ASCII,
)
_interval = units.within(units.duration_seconds, "1s", "1h")


@dataclass(frozen=True)
class FleetConfig:
    """All that can be configured; `listen` and `interval_seconds` need a restart."""

    agents: tuple[Address, ...] = ()
    agents_file: Path | None = None
    dns: tuple[Address, ...] = ()  # all addresses of these names are agents, too
    listen: Address = LISTEN
    interval_seconds: float = INTERVAL_SECONDS
    hosts: tuple[str, ...] = ()
    tls: Tls | None = None
    users: Mapping[str, PasswordHash] = field(default_factory=dict)
    access: Access = field(default_factory=Access)

    def all_agents(self) -> list[Address]:
        """Return those of the file, too, each once, none of `dns`.

        Raises UsageError.
        """
        found = [*self.agents]
        if self.agents_file:
            found += agents_in(self.agents_file)
        if not found and not self.dns:
            raise UsageError(
                "HOST:PORT: name agents, or give --agents FILE with one a line, or "
                "--dns NAME"
            )
        return list(dict.fromkeys(found))


def agent_address(text: str) -> Address:
    """Read the address of an agent.

    Examples
    --------
    >>> agent_address("node7"), agent_address("[::1]:9000")
    (Address(host='node7', port=9989), Address(host='::1', port=9000))
    """
    found = _AGENT.fullmatch(text.strip())
    port = int(found["port"] or DEFAULT_PORT) if found else 0
    if not found or not 0 < port < 1 << 16:
        raise argparse.ArgumentTypeError(
            f"must be an agent like node7:{DEFAULT_PORT} or [::1]:{DEFAULT_PORT}, got "
            f"{text!r}"
        )
    return Address(found["host"].strip("[]").lower(), port)


def agents_in(file: Path) -> Iterator[Address]:
    """Read a file of agents, # begins a comment; raises UsageError."""
    for number, line in enumerate(_text_of(file).splitlines(), 1):
        if text := line.partition("#")[0].strip():
            try:
                yield agent_address(text)
            except argparse.ArgumentTypeError as error:
                raise UsageError(f"{file}, line {number}: {error}") from error


def read_fleet_config(file: Path | None, given: Mapping[str, Any]) -> FleetConfig:
    """Read the file, if any, and put what was given on the command line over it.

    `given` is by the names of the fields of FleetConfig. Raises UsageError.
    """
    config = _config_in(file) if file else FleetConfig()
    return replace(config, **{k: v for k, v in given.items() if v})


def _config_in(file: Path) -> FleetConfig:
    table = ConfigTable(file, read_toml(file), command="fleet")
    found: dict[str, Any] = {
        "agents": table.take("agents", _agents),
        "agents_file": table.take("agents_file", absolute_path),
        "dns": table.take("dns", _agents),
        "listen": table.take("listen", of_text(address)),
        "interval_seconds": table.take("interval", of_text(_interval)),
        "hosts": table.take("hosts", read_hosts),
        "tls": read_tls(table.table("tls")),
        "users": read_users(table.table("users")),
        "access": _access(table.table("access")),
    }
    table.end()
    return FleetConfig(**{k: v for k, v in found.items() if v is not None})


def _agents(value: Any) -> tuple[Address, ...]:
    return tuple(map(agent_address, read_list(value)))


def _access(table: ConfigTable) -> Access:
    """Read how agents are asked: who we are there, and whose certificates count."""
    user = table.take("user", plain_text) or ""
    password_file = table.take("password_file", absolute_path)
    certificates = table.take("certificates", absolute_path)
    timeout = table.take("timeout", of_text(_interval))
    table.end()
    if bool(user) != bool(password_file):
        raise table.refusal("user", "must come with password_file")
    made = Access(user=user, tls=_trusting(certificates) if certificates else None)
    if password_file:
        made = replace(made, password=_text_of(password_file).strip("\r\n"))
    return replace(made, timeout_seconds=timeout) if timeout else made


def _trusting(certificates: Path) -> ssl.SSLContext:
    """Ask by TLS, and believe these authorities."""
    text = _text_of(certificates)
    try:
        return ssl.create_default_context(cadata=text)
    except ssl.SSLError as error:
        raise UsageError(
            f"access.certificates: {certificates} has none that can be used; give "
            "authorities as PEM"
        ) from error


def _text_of(file: Path) -> str:
    try:
        return read_regular(file, _MOST_BYTES).decode()
    except OSError as error:
        todo = remedy(error.errno, "name a file that is there")
        raise UsageError(f"cannot read {file}: {error.strerror}; {todo}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {file}: it is no text; name another") from error


def shard(text: str) -> Shard:
    """Read which part of the pairs: 1/4 to 4/4.

    >>> shard("2/4")
    Shard(number=1, of=4)
    """
    number, slash, of = text.partition("/")
    digits = number.isdecimal() and of.isdecimal() and len(text) < 10
    if not (slash and digits and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(
            f"must be like 1/4, the first of four, got {text!r}"
        )
    return Shard(int(number) - 1, int(of))
