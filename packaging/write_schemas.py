"""Write what commands print as JSON Schemas, which the package has.

A schema that no longer promises what it did is not written before its version is
raised in read/printed_documents.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))

from latprof_analysis.read.printed_documents import DOCUMENTS, broken, schema_of

FOLDER = Path(__file__).parents[1] / "analysis" / "latprof_analysis" / "schemas"


def text_of(name: str) -> str:
    """Return a schema as its file has it."""
    return json.dumps(schema_of(name), indent=1) + "\n"


def main() -> None:
    """Write all, or say which may not be."""
    FOLDER.mkdir(exist_ok=True)
    for name in DOCUMENTS:
        path = FOLDER / f"{name}.json"
        new = schema_of(name)
        old = json.loads(path.read_text()) if path.exists() else {}
        lost = broken(old, new)
        if lost and old["version"] == new["version"]:
            raise SystemExit(f"{name}: raise its version: {', '.join(lost)}")
        path.write_text(text_of(name))


if __name__ == "__main__":
    main()
