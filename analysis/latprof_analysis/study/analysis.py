"""What was read and what it says: the document of `latprof analyze`, and the rows
that a report draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latprof_analysis.errors import UsageError
from latprof_analysis.fit.estimates import ReplyMode
from latprof_analysis.read.paths import expand, is_run_folder
from latprof_analysis.read.rows import Rows, frame_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from latprof_analysis.notebook import Picture
    from latprof_analysis.read.result import Samples
    from latprof_analysis.read.rows import Rows
    from latprof_analysis.study.scan import Progress

# Formats that are a run's table by itself.
_TABLES = ("messages", "round-trips", "exchanges")
# What a study has as DataFrames.
FRAMES = ("messages", "round_trips", "slow_messages", "exchanges", "slow_exchanges")


@dataclass
class Study:
    """Figures and rows.

    Attributes
    ----------
    document : dict
        For JSON. Of run folders it has the keys of a run's summary.json (``exchanges``,
        ``kinds``, ``round_trips``, ``fit``, ``one_way``, ``slowest``, ``warnings``)
        and more: ``histograms``, of all traffic that was watched, by group;
        ``sweeps``, the tables of sweeps that were named.
    messages, round_trips : DataFrame
        Columns of `read.schema` and ``run``; empty where there are none. Of
        large runs they are thinned evenly: ``document["thinned"]``.
    slow_messages : DataFrame
        Where they are: the slowest of those that `messages` has not.
    exchanges, slow_exchanges : DataFrame
        As of messages.
    rows : mapping of str to Rows
        What these are made from, by their names.
    setups : list of Study
        Of runs of several set-ups each set-up's own, in ``document["setups"]``, too;
        else empty.
    samples : Samples or None
        What files of other formats hold.
    stories : dict or None
        Why slow messages of these runs were slow, where a flight recorder was on and
        somebody asked.
    """

    document: dict[str, Any]
    rows: Mapping[str, Rows] = field(default_factory=dict)
    samples: Samples | None = None
    setups: list[Study] = field(default_factory=list)
    stories: dict[str, Any] | None = None

    messages = frame_of("messages")
    round_trips = frame_of("round_trips")
    slow_messages = frame_of("slow_messages")
    exchanges = frame_of("exchanges")
    slow_exchanges = frame_of("slow_exchanges")

    def plot(self) -> Picture | None:
        """Draw how long messages took by kind, or single values of other files."""
        from latprof_analysis.notebook import distributions

        if self.samples is not None:
            return self.samples.plot()
        return distributions(self._times())

    def _repr_html_(self) -> str:
        from latprof_analysis.notebook import page

        if self.samples is not None:
            return self.samples._repr_html_()
        return page(self._title(), _of_kinds(self.document), self.plot())

    def _title(self) -> str:
        from latprof_analysis.text import counted

        title = counted(len(self.document["runs"]), "run")
        if self.setups:
            title += f" of {len(self.setups)} set-ups: see `setups`"
        if self.document.get("thinned"):
            title += "; the picture is of rows thinned evenly"
        return title

    def _times(self) -> dict[str, NDArray[np.float64]]:
        """Return what messages took in ns, by kind as the document has them."""
        from latprof_analysis.notebook import times_by_kind

        found: dict[str, NDArray[np.float64]] = {}
        for protocol, rows in self.messages.groupby("protocol", observed=True):
            of = times_by_kind(rows, "kind", "end_to_end_ns")
            found |= {f"{protocol} {kind}": times for kind, times in of.items()}
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the document."""
        return self.document


def _of_kinds(document: dict[str, Any]) -> list[list[str]]:
    """Return a table's rows: of each kind what its whole messages took."""
    from latprof_analysis.text import duration

    rows = [["kind", "messages", "longest stage", "p50", "p99", "max"]]
    for kind, of in (document.get("kinds") or {}).items():
        stages = {n: f for n, f in of["stages"].items() if n != "end_to_end"}
        whole = of["stages"].get("end_to_end", {})
        longest = max(stages, key=lambda n: stages[n]["mean_ns"] or 0, default="")
        took = (whole.get(name) for name in ("p50_ns", "p99_ns", "max_ns"))
        times = ["" if one is None else duration(one) for one in took]
        rows.append([kind, f"{of['messages']:,}", longest, *times])
    return rows


def analyze(
    paths: Path | str | Iterable[Path | str],
    *,
    latency_column: str | None = None,
    unit: str | None = None,
    size_column: str | None = None,
    delimiter: str | None = None,
    numbers: str | None = None,
    lost_if: str | None = None,
    where: Sequence[str] = (),
    reply_mode: ReplyMode | None = None,
    thorough: bool = False,
    modes: bool = True,
    pool: bool = False,
    stories: bool = False,
    progress: Progress | None = None,
    dask: str | None = None,
) -> Study:
    """Read run folders or other tools' files, and find out what they say.

    Parameters
    ----------
    paths, latency_column, unit, size_column, delimiter, numbers, lost_if, where
        As in `read_samples`.
    reply_mode : 'echo' or int, optional
        How the responder answered, for formats that do not record it.
    thorough : bool
        Also fit each stage, and the round trips by rival estimators: takes seconds.
    modes : bool
        Look for the modes of each distribution, too, which is as much work as all
        else of a small run.
    pool : bool
        Take runs of different set-ups together.
    stories : bool
        Read the stories of slow messages, too, which may be megabytes.
    progress, dask
        As in `scan_runs`, for run folders.

    Raises
    ------
    ReadError
        Where a file cannot be read; its text is one line.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "ping.csv"
    >>> _ = path.write_text("size,ms\\n" + "64,2\\n8000,3.28\\n" * 20)
    >>> found = analyze(
    ...     path, latency_column="ms", unit="ms", size_column="size", reply_mode="echo"
    ... )
    >>> (kind,) = found.document["samples"]["kinds"].values()
    >>> {size: figures["p50_ns"] for size, figures in kind["sizes"].items()}
    {'64': 2000000, '8000': 3280000}
    """
    given = [paths] if isinstance(paths, Path | str) else list(paths)
    found = expand(given)
    if latency_column is None and all(_is_run(path) for path in found):
        from latprof_analysis.read.sweep_json import read_sweeps
        from latprof_analysis.study.findings import Effort
        from latprof_analysis.study.runs import study_runs, study_setups

        effort = Effort.ALL if thorough else Effort(modes)
        read = study_runs if pool else study_setups
        study = read(
            found, effort=effort, stories=stories, progress=progress, dask=dask
        )
        if sweeps := read_sweeps(map(Path, given), study.document["notes"]):
            study.document["sweeps"] = sweeps
        return study
    from latprof_analysis.read.registry import read_samples
    from latprof_analysis.study.samples import study_samples

    if dask:
        raise UsageError("a Dask cluster reads run folders only")
    samples = read_samples(
        found,
        latency_column=latency_column,
        unit=unit,
        size_column=size_column,
        delimiter=delimiter,
        numbers=numbers,
        lost_if=lost_if,
        where=where,
    )
    return study_samples(samples, reply_mode)


def _is_run(path: Path) -> bool:
    """Whether a path is a run folder, or a table of one by itself."""
    if not path.is_file():
        return is_run_folder(path)
    from latprof_analysis.read.registry import detect  # and all formats

    return detect(path) in _TABLES
