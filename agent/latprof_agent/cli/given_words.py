"""The words of a command line: which options stand in it, and without some of them."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from latprof_analysis.say import say_error

END = "--"  # what follows is a COMMAND


class OldName(argparse.Action):
    """An option by the name that it had before: a line says the new one."""

    def __init__(self, *words: Any, new: str, **others: Any) -> None:
        super().__init__(*words, **(others | {"help": argparse.SUPPRESS}))
        self._new = new

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        """Take it as the other would be."""
        say_error(f"{option} is `{self._new}` from now on")
        setattr(namespace, self.dest, True if self.nargs == 0 else values)


def parsed_again(
    options: argparse.Namespace, words: Sequence[str]
) -> argparse.Namespace:
    """Parse other words of the same subcommand; these are then its `arguments`.

    What is wrong with them is one line, and SystemExit, as of the first parse.
    """
    found: argparse.Namespace = options.parser.parse_args(list(words))
    found.arguments = (options.command, *shown_form(options), *words)
    found.own_words = tuple(words)
    found.command, found.named_forms = options.command, options.named_forms
    return found


def own_words(options: argparse.Namespace) -> tuple[str, ...]:
    """Return what stands behind the names of the subcommand and its form."""
    words: tuple[str, ...] = options.own_words
    return words


def shown_form(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the word that chooses the form of the subcommand, if one does."""
    return (options.form,) if options.form in options.named_forms else ()


def given_options(words: Sequence[str]) -> Iterator[str]:
    """Yield the long options that stand in words, as they are called."""
    for word in words:
        if word == END:
            return
        if word.startswith("--"):
            yield word.partition("=")[0]


def without(words: Sequence[str], options: Collection[str]) -> list[str]:
    """Return words without options that take a value, and without these values.

    Examples
    --------
    >>> without(["--out", "a", "--name=b", "--", "x", "--out", "c"], {"--out"})
    ['--name=b', '--', 'x', '--out', 'c']
    """
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == END:
            return [*kept, word, *rest]
        name, given, _ = word.partition("=")
        if name not in options:
            kept.append(word)
        elif not given:
            next(rest, None)
    return kept
