"""The schemas of printed documents: shipped as generated, and promises are kept."""

from __future__ import annotations

import copy
import json
import re
from importlib import util
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError
from latprof_agent.cli import SUBCOMMANDS, main
from latprof_analysis.read.printed_documents import DOCUMENTS, broken, schema_of
from printed import FOLDER, check_document, validator

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_ships_is_what_the_shapes_say(name):
    spec = util.spec_from_file_location("w", ROOT / "packaging" / "write_schemas.py")
    writer = util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    shipped = (FOLDER / f"{name}.json").read_text()
    assert shipped == writer.text_of(name), "run `make schemas`"
    Draft202012Validator.check_schema(json.loads(shipped))
    assert not broken(json.loads(shipped), schema_of(name))


def test_each_command_with_json_has_a_schema():
    """But `latprof run --sweep`, whose document is not that of a run."""
    sources = [ROOT / folder for folder in ("agent", "analysis")]
    with_json = {
        path.stem.removesuffix("_options")
        for source in sources
        for path in source.glob("latprof_*/cli/*.py")
        if re.search(r'"--json"', path.read_text())
    }
    assert with_json
    assert with_json == DOCUMENTS.keys() - {"sweep"}
    assert with_json <= SUBCOMMANDS.keys()


def test_a_promise_is_broken_by_another_type_or_a_member_that_goes():
    old = schema_of("watch")
    new = copy.deepcopy(old)
    new["properties"]["more"] = {"type": "string"}
    assert not broken(old, new)
    for change in (
        lambda schema: schema["properties"].pop("seconds"),
        lambda schema: schema["properties"]["seconds"].update(type="string"),
        lambda schema: schema["required"].remove("groups"),
    ):
        new = copy.deepcopy(old)
        change(new)
        assert broken(old, new)


def test_a_document_that_breaks_its_schema_fails_a_test():
    with pytest.raises(pytest.fail.Exception, match="probes --json"):
        check_document("probes", [{"quantity": 7}])
    with pytest.raises(ValidationError):
        validator("watch").validate({})


def test_the_command_prints_what_ships(capsys):
    assert main(["schema"]) == 0
    assert capsys.readouterr().out.split() == sorted(DOCUMENTS)
    assert main(["schema", "watch"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of("watch")
    with pytest.raises(SystemExit) as ended:
        main(["schema", "wotch"])
    assert ended.value.code == 2
    assert "did you mean" in capsys.readouterr().err
