"""latprof's run folders: messages, exchanges, round trips, and what the run said.

A table is read from its ``.parquet`` where there is one and pyarrow is installed,
else from its ``.csv``; the documented columns are those of `run_schema`. Folders
of killed runs are read as far as they go: they lack summary.json, run.json says
"running", and a line without an end is left out.

Of run.json and summary.json as much is given as is what latprof writes: who reads
them from here on needs no doubts. What is wrong is left out, and named in a note.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latprof_analysis.read import parquet
from latprof_analysis.read.json_document import (
    COUNT,
    FLAG,
    NUMBER,
    POSITIVE,
    TEXT,
    Shape,
    WrongShapeError,
    any_shape,
    both,
    check_plain,
    each,
    maybe,
    named,
    read_json,
    record,
)
from latprof_analysis.read.paths import (
    HISTOGRAM_TABLE,
    TABLES,
    TEXTS,
    expand,
    text_of,
)
from latprof_analysis.read.result import (
    BadRow,
    ReadError,
    Samples,
    Skipped,
    concatenated,
    samples_frame,
)
from latprof_analysis.read.run_schema import (
    EXCHANGES,
    HISTOGRAMS,
    MESSAGES,
    ROUND_TRIPS,
)
from latprof_analysis.read.schema import Schema
from latprof_analysis.read.table import Table, completed, read_table

if TYPE_CHECKING:
    import pandas as pd

# They hold no rows: the largest seen, of 10,000 ways, has 4 MB.
MOST_BYTES = 64 << 20

_COUNTS = named(COUNT)
_PLAN = record(
    {},
    {
        "sizes": each(COUNT),
        "reply_bytes": maybe(POSITIVE),
        "interval_ns": COUNT,
        "poisson": FLAG,
        "client_cpu": maybe(COUNT),
        "server_cpu": maybe(COUNT),
        "congestion": maybe(TEXT),
        "seed": maybe(COUNT),
    },
)
_WORKLOAD = record(
    {},
    {
        "plan": maybe(_PLAN),
        "command": each(TEXT),
        "attached": maybe(record({"to": TEXT})),
        "runs": each(record({}, {"seconds": NUMBER, "late": COUNT})),
    },
)
_LAB = record(
    {},
    {
        "known": record(
            {},
            {
                "kind": TEXT,
                "rate_bps": maybe(NUMBER),
                "rate_is_token_bucket": FLAG,
                "burst_bytes": maybe(NUMBER),
                "qdisc": maybe(TEXT),
                "delay_ns": NUMBER,
                "loss": NUMBER,
                "mtu_bytes": COUNT,
                "link_header_bytes": COUNT,
            },
        ),
        "addresses": record({}, {"a": TEXT, "b": TEXT}),
        "settings": maybe(record({}, {"congestion_control": maybe(TEXT)})),
    },
)
# What is told of a run whatever else is wrong.
_NAMES: dict[str, Shape] = dict.fromkeys(
    ("name", "state", "host", "kernel", "machine", "clock"), TEXT
)
_RUN = record({}, {**_NAMES, "workload": maybe(_WORKLOAD), "lab": maybe(_LAB)})
_OF_INTERFACE = ("x_packets", "x_dropped")
_END = record(
    {},
    {
        "qdiscs": each(
            record({"kind": TEXT, "sent_packets": COUNT, "dropped_packets": COUNT})
        ),
        "interface": maybe(
            record({f"{w}{n}": COUNT for w in "rt" for n in _OF_INTERFACE})
        ),
    },
)
_SUMMARY = {
    "records": COUNT,
    "lost_records": _COUNTS,
    "counters": _COUNTS,
    "unmatched": _COUNTS,
    "no_exchange": named(_COUNTS),
    "unread_at_close": COUNT,
    "link_counters": maybe(
        record(
            {},
            {
                "a": _END,
                "b": _END,
                "netem": maybe(named(_END)),
                "emulator": maybe(
                    named(both(named(NUMBER), record({"packets_in": COUNT})))
                ),
            },
        )
    ),
    "untraced_time": record({"periods": COUNT, "seconds": NUMBER}),
    "capabilities": each(
        record(
            {"quantity": TEXT, "state": TEXT},
            {"source": TEXT, "reason": TEXT, "remedy": TEXT},
        )
    ),
    "cost": record(
        {
            "agent_cpu_seconds": NUMBER,
            "wall_seconds": NUMBER,
            "agent_cpu_share": NUMBER,
            "agent_peak_bytes": COUNT,
        },
        {"probes_cpu_share": maybe(NUMBER)},
    ),
    "warnings": each(TEXT),
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
        _RUN(document, "")
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
            _SUMMARY.get(part, any_shape)(value, part)
        except WrongShapeError as error:
            odd.append(f"{error}; {part} is left out")
        else:
            found[part] = value
    return found


RTT = (
    "response time, request sent (open loop: intended) to reply read: the"
    " responder's own time is in it"
)
END_TO_END = "end to end, from the message made (or sent) to read"
RESPONSE = "response, first send of the request to last byte of the reply read"
SCHEMAS = dict(zip(TABLES, (MESSAGES, ROUND_TRIPS, EXCHANGES), strict=True))
# Not of single messages: `histograms` reads it.
SCHEMAS[HISTOGRAM_TABLE] = HISTOGRAMS


@dataclass
class Runs:
    """What one or many run folders hold.

    Attributes
    ----------
    messages, round_trips, exchanges : DataFrame
        The columns of `run_schema`, and ``run`` (category): the folder. Blank is
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

    def samples(self) -> Samples:
        """Return the round trips as `Samples`; where there are none, the messages.

        Where there are none of these either, the exchanges.
        """
        timed, latency = _round_trips(self.round_trips), RTT
        if timed.empty:
            timed, latency = _messages(self.messages), END_TO_END
        if timed.empty and len(self.exchanges):
            timed, latency = _exchanges(self.exchanges), RESPONSE
        return self.samples_of(timed, latency)

    def samples_of(self, timed: pd.DataFrame, latency: str) -> Samples:
        """Return rows that were timed, with all else that was read."""
        meta = {"latency": latency, "notes": self.notes, "runs": self.documents}
        return Samples(timed, self.skipped, self.skipped_rows, "run", meta)


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
    names = run_names(folders)
    parts: dict[str, list[pd.DataFrame]] = {table: [] for table in TABLES}
    runs = Runs.empty()
    for folder, name in zip(folders, names, strict=True):
        runs.documents[name] = read_documents(folder, name, runs.notes)
        for table in TABLES:
            read = _table(folder, table, SCHEMAS[table], columns)
            _note(runs, name, table, read)
            parts[table].append(_with_run(read.frame, name))
    for table, frames in parts.items():
        setattr(runs, table, concatenated(frames))
    return runs


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


