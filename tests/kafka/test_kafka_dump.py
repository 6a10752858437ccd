"""Kafka's own DumpLogSegments over our segments: batches, records and indexes are what they must be."""

import re
import shutil
from pathlib import Path

import pytest
from kafka_tools import dump
from written import CODECS, write

from pyspark_log import Store

pytestmark = pytest.mark.usefixtures("kafka")

RECORD = re.compile(
    r"\| offset: (\d+) CreateTime: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: -1 headerKeys: \[(.*?)\]"
    r"(?: key: (.*?))?(?: payload: (.*))?"
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store.create(tmp_path_factory.mktemp("dumped") / "store") as store:
        yield store


@pytest.fixture(scope="module")
def written(store):
    """The rows of each topic and partition."""
    return {codec: write(store, codec, configs={"compression.type": codec}) for codec in CODECS}


def files_of(store, suffix, topic="*"):
    return sorted(Path(store.path, "data").glob(f"{topic}-*/*{suffix}"))


def test_deep_iteration_prints_what_was_written(store, written):
    paths = files_of(store, ".log")
    printed = re.split(r"^Dumping (.*)\n", dump("--deep-iteration", *paths), flags=re.M)[1:]
    found = {(codec, partition): [] for codec in CODECS for partition in range(2)}
    for path, lines in zip(printed[::2], printed[1::2], strict=True):
        codec, _, partition = Path(path).parent.name.rpartition("-")
        batches = re.findall(r"^baseOffset: .* compresscodec: (\w+) crc: \d+ isvalid: (\w+)$", lines, flags=re.M)
        assert set(batches) == {("none" if codec == "uncompressed" else codec, "true")}
        found[codec, int(partition)] += [
            RECORD.fullmatch(line).groups() for line in lines.splitlines() if line.startswith("|")
        ]
    assert len(printed) // 2 == len(paths) > 3 * len(found)
    assert found == {
        (codec, partition): [as_printed(row) for row in rows]
        for codec, partitions in written.items()
        for partition, rows in enumerate(partitions)
    }


def as_printed(row):
    def size(data):
        return "-1" if data is None else str(len(data))

    def text(data):
        return None if data is None else data.decode()

    return (
        str(row.offset),
        str(row.timestamp),
        size(row.key),
        size(row.value),
        ",".join(name for name, _ in row.headers),
        text(row.key),
        text(row.value),
    )


def test_indexes_are_borne_out_by_their_logs(store, written):
    paths = files_of(store, "index")
    empty = [f"{path} is empty." for path in paths if path.suffix == ".index" and not path.stat().st_size]
    assert len(empty) < len(paths) / 10
    verified = dump("--verify-index-only", *paths).splitlines()
    assert [line for line in verified if line not in empty] == [f"Dumping {path}" for path in paths]
    sane = dump("--index-sanity-check", *paths).splitlines()
    assert [line for line in sane if not line.startswith("Dumping ")] == [
        f"{path} is empty." if f"{path} is empty." in empty else f"{path} passed sanity check." for path in paths
    ]


def test_a_wrong_index_is_reported(store, written, tmp_path):
    """So the silence in the test above is that of a tool that does check."""
    path = max(files_of(store, ".index"), key=lambda path: path.stat().st_size)
    shutil.copytree(path.parent, tmp_path / "t-0")
    wrong = [tmp_path / "t-0" / path.name, tmp_path / "t-0" / f"{path.stem}.timeindex"]
    # The last byte of the first entry's offset, and of the first entry's time.
    for path, at in zip(wrong, (3, 7), strict=True):
        entries = path.read_bytes()
        path.write_bytes(entries[:at] + bytes([entries[at] ^ 1]) + entries[at + 1 :])
    printed = dump("--verify-index-only", *wrong)
    assert f"Mismatches in :{wrong[0]}" in printed
    assert f"Found timestamp mismatch in :{wrong[1]}" in printed
