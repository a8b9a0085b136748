"""What joining hosts' recordings needs to know, and what it begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latprof_analysis.clocks import HostClocks
from latprof_analysis.records.recording import RecordLayout

from latprof_agent.join.host_recordings import JoinedHost
from latprof_agent.join.joined_run import JoinedRun
from latprof_agent.join.joined_sample import JoinedSample
from latprof_agent.join.merged import Merged, moves_of


@dataclass(frozen=True)
class Plan:
    """All that is known of hosts before they are joined, beside their records."""

    hosts: Sequence[JoinedHost]
    clocks: HostClocks
    layout: RecordLayout
    ephemeral: range
    slack_ns: int  # by which stamps of two hosts may be wrong

    def begun(self) -> tuple[Merged, JoinedRun | JoinedSample]:
        """Return what gives the records, and what joins them."""
        hosts, clocks, layout = self.hosts, self.clocks, self.layout
        moves = [moves_of(host, clocks) for host in hosts]
        merged = Merged(hosts, moves, clocks, layout.rings)
        if hosts[0].is_live:
            sample = JoinedSample(hosts, layout, self.ephemeral, self.slack_ns)
            return merged, sample
        of = hosts, moves, clocks, layout, self.ephemeral
        return merged, JoinedRun(*of, slack_ns=self.slack_ns)
