"""A filter in words: which there are, and the Filter that they make.

port=6379 not comm=curl: values of one kind are alternatives, different kinds must all
hold, and what is not wanted excludes.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from latprof_analysis.kernel_names import name_of

from latprof_agent.errors import FilterError, UsageError, refusals_in_one_line
from latprof_agent.filters import places
from latprof_agent.filters.kinds import KINDS, PROTOCOLS, kind_of, values_of
from latprof_agent.probes.filter import NAME_BYTES, Filter, Terms, Value, Word
from latprof_agent.process_table import PROC, comm_of


def read_words(text: str) -> tuple[Word, ...]:
    """Read "port=80,443 not comm='Web Content'"; raises UsageError."""
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"filter: {str(error).lower()} in {text!r}") from error
    found: list[Word] = []
    negated = False
    for part in parts:
        if part == "not" and not negated:
            negated = True
        else:
            found += words_of(part, negated=negated)
            negated = False
    if negated:
        raise UsageError("filter: not must stand before KIND=VALUE, got nothing")
    return tuple(found)


def words_of(part: str, *, negated: bool) -> list[Word]:
    """Read one KIND=VALUE,...; raises UsageError."""
    name, equals, values = part.partition("=")
    if not equals:
        raise UsageError(f"filter: must be KIND=VALUE, got {part!r}")
    kind_of(name, "filter: ")
    return [Word(name, value, negated) for value in values_of(name, values)]


def filter_of_words(
    words: Iterable[Word], where: str = "", runtime: Path | None = None
) -> Filter:
    """Find what the words name, and make the filter of it.

    `runtime` is the socket of what knows pods by their names; None: what is found.

    Raises UsageError for what nothing can be called, and FilterError where something
    is not there; `where` goes before the word in the error.
    """
    found: list[Word] = []
    for word in dict.fromkeys(words):
        try:
            with refusals_in_one_line(f"{where}{word}"):
                found.append(_resolved(word, runtime))
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"{where}{_kind_said(word)} {error}") from error
        except (FilterError, UsageError) as error:
            raise type(error)(f"{where}{word}: {error}") from error
    return _made(found)


def refreshed(watched: Filter) -> Filter:
    """The same filter, of what has its names now.

    A namespace or a control group may have gone, and come again as another one. Costs
    a look at one file each, and gives an equal filter where nothing has changed.
    """
    if not any(word.paths for word in watched.words):
        return watched
    words = [_refreshed(word) if word.paths else word for word in watched.words]
    made = _made(words)
    return replace(made, peers=watched.peers, older=watched.older)


def _refreshed(word: Word) -> Word:
    known = zip(word.paths, word.values, strict=True)
    inodes = (places.inode_now(path, int(str(value))) for path, value in known)
    return replace(word, values=tuple(inodes))


def gone(watched: Filter) -> list[Word]:
    """Words whose namespace, control group or process is not there now."""
    return [word for word in refreshed(watched).words if _is_gone(word)]


def gone_said(word: Word) -> str:
    """What whoever watches should know of it."""
    if word.kind == "pid":
        return f"{word}: it has ended; its descendants are watched as before"
    if any(path.is_relative_to(PROC) for path in word.paths):
        return f"{word}: that process has ended; name its namespace by name or path"
    if kind_of(word.kind).find_named:
        return f"{word}: it is gone; name what takes its place anew"
    return f"{word}: it is gone; what comes in its place is watched again"


def _is_gone(word: Word) -> bool:
    if word.kind == "pid":
        return not all(places.owner_of(int(str(pid))) for pid in word.values)
    return bool(word.paths) and not any(word.values)


def notices(watched: Filter) -> list[str]:
    """What whoever waits should know: no process has such a name yet."""
    if not watched.comms:
        return []
    there = {comm_of(int(p.name)) for p in PROC.glob("[0-9]*")} - {""}
    missing = [comm for comm in watched.comms if _cut(comm) not in there]
    if missing:  # of a thread, then; those are many
        there |= {comm_of(int(p.name)) for p in PROC.glob("[0-9]*/task/[0-9]*")}
    return [_missing(comm, there) for comm in missing if _cut(comm) not in there]


def _missing(comm: str, there: set[str]) -> str:
    near = get_close_matches(comm, there, n=3, cutoff=0.7)
    nearest = f" (there is {', '.join(near)})" if near else ""
    return f"no process is named {comm} yet{nearest}; waiting for one"


def _cut(comm: str) -> str:
    return name_of(comm.encode(errors="surrogateescape")[: NAME_BYTES - 1])


def _resolved(word: Word, runtime: Path | None) -> Word:
    if not word.text.strip() or "\0" in word.text:
        raise argparse.ArgumentTypeError(f"must have a value, got {word.text!r}")
    kind = kind_of(word.kind)
    paths: tuple[Path, ...] = ()
    if kind.find:
        paths = kind.find(word.text)
    elif kind.find_named:
        paths = kind.find_named(word.text, runtime)
    if paths:
        return replace(word, paths=paths, values=tuple(map(places.inode_of, paths)))
    assert kind.read
    return replace(word, values=(kind.read(word.text),))


def _kind_said(word: Word) -> str:
    return f"not {word.kind}" if word.negated else word.kind


def _made(words: list[Word]) -> Filter:
    protocols = _protocols(words)
    asked, asked_not = (_terms(words, negated) for negated in (False, True))
    return Filter(
        **asked, but_not=Terms(**asked_not), protocols=protocols, words=tuple(words)
    )


def _terms(words: list[Word], negated: bool) -> dict[str, Any]:
    """Values by field, each once."""
    found: dict[str, dict[Value, None]] = {}
    for word in words:
        if word.negated == negated and word.kind != "protocol":
            field = found.setdefault(KINDS[word.kind].field, {})
            field.update(dict.fromkeys(word.values))
    return {field: tuple(values) for field, values in found.items()}


def _protocols(words: list[Word]) -> tuple[str, ...]:
    asked, asked_not = (
        {w.text for w in words if w.kind == "protocol" and w.negated == negated}
        for negated in (False, True)
    )
    left = tuple(
        p for p in PROTOCOLS if p in (asked or PROTOCOLS) and p not in asked_not
    )
    if not left:
        raise UsageError("filter: protocol: leaves neither tcp nor udp")
    return left


def filter_of_table(
    table: Mapping[str, Any], path: str, runtime: Path | None = None
) -> Filter:
    """Make a filter of a table of TOML: port = [80], not = {comm = "curl"}.

    `path` is where the table stands, and goes before each key in the errors, which
    are as of `filter_of`.
    """
    return filter_of_words(_words_of_table(table, path), f"{path}.", runtime)


def _words_of_table(
    table: Mapping[str, Any], path: str, *, negated: bool = False
) -> Iterator[Word]:
    for key, found in table.items():
        if key == "not" and not negated:
            if not isinstance(found, Mapping):
                raise UsageError(f"{path}.not must be a table, got {found!r}")
            yield from _words_of_table(found, f"{path}.not", negated=True)
            continue
        name = key.replace("_", "-")
        kind_of(name, f"{path}.")
        for value in found if isinstance(found, list) else [found]:
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise UsageError(
                    f"{path}.{key} must be a number, a text, or a list of them, "
                    f"got {value!r}"
                )
            yield Word(name, str(value), negated)
