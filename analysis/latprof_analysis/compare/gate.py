"""Whether a change may pass: what is beyond a limit, and of what that is not known.

A limit that holds only where something can be told would pass what was measured too
little. So there are three outcomes: failed, where the whole interval is beyond the
limit; undecided, where the estimate is and the interval is not, or where nothing can
be told; passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

# Of latencies a gate looks at these, not at stages: of the many stages of two single
# runs that are alike, some always differ.
WHOLE = ("end_to_end", "response", "rtt", "latency")
_NO_TRIPS = "no round trips of a load generator are on both sides"
_ORDER = ("failed", "undecided")  # the worst first


def gate(
    document: dict[str, Any],
    *,
    slower: float | None = None,
    lossier: float | None = None,
    throughput_lower: float | None = None,
    stages: bool = False,
) -> dict[str, Any]:
    """Hold a comparison, as `document` gives it, against limits.

    Parameters
    ----------
    slower, lossier, throughput_lower : float, optional
        By which shares B may be worse: of A's latency; of all requests, so that
        0.01 lets one in a hundred more be lost; of A's rate. None: whatever it is.
    stages : bool
        Look at each stage that was compared, too, not at whole latencies only.

    Returns
    -------
    dict
        ``outcome``: failed, undecided or passed; ``limits``; ``findings``: what keeps
        it from passing, the worst first, with value, low and high of the ratio, of
        loss of the difference; None where not known.
    """
    findings: list[dict[str, Any]] = []
    if slower is not None:
        findings += _latencies(document["groups"], slower, stages)
    if lossier is not None:
        loss = document["loss"]
        findings += _rates("loss", loss, "difference", lambda v: v > lossier)
    if throughput_lower is not None:
        rates, least = document["throughput"], 1 - throughput_lower
        findings += _rates("throughput", rates, "ratio", lambda v: v < least)
    findings.sort(key=lambda finding: _ORDER.index(finding["outcome"]))
    return {
        "outcome": findings[0]["outcome"] if findings else "passed",
        "limits": {
            "slower": slower,
            "lossier": lossier,
            "throughput_lower": throughput_lower,
        },
        "findings": findings,
    }


def _finding(
    what: str,
    of: dict[str, Any] | None = None,
    effect: dict[str, float | None] | None = None,
    *,
    failed: bool = False,
    percentile: str = "",
    reason: str | None,
) -> dict[str, Any]:
    """Describe what keeps a comparison from passing; without `of` it is all of it."""
    of, effect = of or {}, effect or {}
    return {
        "outcome": "failed" if failed else "undecided",
        "what": what,
        "side": of.get("side", ""),
        "kind": of.get("kind", of.get("protocol", "")),
        "stage": of.get("stage", ""),
        "size_bytes": of.get("size_bytes"),
        "percentile": percentile,
        **{end: effect.get(end) for end in ("value", "low", "high")},
        "reason": reason or "",
    }


def _latencies(
    groups: list[dict[str, Any]], limit: float, stages: bool
) -> Iterator[dict[str, Any]]:
    wanted = [group for group in groups if stages or group["stage"] in WHOLE]
    if not wanted:
        reason = "no latencies that can be judged are on both sides"
        yield _finding("latency", reason=reason)
    for group in wanted:
        percentiles = group["percentiles"]
        told = {p: o for p, o in percentiles.items() if o["p_adjusted"] is not None}
        if not told:
            reason = next(iter(percentiles.values()))["reason"] or "too few values"
            yield _finding("latency", group, reason=reason)
        for p, one in told.items():
            ratio = one["ratio"]
            # more than nothing is above any share of it
            bound, why = (1 + limit, "") if ratio else (0.0, "the baseline has 0")
            value, low, _ = (ratio or one["difference"]).values()
            if value > bound:
                failed = one["verdict"] == "slower" and low > bound
                yield _finding(
                    "latency", group, ratio, failed=failed, percentile=p, reason=why
                )


def _rates(
    what: str,
    rates: list[dict[str, Any]],
    effect: str,
    is_beyond: Callable[[float], bool],
) -> Iterator[dict[str, Any]]:
    if not rates:
        yield _finding(what, reason=_NO_TRIPS)
    for one in rates:
        found = one[effect]
        if found is None or is_beyond(found["value"]):
            worse = one["verdict"] in ("slower", "more")
            failed = worse and all(map(is_beyond, found.values()))
            yield _finding(what, one, found, failed=failed, reason=one["reason"])
