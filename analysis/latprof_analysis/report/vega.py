"""From the report's specifications to Vega-Lite's, and to pictures.

vl-convert carries Vega and Vega-Lite with it: figures are drawn by it, or by the
scripts that it hands out for the page; nothing is fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from latprof_analysis.errors import LatprofError
from latprof_analysis.report.csv_text import csv_text
from latprof_analysis.report.marks import CONFIG, LEGEND_COLUMNS, legend_columns
from latprof_analysis.report.parts import Chart, Figure, Spec
from latprof_analysis.report.theme import concrete

if TYPE_CHECKING:
    from types import ModuleType

VEGA_LITE = "6.4"


def converter() -> ModuleType:
    """Return vl-convert, or say in one line that it is missing."""
    try:
        import vl_convert
    except ImportError as error:
        raise LatprofError(
            "cannot draw a report: vl-convert is not installed; install "
            "latprof-analysis[report], or pip install vl-convert-python"
        ) from error
    module: ModuleType = vl_convert
    return module


def script_bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, which sets vegaEmbed."""
    snippet = "window.vegaEmbed = vegaEmbed;"
    bundle = converter().javascript_bundle(snippet=snippet, vl_version=VEGA_LITE)
    return str(bundle)


def parsed_as(data: pd.DataFrame) -> dict[str, str]:
    """Tell of which type each column of a figure's CSV is."""
    return {
        str(name): "number" if pd.api.types.is_numeric_dtype(column) else "string"
        for name, column in data.items()
    }


def inline_data(figure: Figure) -> Spec:
    """Return a figure's table as a specification holds it: as its CSV text."""
    return {
        "values": csv_text(figure.data),
        "format": {"type": "csv", "parse": parsed_as(figure.data)},
    }


def svg(figure: Figure, chart: Chart, width: int) -> str:
    """Draw one chart of a figure at its first scale, in the light theme's colours."""
    own = next(iter(chart.scales.values()))
    columns = {"name": LEGEND_COLUMNS, "value": legend_columns(width)}
    spec: dict[str, Any] = {
        **own,
        "width": width,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": CONFIG | {"font": "Liberation Sans, Arial, sans-serif"},
        "data": inline_data(figure),
        "params": [*own.get("params", ()), columns],
    }
    drawn = converter().vegalite_to_svg(
        concrete(spec), vl_version=VEGA_LITE, allowed_base_urls=[]
    )
    return str(drawn)
