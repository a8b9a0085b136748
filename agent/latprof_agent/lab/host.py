"""The hosts of a lab: how many, what they are called, and their addresses."""

from __future__ import annotations

from dataclasses import dataclass

from latprof_agent.errors import UsageError

LEAST_HOSTS = 2
MOST_HOSTS = 32
_FIRST_MAC = 0x0A


@dataclass(frozen=True)
class Host:
    """One host: its name in the lab, its number from 0, its namespace."""

    name: str
    number: int
    netns: str

    @property
    def ipv4(self) -> str:
        """Its address, of 10.203.0.0/24."""
        return f"10.203.0.{self.number + 1}"

    @property
    def ipv6(self) -> str:
        """Its address, of fd00:6c61:7470::/64."""
        return f"fd00:6c61:7470::{self.number + 1:x}"

    @property
    def mac(self) -> str:
        """What its interface is called on a link that has such addresses."""
        return f"02:00:00:00:00:{_FIRST_MAC + self.number:02x}"

    def address(self, ipv6: bool) -> str:
        """Its address of one family."""
        return self.ipv6 if ipv6 else self.ipv4


def check_count(hosts: int) -> None:
    """Refuse what is no number of hosts."""
    if not LEAST_HOSTS <= hosts <= MOST_HOSTS:
        raise UsageError(
            f"--hosts must be from {LEAST_HOSTS} to {MOST_HOSTS}, got {hosts}"
        )


def host_names(hosts: int) -> tuple[str, ...]:
    """Name so many hosts: "a" and "b", and more than two "h0", "h1" and so on."""
    return ("a", "b") if hosts == 2 else tuple(f"h{n}" for n in range(hosts))
