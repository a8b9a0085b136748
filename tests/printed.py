"""Documents that commands print in tests are held against the schemas that ship."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from latprof_analysis import say
from latprof_analysis.cli import program

FOLDER = files("latprof_analysis") / "schemas"


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((FOLDER / f"{name}.json").read_text()))


def check_document(command: str, document: Any) -> None:
    """Fail where a command printed what its schema does not allow."""
    name = "sweep" if command == "run" and "swept" in document else command
    for error in validator(name).iter_errors(document):
        place = "/".join(map(str, error.absolute_path))
        pytest.fail(f"latprof {command} --json: {place}: {error.message[:300]}")


def check_printed(words: Sequence[str], out: str) -> None:
    """Check what a process printed, if it was asked for documents and ended well."""
    command = words[0] if words else ""
    if "--json" not in words or not (FOLDER / f"{command}.json").is_file():
        return
    lines = out.splitlines() if command == "watch" else [out]
    for text in lines:
        # of a COMMAND that prints, too, there is more than a document
        with suppress(ValueError):
            check_document(command, json.loads(text))


@contextmanager
def documents_checked() -> Iterator[None]:
    """Check what commands print in this process."""
    run = program._run
    asked = [""]

    def noted(subcommands: Any, version: str, words: list[str]) -> int:
        asked[0] = program._named(subcommands, words)
        try:
            return run(subcommands, version, words)
        finally:
            asked[0] = ""

    class Checked:
        @staticmethod
        def dump(document: Any, *more: Any, **options: Any) -> None:
            json.dump(document, *more, **options)
            if asked[0]:
                check_document(asked[0], json.loads(json.dumps(document)))

        @staticmethod
        def dumps(document: Any, **options: Any) -> str:
            text = json.dumps(document, **options)
            which = "fleet" if "agents" in document else "watch"
            check_document(which, json.loads(text))
            return text

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_run", noted)
        patch.setattr(say, "json", Checked)
        yield
