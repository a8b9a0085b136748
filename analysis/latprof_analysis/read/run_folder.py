"""latprof's run folders: tables, histograms of what was watched, what the run said.

A table is read from its ``.parquet`` where there is one, else from its ``.csv``; the
documented columns are those of `schema`. Folders of killed runs are read as far as
they go: they lack summary.json, run.json says "running", and a line without an end is
left out.

Of run.json and summary.json as much is given as is what latprof writes: who reads
them from here on needs no doubts. What is wrong is left out, and named in a note.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from latprof_analysis.read.json_document import (
    ANY,
    COUNT,
    DIFFERENCE,
    FLAG,
    NUMBER,
    POSITIVE,
    TEXT,
    Maybe,
    Shape,
    WrongShapeError,
    check_plain,
    check_shape,
    read_json,
)
from latprof_analysis.read.mesh_shape import LAB_HOSTS, MESH, MESH_PLAN
from latprof_analysis.read.parquet import convert, is_parquet, is_readable
from latprof_analysis.read.paths import (
    HISTOGRAM_TABLE,
    TABLE_FILES,
    TABLES,
    TEXTS,
    expand,
    text_of,
)
from latprof_analysis.read.result import (
    BadRow,
    Format,
    ReadError,
    Samples,
    Seen,
    concatenated,
    losses_of,
    samples_frame,
)
from latprof_analysis.read.rows import Rows, no_rows
from latprof_analysis.read.schema import (
    EXCHANGES,
    HISTOGRAMS,
    MESSAGES,
    ROUND_TRIPS,
    alone,
)
from latprof_analysis.read.table import TableReader
from latprof_analysis.stages import APART, BLANK
from latprof_analysis.stats.kernel_histogram import CoarseHistogram, bucket_of
from latprof_analysis.write.whole_file import writing

if TYPE_CHECKING:
    import pandas as pd

    from latprof_analysis.notebook import Picture


# They hold no rows: the largest seen, of 10,000 ways, has 4 MB.
MOST_BYTES = 64 << 20

_PLAN: Shape = {
    "sizes?": [COUNT],
    "reply_bytes?": Maybe(POSITIVE),
    "interval_ns?": COUNT,
    "train_messages?": COUNT,
    "train_gap_ns?": COUNT,
    "poisson?": FLAG,
    "client_cpu?": Maybe(COUNT),
    "server_cpu?": Maybe(COUNT),
    "congestion?": Maybe(TEXT),
    "seed?": Maybe(COUNT),
    "to?": TEXT,
}
_BULK: Shape = {
    "protocols": [TEXT],
    "channels": [POSITIVE],
    "direction": TEXT,
    "offer_bps": COUNT,
    "find_rate": Maybe(NUMBER),
    "to?": TEXT,
    "device?": TEXT,
}
_OPS: Shape = {"ops": [TEXT], "backends": [TEXT], "rounds": COUNT, "to?": TEXT}
_THROUGHPUT: Shape = {"average_bps": Maybe(NUMBER), "max_bps": Maybe(NUMBER)}
_BULK_DIRECTION: Shape = {
    **{
        name: Maybe(COUNT)
        for name in (
            *(
                "sent",
                "received",
                "lost?",
                "loss_runs",
                "longest_loss_run",
                "longest_loss_run_at_most?",
                "reordered",
            ),
            *("duplicates", "retransmits", "receive_buffer_bytes"),
        )
    },
    "loss": Maybe(NUMBER),
    "client": _THROUGHPUT,
    "server": _THROUGHPUT,
    "slots": {"slot_ns": COUNT, "sent_bps": [NUMBER], "received_bps": [NUMBER]},
}
_BALANCE: Shape = {
    "sent": COUNT,
    "received": COUNT,
    "places": [{"place": TEXT, "packets": COUNT}],
    "session_packets": COUNT,
    "unexplained": Maybe(DIFFERENCE),
}
_BULK_PART: Shape = {
    "protocol": TEXT,
    "channels": POSITIVE,
    "offered_bps?": COUNT,
    "stopped": FLAG,
    "directions": {ANY: _BULK_DIRECTION},
    "balance": Maybe(_BALANCE),
}
_TRIAL: Shape = {
    "seconds": NUMBER,
    "offered_bps": NUMBER,
    "sent_bps": NUMBER,
    "received_bps": NUMBER,
    "loss": NUMBER,
    "passed": FLAG,
}
_BULK_SEARCH: Shape = {
    "channels": POSITIVE,
    "most_loss": NUMBER,
    "resolution": NUMBER,
    "rate_bps": NUMBER,
    "failed_bps": Maybe(NUMBER),
    "held_back": FLAG,
    "bound": [TEXT],
    "trial_seconds": NUMBER,
    "trials": [_TRIAL],
    "confirmation": Maybe(_TRIAL),
}
_WORKLOAD: Shape = {
    "plan?": Maybe(_PLAN),
    "command?": [TEXT],
    "attached?": Maybe({"to": TEXT}),
    "ops?": Maybe(_OPS),
    "mesh?": Maybe(MESH_PLAN),
    "bulk?": Maybe(_BULK),
    "runs?": [
        {
            "seconds?": NUMBER,
            **dict.fromkeys(("late?", "begun_again?"), COUNT),
            "begin_ns?": COUNT,
            "trial?": FLAG,
            "bulk?": _BULK_PART,
            "search?": _BULK_SEARCH,
        }
    ],
}
_LINK: Shape = {
    "kind?": TEXT,
    "rate_bps?": Maybe(NUMBER),
    "rate_is_token_bucket?": FLAG,
    "burst_bytes?": Maybe(NUMBER),
    "qdisc?": Maybe(TEXT),
    "leaf?": TEXT,
    "delay_ns?": NUMBER,
    "loss?": NUMBER,
    "mtu_bytes?": COUNT,
    "link_header_bytes?": COUNT,
}
_LAB: Shape = {
    "known?": _LINK,
    "addresses?": {ANY: TEXT},
    "settings?": Maybe({"congestion_control?": Maybe(TEXT)}),
}
# Fields of a run that are read whatever else is wrong.
_NAMES = ("name", "state", "host", "kernel", "machine", "clock")
_RUN: Shape = {
    **{f"{name}?": TEXT for name in _NAMES},
    "workload?": Maybe(_WORKLOAD),
    "lab?": Maybe(_LAB),
}
_QDISC: Shape = {"kind": TEXT, "sent_packets": COUNT, "dropped_packets": COUNT}
_INTERFACE = ("rx_packets", "rx_dropped", "tx_packets", "tx_dropped")
_END: Shape = {
    "qdiscs": [_QDISC],
    "interface?": Maybe(dict.fromkeys(_INTERFACE, COUNT)),
}
_EMULATED = dict.fromkeys(("packets_in", "dropped_queue", "dropped_loss"), COUNT)
_LINK_COUNTERS: Shape = {
    **{f"{host}?": _END for host in LAB_HOSTS},
    "ports?": {ANY: _END},
    "netem?": {ANY: _END},
    "emulator?": {ANY: {ANY: NUMBER, **_EMULATED}},
}
_TIMES: Shape = {"n": COUNT, ANY: Maybe(NUMBER)}
_PHASE: Shape = {
    "sent": COUNT,
    "lost": COUNT,
    "rtt": _TIMES,
    "round_trips_per_minute": Maybe(NUMBER),
    "curve": [[NUMBER]],
}
_FLOWS_END = ("sent_bps", "received_bps")
_FLOWS: Shape = {
    **dict.fromkeys(("load", "protocol", "direction"), TEXT),
    "flows": COUNT,
    "failure": Maybe(TEXT),
    **{
        way: Maybe({name: Maybe(NUMBER) for name in _FLOWS_END})
        for way in ("up", "down")
    },
}
_QUEUE: Shape = {
    **dict.fromkeys(("way", "place", "interface", "kind", "handle", "parent"), TEXT),
    "n": COUNT,
    **dict.fromkeys(("median_bytes", "max_bytes"), NUMBER),
    **dict.fromkeys(("median_ns", "max_ns"), Maybe(NUMBER)),
}
_LOAD: Shape = {
    "asked": [TEXT],
    "open_loop": FLAG,
    "rate_bps": Maybe(NUMBER),
    "protocols": {
        ANY: {
            "idle": _PHASE,
            "loaded": Maybe(_PHASE),
            "stages": [{"way": TEXT, "stage": TEXT, "idle": _TIMES, "loaded": _TIMES}],
            "queues": [_QUEUE],
            "flows": [_FLOWS],
        }
    },
}
_WALL_WORD: Shape = {
    **dict.fromkeys(("by", "outcome", "why"), TEXT),
    "error_ns": Maybe(NUMBER),
}
_CLOCKS: Shape = {
    "reference": TEXT,
    "pairs": [
        {
            "hosts": [TEXT],
            **dict.fromkeys(("state", "reason"), TEXT),
            **dict.fromkeys(("wall_offset_ns", "drift_ppb"), DIFFERENCE),
            **dict.fromkeys(("error_ns", "largest_error_ns"), Maybe(NUMBER)),
            "base_round_trip_ns": Maybe(NUMBER),
            "wall_error_ns?": NUMBER,
            "wall_word?": Maybe(_WALL_WORD),
            "drift_error_ppb?": Maybe(NUMBER),
            **{name: [COUNT] for name in ("packets", "flows", "messages")},
            "unknown": [{ANY: COUNT}],
            "ways": [{"transit": _TIMES, "queueing": _TIMES}],
            "over_time": {
                "t_s": [NUMBER],
                "offset_ns": [DIFFERENCE],
                **{name: [Maybe(DIFFERENCE)] for name in ("low_ns", "high_ns")},
                "state": [TEXT],
            },
        }
    ],
    "wall_clocks_set?": [
        {"host": TEXT, "times": COUNT, "by_ns": DIFFERENCE, "error_ns": NUMBER}
    ],
    "loops": [{"hosts": [TEXT], "rms_ns": NUMBER, "max_ns": NUMBER}],
}
_SUMMARY: dict[str, Shape] = {
    "clocks": _CLOCKS,
    "hosts": [{"name": TEXT, "kernel": TEXT}],
    "load": _LOAD,
    "records": COUNT,
    "lost_records": {ANY: COUNT},
    "counters": {ANY: COUNT},
    "unmatched": {ANY: COUNT},
    "no_exchange": {ANY: {ANY: COUNT}},
    "no_exchange_bytes": {ANY: {ANY: COUNT}},
    "least_responses_ns": {ANY: COUNT},
    "in_flight_bytes": {ANY: NUMBER},
    "unanswered": {ANY: {"count": COUNT, "outcomes": {ANY: COUNT}, "waited": _TIMES}},
    "handshakes": {ANY: _TIMES},
    "unread_at_close": COUNT,
    "link_counters": Maybe(_LINK_COUNTERS),
    "untraced_time": {"periods": COUNT, "seconds": NUMBER},
    "capabilities": [
        {
            "quantity": TEXT,
            "state": TEXT,
            "source": TEXT,
            "reason": TEXT,
            "remedy": TEXT,
        }
    ],
    "cost": {
        "agent_cpu_seconds": NUMBER,
        "wall_seconds": NUMBER,
        "agent_cpu_share": NUMBER,
        "agent_peak_bytes": COUNT,
        "probes_cpu_share": Maybe(NUMBER),
    },
    "warnings": [TEXT],
    "mesh": Maybe(MESH),
    "ops": Maybe({"remarks?": [TEXT]}),
}


def read_documents(folder: Path, name: str, notes: list[str]) -> dict[str, Any]:
    """Return run.json and summary.json as far as there; notes on what is not."""
    found: dict[str, Any] = {}
    for part, check in (("run", _checked_run), ("summary", _checked_summary)):
        path = folder / f"{part}.json"
        if not path.is_file():
            notes.append(f"{name}: {path.name} is missing: the run was killed")
            continue
        try:
            document = read_json(path, MOST_BYTES)
        except ReadError as error:
            notes.append(f"{name}: {error}")
            continue
        odd: list[str] = []
        found[part] = check(document, odd)
        notes += [
            f"{name}: {path.name} is not as latprof writes it: {why}" for why in odd
        ]
    state = found.get("run", {}).get("state")
    if state not in (None, "done"):
        notes.append(f"{name}: run.json says that the run is {state!s:.20}")
    return found


def _checked_run(document: dict[str, Any], odd: list[str]) -> dict[str, Any]:
    """Return a run.json; of one that is wrong anywhere no more than names."""
    try:
        check_plain(document, "")
        check_shape(document, _RUN, "")
    except WrongShapeError as error:
        odd.append(f"{error}; no fit of its round trips")
        return {k: document[k] for k in _NAMES if isinstance(document.get(k), str)}
    return document


def _checked_summary(document: dict[str, Any], odd: list[str]) -> dict[str, Any]:
    """Return the parts of a summary.json that are right."""
    found = {}
    for part, value in document.items():
        try:
            check_plain(value, part)
            if part in _SUMMARY:
                check_shape(value, _SUMMARY[part], part)
        except WrongShapeError as error:
            odd.append(f"{error}; {part} is left out")
        else:
            found[part] = value
    return found


class _Timed(NamedTuple):
    """How the rows of a table become samples."""

    known_by: set[str]  # columns of a file that stands by itself
    kind: str
    size_bytes: str
    latency_ns: str
    latency: str


_TIMED = {
    "messages": _Timed(
        {"protocol", "kind", "size_bytes", "send_ns"},
        "kind",
        "size_bytes",
        "end_to_end_ns",
        "end to end, from the message made (or sent) to read",
    ),
    "round_trips": _Timed(
        {"protocol", "sequence", "size_bytes", "rtt_ns", "lost"},
        "protocol",
        "size_bytes",
        "rtt_ns",
        "response time, request sent (open loop: intended) to reply read: the"
        " responder's own time is in it",
    ),
    "exchanges": _Timed(
        {"protocol", "way", "kind", "response_ns"},
        "way",
        "request_bytes",
        "response_ns",
        "response, first send of the request to last byte of the reply read",
    ),
}
SCHEMAS = dict(zip(TABLES, (MESSAGES, ROUND_TRIPS, EXCHANGES), strict=True))
# Not of single messages: `histograms` reads it.
SCHEMAS[HISTOGRAM_TABLE] = HISTOGRAMS


@dataclass
class Runs:
    """What one or many run folders hold.

    Attributes
    ----------
    messages, round_trips, exchanges : DataFrame
        The columns of `schema`, and ``run`` (category): the folder. Blank is
        missing: NA.
    documents : dict
        Of each run its ``run.json`` and ``summary.json``, as far as there.
    notes : list of str
        What a reader should know: a run that was killed, columns not known.
    skipped, skipped_rows
        As in `Samples`.
    """

    messages: pd.DataFrame
    round_trips: pd.DataFrame
    exchanges: pd.DataFrame
    documents: dict[str, dict[str, Any]]
    notes: list[str]
    skipped: list[BadRow]
    skipped_rows: int

    @classmethod
    def empty(cls) -> Runs:
        """Begin with nothing."""
        import pandas as pd

        return cls(pd.DataFrame(), pd.DataFrame(), pd.DataFrame(), {}, [], [], 0)

    def plot(self) -> Picture | None:
        """Draw how long what `samples` gives took; None where there is nothing."""
        return self.samples().plot()

    def _repr_html_(self) -> str:
        from latprof_analysis.text import counted

        of = ", ".join(
            f"{len(rows):,} {name}"
            for name, rows in (
                ("messages", self.messages),
                ("exchanges", self.exchanges),
                ("round trips", self.round_trips),
            )
        )
        head = f"<p>{counted(len(self.documents), 'run')}: {of}</p>"
        if self.messages.empty and self.round_trips.empty and self.exchanges.empty:
            return head
        return head + self.samples()._repr_html_()

    def samples(self) -> Samples:
        """Return the round trips as `Samples`; where there are none, the messages.

        Where there are none of these either, the exchanges.
        """
        table = "round_trips"
        if self.round_trips.empty:
            seen = self.messages["end_to_end_ns"].notna().any()
            table = "messages" if seen or self.exchanges.empty else "exchanges"
        return self.samples_of(table)

    def samples_of(self, table: str) -> Samples:
        """Return the rows of a table that were timed, or lost."""
        timed, rows = _TIMED[table], getattr(self, table)
        if table == "round_trips":
            rows = alone(rows)
            lost = rows["lost"].to_numpy("int64", na_value=0) > 0
        else:
            lost, rows = False, rows[rows[timed.latency_ns].notna()]
        if table == "exchanges":
            rows = rows[~rows["kind"].isin(APART)]
        frame = samples_frame(
            len(rows),
            rows["run"].array,
            kind=rows[timed.kind].array,
            size_bytes=rows[timed.size_bytes].array,
            latency_ns=rows[timed.latency_ns].to_numpy("float64", na_value=np.nan),
            lost=lost,
        )
        meta = {"latency": timed.latency, "notes": self.notes, "runs": self.documents}
        losses = losses_of(frame) if table == "round_trips" else {}
        return Samples(
            frame, self.skipped, self.skipped_rows, "run", meta, losses=losses
        )


def read_runs(
    paths: Path | str | Iterable[Path | str], *, columns: Collection[str] | None = None
) -> Runs:
    """Read run folders, folders of them and patterns together.

    `columns` limits what is kept of each table.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> header = "protocol,sequence,size_bytes,reply_bytes,sent_ns,rtt_ns,lost"
    >>> path = folder / "round_trips.csv"
    >>> _ = path.write_text(header + "\\ntcp,1,64,64,1000,2500,0\\n")
    >>> runs = read_runs(folder)
    >>> runs.round_trips["rtt_ns"].tolist(), len(runs.messages)
    ([2500], 0)
    """
    folders = expand(paths)
    parts: dict[str, list[pd.DataFrame]] = {table: [] for table in TABLES}
    runs = Runs.empty()
    for folder, name in zip(folders, run_names(folders), strict=True):
        runs.documents[name] = read_documents(folder, name, runs.notes)
        for table in TABLES:
            frame = no_rows(SCHEMAS[table].limited(columns)).frame()
            if file := table_file(folder, table):
                frame = _read(file, table, name, runs, columns)
            parts[table].append(_with_run(frame, name))
    for table, frames in parts.items():
        setattr(runs, table, concatenated(frames))
    return runs


def _read(
    file: Path,
    table: str,
    name: str,
    runs: Runs,
    columns: Collection[str] | None = None,
) -> pd.DataFrame:
    """Read a file of a run; its wrong rows and notes are added to the others."""
    reader = TableReader(file, SCHEMAS[table], columns, parquet=is_parquet(file))
    frame = reader.frame()
    runs.skipped += reader.skipped.in_order()
    runs.skipped_rows += reader.skipped.count
    if reader.ignored:
        ignored = ", ".join(reader.ignored[:8])
        runs.notes.append(f"{name}: columns of {table} that are not known: {ignored}")
    return frame


def _with_run(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    import pandas as pd  # takes long; who scans run folders has no need of it

    codes = np.zeros(len(frame), np.int8)
    frame["run"] = pd.Categorical.from_codes(codes, categories=[name])
    return frame


def run_names(folders: Sequence[Path]) -> list[str]:
    """Name runs by their folders, by the whole path where names meet twice.

    Examples
    --------
    >>> run_names([Path("a/1"), Path("a/2"), Path("b/2")])
    ['1', 'a/2', 'b/2']
    """
    short = [text_of(folder.name or folder) for folder in folders]
    return [
        name if short.count(name) == 1 else text_of(folder)
        for name, folder in zip(short, folders, strict=True)
    ]


def table_file(folder: Path, table: str) -> Path | None:
    """Return which of a table's files to read, None where there is none.

    Parquet where it is there and readable, or where there is nothing else.
    """
    texts = (folder / f"{table}{end}" for end in TEXTS)
    text = next((path for path in texts if path.is_file()), None)
    binary = folder / f"{table}.parquet"
    if binary.is_file() and not (text and not is_readable(binary)):
        return binary
    return text


def _matches(table: str, seen: Seen) -> bool:
    return _TIMED[table].known_by <= set(seen.columns)


def _read_alone(table: str, path: Path) -> Samples:
    """Read a table that stands by itself, CSV or Parquet."""
    runs = Runs.empty()
    frame = _read(path, table, path.name, runs)
    setattr(runs, table, _with_run(frame, text_of(path)))
    return runs.samples_of(table)


TABLE_FORMATS = {
    table.replace("_", "-"): Format(
        partial(_matches, table), partial(_read_alone, table)
    )
    for table in TABLES
}


def write_parquet(folder: Path | str) -> list[Path]:
    """Write the tables of a run folder as Parquet, cell by cell; the CSVs stay.

    A file appears when it is whole. What is wrong in a row stays in it, for the
    readers to report; columns that are not known are text. Returns the files written.
    Raises ReadError where a CSV is no table.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> path = folder / "messages.csv"
    >>> _ = path.write_text("protocol,kind,size_bytes,hops\\ntcp,request,64,\\n")
    >>> [written.name for written in write_parquet(folder)]
    ['messages.parquet']
    """
    folder = Path(folder)
    texts = [(table, folder / f"{table}.csv") for table in TABLES]
    there = [(table, path) for table, path in texts if path.is_file()]
    if not there:
        raise ReadError(folder, f"the folder has none of {', '.join(TABLE_FILES)}")
    for table, path in there:
        with writing(path.with_suffix(".parquet")) as file:
            convert(path, file, SCHEMAS[table])
    return [path.with_suffix(".parquet") for _, path in there]


_WORDS = HISTOGRAMS.texts
_OF_ALL = ("sum_ns", "unmeasured")  # in the row of the lowest bucket
_NUMBERS = ("bucket_low_ns", "count", *_OF_ALL)
# Of each watched host there are at most 257 groups; 8 kB for each of their quantities.
MOST_HISTOGRAMS = 50_000
EVERYTHING = "all traffic"  # where nothing was grouped


class Histogrammed(NamedTuple):
    """What a histogram is of."""

    group: str
    quantity: str


Histograms = dict[Histogrammed, CoarseHistogram]


def read_histograms(paths: Iterable[Path], notes: list[str]) -> Histograms:
    """Sum up the histograms of run folders over all their intervals.

    Folders without any, as of older versions and of `latprof run`, add nothing. What
    is left out is named in `notes`.

    Raises
    ------
    ReadError
        Where a file is no table of histograms, or most of its rows are wrong.
    """
    found: Histograms = {}
    for path in paths:
        file = table_file(path, HISTOGRAM_TABLE) if path.is_dir() else None
        if not file:
            continue
        reader = TableReader(
            file,
            HISTOGRAMS,
            [*_WORDS, *_NUMBERS],
            parquet=is_parquet(file),
            threads=False,
        )
        for batch in reader:
            _add(found, batch)
            if len(found) > MOST_HISTOGRAMS:
                raise ReadError(file, f"it has more than {MOST_HISTOGRAMS} histograms")
        reader.skipped.check(reader.rows)
        if skipped := reader.skipped.count:
            notes.append(f"{file}: rows that were wrong and left out: {skipped}")
    return found


def _add(found: Histograms, batch: Rows) -> None:
    bucket = bucket_of(batch.numbers["bucket_low_ns"])
    of_all = [batch.numbers[name] for name in _OF_ALL]
    sums, unmeasured = (np.where(each == BLANK, 0, each) for each in of_all)
    for words, rows in batch.split(*_WORDS):
        *group, quantity = (word or "" for word in words)
        key = Histogrammed(" ".join(filter(None, group)) or EVERYTHING, quantity)
        histogram = found.setdefault(key, CoarseHistogram())
        np.add.at(histogram.counts, bucket[rows], batch.numbers["count"][rows])
        histogram.sum_ns += sum(sums[rows].tolist())
        histogram.unmeasured += sum(unmeasured[rows].tolist())