def _table(
    folder: Path, table: str, schema: Schema, columns: Collection[str] | None
) -> Table:
    """Read a table in whichever form it is there; empty where there is none."""
    file = table_file(folder, table)
    if file is None:
        skipped = Skipped(folder / f"{table}.csv")
        return completed([], skipped, schema, [], columns)
    if file.suffix == ".parquet":
        return parquet.read_parquet(file, schema, columns=columns)
    return read_table(file, schema, columns=columns)


def table_file(folder: Path, table: str) -> Path | None:
    """Return which of a table's files to read, None where there is none.

    Parquet where it is there and readable, or where there is nothing else.
    """
    texts = (folder / f"{table}{end}" for end in TEXTS)
    text = next((path for path in texts if path.is_file()), None)
    binary = folder / f"{table}.parquet"
    if binary.is_file() and not (text and not parquet.is_readable(binary)):
        return binary
    return text


def _note(runs: Runs, name: str, table: str, read: Table) -> None:
    runs.skipped += read.skipped.in_order()
    runs.skipped_rows += read.skipped.count
    if read.ignored_columns:
        ignored = ", ".join(read.ignored_columns[:8])
        runs.notes.append(f"{name}: columns of {table} that are not known: {ignored}")


def _with_run(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    import pandas as pd  # takes long; who scans run folders has no need of it

    codes = np.zeros(len(frame), np.int8)
    frame["run"] = pd.Categorical.from_codes(codes, categories=[name])
    return frame


def _round_trips(table: pd.DataFrame) -> pd.DataFrame:
    return samples_frame(
        len(table),
        table["run"].array,
        kind=table["protocol"].array,
        size_bytes=table["size_bytes"].array,
        latency_ns=table["rtt_ns"].to_numpy("float64", na_value=np.nan),
        lost=table["lost"].to_numpy("int64", na_value=0) > 0,
    )


def _messages(table: pd.DataFrame) -> pd.DataFrame:
    """Return the messages that were seen from end to end."""
    table = table[table["end_to_end_ns"].notna()]
    return samples_frame(
        len(table),
        table["run"].array,
        kind=table["kind"].array,
        size_bytes=table["size_bytes"].array,
        latency_ns=table["end_to_end_ns"].to_numpy("float64"),
    )


def _exchanges(table: pd.DataFrame) -> pd.DataFrame:
    """Return the exchanges of which the client's end was seen."""
    table = table[table["response_ns"].notna() & (table["kind"] != "warmup")]
    return samples_frame(
        len(table),
        table["run"].array,
        kind=table["way"].array,
        size_bytes=table["request_bytes"].array,
        latency_ns=table["response_ns"].to_numpy("float64"),
    )


def read_messages(path: Path) -> Samples:
    """Read a messages file that stands by itself, CSV or Parquet."""
    return _alone(path, "messages")


def read_round_trips(path: Path) -> Samples:
    """Read a round_trips file that stands by itself, CSV or Parquet."""
    return _alone(path, "round_trips")


def read_exchanges(path: Path) -> Samples:
    """Read an exchanges file that stands by itself, CSV or Parquet."""
    return _alone(path, "exchanges")


def _alone(path: Path, table: str) -> Samples:
    timed, latency = {
        "messages": (_messages, END_TO_END),
        "round_trips": (_round_trips, RTT),
        "exchanges": (_exchanges, RESPONSE),
    }[table]
    reader = parquet.read_parquet if parquet.is_parquet(path) else read_table
    read = reader(path, SCHEMAS[table])
    runs = Runs.empty()
    _note(runs, path.name, table, read)
    return runs.samples_of(timed(_with_run(read.frame, text_of(path))), latency)
