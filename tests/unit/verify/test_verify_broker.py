"""`pylog verify` checks the folders of Kafka brokers, too."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from broker_tools import T0, add, batch, high_watermark, tree
from click.testing import CliRunner
from transaction_tools import as_brokers

from pyspark_log.cli.main import main
from pyspark_log.errors import UnknownTopicError
from pyspark_log.storage.catalog import kafka_files
from pyspark_log.storage.catalog.kafka_files import HIGH_WATERMARK, LOG_START, META_PROPERTIES, MetaProperties
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.segment.file_names import INDEX, LOG, segment_path
from tests.paths import LOGDIR
from tests.store_tools import damages, flip

pytestmark = pytest.mark.usefixtures("prompt_checkpoints")


def run(path, *more):
    result = CliRunner().invoke(main, ["--store", str(path), "verify", *more])
    return result.exit_code, result.stdout


def damage(path):
    return damages(path)


def file(root, base):
    return Path(segment_path(str(root / "t-0"), base, LOG))


def test_a_folder_of_kafkas_log_code_has_no_damage(tmp_path):
    shutil.copytree(LOGDIR, tmp_path / "logs")
    before = tree(tmp_path / "logs")
    code, told = run(tmp_path / "logs", "--json")
    report = json.loads(told)
    assert (code, report["damaged"], report["records"], report["partitions"]) == (0, False, 79, 1)
    assert {found["severity"] for found in report["findings"]} <= {"note"}
    assert tree(tmp_path / "logs") == before
    assert run(tmp_path / "logs" / "orders-0", "--topic", "orders")[0] == 0
    with pytest.raises(UnknownTopicError):
        verify(tmp_path / "logs", "other")


def test_gaps_and_what_a_broker_leaves_are_no_damage(root):
    high_watermark(root, 12)
    add(root / "t-4000000", 7, batch(7, b"x"))
    add(root / "t-0", 20, batch(21, b"v")[:-4])
    report = verify(root)
    assert (report.damaged, report.partitions, report.totals.batches) == (False, 2, 6)
    assert [found.file for found in report.findings if "no whole batch" in found.what] == [f"t-0/{20:020d}.log"]


@pytest.mark.parametrize(
    ("base", "byte", "offsets"), [(0, 65, (0, 2)), (10, 71 + 65, (14, 20)), (20, 65, (20, 21)), (0, 71 + 65, (1, 10))]
)
def test_damaged_batches_are_found(root, base, byte, offsets):
    add(root / "t-0", 20, batch(21, b"v"))
    flip(file(root, base), byte)
    (found,) = damage(root)
    assert (found.topic, found.partition, found.file) == ("t", 0, f"t-0/{base:020d}.log")
    assert found.first_offset <= offsets[1]
    assert found.next_offset > found.first_offset
    assert "CRC" in found.what
    code, told = run(root)
    assert (code, "DAMAGED: 1 written partition, 3 segments" in told) == (1, True)


def test_a_damaged_last_batch_below_the_high_watermark_is_found(root):
    flip(file(root, 20), -1)
    assert not damage(root), "it may be half written"
    high_watermark(root, 21)
    (found,) = damage(root)
    assert (found.file, found.position, found.first_offset) == (f"t-0/{20:020d}.log", 0, 20)


def test_checkpoints_are_compared_with_the_log(root):
    high_watermark(root, 25)
    (found,) = damage(root)
    assert "says that the log had reached 25" in found.what
    assert (found.partition, found.first_offset) == (0, 21)
    kafka_files.write_offsets(str(root / LOG_START), {T0: 30})
    (found,) = damage(root)
    assert "starts at offset 30" in found.what
    (root / LOG_START).unlink()
    (root / HIGH_WATERMARK).write_text("no checkpoint")
    (found,) = damage(root)
    assert HIGH_WATERMARK in found.what


def test_a_lost_index_of_aborted_transactions_is_found(tmp_path, log):
    log.write(1, b"aborted")
    log.finish(1, commit=False)
    folder = as_brokers(log, tmp_path / "logs").path
    assert not damage(folder)
    os.unlink(f"{folder}/t-0/{0:020d}.txnindex")
    (found,) = damage(folder)
    assert "the index of aborted transactions" in found.what


def test_what_a_broker_rebuilds_is_a_note(root):
    Path(segment_path(str(root / "t-0"), 0, INDEX)).write_bytes(b"\xff" * 8)
    (root / "t-0" / "leader-epoch-checkpoint").write_text("no checkpoint")
    report = verify(root)
    assert not report.damaged
    told = {os.path.basename(found.file) for found in report.findings}
    assert {f"{0:020d}.index", "leader-epoch-checkpoint"} <= told
    assert {found.severity for found in report.findings} == {Severity.NOTE}


def test_several_folders_of_a_broker(root, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for folder in (root, other):
        (folder / META_PROPERTIES).write_bytes(kafka_files.encode_meta_properties(MetaProperties("c", 1)))
    add(other / "t-1", 0, batch(0, b"x")[:-1] + b"y", batch(1, b"z"))
    code, told = run(f"{root},{other}", "--json")
    (found,) = (one for one in json.loads(told)["findings"] if one["severity"] == "damage")
    assert (code, found["partition"], found["file"]) == (1, 1, f"t-1/{0:020d}.log")
