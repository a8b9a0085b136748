"""Words that no name and no first line of a docstring has: a stranger reads those."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BANNED = re.compile(
    r"\b(hopeless|spells?|let go|at hand|of its own accord|guests?|bury|fate)\b", re.I
)
TELLING = re.compile(r"(^|_)(tell|tells|told|telling)($|_)")


def definitions():
    """Path, name and the docstring's first line of all modules, classes, functions."""
    for package in ("agent", "analysis"):
        for path in sorted((ROOT / package).rglob("*.py")):
            where = str(path.relative_to(ROOT))
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    text = ast.get_docstring(node) or ""
                    yield (
                        where,
                        getattr(node, "name", path.stem),
                        text.partition("\n")[0],
                    )


def test_no_first_line_begins_with_tell_or_has_a_word_of_our_own():
    wrong = [
        f"{where}: {line}"
        for where, _, line in definitions()
        if line.startswith(("Tell ", "Tells ")) or BANNED.search(line)
    ]
    assert wrong == []


def test_no_name_is_of_such_a_word():
    wrong = [
        f"{where}: {name}"
        for where, name, _ in definitions()
        if TELLING.search(name) or BANNED.search(name.replace("_", " "))
    ]
    assert wrong == []
