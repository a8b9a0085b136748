"""Names of the kernel's functions by addresses in them, from /proc/kallsyms."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from latprof_agent.probes.catalogue import LOSSES, Capability

KALLSYMS = Path("/proc/kallsyms")
OF_CPUS = b"aA"  # offsets in each CPU's area, from 0 on: of no function


def _shows_functions(lines: Iterable[bytes]) -> bool:
    """Whether the first function has an address; what is of CPUs has none."""
    kinds = (line.split()[:2] for line in lines)
    functions = (int(address, 16) for address, kind in kinds if kind in b"tT")
    return next(functions, 0) != 0


class KernelFunctions:
    """Looks up addresses as they come; `hidden` where the kernel shows none.

    The kernel decides when the file is opened, so that it is open from the start: an
    agent that gives up its privileges still reads it.
    """

    def __init__(self, path: Path = KALLSYMS) -> None:
        self._known: dict[int, str] = {}
        self._file: BinaryIO | None = None
        try:
            self._file = path.open("rb")
            self.hidden = not _shows_functions(self._file)
        except (OSError, IndexError, ValueError):
            self.hidden = True

    @property
    def capability(self) -> Capability:
        """What is known of the functions in which packets are dropped."""
        hidden = "the kernel hides the addresses of its functions"
        return Capability(
            "functions that drop",
            "unavailable" if self.hidden else "exact",
            KALLSYMS.name,
            f"{hidden}: drops are told by their reasons alone" if self.hidden else "",
            "add CAP_SYSLOG, set kernel.kptr_restrict to 1 or 0" if self.hidden else "",
            (),
            LOSSES,
        )

    def names(self, addresses: Iterable[int]) -> dict[int, str]:
        """Return the function that each address is in, "" where it is not known."""
        new = sorted({a for a in addresses if a and a not in self._known})
        if new:
            self._known |= dict.fromkeys(new, "") | self._look_up(new)
        return self._known

    def _look_up(self, wanted: list[int]) -> dict[int, str]:
        """In one pass: the file has a hundred thousand lines, and is not sorted."""
        if self.hidden or not self._file:
            return {}
        best: dict[int, tuple[int, bytes]] = {}
        self._file.seek(0)
        for line in self._file:
            start = int(line[:16], 16)
            at = bisect.bisect_left(wanted, start)
            # of all wanted ones behind it the first; others follow below
            if at < len(wanted) and line[17:18] not in OF_CPUS:
                held = best.get(wanted[at])
                if held is None or held[0] < start:
                    best[wanted[at]] = start, line
        return _spread(wanted, best)

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


def _spread(wanted: list[int], best: dict[int, tuple[int, bytes]]) -> dict[int, str]:
    """Two addresses in one function: the symbol is before the first of them."""
    found = {}
    last = b""
    for address in wanted:
        last = best[address][1] if address in best else last
        # "address type name [module]"; compilers add .constprop.0 and the like
        words = last.split()
        found[address] = words[2].split(b".")[0].decode() if len(words) > 2 else ""
    return found
