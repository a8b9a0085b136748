"""Names of functions: none that any user could have written."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from latprof_agent.story.symbols import Symbols


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (b"/usr/bin/redis-server", "keysCommand"),
        (b"/tmp/perf-812.map", ""),
        (b"/proc/812/root/tmp/perf-1.map", ""),
        (None, ""),
    ],
)
def test_a_map_in_tmp_names_nothing(module, name):
    class Cache:
        def __init__(self, pid):
            assert pid == 812

        def resolve(self, address, demangle):
            return b"keysCommand", address, module

    bcc = SimpleNamespace(SymbolCache=Cache)
    assert Symbols()._bcc_name(bcc, 812, 0x1000) == name
