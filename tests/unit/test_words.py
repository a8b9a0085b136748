"""Names, and first lines of what explains them, are in words of the field."""

from __future__ import annotations

import ast
import re
from itertools import chain

from test_import_graph import MODULES, ROOT

# What it should be instead.
BANNED = {
    "hopeless": "expired",
    "fate": "verdict",
    "death": "drop",
    "spell": "period",
    "doorman": "admission",
    "bury": "reap",
    "stillness": "progress",
    "at hand": "pending",
    "let go": "release",
    "own accord": "timer",
}
_WORD = re.compile(rf"(?<![a-z])({'|'.join(BANNED)})s?(?![a-z])")
_C_NAME = re.compile(
    r"^(?:static |struct |enum )*[\w *]*?\b(\w+)(?:\(| \{$)", re.MULTILINE
)


def spoken(name):
    """A name as words: of CamelCase and snake_case."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name).lower()


def said(module):
    """Names that a module makes, and the first lines of its docstrings."""
    tree = ast.parse(MODULES[module].read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield spoken(node.name)
        elif not isinstance(node, ast.Module):
            continue
        yield (ast.get_docstring(node) or "").partition("\n")[0].lower()


def test_python_says_none_of_the_private_words():
    found = {
        f"{module}: {word[0]} ({BANNED[word[1]]})"
        for module in MODULES
        for text in said(module)
        for word in _WORD.finditer(text)
    }
    assert not found


def test_c_says_none_of_the_private_words():
    folders = ROOT / "bpf", ROOT / "agent" / "native"
    found = {
        f"{path.name}: {name}"
        for path in chain(*(folder.rglob("*.[ch]") for folder in folders))
        for name in _C_NAME.findall(path.read_text())
        if _WORD.search(spoken(name))
    }
    assert not found
