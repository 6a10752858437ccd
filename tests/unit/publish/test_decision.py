"""Records of decisions: what they say, in this version and in the one before, and which run has a publisher."""

import itertools
import json
import os
import socket
from dataclasses import replace

import pyarrow as pa
import pytest

from pyspark_log.errors import CorruptRecordError, PublisherFencedError, PublishFailedError, StoreVersionError
from pyspark_log.storage.catalog.topics import PUBLISH_TOPIC
from pyspark_log.storage.log_manager.append import append_rows
from pyspark_log.storage.publish.claims import claim, last_number
from pyspark_log.storage.publish.decision import (
    VERSION,
    Decision,
    Origin,
    SetAside,
    TopicIdPartition,
    decode_decision,
    encode_decision,
)
from pyspark_log.storage.publish.decision_log import DecisionLog
from pyspark_log.storage.publish.pending import help_apply, tidy
from pyspark_log.storage.publish.staging import StagedPart, manifest
from pyspark_log.storage.record.checksum import crc32c
from pyspark_log.storage.record.layout import CRC_AT
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition
from tests.interrupts import Interrupt
from tests.store_tools import publish, rows, stage, store_with

ID = "A" * 22
# As the first version wrote it.
FIRST = {
    "version": 1, "number": 4, "decision": -1, "status": "decided", "run": "r2", "replaced": ["r1"], "location": "/c",
    "records": 7, "places": [["t", ID, 3]], "manifest": "0" * 32 + ".manifest", "manifest_crc": 17,
    "host": "h", "process": 12, "time": 1_700_000_000_000,
}  # fmt: skip


store = store_with()


def test_a_record_of_the_first_version_is_read():
    decision = decode_decision("q", json.dumps(FIRST).encode(), 31)
    assert decision == Decision(
        "q", 4, 31, run="r2", replaced=("r1",), location="/c", records=7, places=(TopicIdPartition("t", ID, 3),),
        manifest=FIRST["manifest"], manifest_crc=17,
        host="h", process=12, time=1_700_000_000_000, holder=Origin("h", 12, 1_700_000_000_000),
    )  # fmt: skip


def test_a_record_says_all_that_is_known():
    aside = SetAside(20, 5, Origin("admin", 1, 2), (TopicIdPartition("t", ID, 3),))
    decision = decode_decision("q", json.dumps(FIRST).encode(), 31).fenced_by("r3", Origin.here(2))
    assert (decision.holder.host, decision.holder.process) == (socket.gethostname(), os.getpid())
    for known in (decision, Decision("q", -1, 31, True, set_aside=aside)):
        assert decode_decision("q", encode_decision(known), 40) == known


@pytest.mark.parametrize(
    ("field", "value"),
    [("holder", None), ("holder", {"host": "h"}), ("set_aside", 5), ("set_aside", {}), ("run", 1), ("plan", None)],
)
def test_a_field_that_is_not_what_it_should_be_is_named_with_its_record(field, value):
    whole = json.loads(encode_decision(decode_decision("q", json.dumps(FIRST).encode(), 31)))
    with pytest.raises(CorruptRecordError, match="the record at offset 31 is no decision"):
        decode_decision("q", json.dumps(whole | {field: value}).encode(), 31)


def test_a_manifest_with_and_without_committed_offsets(tmp_path):
    data = bytes(CRC_AT) + b"crc!" + bytes(100)
    part = StagedPart(topic="t", topic_id=ID, partition=3, count=1, size=len(data), crcs=b"crc!", data=data)
    steps = [OffsetStep("g", TopicPartition("t", 0), None, 3), OffsetStep("h", TopicPartition("u", 1), 5, 5)]
    name, crc, start = manifest.write(str(tmp_path), [part], steps)
    made, read = manifest.entries(str(tmp_path), name, start, [part]), manifest.read(str(tmp_path), name, crc)
    (region,) = made[TopicIdPartition("t", ID, 3)]
    assert region.data == data
    assert read == {TopicIdPartition("t", ID, 3): [replace(region, data=b"")]}
    assert manifest.read_steps(str(tmp_path), name, crc) == steps
    assert list(manifest.read(str(tmp_path), name, crc)) == [TopicIdPartition("t", ID, 3)]
    # The same, as the first version wrote it.
    path = tmp_path / name
    header, description = path.read_bytes()[:8], json.loads(path.read_bytes()[16 : -len(data)])
    description = json.dumps({"version": 1, "parts": description["parts"]}).encode()
    crc = crc32c(description)
    path.write_bytes(header + len(description).to_bytes(4, "big") + crc.to_bytes(4, "big") + description + data)
    assert manifest.read_steps(str(tmp_path), name, crc) == []
    assert list(manifest.read(str(tmp_path), name, crc)) == [TopicIdPartition("t", ID, 3)]


