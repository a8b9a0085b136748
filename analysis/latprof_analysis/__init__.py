"""Pure functions of arrays: no root, no clock, no agent.

Names are looked up on first use, so that importing the package loads neither
numpy nor scipy.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Estimate": "fit_result",
    "Fit": "fit_result",
    "Histogram": "histogram",
    "Packets": "wire",
    "Quantile": "quantiles",
    "fit_round_trips": "fit",
    "quantile_ci": "quantiles",
    "samples_needed": "quantiles",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
