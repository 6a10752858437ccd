"""The job mirror between stores of both kinds: records with all that they have, topics, and what is refused."""

import json
import shutil

import pyarrow as pa
import pytest
from job_tools import T0, fill
from test_mirror import records

from pyspark_log import Store, TopicPartition
from pyspark_log.jobs import mirror
from pyspark_log.jobs.mirroring.syncs import SYNCS_TOPIC
from tests.amounts import one_in
from tests.store_tools import faults

pytestmark = pytest.mark.slow


@pytest.fixture
def objects(object_url):
    """An empty store in the object store."""
    return Store.create(object_url)


@pytest.fixture
def run(spark, capsys):
    """Runs the job; its summary."""

    def run_once(call):
        assert mirror.main(call) == 0
        return json.loads(capsys.readouterr().out)

    return run_once


@pytest.mark.parametrize("kinds", one_in(3, ["folder to objects", "objects to folder", "objects to objects"]))
def test_mirrored_topics_and_groups(run, object_url, tmp_path, kinds):
    kind, _, other = kinds.split()
    source = Store.create(tmp_path / "source" if kind == "folder" else f"{object_url}/source")
    target = str(tmp_path / "target") if other == "folder" else f"{object_url}/target"
    fill(source, "plain", 3, 50)
    source.create_topic("times", 1, {"retention.ms": "-1", "segment.bytes": "12345"})
    headers = pa.array(
        [[{"key": "h", "value": b"1"}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    source.append("times", pa.record_batch({
        "key": pa.array([None], pa.binary()), "value": pa.array([None], pa.binary()), "headers": headers,
        "timestamp": pa.array([T0], pa.int64()),
    }))  # fmt: skip
    at = TopicPartition("plain", 1)
    source.groups["g"].commit({at: 20})
    call = [target, source.path, "--checkpoint", str(tmp_path / "checkpoint"), "--until-now"]
    call += ["--json", "--topics", ".*", "--groups", "^g$", "--max-offsets", "100"]
    # Once, at the end: a slow run would count an offset that moves on twice.
    call += ["--groups-interval", "3600"]

    done = run(call)
    assert (done["records"], done["batches"], done["group_offsets"]) == (151, 2, 1)
    fill(source, "plain", 3, 20)
    source.groups["g"].commit({at: 60})
    done = run(call)
    assert (done["records"], done["batches"], done["group_offsets"]) == (60, 1, 1)
    assert run(call)["records"] == 0
    there = Store.open(target)
    assert set(there.topics()) == {"plain", "times", SYNCS_TOPIC}
    for topic in ("plain", "times"):
        assert records(there, topic) == records(source, topic), topic
        assert there.describe_topic(topic).configs == source.describe_topic(topic).configs
    assert there.groups["g"].committed()[at].offset == 60
    assert faults(target) == []


def test_the_folder_of_a_broker_is_mirrored(run, objects, tmp_path):
    store = Store.create(tmp_path / "store")
    fill(store, "t", 1, 30)
    (tmp_path / "broker/t-0").mkdir(parents=True)
    for file in store.segment_files("t", 0):
        shutil.copy(file, tmp_path / "broker/t-0")
    call = [objects.path, str(tmp_path / "broker"), "--checkpoint", str(tmp_path / "checkpoint")]
    assert run([*call, "--topics", "t", "--until-now", "--json"])["records"] == 30
    assert records(objects, "t") == records(store, "t")
    assert objects.describe_topic("t").configs == {"retention.ms": "-1"}


def test_a_mirror_of_a_store_into_itself_is_refused(objects, tmp_path, capsys):
    call = [objects.path, f"{objects.path}/", "--topics", "t", "--checkpoint", str(tmp_path / "c")]
    assert mirror.main(call) == 2
    assert f"{objects.path} is also the source" in capsys.readouterr().err
