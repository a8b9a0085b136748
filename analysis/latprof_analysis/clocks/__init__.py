"""Clocks of hosts, from packets that both ends saw: offsets, and how far they hold.

`pair_clock` relates two hosts that talk, `relate_hosts` all of them to one. Pure
functions of stamps: what is not known of them (paths, clocks that are set) widens an
interval or breaks it, and nothing is guessed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
