"""What is told to do about a probe that cannot be had."""

from __future__ import annotations

import pytest
from latprof_agent.probes import catalogue
from latprof_agent.probes.catalogue import PROBES
from latprof_agent.probes.trial import Refusal

QUANTITY = "exchanges that are over (tcp)"
PROGRAM = "on_stream_idle"


@pytest.mark.parametrize("missing", ["", "kernel has no iterator bpf_sk_storage_map"])
def test_a_newer_kernel_is_no_remedy_where_this_one_has_the_hook(monkeypatch, missing):
    monkeypatch.setattr(catalogue, "missing_hook", lambda _way: missing)
    (probe,) = (one for one in PROBES if one.quantity == QUANTITY)
    told = catalogue._capability(probe, {PROGRAM: Refusal("Operation not permitted")})
    assert told.state == "unavailable"
    assert told.reason == missing or told.reason.endswith("Operation not permitted")
    assert ("Linux 5.9" in told.remedy) == bool(missing)
