"""Colours of the page and its figures, light and dark.

Specifications name a colour as ``var(--name)``: the page looks it up in its style
sheet, so that a figure follows the theme without being drawn anew; `concrete` puts
the light colours into a figure that stands by itself. Stages differ in lightness as
much as in hue, also to eyes that lack a cone; the figures say names in words too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from latprof_analysis.report.parts import Spec
from latprof_analysis.stages import STAGES

# What carries text must reach 4.5 against what it stands on, a mark 3 (WCAG 2.2,
# 1.4.3 and 1.4.11).
LIGHT: Mapping[str, str] = {
    "paper": "#f7f7f5",
    "card": "#ffffff",
    "ink": "#1b1e23",
    "muted": "#565d68",
    "grid": "#e6e7e9",
    "edge": "#878e99",
    "link": "#0b57ad",
    "warn": "#8a4b00",
    "warn-paper": "#fff6e5",
    "mark": "#0b62c4",
    "mark-2": "#b8321f",
    "band": "#8cb8ea",
    "application": "#555e6a",
    "send_queue": "#a87900",
    "qdisc": "#b8321f",
    "transit": "#0b62c4",
    "receive_stack": "#169483",
    "receive_queue": "#6b1d78",
    "merged": "#2f3338",
    "on-application": "#ffffff",
    "on-send_queue": "#0e1116",
    "on-qdisc": "#ffffff",
    "on-transit": "#ffffff",
    "on-receive_stack": "#0e1116",
    "on-receive_queue": "#ffffff",
    "on-merged": "#ffffff",
}
DARK: Mapping[str, str] = {
    "paper": "#131518",
    "card": "#1b1e24",
    "ink": "#e8eaee",
    "muted": "#a7b0bc",
    "grid": "#31363f",
    "edge": "#75808f",
    "link": "#82bcff",
    "warn": "#f3c05c",
    "warn-paper": "#2c2415",
    "mark": "#5aa4fb",
    "mark-2": "#ee6c55",
    "band": "#3b6596",
    "application": "#8794a3",
    "send_queue": "#ecc04f",
    "qdisc": "#ee6c55",
    "transit": "#4f9cf9",
    "receive_stack": "#3fc9b0",
    "receive_queue": "#eab8ee",
    "merged": "#dfe3e8",
    **{f"on-{stage}": "#0e1116" for stage in (*STAGES, "merged")},
}
_NAMED = re.compile(r"var\(--([a-z0-9_-]+)\)")


def colour(name: str) -> str:
    """Name a colour of the theme.

    Examples
    --------
    >>> colour("ink")
    'var(--ink)'
    """
    if name not in LIGHT:
        raise KeyError(name)
    return f"var(--{name})"


def style_sheet() -> str:
    """Return the colours as CSS: light, dark where asked for, light on paper."""
    light, dark = (
        "".join(f"--{name}:{value};" for name, value in colours.items())
        for colours in (LIGHT, DARK)
    )
    return (
        f":root{{color-scheme:light;{light}}}"
        "@media screen and (prefers-color-scheme:dark){"
        f":root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{color-scheme:dark;{dark}}}}}"
    )


def concrete(spec: Spec) -> Spec:
    """Return a specification with the light theme's colours in place of names.

    Examples
    --------
    >>> concrete({"mark": {"type": "bar", "fill": colour("card")}})
    {'mark': {'type': 'bar', 'fill': '#ffffff'}}
    """
    text = _NAMED.sub(lambda name: LIGHT[name[1]], json.dumps(spec))
    made: Spec = json.loads(text)
    return made
