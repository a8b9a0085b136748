"""Which bulk flows were asked for beside a workload."""

from __future__ import annotations

from dataclasses import dataclass

from latprof_agent.errors import UsageError
from latprof_agent.lab.link import LinkSpec

# They end when they are asked to.
_ENDLESS_SECONDS = 1000 * 3600


@dataclass(frozen=True)
class Load:
    """Flows of one protocol; `rate_bps`, of all together in a direction, of UDP only.

    A direction is up, from where requests are sent, down, or both.
    """

    protocol: str
    flows: int
    direction: str = "up"
    rate_bps: int = 0

    def __str__(self) -> str:
        """As on the command line, but for the rate."""
        return f"{self.protocol}:{self.flows}:{self.direction}"

    def at_rate_of(self, link: LinkSpec) -> Load:
        """Take the link's rate where none was asked for, if UDP needs one."""
        if self.protocol == "tcp" or self.rate_bps:
            return self
        if not link.rate_bps:
            raise UsageError(
                f"--load {self}: a link without a rate tells none for udp; give one, "
                f"as in {self}:50mbit; see latprof run --help"
            )
        return Load(self.protocol, self.flows, self.direction, link.rate_bps)

    def words(self, congestion: str | None) -> list[str]:
        """Arguments of the process, but for where it sends."""
        words = ["--protocol", self.protocol, "--channels", str(self.flows)]
        words += ["--direction", self.direction, "--duration", str(_ENDLESS_SECONDS)]
        if self.rate_bps:
            words += ["--rate", str(self.rate_bps)]
        if self.protocol == "udp":
            # of what goes in many-segment packets a qdisc counts the packets it drops
            words += ["--send-way", "sendmmsg"]
        elif congestion:
            words += ["--congestion", congestion]
        return ["bulk", *words]
