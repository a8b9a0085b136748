"""Bytes of a terminal as keys: a character, or a name of one that is none."""

from __future__ import annotations

import codecs
import re

_NAMES = {
    "[A": "up",
    "[B": "down",
    "[C": "right",
    "[D": "left",
    "[H": "home",
    "[F": "end",
    "[1~": "home",
    "[4~": "end",
    "[5~": "page up",
    "[6~": "page down",
}
_CONTROLS = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace"}
# A sequence, whole or still without its end; other keys send it with O for [.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?<]*([@-~])?|O(.)?)")


class Keyboard:
    """Remembers what of a sequence has come."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._left = ""

    def feed(self, data: bytes) -> list[str]:
        """Return the keys that are whole."""
        text, self._left = self._left + self._decoder.decode(data), ""
        keys = []
        while text:
            key, text = self._next(text)
            keys += [key] if key else []
        return keys

    def pause(self) -> list[str]:
        """Nothing more came for a while: an escape alone was the key itself."""
        alone, self._left = self._left == "\x1b", ""
        return ["escape"] if alone else []

    def _next(self, text: str) -> tuple[str, str]:
        """Return the first key, none if it is unknown or not whole, and the rest."""
        if text[0] != "\x1b":
            return _CONTROLS.get(text[0], text[0]), text[1:]
        found = _SEQUENCE.match(text)
        if not found and text != "\x1b":
            return "escape", text[1:]
        if not found or (found.end() == len(text) and not any(found.groups())):
            self._left = text
            return "", ""
        return _NAMES.get("[" + found[0][2:], ""), text[found.end() :]
