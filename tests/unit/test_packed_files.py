"""What gzip packed is read as what it holds, and no more than a file can hold."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from latprof_analysis.read import ReadError, batches, detect, read_runs, read_samples
from latprof_analysis.study.analysis import analyze

DATA = Path(__file__).parent.parent / "data"
FILES = sorted(
    path for path in DATA.iterdir() if path.suffix in (".txt", ".csv", ".json")
)


@pytest.fixture
def packed(tmp_path):
    """Pack bytes into a file."""

    def pack(content: bytes) -> Path:
        path = tmp_path / "file"
        path.write_bytes(gzip.compress(content))
        return path

    return pack


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_packed_file_is_read_as_what_it_holds(path, packed):
    try:
        plain = read_samples(path)
    except ReadError as refusal:
        with pytest.raises(ReadError) as again:
            read_samples(packed(path.read_bytes()))
        assert str(again.value).split(": ", 1)[1] == str(refusal).split(": ", 1)[1]
        return
    found = read_samples(packed(path.read_bytes()))
    assert found.format == plain.format
    assert found.skipped_rows == plain.skipped_rows
    columns = [name for name in plain.frame if name != "source"]
    assert found.frame[columns].equals(plain.frame[columns])


def test_a_packed_table_of_any_columns_is_read(packed):
    path = packed(b"size,ms\n64,1.5\n64,2.5\n")
    samples = read_samples(path, latency_column="ms", unit="ms", size_column="size")
    assert samples.frame["latency_ns"].tolist() == [1.5e6, 2.5e6]


def test_a_run_whose_tables_were_packed_is_the_same_run(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "PIECE_BYTES", 1000)
    plain, folder = tmp_path / "plain" / "run", tmp_path / "packed" / "run"
    shutil.copytree(DATA / "run", plain)
    shutil.copytree(DATA / "run", folder)
    for table in folder.glob("*.csv"):
        table.with_name(table.name + ".gz").write_bytes(
            gzip.compress(table.read_bytes())
        )
        table.unlink()
    assert detect(folder) == "run"
    assert read_runs(folder).messages.equals(read_runs(plain).messages)
    assert analyze(folder).document == analyze(plain).document


def test_what_is_broken_off_or_damaged_is_refused(tmp_path):
    content = (DATA / "irtt.json.gz").read_bytes()
    path = tmp_path / "irtt.json.gz"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ReadError, match="gzip data break off"):
        read_samples(path)
    middle = len(content) // 2
    path.write_bytes(content[:middle] + b"latprof" * 9 + content[middle + 63 :])
    with pytest.raises(ReadError, match=r"gzip data are damaged|JSON|UTF-8"):
        read_samples(path)
    path.write_bytes(content[:4])
    with pytest.raises(ReadError, match="gzip data break off"):
        read_samples(path)
    path.write_bytes(gzip.compress(content))
    with pytest.raises(ReadError, match="packed by gzip twice; unpack it once"):
        read_samples(path)
    path.write_bytes(gzip.compress(b""))
    with pytest.raises(ReadError, match="it is empty"):
        read_samples(path)


@pytest.mark.parametrize("row", [b"64,2\n", b"\0" * 64, b'{"a":1,'])
def test_what_unpacks_to_much_more_than_it_is_is_refused(row, tmp_path):
    path = tmp_path / "bomb"
    with gzip.open(path, "wb") as file:
        file.write(b"size,ms\n")
        for _ in range(100):
            file.write(row * (1_000_000 // len(row)))
    assert path.stat().st_size < 1_000_000  # of 100,000,000
    with pytest.raises(ReadError, match="more than 200 times its size") as refusal:
        read_samples(path, latency_column="ms", unit="ms", size_column="size")
    assert "\n" not in str(refusal.value)
