"""Examples as README.md, its pages and the help of each subcommand show them."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from latprof_agent.cli import SUBCOMMANDS
from latprof_analysis.cli.program import parsed, parsers_of
from pseudo_terminal import on_a_terminal

ROOT = Path(__file__).parents[1]
AS_ROOT = ("run", "watch", "agent", "probes", "lab")
# In README.md behind four spaces or a prompt, in a help behind two spaces.
PAGES = [
    path
    for folder in ("agent", "analysis", "packaging")
    for path in sorted((ROOT / folder).glob("[A-Z]*.md"))
    if path.name != "TUTORIAL.md"  # which is run as a whole
]
_LINE = re.compile(r"^(?: {2}| {4}|\$ )(?:sudo )?(latprof \w.*)$", re.MULTILINE)
_FOLLOWED_BY = re.compile(r"[<>|;&]+")


class Example(NamedTuple):
    """A line for a shell, and where it stands."""

    where: str
    line: str

    @property
    def words(self) -> list[str]:
        """What the program gets."""
        lexer = shlex.shlex(self.line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        ends = (i for i, word in enumerate(words) if _FOLLOWED_BY.fullmatch(word))
        return words[1 : next(ends, len(words))]

    @property
    def meets_another(self) -> bool:
        """Whether it waits for another latprof, or needs one that waits."""
        return self.words[0] == "echo" or "--to" in self.words

    @property
    def needs_agents(self) -> bool:
        """Whether it asks agents of hosts that are there."""
        return self.words[0] == "fleet"

    @property
    def needs_ssh(self) -> bool:
        """Whether it goes to hosts by ssh."""
        return "--with" in self.words

    @property
    def written_to(self) -> str:
        """Where its output goes by `>`, or nothing."""
        found = re.search(r" > (\S+)", self.line)
        return found[1] if found else ""

    def options(self) -> dict[str, object]:
        """What the parser makes of it."""
        return vars(parsed(SUBCOMMANDS, "", self.words))


def examples() -> list[Example]:
    """All of them, each once, whatever is said beside it."""
    parsers = parsers_of(SUBCOMMANDS, "")
    texts = {path.name: path.read_text() for path in (ROOT / "README.md", *PAGES)}
    texts |= {f"{name} --help": p.epilog or "" for name, p in parsers.items()}
    found: dict[str, Example] = {}
    for where, text in texts.items():
        for line in _LINE.findall(text):
            found.setdefault(line.partition(" # ")[0].rstrip(), Example(where, line))
    return list(found.values())


def run_example(line: str, cwd: Path, *before: str) -> tuple[int, str]:
    """Run a line in a shell on a terminal; its status and what is to be seen."""
    folder = Path(sys.executable).parent
    program = f'latprof() {{ {shlex.quote(sys.executable)} -m latprof_agent "$@"; }}'
    script = f"PATH={shlex.quote(str(folder))}:$PATH\n{program}\n{line}"
    words = [*before, "bash", "-c", script]
    status, screen = on_a_terminal(words, cwd, columns=200, home=cwd)
    assert "Traceback" not in screen, screen
    return status, screen
