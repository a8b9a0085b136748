"""Names of functions by their addresses, also when their processes have ended.

The kernel's are those of /proc/kallsyms. A program's come from bcc where its library is
installed (python3-bpfcc), which reads symbol tables; code that a JIT made is named by
the JIT's own map (/tmp/perf-PID.map). What has no name is shown as file and offset.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
from latprof_analysis.story.stacks import DROPPED

from latprof_agent.probes.kernel_functions import KernelFunctions
from latprof_agent.symbols.files import Files, Function, Images
from latprof_agent.symbols.images import NOWHERE, Place
from latprof_agent.symbols.relatives import Relatives
from latprof_agent.symbols.symbol_tables import INDIRECT
from latprof_agent.watched_thread import WatchedThread

UNKNOWN = "?"
NONE_NEEDED = "none needed"
_WHOLE_PATIENCE_SECONDS = 10.0
_MANY_PLACES = 10_000
# What keeps one process or file from being read, also where the answer is nonsense.
_NO_ANSWER = (OSError, ValueError, KeyError, TypeError, IndexError)


class Symbols:
    """Notes where stacks of processes were, and names that later.

    A stack is of the program that its process ran then: `image` is another one with
    each exec, and the mappings are those that were seen first after it. Where the
    process has ended, they are those of one that it was forked from, or that was forked
    from it; else as they were when it was looked at last.
    """

    def __init__(self) -> None:
        # or bcc, file and offset, no access, no answer, ended
        self.source = NONE_NEEDED
        self.kernel = KernelFunctions()
        self._files = Files()
        self._relatives = Relatives()
        # by process, image and address: until when it was where
        self._places: dict[tuple[int, int, int], list[tuple[int, Place | None]]] = {}
        self._wanted: dict[int, set[int]] = {}
        self._found: dict[tuple[int, int], Function] = {}
        # what was mapped, by image and first address: a place there, and its address
        self._mapped: dict[int, dict[int, tuple[int, Place]]] = {}
        # what is known of a file, by where it begins
        self._functions: dict[int, dict[int, Function]] = {}
        self._kernel_wanted: set[int] = set()
        self._named: set[int] = set()  # files that are open, and may be of no more use
        self._looking = 0  # looks that are under way: they may want any of them
        self._lock = threading.Lock()  # of what is noted, by another thread
        self._thread: WatchedThread | None = None

    def begin(self) -> None:
        """Get ready, before what is to be noted comes."""
        self._files.begin()

    def note(self, samples: np.ndarray, pids: set[int]) -> None:
        """Keep what is needed to name the stacks of these processes.

        Any records with the fields of a stack, as `samples` and `wakes` have them.
        """
        for pid in pids:
            mine = samples[samples["pid"] == pid]
            kernel = np.arange(mine["kernel"].shape[1]) < mine["kernel_frames"][:, None]
            with self._lock:
                self._kernel_wanted.update(mine["kernel"][kernel].tolist())
            if len(mine):
                self._note(pid, mine)

    def _note(self, pid: int, samples: np.ndarray) -> None:
        with self._lock:
            self._looking += 1
        try:
            self._look_at(pid, samples)
        finally:
            with self._lock:
                self._looking -= 1

    def _look_at(self, pid: int, samples: np.ndarray) -> None:
        now_ns = time.monotonic_ns()
        images: Images = {
            int(number): _all_addresses(samples[samples["image"] == number])
            for number in np.unique(samples["image"])
        }
        found = self._look(pid, images)
        for number in images.keys() - found.keys():
            relative = self._relatives.of(number, now_ns)
            if relative:
                found |= self._look(relative, {number: images[number]})
            if number not in found:
                found[number] = self._recalled(number, images[number])
            if images[number] and not found[number]:
                self._lack("ended")
        with self._lock:
            for number, places in found.items():
                for address, place in places:
                    self._keep(now_ns, (pid, number, address), place)

    def _lack(self, why: str) -> None:
        """Note why there are no names, until there are some."""
        if self.source == NONE_NEEDED:
            self.source = why

    def _recalled(self, image: int, addresses: list[int]) -> list[tuple[int, Place]]:
        """Find where addresses are by what was mapped there at an earlier look."""
        spans = self._mapped.get(image, {}).values()
        return [
            (address, _moved(known, address))
            for address in addresses
            for known in spans
            if known[1].first <= address < known[1].behind
        ]

    def _look(self, pid: int, images: Images) -> dict[int, list[tuple[int, Any]]]:
        """Find where addresses are; nothing if it has ended, or may not be seen."""
        try:
            return self._files.look(pid, images)
        except TimeoutError:
            if any(images.values()):
                self._lack("no answer")
            return {}
        except _NO_ANSWER:
            return {}

    def _keep(
        self, now_ns: int, key: tuple[int, int, int], place: Place | None
    ) -> None:
        seen = self._places.setdefault(key, [])
        if seen and seen[-1][1] == place:
            seen[-1] = now_ns, place
        else:
            seen.append((now_ns, place))
        if not place:
            return
        self._mapped.setdefault(key[1], {})[place.first] = key[2], place
        if place[:2] in self._found:
            return
        if place.source != NOWHERE:
            self._wanted.setdefault(place.source, set()).add(place.at)
        elif place.shown[0] != "[":
            self._lack("no access")  # to that file; its name and offset are shown

    @property
    def settled(self) -> bool:
        """Whether all that was noted is looked up; if not, a thread begins to."""
        if self._thread and self._thread.is_alive():
            return False
        with self._lock:
            done = not self._wanted and not self._kernel_wanted
        if not done:
            self.check()
            self._thread = WatchedThread("naming of functions", self.look_up)
            self._thread.start()
        return done

    def look_up(self) -> None:
        """Name what was noted, as far as that takes no longer than some seconds."""
        until = time.monotonic() + _WHOLE_PATIENCE_SECONDS
        with self._lock:
            kernel, self._kernel_wanted = self._kernel_wanted, set()
            wanted, self._wanted = self._wanted, {}
        self.kernel.names(kernel)  # all at once
        # small ones first, so that a slow one keeps no other's names back
        for number in sorted(wanted, key=self._files.size):
            if time.monotonic() < until:
                self._look_up(number, sorted(wanted[number]), until)
            with self._lock:
                self._named.add(number)
                self._close_named()

    def _close_named(self) -> None:
        """Close files of which nothing more is wanted, unless a look may want that."""
        if self._looking:
            return
        for number in self._named - self._wanted.keys():
            self._named.remove(number)
            self._files.close(number)

    def _look_up(self, number: int, wanted: list[int], until: float) -> None:
        try:
            found = self._files.name(number, wanted, until)
        except TimeoutError:
            self._lack("no answer")
            return
        except _NO_ANSWER:
            return  # a file that cannot be read: on with another
        self.source = "bcc" if self._files.has_bcc else "file and offset"
        with self._lock:
            self._found |= {(number, at): one for at, one in found.items()}
            functions = self._functions.setdefault(number, {})
            functions |= {one.first: one for one in found.values() if one.behind}

    @property
    def cpu_seconds(self) -> float:
        """What was spent on reading others' files."""
        return self._files.cpu_seconds

    def check(self) -> None:
        """Raise LatprofError where the thread that names has ended by an error."""
        if self._thread:
            self._thread.check()

    def forget_before(self, time_ns: int) -> None:
        """No stack from before this time will be asked for."""
        if len(self._places) < _MANY_PLACES:
            return
        with self._lock:
            self._places = {
                key: seen
                for key, seen in self._places.items()
                if seen[-1][0] >= time_ns
            }
            kept = {p[:2] for seen in self._places.values() for _, p in seen if p}
            self._found = {at: f for at, f in self._found.items() if at in kept}
            images = {image for _, image, _ in self._places}
            self._mapped = {i: of for i, of in self._mapped.items() if i in images}
            sources = {source for source, _ in kept}
            self._functions = {s: f for s, f in self._functions.items() if s in sources}
        self._files.forget(sources)

    def finish(self) -> None:
        """Name all that was noted; nothing can be noted any more."""
        if self._thread:
            self._thread.join()
        self.look_up()
        self._files.finish()

    def stack(self, sample: Any) -> tuple[str, ...]:
        """Name the functions that a task was in, the outermost first.

        Frames of the kernel are marked "(kernel)". Those of the program above
        the innermost come from frame pointers, which a program may use otherwise: one
        is shown where there is a call before its address, and that call leads to the
        function next to it, as far as the code says. A function without a frame hides
        who called it: there is `DROPPED`, and then what has a frame, which is what is
        called at the next address. A frame that does not fit is `DROPPED`, too.
        """
        frames = self._user_frames(sample)
        kernel = sample["kernel"][: sample["kernel_frames"]].tolist()
        names = self.kernel.names(kernel)
        inner = [f"{names.get(a) or UNKNOWN} (kernel)" for a in kernel]
        return (*reversed(frames), *reversed(inner))

    def _user_frames(self, sample: Any) -> list[str]:
        """The innermost first."""
        frames: list[str] = []
        inner: tuple[int, int] | None = None  # where the function begins
        framed = False  # that function
        for depth, address in enumerate(_addresses(sample)):
            place = self._place(sample, address)
            found = self._function(place) if place else None
            call = _call(place, found)
            if depth and call is None:
                return [*frames, DROPPED]
            name = (found.name if found else "") or (place.shown if place else UNKNOWN)
            leads_in = bool(place and (place.source, call) == inner)
            callee = found.callee if found and not framed else ""
            if not depth or leads_in or (framed and call == INDIRECT):
                frames.append(name)
            else:
                frames += [] if frames[-1] == DROPPED else [DROPPED]
                if callee or (call == INDIRECT and not framed):
                    frames += [callee, name] if callee else [name]
            inner, framed = None, bool(found and found.framed)
            if place and found and found.name:
                inner = place.source, found.begin
        return frames

    def _function(self, place: Place) -> Function | None:
        """What is there, or which of the functions that are known of its file."""
        found = self._found.get((place.source, place.at))
        if found:
            return found
        for one in self._functions.get(place.source, {}).values():
            if one.first <= place.at < one.behind:
                return one._replace(call=None, framed=False, callee="")
        return None

    def _place(self, sample: Any, address: int) -> Place | None:
        """Where it was, as the first look behind the sample saw it."""
        key = int(sample["pid"]), int(sample["image"]), address
        t_ns = int(sample["t_ns"])
        seen = self._places.get(key, ())
        return next((place for until_ns, place in seen if t_ns <= until_ns), None)


def _moved(known: tuple[int, Place], address: int) -> Place:
    """Return the place of another address of the same mapping."""
    of, place = known
    at = place.at + address - of
    name = place.shown.rpartition("+")[0]
    return place._replace(at=at, shown=f"{name}+{at:#x}", call=None)


def _call(place: Place | None, found: Function | None) -> int | None:
    """Where the call that ends behind a place goes."""
    if found and found.call is not None:
        return found.call
    return place.call if place else None


def _all_addresses(samples: np.ndarray) -> list[int]:
    """Those of `_addresses`, of many."""
    user = samples["user"].copy()
    user[:, 1:] -= 1
    used = np.arange(user.shape[1]) < samples["user_frames"][:, None]
    return list(np.unique(user[used]).tolist())


def _addresses(sample: Any) -> list[int]:
    """Those in the functions: of a call the code behind it, so one byte before that."""
    user = sample["user"][: sample["user_frames"]].tolist()
    return [a - 1 if depth else a for depth, a in enumerate(user) if a]
