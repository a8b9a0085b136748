"""What changed from a baseline to other runs: by stage, by size, and how surely."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from latprof_analysis.comparison.change import QuantileChange
from latprof_analysis.comparison.families import Correction, adjusted
from latprof_analysis.comparison.figures import figure_rows
from latprof_analysis.comparison.quantile import compare_quantile
from latprof_analysis.comparison.rank import RankEffect, compare_ranks
from latprof_analysis.comparison.result import (
    Choice,
    Comparison,
    GroupChange,
    Judged,
    JudgedTrips,
)
from latprof_analysis.comparison.setup import (
    SetupDifference,
    is_mixed_loop,
    setup_differences,
)
from latprof_analysis.comparison.sides import Group, Side, Trips, sides_of
from latprof_analysis.comparison.tables import read_tables
from latprof_analysis.comparison.trips import (
    TripsChange,
    compare_loss,
    compare_throughput,
)
from latprof_analysis.comparison.verdict import Verdict, verdict
from latprof_analysis.readers.result import shown
from latprof_analysis.text import plural

PERCENTILES = (0.5, 0.9, 0.99)
SMALLEST = 0.01
MOST_SIDES = 10
# Sides may differ by so much in the share of messages that have a stage.
_KNOWN_ALIKE = 0.1


@dataclass(frozen=True)
class _Found:
    """What was measured of a group, before it is judged among all."""

    side: str
    group: Group
    changes: list[QuantileChange] = field(default_factory=list)
    rank: RankEffect | None = None


def read_sides(
    arguments: Sequence[str], by: str | None = None, **columns: str | None
) -> list[Side]:
    """Read the sides of a comparison; see `tables.read_tables`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("ms\\n" + "2\\n" * 50)
    >>> _ = (folder / "b.csv").write_text("ms\\n" + "1\\n" * 50)
    >>> files = [str(folder / "a.csv"), str(folder / "b.csv")]
    >>> sides = read_sides(files, latency_column="ms", unit="ms")
    >>> [side.runs == (file,) for side, file in zip(sides, files)]
    [True, True]
    """
    return sides_of(read_tables(arguments, by, **columns))


def compare_sides(
    sides: Sequence[Side],
    *,
    percentiles: Sequence[float] = PERCENTILES,
    smallest: float = SMALLEST,
    correction: Correction = "benjamini-hochberg",
    choice: Choice | None = None,
) -> Comparison:
    """Compare sides with the first of them, group by group.

    All percentiles of all groups of all sides are one family for the correction;
    rank effects, losses and throughputs are one each.

    Parameters
    ----------
    sides : sequence of Side
        2 to 10, as `read_sides` gives them.
    percentiles : sequence of float
        In (0, 1), which are judged.
    smallest : float
        Share below which a change does not matter.
    correction : str
        See `adjusted`.
    choice : Choice, optional
        Which groups to compare; the rest is not part of any family.

    Raises
    ------
    ValueError
        The sides have nothing in common, or their latencies are not the same
        quantity.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name, least in (("a.csv", 2), ("b.csv", 1)):
    ...     rows = [f"{least + 77 * i % 200 / 999}\\n" for i in range(200)]
    ...     _ = (folder / name).write_text("ms\\n" + "".join(rows))
    >>> files = [str(folder / "a.csv"), str(folder / "b.csv")]
    >>> sides = read_sides(files, latency_column="ms", unit="ms")
    >>> (group,) = compare_sides(sides, percentiles=[0.5]).groups
    >>> group.percentiles[0].verdict
    'faster'
    """
    baseline, others = _checked(sides)
    wanted = choice or Choice()
    found = [
        _measured(baseline, other, group, percentiles)
        for other in others
        for group in _in_common(baseline, other, wanted)
    ]
    figures = _figures_in_common(sides, wanted)
    if not found and not figures:
        raise ValueError(_nothing(sides, wanted))
    setup = {other.name: setup_differences(baseline, other) for other in others}
    return Comparison(
        sides=tuple(sides),
        groups=_judged(found, smallest, correction),
        loss=_trips(baseline, others, wanted, compare_loss, smallest, correction),
        throughput=_trips(
            baseline, others, wanted, compare_throughput, smallest, correction
        ),
        figures=figure_rows(sides, figures),
        setup=setup,
        warnings=(
            *_warnings(sides, setup, judged=bool(found)),
            *_left_out(sides, wanted),
        ),
        smallest=smallest,
        correction=correction,
    )


def _checked(sides: Sequence[Side]) -> tuple[Side, Sequence[Side]]:
    if not 2 <= len(sides) <= MOST_SIDES:
        raise ValueError(f"sides must be 2 to {MOST_SIDES}, got {len(sides)}")
    baseline, *others = sides
    for other in others:
        if other.latency != baseline.latency:
            raise ValueError(
                f"cannot compare {shown(baseline.name)} with {shown(other.name)}: one"
                f" has {baseline.latency or 'stages of messages'}; the other"
                f" {other.latency or 'stages of messages'}"
            )
    return baseline, others


def _in_common(baseline: Side, other: Side, choice: Choice) -> list[Group]:
    both = baseline.series.keys() & other.series.keys()
    return sorted(filter(choice.has, both), key=Group.order)


def _figures_in_common(
    sides: Sequence[Side], choice: Choice
) -> list[tuple[Group, str]]:
    """Return the figures of two sides or more, in the order of the files."""
    told = Counter(key for side in sides for key in side.figures)
    return [key for key, times in told.items() if times > 1 and choice.has(key[0])]


def _nothing(sides: Sequence[Side], choice: Choice) -> str:
    if any(choice.has(group) for side in sides for group in side.groups):
        return "nothing to compare: no kind, stage and size is in more than one input"
    if choice.words or choice.sizes:
        return "nothing to compare: no input has what --only and --sizes ask for"
    return "nothing to compare: the inputs have no latency"


def _measured(
    baseline: Side, other: Side, group: Group, percentiles: Iterable[float]
) -> _Found:
    a, b = baseline.series[group], other.series[group]
    changes = [compare_quantile(a, b, p) for p in percentiles]
    return _Found(other.name, group, changes, compare_ranks(a, b))


def _corrected(
    p_values: Sequence[float | None], correction: Correction
) -> list[float | None]:
    """Correct a family; what has no probability is not part of it."""
    known = [p for p in p_values if p is not None]
    corrected = iter(adjusted(known, correction).tolist())
    return [None if p is None else next(corrected) for p in p_values]


def _judged(
    found: Sequence[_Found], smallest: float, correction: Correction
) -> tuple[GroupChange, ...]:
    changes = [change for one in found for change in one.changes]
    p_values = iter(_corrected([c.p_value for c in changes], correction))
    ranks = _corrected([one.rank.p_value for one in found if one.rank], correction)
    made = []
    for one, rank_p in zip(found, ranks, strict=True):
        judged = [_judge(change, next(p_values), smallest) for change in one.changes]
        assert one.rank
        made.append(GroupChange(one.side, one.group, tuple(judged), one.rank, rank_p))
    return tuple(made)


def _judge(change: QuantileChange, p: float | None, smallest: float) -> Judged:
    return Judged(change, p, verdict(change.ratio, change.difference, p, smallest))


def _trips(
    baseline: Side,
    others: Sequence[Side],
    choice: Choice,
    compare: Callable[[Sequence[Trips], Sequence[Trips]], TripsChange],
    smallest: float,
    correction: Correction,
) -> tuple[JudgedTrips, ...]:
    found = [
        (other.name, protocol, compare(trips, other.trips[protocol]))
        for other in others
        for protocol, trips in baseline.trips.items()
        if protocol in other.trips and choice.has(Group(protocol, "rtt", -1))
    ]
    p_values = _corrected([change.p_value for _, _, change in found], correction)
    return tuple(
        JudgedTrips(side, protocol, change, p, _verdict_of(change, p, smallest))
        for (side, protocol, change), p in zip(found, p_values, strict=True)
    )


def _verdict_of(change: TripsChange, p: float | None, smallest: float) -> Verdict:
    word = verdict(change.ratio, change.difference, p, smallest)
    if change.ratio and word in ("slower", "faster"):
        return "faster" if word == "slower" else "slower"
    return word


def _warnings(
    sides: Sequence[Side], setup: dict[str, list[SetupDifference]], *, judged: bool
) -> Iterable[str]:
    if judged and all(len(side.runs) <= 1 for side in sides):
        yield (
            "one run on each side: the intervals hold what varies within a run, not"
            " what differs from run to run; repeat each 3 times or more, and give"
            " folders of runs"
        )
    elif judged and any(len(side.runs) <= 1 for side in sides):
        yield (
            "a side of one run is taken to vary from run to run as the other does; an"
            " odd run looks like a change: repeat it, too"
        )
    for name, differences in setup.items():
        if is_mixed_loop(differences):
            yield (
                f"{name}: one side is a closed loop, whose times count from the send"
                " call, the other an open one, whose times count from the intended"
                " time: round trips and the stages application and end_to_end are"
                " not the same quantity"
            )
    for side in sides[1:]:
        yield from _gaps(sides[0], side)
    for side in sides:
        yield from (f"{side.name}: {note}" for note in side.notes)


def _left_out(sides: Sequence[Side], choice: Choice) -> Iterable[str]:
    """Say what only one of two sides has."""
    baseline = sides[0]
    for other in sides[1:]:
        for one, without in ((baseline, other), (other, baseline)):
            only = list(filter(choice.has, one.groups - without.groups))
            if only:
                first = min(only, key=Group.order)
                named = " ".join(part for part in first[:2] if part != "latency")
                size = f" of {first.size_bytes} B" if first.size_bytes >= 0 else ""
                yield (
                    f"not compared: {plural(len(only), 'group')} that {one.name} has"
                    f" and {without.name} has not, such as {named}{size}"
                )


def _gaps(baseline: Side, other: Side) -> Iterable[str]:
    """Say where one side knows a stage of far fewer messages than the other."""
    for key in sorted(baseline.known.keys() & other.known.keys()):
        a, b = baseline.known[key], other.known[key]
        if min(a, b) > 0 and abs(a - b) > _KNOWN_ALIKE:
            yield (
                f"{' '.join(key)} is known of {100 * a:.0f}% of those of"
                f" {baseline.name}, of {100 * b:.0f}% of {other.name}: those without"
                " may be other ones"
            )
