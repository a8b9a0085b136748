"""A bounded folder of stories, a file each: the newest, and the slowest of the others.

All files are used by the folder's own descriptor. A file's name has its message's end
and duration, so that the names are enough to choose what is kept.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from latprof_analysis.calling_user import ROOT, User
from latprof_analysis.read.stories import NAME
from latprof_analysis.write.trusted_folder import FolderError, give, open_folder

from latprof_agent.errors import StoreError, UsageError, remedy
from latprof_agent.privileges import is_of_service

EXAMPLE = "/var/lib/latprof/stories"  # where no user's folder is in the way
DEFAULT_COUNT = 200
DEFAULT_BYTES = 20_000_000
TOKEN = "token"  # the file's name
_NEW = ".new"  # behind the name of a file that is not whole yet
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o640  # they name others' programs and functions


class Kept(NamedTuple):
    """A story in the folder."""

    unix_us: int  # when its message was over
    took_us: int
    size_bytes: int

    @property
    def id(self) -> str:
        """What the file is called, without what it ends with."""
        return story_id(self.unix_us, self.took_us)


def story_id(unix_us: int, took_us: int) -> str:
    """Name a story; in order of time."""
    return f"{unix_us:013x}-{took_us:x}"


@dataclass
class StoryFolder:
    """At most so many stories and bytes; made by root, used by `user`.

    Of what must go, the newer half of the stories stays, and of the others the fastest
    goes first. May be read from another thread than the one that adds. Raises
    UsageError where the folder cannot be used.
    """

    path: Path
    user: User
    most: int = DEFAULT_COUNT
    most_bytes: int = DEFAULT_BYTES
    group: int | None = None  # that may read them; None: the user's own
    failed: int = 0  # stories that could not be written
    token: str = field(default="", init=False)  # who has it may read; "": nobody
    _folder: int = -1
    _made: list[Path] = field(default_factory=list)  # the innermost first
    _kept: dict[str, Kept] = field(default_factory=dict)  # by id, in order of time
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _complaint: str = ""

    def __post_init__(self) -> None:
        """Make the folder where there is none, and give it to its user."""
        ways = (self.path, *self.path.parents)
        self._made = [path for path in ways if not os.path.lexists(path)]
        try:
            self._folder = open_folder(self.path, self._owner(), make=True)
            self._take_over()
            self._give_to_group()
        except (OSError, FolderError) as error:
            self.discard()
            raise self._refusal(error) from error

    def discard(self) -> None:
        """Remove the folders that were made, if nothing is in them; then close."""
        if self._made and self.token:
            with suppress(OSError):
                self._remove(TOKEN)
        for path in self._made:
            with suppress(OSError):
                path.rmdir()
        self.close()

    def _owner(self) -> User:
        """Whom it belongs to: its user, or a number that an earlier start had."""
        with suppress(FileNotFoundError):
            status = os.stat(self.path)  # noqa: PTH116
            if is_of_service(status.st_uid) and os.geteuid() == ROOT:
                return User(status.st_uid, status.st_gid)
        return self.user

    def _take_over(self) -> None:
        """Give what has no owner any more to its user: folder, and stories."""
        if not is_of_service(os.fstat(self._folder).st_uid) or os.geteuid() != ROOT:
            return
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._folder)
        try:
            give(folder, self.user)
            for name in filter(NAME.fullmatch, os.listdir(folder)):  # noqa: PTH208
                with suppress(OSError), self._file(name, "rb", _FLAGS) as file:
                    status = os.fstat(file.fileno())
                    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                        give(file.fileno(), self.user)
        finally:
            os.close(folder)

    def _give_to_group(self) -> None:
        """Let files that are made here be the group's: its user is none of it.

        Who is not root gives it each file, as one of its members.
        """
        if self.group is not None and os.geteuid() == ROOT:
            folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._folder)
            try:
                os.fchown(folder, -1, self.group)
                os.fchmod(folder, 0o2750)
            finally:
                os.close(folder)

    def begin(self) -> None:
        """See what is there, and that more can be written; as its user."""
        try:
            for name in self._names():
                if name.endswith(_NEW) and NAME.fullmatch(name[1 : -len(_NEW)]):
                    self._remove(name)
                elif kept := self._found(name):
                    self._kept[kept.id] = kept
            self._make_room(0)
            name = f"{story_id(0, 0)}.json"  # empty: the next start would remove it
            self._write(name, b"")
            self._remove(name)
            self._make_token()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise self._refusal(error) from error

    def _make_token(self) -> None:
        """Leave another one than before where its user and root can read it."""
        made = secrets.token_urlsafe(16)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
        self._remove(TOKEN)
        descriptor = os.open(TOKEN, flags, 0o600, dir_fd=self._folder)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{made}\n")
        self.token = made

    def _refusal(self, error: OSError | FolderError) -> UsageError:
        why = error.strerror if isinstance(error, OSError) else str(error)
        todo = (
            f"name one that user {self.user.name} may write, below folders that nobody "
            f"else can change, as {EXAMPLE}"
        )
        return UsageError(f"story_dir: cannot use {self.path}: {why}; {todo}")

    def add(self, story: dict[str, Any], document: dict[str, Any]) -> None:
        """Keep a story, whose `id` is its name, as this document.

        Raises StoreError where that cannot be, unless it was raised for the same
        reason since the last one that could; counted it is each time.
        """
        name = f"{story['id']}.json"
        found = NAME.fullmatch(name)
        assert found
        data = json.dumps(document, separators=(",", ":")).encode()
        kept = Kept(int(found[1], 16), int(found[2], 16), len(data))
        try:
            if len(data) > self.most_bytes:
                raise OSError(errno.EFBIG, "it is larger than story_bytes")
            with self._lock:
                self._make_room(len(data), 1)
                self._write(name, data)
                self._kept[kept.id] = kept
        except OSError as error:
            self.failed += 1
            self._complain(error)
        else:
            self._complaint = ""

    def _complain(self, error: OSError) -> None:
        why = (error.strerror or os.strerror(error.errno or 0)).lower()
        if why == self._complaint:
            return
        self._complaint = why
        todo = remedy(error.errno, f"see that {self.user.name} may write there")
        raise StoreError(
            f"cannot keep stories in {self.path}: {why}; {todo}"
        ) from error

    def _make_room(self, more_bytes: int, more: int = 0) -> None:
        while self._kept and (
            len(self._kept) + more > self.most
            or self.nbytes + more_bytes > self.most_bytes
        ):
            gone = self._next_to_go(more)
            self._remove(f"{gone.id}.json")
            del self._kept[gone.id]

    def _next_to_go(self, more: int) -> Kept:
        by_time = [self._kept[name] for name in sorted(self._kept)]
        # of those that will be there, what comes among them
        newer = (len(by_time) + more) // 2 - more
        older = by_time[: len(by_time) - newer]
        return min(older, key=lambda kept: (kept.took_us, kept.unix_us))

    def _write(self, name: str, data: bytes) -> None:
        """Leave it whole, or not at all."""
        new = f".{name}{_NEW}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
        try:
            with self._file(new, "wb", flags) as file:
                self._restrict(file.fileno())
                file.write(data)
            os.replace(new, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError:
            with suppress(OSError):
                self._remove(new)
            raise

    def _restrict(self, descriptor: int) -> None:
        """Let only its user and the group read a file."""
        if self.group not in (None, os.fstat(descriptor).st_gid):
            os.fchown(descriptor, -1, self.group or 0)
        os.fchmod(descriptor, _MODE)

    def _file(self, name: str, mode: str, flags: int) -> IO[bytes]:
        descriptor = os.open(name, flags, _MODE, dir_fd=self._folder)
        return os.fdopen(descriptor, mode)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folder)

    def _names(self) -> list[str]:
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._folder)
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208
        finally:
            os.close(folder)

    def _found(self, name: str) -> Kept | None:
        """What of an earlier time is there; what has nothing in it goes."""
        digits = NAME.fullmatch(name)
        status = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
        if not digits or not stat.S_ISREG(status.st_mode):
            return None
        if not status.st_size:
            self._remove(name)
            return None
        with suppress(PermissionError), self._file(name, "rb", _FLAGS) as file:
            self._restrict(file.fileno())  # what an earlier version let all read
        return Kept(int(digits[1], 16), int(digits[2], 16), status.st_size)

    @property
    def nbytes(self) -> int:
        """Of all files."""
        return sum(kept.size_bytes for kept in self._kept.values())

    def kept(self) -> list[Kept]:
        """All stories, in order of time; from any thread."""
        with self._lock:
            return [self._kept[name] for name in sorted(self._kept)]

    def read(self, name: str) -> bytes | None:
        """Read the file of a story by its id; None: there is none (any more)."""
        with self._lock:
            if name not in self._kept:
                return None
        with suppress(OSError), self._file(f"{name}.json", "rb", _FLAGS) as file:
            return file.read(self.most_bytes)
        return None

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._kept

    def close(self) -> None:
        """Leave it as it is."""
        if self._folder >= 0:
            os.close(self._folder)
        self._folder = -1
