"""`import latprof_analysis as lp`: what it gives, and what it costs."""

import pydoc
import re
import subprocess
import sys
from pathlib import Path

import latprof_analysis as lp
import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "analysis" / "docs"


def test_every_name_has_a_page_once():
    listed = re.findall(r"^   (\w+)$", (DOCS / "index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(lp.__all__)


def test_help_lists_every_name():
    text = pydoc.render_doc(lp, renderer=pydoc.plaintext)
    assert lp.__all__
    for name in lp.__all__:
        assert f"class {name}(" in text or f"    {name}(" in text


def test_an_import_loads_neither_numpy_nor_pandas():
    code = (
        "import sys, latprof_analysis\n"
        "print(*{'numpy', 'pandas', 'scipy'} & set(sys.modules))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert shown.stdout == "\n"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        lp.nothing_of_ours  # noqa: B018


def test_a_plain_array_is_one_run():
    rng = np.random.default_rng(1)
    a, b = rng.exponential(100, 400), rng.exponential(150, 400)
    assert lp.compare_quantile(a, b, 0.5) == lp.compare_quantile([a], [b], 0.5)
    assert lp.compare_ranks(a, b) == lp.compare_ranks([a], [b])
    assert lp.compare_ranks(list(a), list(b)) == lp.compare_ranks(a, b)


@pytest.mark.parametrize("nothing", [[], np.array([])])
def test_a_side_without_values_is_refused(nothing):
    with pytest.raises(ValueError, match="at least one run"):
        lp.compare_quantile(nothing, [1.0], 0.5)
