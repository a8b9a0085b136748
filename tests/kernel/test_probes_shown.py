"""`latprof probes`: the names of hooks are whole, however narrow the terminal."""

from __future__ import annotations

import json
import os

import pytest
from latprof_process import run


@pytest.mark.thorough
@pytest.mark.parametrize("columns", [50, 79, 80, 200])
def test_no_name_of_a_hook_is_broken_over_lines(columns):
    told = json.loads(run("probes", "--json").out)
    shown = run("probes", env=os.environ | {"COLUMNS": str(columns)}).out
    assert max(map(len, shown.splitlines())) <= columns
    hooks = {word.strip(",") for each in told for word in each["source"].split()}
    assert "iter/bpf_sk_storage_map" in hooks
    assert [hook for hook in hooks if hook not in shown] == []
    words = {word for each in told for word in each["reason"].split()}
    assert [word for word in words if word not in shown] == []
