"""The tutorial's examples run, and print what it shows."""

import contextlib
import doctest
import io
import re
from pathlib import Path

import numpy as np
import pytest
from published import TMSN

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "analysis" / "TUTORIAL.md"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def tutorial():
    """Run all blocks one after the other: the runner, its report, all names."""
    text = TUTORIAL.read_text()
    names = {}
    # pandas pads its lines with blanks, which a text file should not have
    runner = doctest.DocTestRunner(
        verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    report = io.StringIO()
    with contextlib.chdir(ROOT):  # its paths begin there
        for block in FENCED.finditer(text):
            line = text.count("\n", 0, block.start(2))
            test = doctest.DocTestParser().get_doctest(
                block[2], names, TUTORIAL.name, str(TUTORIAL), line
            )
            runner.run(test, out=report.write, clear_globs=False)
            names = test.globs
    return runner, report.getvalue(), names


def test_each_block_of_the_tutorial_prints_what_it_shows(tutorial):
    runner, report, _ = tutorial
    assert runner.failures == 0, report


def test_the_tutorial_has_no_block_that_is_not_run(tutorial):
    text = TUTORIAL.read_text()
    assert text.count("```") == 2 * len(FENCED.findall(text))
    assert {language for language, _ in FENCED.findall(text)} == {"pycon"}
    assert tutorial[0].tries == text.count("\n>>> ") > 60


@pytest.mark.parametrize(
    ("name", "published"),
    list(zip(("three", "ten", "fast"), TMSN.values(), strict=True)),
)
def test_the_tutorials_tables_of_tmsn_are_the_published_ones(tutorial, name, published):
    columns = ["total", "messages", "heartbeats", "heartbeat_echoes"]
    columns += ["avg_msg", "avg_hb", "std_msg", "std_hb"]
    table = tutorial[2][name][columns].reset_index()
    np.testing.assert_allclose(table, published, rtol=0, atol=0.51e-6)


def test_the_tutorials_links_lead_somewhere():
    links = re.findall(r"\]\((\S+?)\)", TUTORIAL.read_text())
    assert links
    assert [to for to in links if not (TUTORIAL.parent / to).exists()] == []
