"""README.md and its pages: what they have of the code, their links, their length."""

from __future__ import annotations

import importlib.util
import re

import pytest
from examples import PAGES, ROOT

_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
README = ROOT / "README.md"


def test_the_columns_of_a_run_folder_are_those_of_the_schema():
    path = ROOT / "packaging" / "write_pages.py"
    spec = importlib.util.spec_from_file_location("write_pages", path)
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    text = pages.PAGE.read_text()
    assert text == pages.written(), "run `make pages`"
    assert "`until_pause_ns`" in text


def test_the_first_page_is_short():
    assert len(README.read_text().splitlines()) <= 250


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda path: path.name)
def test_links_lead_to_files(page):
    for link in _LINK.findall(page.read_text()):
        assert (page.parent / link).exists(), link


def test_the_first_page_leads_to_all_others():
    linked = {(ROOT / link).resolve() for link in _LINK.findall(README.read_text())}
    assert {path.resolve() for path in PAGES} <= linked
