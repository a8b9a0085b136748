"""Pages of the library, from its docstrings and the tutorial: `make docs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # pure Python: not built

project = "latprof_analysis"
extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
html_theme = "furo"
html_title = project
templates_path = ["templates"]
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}
# links of the tutorial to files of the repository, which are no pages
suppress_warnings = ["myst.xref_missing"]
numpydoc_show_class_members = False
