#!/usr/bin/env python3
"""Run a module of the checkout, for the build: `from_sources.py MODULE ARGUMENTS`."""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

# An editable install of us has a finder, which would build what is being built;
# Python's own are classes.
sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]
sys.path[:1] = [str(ROOT / "agent"), str(ROOT / "analysis")]
sys.dont_write_bytecode = True
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
