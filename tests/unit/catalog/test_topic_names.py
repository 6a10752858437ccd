"""No name of a topic leads out of the store's folder, whether it comes from a caller or from a file in the store."""

import json

import pyarrow as pa
import pytest
from damage import tree

from pyspark_log.errors import DescriptionError, InvalidTopicError
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.publish.decision import place_of
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan, manifest
from pyspark_log.storage.store import Store
from pyspark_log.types import EARLIEST, TopicPartition

HOSTILE = [
    "", ".", "..", "../t", "t/../../t", "/tmp/t", "t/", "a/b", "t\n", "t\0", "t t", "tö", "t%2e", "~", "$HOME", "C:\\t",
    "t:0", "*", "-\u202e", "x" * 250,
]  # fmt: skip
ROWS = pa.record_batch({"value": [b"v"]})

CALLS = {
    "create": lambda store, name: store.create_topic(name, 1),
    "make": lambda store, name: store.ensure_topic(name),
    "describe": lambda store, name: store.describe_topic(name),
    "config": lambda store, name: store.topic_config(name),
    "append": lambda store, name: store.append(name, ROWS),
    "append a batch": lambda store, name: store.append_batch(name, 0, b""),
    "read": lambda store, name: store.read(name, 0, EARLIEST),
    "first offset": lambda store, name: store.earliest_offset(name, 0),
    "time": lambda store, name: store.offset_for_timestamp(name, 0, 0),
    "size": lambda store, name: store.size(name, 0),
    "segments": lambda store, name: store.segment_files(name, 0),
    "flush": lambda store, name: store.flush(name),
    "clean": lambda store, name: store.clean(name),
    "delete records": lambda store, name: store.delete_records(name, 0, 0),
    "delete": lambda store, name: store.delete_topic(name),
    "alter": lambda store, name: store.alter_configs(name, {"retention.ms": "1"}),
    "partitions": lambda store, name: store.add_partitions(name, 2),
    "stage": lambda store, name: StagedWriter(store.logs, StagingPlan.make(store.logs, [name])).append(name, ROWS),
}


@pytest.fixture
def above(tmp_path):
    """The folder above a store, with a topic `t`; and beside the store a folder that a name could lead to."""
    for name in ("store", "t-0"):
        store = Store.create(tmp_path / name)
        store.create_topic("t", 1)
        store.append("t", ROWS)
    return tmp_path


@pytest.mark.parametrize("call", CALLS)
def test_a_hostile_name_is_refused_by_every_call(above, call):
    before = tree(above)
    for name in HOSTILE:
        with pytest.raises(InvalidTopicError, match="1 to 249 of the characters"):
            CALLS[call](Store.open(above / "store"), name)
    assert tree(above) == before


@pytest.mark.parametrize("name", ["t", "T.t_t-0", "-", "...", "x" * 249, "-0"])
def test_every_name_of_kafka_is_taken(above, name):
    store = Store.open(above / "store")
    if name != "t":
        store.create_topic(name, 1)
        store.append(name, ROWS)
    assert [read["value"].to_pylist() for read in store.read(name, 0)] == [[b"v"]]
    assert {path.name for path in above.iterdir()} == {"store", "t-0"}


@pytest.mark.parametrize("name", ["..", "../../t", "/tmp/t", "x" * 250])
def test_a_hostile_name_in_a_file_of_the_store_is_damage(clock, above, name):
    store = Store.open(above / "store")
    store.delete_topic("t")
    (deleted,) = (above / "store" / "topics" / "deleted").iterdir()
    deleted.write_text(json.dumps(json.loads(deleted.read_text()) | {"name": name}))
    before = tree(above)
    with pytest.raises(DescriptionError, match="1 to 249 of the characters"):
        store.clean()
    assert tree(above) == before
    with pytest.raises(ValueError, match="1 to 249 of the characters"):
        place_of([name, "A" * 22, 0])


@pytest.mark.parametrize("name", ["../data/t-0/00000000000000000000.log", "/etc/passwd", "..", "x.staged/../y", ""])
def test_a_manifest_names_files_of_its_own_folder_only(name):
    assert not manifest.is_staged_name(name)


def test_a_group_may_have_any_name(above):
    log = OffsetsLog(Store.open(above / "store"))
    for name in ("../../group", "/", ".."):
        log.commit(name, {TopicPartition("t", 0): 1})
        assert log.fetch(name)[TopicPartition("t", 0)].offset == 1
    assert {path.name for path in above.iterdir()} == {"store", "t-0"}
