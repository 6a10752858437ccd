"""Files that are far larger than any of their kind: an error or a finding, soon, and without reading them whole."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import pytest
from damage import DAMAGES, build, log

from pyspark_log.errors import BatchTooLargeError, CorruptRecordError, DescriptionError, SideFileError
from pyspark_log.storage.catalog import kafka_files
from pyspark_log.storage.log.leader_epochs import LeaderEpochs
from pyspark_log.storage.log.producers import snapshot
from pyspark_log.storage.maintenance.repair.store import repair
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.maintenance.verify.log import segment
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.segment import txn_index
from pyspark_log.storage.store import Store
from tests.store_tools import faults

HUGE = 1 << 40


@pytest.fixture
def path(tmp_path):
    build(tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def soon_and_in_little_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()
    yield
    assert time.monotonic() - start < 60
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert peak < (400 << 10) * (1 if sys.platform == "linux" else 1 << 10)


def enlarge(file: Path) -> str:
    """Adds zeros that take no room on the disk."""
    with file.open("ab") as opened:
        opened.truncate(HUGE)
    return str(file)


def test_small_files_beside_the_logs_are_not_read_whole(tmp_path):
    file = tmp_path / "00000000000000000000.snapshot"
    enlarge(file)
    for read in (
        kafka_files.read_offsets,
        LeaderEpochs.read,
        kafka_files.read_partition_metadata,
        kafka_files.read_meta_properties,
        snapshot.read,
        lambda path: txn_index.read_entries(path, 0),
    ):
        with pytest.raises(SideFileError, match=rf"{file}.*{HUGE} bytes"):
            read(str(file))
    assert snapshot.load_newest(str(tmp_path), -1, 10) is None
    assert not file.exists()


@pytest.mark.parametrize("name", ["store.json", "topics/t.json"])
def test_descriptions_are_not_read_whole(path, name):
    enlarge(path / name)
    with pytest.raises(DescriptionError, match=rf"{name}.*{HUGE} bytes"):
        Store.open(path).describe_topic("t")


def test_indexes_are_read_no_further_than_the_log_can_prove(path):
    for suffix in (".index", ".timeindex"):
        enlarge(log(path, 0).with_suffix(suffix))
    found = faults(path)
    assert {Path(finding.file).suffix for finding in found} == {".index", ".timeindex"}
    assert any(f"it has {HUGE // 8} entries" in finding.what for finding in found)
    store = Store.open(path)
    assert sum(batch.num_rows for batch in store.read("t", 0)) == 120
    assert store.offset_for_timestamp("t", 0, 1_000_005).offset == 5


def test_a_batch_that_claims_gigabytes_is_refused_before_it_is_read(path):
    """Its length is within the file, which is sparse."""
    active = log(path, -1)
    data = bytearray(active.read_bytes())
    data[8:12] = (2**31 - 1 - 12).to_bytes(4, "big")
    active.write_bytes(data)
    enlarge(active)
    store, end = Store.open(path), 120
    with pytest.raises(CorruptRecordError):
        list(store.read("t", 0, int(active.stem), end))
    inactive = log(path, 0)
    data = bytearray(inactive.read_bytes())
    data[8:12] = (2**31 - 1 - 12).to_bytes(4, "big")
    inactive.write_bytes(data)
    with inactive.open("ab") as opened:
        opened.truncate(2**31 - 1)
    with pytest.raises(BatchTooLargeError, match=r"t-0.*batch\.max\.memory\.bytes"):
        list(store.read("t", 0, 0, 1))


def test_partitions_are_found_by_their_files_however_many_there_may_be(path):
    description = path / "topics" / "t.json"
    description.write_text(description.read_text().replace('"partitions": 1', f'"partitions": {2**31 - 1}'))
    assert Store.open(path).describe_topic("t").partitions == 2**31 - 1
    report = verify(path)
    assert not report.damaged
    assert report.partitions == 1 + 2 + 1 + 1
    assert repair(path, path.with_name("copy")).complete


def test_the_number_of_reported_findings_is_limited(path, monkeypatch):
    monkeypatch.setattr(segment, "_MOST_FINDINGS", 1)
    DAMAGES["two apart"](path)
    first, rest = (finding for finding in verify(path).findings if finding.severity is Severity.DAMAGE)
    assert (first.file, rest.file) == (f"data/t-0/{log(path, 1).name}",) * 2
    assert rest.what == "and 1 findings more in this file"
