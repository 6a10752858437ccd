"""The image of records drawn by chance, and what changes for a broker's replicas, are those of Kafka's own classes."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.records import decode_record, encode_record
from pyspark_log.server.cluster.batches import Batch
from pyspark_log.server.cluster.fold import Fold
from pyspark_log.server.cluster.image import START
from tests.kafka.test_message_bytes import bytes_of
from tests.metadata_tools import Scribe, newest
from tests.replica_changes import Action, replica_changes

pytestmark = [
    pytest.mark.usefixtures("kafka"),
    pytest.mark.skipif(not shutil.which("javac"), reason="compiles a program: needs a JDK"),
]

PROGRAM = Path(__file__).with_name("MetadataImages.java")
BROKER, CLUSTERS, STEPS = 1, 200, 60
# Kafka writes records of its own only in this version.
VERSION = m.FeatureLevelRecord("metadata.version", 30)


def test_images_and_changes_are_kafkas():
    clusters = [list(batches_of(random.Random(seed))) for seed in range(CLUSTERS)]
    lines = []
    for batches in clusters:
        for offset, values in batches:
            lines.append(f"batch {offset} {' '.join(encode_record(one, newest(one)).hex() for one in values)}\n")
        lines.append("image\n")
    answers = iter(bytes_of(lines, PROGRAM))
    seen = set()
    for seed, batches in enumerate(clusters):
        fold = Fold()
        for offset, values in batches:
            change = fold.apply([batch_of(offset, values)])
            at, *changes = next(answers).split()
            where = f"seed {seed}, offset {offset}: {values}"
            assert fold.image.position.offset == int(at), where
            assert changes_of(change) == sorted(changes), where
            seen.update(one.partition(":")[0] for one in changes)
        assert comparable(fold.image) == comparable(loaded(next(answers).split())), f"seed {seed}"
    assert seen == {"delete", "elected", "leader", "follower"}


def batches_of(chance):
    """Batches with their offsets. A transaction begins and ends with a batch, as Kafka's controllers have it."""
    scribe, offset, is_open = Scribe(chance), 0, False
    for step in range(STEPS):
        values = [VERSION] if step == 0 else []
        if not is_open and chance.random() < 0.1:
            is_open = True
            scribe.begin()
            values.append(m.BeginTransactionRecord())
        values += scribe.batch(offset + len(values))
        if is_open and chance.random() < 0.4:
            is_open = False
            is_aborted = chance.random() < 0.5
            values.append(m.AbortTransactionRecord() if is_aborted else m.EndTransactionRecord())
            if is_aborted:
                scribe.abort()
        if not is_open:
            scribe.finish()
        yield offset, values
        offset += len(values)


def batch_of(offset, values):
    records = tuple(decode_record(encode_record(one, newest(one))) for one in values)
    return Batch(offset, offset + len(values) - 1, 1, records)


def changes_of(change):
    """What Kafka's classes say of a broker's replicas, from what ours say."""
    found = set()
    for one in replica_changes(change, BROKER):
        at = f"{one.topic}-{one.number}"
        if one.action in (Action.DELETE, Action.STOP):
            found.add(f"delete:{at}")
            continue
        role = "leader" if one.after.leader == BROKER else "follower"
        found.add(f"{role}:{at}:{one.after.partition_epoch}")
        assert one.action is not Action.LEAD or role == "leader"
        if one.action is Action.LEAD:
            found.add(f"elected:{at}:{one.after.leader_epoch}")
    return sorted(found)


def loaded(records):
    """The image that Kafka has written."""
    fold = Fold()
    fold.load([Batch(0, 0, 1, tuple(decode_record(bytes.fromhex(one)) for one in records))], START)
    return fold.image


def comparable(image):
    """An image without what has no order."""
    brokers = {
        key: one._replace(
            endpoints=sorted(one.endpoints), log_dirs=sorted(one.log_dirs),
            cordoned_log_dirs=one.cordoned_log_dirs and sorted(one.cordoned_log_dirs),
        )
        for key, one in image.brokers.items()
    }  # fmt: skip
    return replace(image, position=START, brokers=brokers)
