"""Colours: what can be read, by the formula of WCAG 2.2 itself."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from latprof_analysis.report.vega import DARK, LIGHT, concrete, style_sheet
from latprof_analysis.stages import STAGES

THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
TEXT, MARK = 4.5, 3.0


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2.2, definition of the term)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_the_formula_gives_the_published_contrast_of_black_white_and_grey() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    # the lightest grey that passes on white, as WebAIM's checker says it: 4.54
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)


@THEMES
@pytest.mark.parametrize("ground", ["paper", "card"])
@pytest.mark.parametrize("text", ["ink", "muted", "link"])
def test_text_can_be_read(theme: Mapping[str, str], ground: str, text: str) -> None:
    assert contrast(theme[text], theme[ground]) >= TEXT


@THEMES
def test_warnings_can_be_read(theme: Mapping[str, str]) -> None:
    assert contrast(theme["warn"], theme["warn-paper"]) >= TEXT


@THEMES
@pytest.mark.parametrize("mark", [*STAGES, "merged", "mark", "mark-2", "edge"])
def test_marks_and_axes_stand_out_from_their_ground(
    theme: Mapping[str, str], mark: str
) -> None:
    assert contrast(theme[mark], theme["card"]) >= MARK


@THEMES
@pytest.mark.parametrize("stage", [*STAGES, "merged"])
def test_a_stages_name_can_be_read_on_its_bar(
    theme: Mapping[str, str], stage: str
) -> None:
    assert contrast(theme[f"on-{stage}"], theme[stage]) >= TEXT


def test_both_themes_have_the_same_colours_and_the_style_sheet_has_them_all() -> None:
    assert LIGHT.keys() == DARK.keys()
    sheet = style_sheet()
    for theme in (LIGHT, DARK):
        for name, value in theme.items():
            assert f"--{name}:{value};" in sheet


def test_a_figure_by_itself_names_no_colour_of_the_style_sheet() -> None:
    spec = {"config": {name: f"var(--{name})" for name in LIGHT}}
    assert concrete(spec) == {"config": dict(LIGHT)}
