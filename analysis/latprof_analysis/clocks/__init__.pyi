from .offsets import pair_clock
from .pairs import PairClock, State
from .sightings import Sightings, resolution_of

__all__ = [
    "PairClock",
    "Sightings",
    "State",
    "pair_clock",
    "resolution_of",
]
