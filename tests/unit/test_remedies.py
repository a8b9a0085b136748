"""What is told to do about a probe that cannot be had."""

from __future__ import annotations

import errno

import pytest
from latprof_agent.errors import CaptureError
from latprof_agent.probes import catalogue, trial
from latprof_agent.probes.catalogue import PROBES
from latprof_agent.probes.layout import OLD_OBJECT
from latprof_agent.probes.trial import Refusal, refusal_in

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


# Of their enums: Linux 5.10, 5.15 and 6.1.
KNOWN = {
    "5.10": ("BPF_MAP_TYPE_INODE_STORAGE", "BPF_FUNC_ktime_get_ns"),
    "5.15": ("BPF_MAP_TYPE_TASK_STORAGE", "BPF_FUNC_ktime_get_ns"),
    "6.1": ("BPF_MAP_TYPE_TASK_STORAGE", "BPF_FUNC_loop"),
}
NEEDS = {
    "5.10": "kernel has no bpf_loop (of Linux 5.17)",  # though it has an object
    "5.15": "kernel has no bpf_loop (of Linux 5.17)",
    "6.1": "",
}


@pytest.mark.parametrize("release", KNOWN)
def test_what_all_programs_need_is_the_reason(monkeypatch, release):
    map_type, helper = KNOWN[release]
    known = {"bpf_map_type": {map_type: 1}, "bpf_func_id": {helper: 1}}
    monkeypatch.setattr(trial._drain, "kernel_enum", known.get)
    lacks = trial._lacks.__wrapped__()
    monkeypatch.setattr(trial, "_lacks", lambda: lacks)
    monkeypatch.setattr(catalogue, "missing_hook", lambda _way: "")
    assert (trial.kernel_object() == OLD_OBJECT) == (release == "5.10")
    (xmit,) = (one for one in PROBES if one.quantity == "xmit")
    followed = catalogue._capability(xmit, {}).state == "exact"
    assert followed == (release != "5.15")
    if NEEDS[release]:
        with pytest.raises(CaptureError, match=r"bpf_loop \(of Linux 5\.17\); use"):
            catalogue.require_counting()
    else:
        catalogue.require_counting()
    (probe,) = (one for one in PROBES if one.quantity == QUANTITY)
    told = catalogue._capability(probe, {})
    assert told.state == ("unavailable" if NEEDS[release] else "exact")
    assert told.reason == NEEDS[release]
    assert told.remedy == ("use Linux 5.17 or later" if NEEDS[release] else "")


def test_types_without_these_names_say_nothing(monkeypatch):
    monkeypatch.setattr(trial._drain, "kernel_enum", lambda _name: {})
    assert trial._lacks.__wrapped__() == ()


@pytest.mark.parametrize("libbpf", ["ERROR: strerror_r(-524)=22", "Unknown error 524"])
def test_an_errno_of_the_kernel_alone_has_words(libbpf):
    text = f"libbpf: prog 'on_ready_fentry': failed to attach: {libbpf}"
    refusal = refusal_in(OSError(524, text))
    assert refusal.remedy.startswith("use a kernel that has fentry")
    assert refusal.why == (
        "libbpf: prog 'on_ready_fentry': failed to attach: "
        "Operation not supported (ENOTSUPP)"
    )
    assert refusal_in(OSError(errno.EPERM, "")).why == "Operation not permitted"