def test_a_decision_of_a_newer_version_stops_publishers_only(store):
    publish(store.decisions, "q", 0, stage(store, rows(b"a")))
    record = json.dumps(FIRST | {"version": VERSION + 1}).encode()
    append_rows(store.logs, PUBLISH_TOPIC, pa.record_batch({"key": [b"newer"], "value": [record]}), None, False)
    reader = Store.open(store.path)
    what = rf"{PUBLISH_TOPIC}.* version {VERSION + 1}.*use a newer"
    with pytest.raises(PublishFailedError, match=what):
        publish(reader.decisions, "q", 1, stage(reader, rows(b"b")))
    with pytest.raises(StoreVersionError, match=what):
        help_apply(reader.decisions)
    reader.append("t", pa.record_batch({"value": [b"c"]}))
    assert [value for read in reader.read("t", 0) for value in read["value"].to_pylist()] == [b"a", b"c"]


def test_a_manifest_of_a_newer_version_says_so(tmp_path):
    description = json.dumps({"version": manifest.VERSION + 1}).encode()
    crc = crc32c(description)
    path = tmp_path / "name.manifest"
    path.write_bytes(manifest.MAGIC + len(description).to_bytes(4, "big") + crc.to_bytes(4, "big") + description)
    with pytest.raises(StoreVersionError, match=r"name\.manifest has format version .*use a newer pyspark-log"):
        manifest.read(str(tmp_path), path.name, crc)


def test_the_holder_is_the_process_with_the_newest_run(store):
    store.logs.clock.read = itertools.count(1_700_000_000_000).__next__
    publish(store.decisions, "q", 0, stage(store, rows(b"a")), run="r1")
    first = store.decisions.last["q"]
    assert first.holder == Origin(first.host, first.process, first.time)
    publish(store.decisions, "q", 1, stage(store, rows(b"b")), run="r1")
    assert store.decisions.last["q"].holder == first.holder
    publish(store.decisions, "q", 1, stage(store, rows(b"b")), run="r2")
    taken = store.decisions.last["q"]
    assert (taken.time < taken.holder.time, taken.holder.process) == (True, os.getpid())
    with pytest.raises(PublisherFencedError, match=rf"process {os.getpid()} on .*, since 20") as caught:
        publish(store.decisions, "q", 2, [], run="r1")
    assert (caught.value.host, caught.value.since) == (socket.gethostname(), taken.holder.time)


def test_tidying_up_gives_no_replaced_run_its_place_back(store, monkeypatch):
    """A newer run takes over between the check of what is done and the record of it."""
    publish(store.decisions, "q", 0, stage(store, rows(b"a")), run="r1")
    hold = DecisionLog.hold

    def taken_over_first(decisions, *arguments):
        monkeypatch.setattr(DecisionLog, "hold", hold)
        publish(Store.open(store.path).decisions, "q", 0, [], run="r2")
        return hold(decisions, *arguments)

    monkeypatch.setattr(DecisionLog, "hold", taken_over_first)
    tidy(store.decisions)
    with pytest.raises(PublisherFencedError):
        publish(Store.open(store.path).decisions, "q", 1, [], run="r1")
    assert last_number(store.decisions, "q") == 0


def test_what_this_process_has_decided_it_knows_as_others_read_it(store):
    """It does not read its own records again."""
    publish(store.decisions, "q", 0, stage(store, rows(b"a")), run="r1", location="/c", plan="p")
    publish(store.decisions, "other", 5, stage(store, rows(b"b")))
    publish(store.decisions, "q", 1, stage(store, rows(b"c")), run="r2", location="/c", plan="p2")
    publish(store.decisions, "once", 0, stage(store, rows(b"d")), one_off=True)
    claim(store.decisions, "other", "r3")
    other = Store.open(store.path).decisions
    other.follow()
    assert store.decisions.last == other.last
    assert store.decisions.undone == other.undone
    assert set(store.decisions.last) == {"q", "other"}


def test_a_view_that_is_interrupted_while_it_is_continued(store):
    """At each return from a function in C: no decision that is done stays undone, or it is finished again and again."""

    def in_take(frame, event):
        return frame if event == "c_return" and frame.f_code is DecisionLog._take.__code__ else None

    for moment in itertools.count(1):
        with store.decisions.hold() as writer:
            decision = writer.decide(Decision("q", 0))
        view = DecisionLog(store.logs)
        view.follow()
        assert view.undone.keys() == {decision.offset}
        with store.decisions.hold() as writer:
            writer.finish([decision], "q")
        interrupt = Interrupt(moment, in_take)
        with interrupt.armed():
            view.follow()
        view.follow()
        assert (view.last, view.undone) == ({}, {}), f"at return {moment}"
        if interrupt.seen < moment:
            break
    assert moment > 3
