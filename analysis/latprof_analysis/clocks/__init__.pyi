from .host_clocks import HostClock, HostClocks, Loop
from .offsets import pair_clock
from .pairs import PairClock, State
from .relate import relate_hosts
from .sightings import Sightings, resolution_of

__all__ = [
    "HostClock",
    "HostClocks",
    "Loop",
    "PairClock",
    "Sightings",
    "State",
    "pair_clock",
    "relate_hosts",
    "resolution_of",
]
