"""A run's whole summary on the terminal: every table, then how sure it is.

Reads the summary document only; computes nothing.
"""

from __future__ import annotations

from typing import Any

from latprof_analysis.report.first_screen import answers, losses
from latprof_analysis.report.tables import (
    FEW,
    setup_sentence,
    show_exchange_tables,
    show_line,
    show_link,
    show_round_trips,
    show_stages,
    slowest_sentence,
)
from latprof_analysis.study.ways import pairs_of
from latprof_analysis.text import counts, duration, percent, plural
from rich.console import Console

from latprof_agent.probes.catalogue import capability_sentence


def show_all(summary: dict[str, Any], console: Console) -> None:
    """Print everything; `first_screen.show_first` prints what matters first."""
    show_line(console, setup_sentence(summary))
    for sentence in answers(summary, pairs_of(summary["kinds"])):
        show_line(console, sentence, "bold")
    show_exchange_tables(summary, console)
    for kind, figures in summary["kinds"].items():
        show_stages(kind, figures, console)
    for protocol, figures in summary["round_trips"].items():
        show_round_trips(protocol, figures, console)
    if summary["kinds"] or summary["round_trips"]:
        show_line(console, FEW, "dim")
    show_link(summary, console)
    if summary["slowest"]:
        show_line(console, "\n" + slowest_sentence(summary["slowest"], summary["lab"]))
    if lost := losses(summary):
        show_line(console, f"\nlost: {lost}", "yellow")
    _show_certainty(summary, console)
    for note in summary["notes"]:
        show_line(console, f"note: {note}", "dim")
    for warning in summary["warnings"]:
        show_line(console, f"warning: {warning}", "bold yellow")
    show_line(console, f"\nfolder: {summary['folder'] or 'removed'}")


def _show_certainty(summary: dict[str, Any], console: Console) -> None:
    lost = counts(summary["lost_records"]) or "none"
    # created is the generator's own: other programs have no such stamp
    missing = {k: n for k, n in summary["missing_stamps"].items() if k != "created"}
    show_line(console, f"\nrecords: {summary['records']}, lost: {lost}")
    untraced = summary["untraced_time"]
    if untraced["periods"]:
        show_line(
            console,
            f"untraced time: {duration(1e9 * untraced['seconds'])} in "
            f"{plural(untraced['periods'], 'period')} of single CPUs; this kernel hid "
            "its interrupts then, so packets may lack stamps",
        )
    for title, found in (
        ("counted, but not recorded", summary["counters"]),
        ("unmatched", summary["unmatched"]),
        ("messages with two stages merged, by missing stamp", missing),
    ):
        if counts(found):
            show_line(console, f"{title}: {counts(found)}")
    if unread := summary["unread_at_close"]:
        text = f"unread at close: {plural(unread, 'datagram')}"
        show_line(console, f"{text} came, and nobody had read when the socket closed")
    counters = summary["link_counters"] or {}
    for way, figures in counters.get("netem", {}).items():
        passed = figures["qdiscs"][0]
        text = f"netem {way}: {plural(passed['sent_packets'], 'packet')}, "
        drops = passed["dropped_packets"]
        show_line(console, text + (f"{drops} dropped" if drops else "none dropped"))
    for way, figures in counters.get("emulator", {}).items():
        drops = {k: n for k, n in figures.items() if k.startswith("dropped_")}
        text = f"emulator {way}: {plural(figures['packets_in'], 'packet')}, "
        show_line(console, text + (counts(drops) or "none dropped"))
    _show_cost(summary["cost"], console)
    for capability in summary["capabilities"]:
        if capability["state"] != "exact":
            _show_capability(capability, console)
        for where in capability.get("taken", ()):
            show_line(console, where, "dim")


def _show_cost(cost: dict[str, Any], console: Console) -> None:
    probes = cost["probes_cpu_share"]
    share = "not sampled" if probes is None else f"{percent(probes)} of one CPU"
    show_line(
        console,
        f"overhead: probes {share}; agent {cost['agent_cpu_seconds']:.2f} s of CPU in "
        f"{cost['wall_seconds']:.1f} s ({percent(cost['agent_cpu_share'])}), "
        f"{cost['agent_peak_bytes'] / 1e6:.0f} MB",
    )


def _show_capability(capability: dict[str, Any], console: Console) -> None:
    missing = capability["state"] == "unavailable"
    text = capability_sentence(capability)
    show_line(console, text, "yellow" if missing else "dim")
