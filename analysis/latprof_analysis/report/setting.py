"""How it was measured: kernel, workload, lab, clocks, overhead, capabilities."""

from __future__ import annotations

from typing import Any

from latprof_analysis.report.parts import Fold, Missing, Part, Table
from latprof_analysis.report.sentences import attached_sentence, own_text
from latprof_analysis.report.words import bytes_text, duration_text, listed, number
from latprof_analysis.text import given_duration, given_rate, percent


def setting_parts(document: dict[str, Any]) -> list[Part]:
    """Say how the figures came to be, run by run where there are several."""
    by_run = {
        run: _setting(run, fields) for run, fields in of_each_run(document).items()
    }
    found = [(run, parts) for run, parts in by_run.items() if parts]
    if not found:
        reason = "the files do not say how they were measured"
        return [Missing("How it was measured", reason)]
    return found[0][1] if len(by_run) == 1 else [Fold(*one) for one in found]


def of_each_run(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the fields of each run, by its name; those of all runs included.

    Examples
    --------
    >>> of_each_run({"kernel": "6.1", "runs": {"a": {"cost": 1}, "b": {}}})
    {'a': {'kernel': '6.1', 'cost': 1}, 'b': {'kernel': '6.1'}}
    """
    shared = {name: fields for name, fields in document.items() if name != "runs"}
    runs = document.get("runs") or {"": {}}
    return {run: shared | fields for run, fields in runs.items()}


def _setting(run: str, fields: dict[str, Any]) -> list[Part]:
    workload = fields.get("workload") or {}
    sizes = (workload.get("plan") or {}).get("sizes") or ()
    settings = (fields.get("lab") or {}).get("settings") or {}
    warmup = fields.get("warmup_messages")
    clock = (
        "CLOCK_MONOTONIC of one host, for every stamp" if fields.get("kinds") else ""
    )
    how = {
        "kernel": str(fields.get("kernel") or ""),
        "workload": _workload(workload),
        "message sizes": f"{', '.join(map(number, sizes))} B" if sizes else "",
        "link": _link(fields.get("known") or {}),
        "congestion control": str(settings.get("congestion_control") or ""),
        "clock": str(fields.get("clock") or clock),
        "messages before the count began": (
            f"{number(warmup)} (warm-up, left out)" if warmup else ""
        ),
        "overhead": _cost(fields.get("cost") or {}),
        "untraced time": _untraced(fields.get("untraced_time") or {}),
    }
    rows = [[what, text] for what, text in how.items() if text]
    title = f"{run}: how it was" if run else "How it was"
    parts: list[Part] = []
    if rows:
        parts.append(Table(title, ["what", "how it was"], rows, numeric=False))
    if fields.get("capabilities"):
        parts.append(_capabilities(fields["capabilities"]))
    return parts


def _workload(workload: dict[str, Any]) -> str:
    if workload.get("command"):
        return " ".join(map(str, workload["command"]))
    if workload.get("attached"):
        return attached_sentence(workload)
    if own := own_text(workload):
        return own
    plan = workload.get("plan")
    if not plan:
        return ""
    loop = "ping-pong, closed loop"
    if plan.get("interval_ns"):
        gaps = "exponential gaps of mean" if plan.get("poisson") else "one every"
        loop = f"ping-pong, open loop, {gaps} {given_duration(plan['interval_ns'])}"
    reply = plan.get("reply_bytes")
    echo = "full echo" if reply is None else f"replies of {bytes_text(reply)}"
    ends = (("sender", plan.get("client_cpu")), ("responder", plan.get("server_cpu")))
    cpus = [f"{end} on CPU {cpu}" for end, cpu in ends if cpu is not None]
    return ", ".join([loop, echo, *cpus, f"seed {plan.get('seed')}"])


def _link(known: dict[str, Any]) -> str:
    if not known:
        return ""
    speed = given_rate(known["rate_bps"]) if known.get("rate_bps") else "no rate limit"
    loss = f", loss {percent(known['loss'])}" if known.get("loss") else ""
    return (
        f"{known.get('kind')}, {speed}, "
        f"{given_duration(known.get('delay_ns'))} each way{loss}, "
        f"MTU {number(known['mtu_bytes'])} B"
    )


def _cost(cost: dict[str, Any]) -> str:
    if not cost:
        return ""
    texts = []
    if cost.get("probes_cpu_share") is not None:
        texts.append(f"probes {percent(cost['probes_cpu_share'])} of one CPU")
    texts.append(
        f"agent {cost['agent_cpu_seconds']:.2f} s of CPU in "
        f"{cost['wall_seconds']:.1f} s ({percent(cost['agent_cpu_share'])})"
    )
    texts.append(f"{cost['agent_peak_bytes'] / 1e6:.0f} MB at its peak")
    return ", ".join(texts)


def _untraced(untraced: dict[str, Any]) -> str:
    if not untraced.get("periods"):
        return ""
    return (
        f"{duration_text(1e9 * untraced['seconds'])} in {number(untraced['periods'])} "
        "periods of single CPUs: the kernel hid its interrupts then, so packets may "
        "lack stamps"
    )


def _capabilities(capabilities: list[dict[str, Any]]) -> Table:
    rows = []
    for one in capabilities:
        why = "; ".join(str(one[key]) for key in ("reason", "remedy") if one.get(key))
        state, source = str(one["state"]), str(one.get("source", ""))
        rows.append([str(one["quantity"]), state, source, why])
    few = [one["quantity"] for one in capabilities if one["state"] != "exact"]
    return Table(
        "What this kernel let it measure",
        ["quantity", "state", "from which event", "why not exact"],
        rows,
        f"Not exact: {listed(few)}." if few else "All are exact.",
        numeric=False,
    )
