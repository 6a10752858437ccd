"""The offset JSON that options and checkpoints hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.spark_connector.planning.offsets import Identity, SourceOffset, to_nested
from pyspark_log.types import TopicPartition
from tests.query_offsets import own_of

T0, T2, T10, A1 = TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("t", 10), TopicPartition("a", 1)

offsets = st.dictionaries(
    st.builds(TopicPartition, st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True), st.integers(0, 10**6)),
    st.integers(0, 2**63 - 1),
)


def test_topics_and_partitions_ascend_as_numbers():
    text = json.dumps(to_nested({T10: 1, T0: 2, T2: 3, A1: 4}), separators=(",", ":"))
    assert text == '{"a":{"1":4},"t":{"0":2,"2":3,"10":1}}'


def test_kafkas_form_with_one_key_of_our_own():
    end = SourceOffset({T0: 5}, "group", {T0: 3}, Identity("store", {"t": "topic"}))
    own = {"group": "group", "cluster_id": "store", "topic_ids": {"t": "topic"}, "start": {"t": {"0": 3}}}
    assert own_of(end.to_json()) == own
    assert SourceOffset.from_json({"t": {"0": 5}, "@": own}) == end, "as earlier versions wrote it"
    assert SourceOffset({T0: 3}).to_json() == {"t": {"0": 3}}


@given(offsets, offsets)
def test_programs_walk_a_querys_progress_as_that_of_kafka(at, start):
    """They take a key for a topic, those below it for partitions, and the values for offsets."""
    progress = SourceOffset(at, "group", start, Identity("store", {"t": "topic"})).to_json()
    walked = {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in progress.items()
        for partition, offset in partitions.items()
    }
    assert walked == at


identities = st.builds(Identity, st.none() | st.text(min_size=1), st.dictionaries(st.text(), st.text()))


@given(offsets, st.none() | st.text(min_size=1), offsets, identities)
def test_what_goes_to_the_checkpoint_comes_back(at, group, start, identity):
    offset = SourceOffset(at, group, start if group else None, identity)
    text = json.dumps(offset.to_json())
    assert SourceOffset.from_json(json.loads(text)) == offset
    assert json.dumps(SourceOffset.from_json(json.loads(text)).to_json()) == text


def test_only_the_start_of_batch_0_is_initial():
    assert SourceOffset({T0: 0}).is_initial
    assert not SourceOffset({T0: 0}, "group").is_initial
    identified = SourceOffset({T0: 0}, identity=Identity("store", {"t": "topic"}))
    assert SourceOffset.from_json(identified.to_json()).is_initial


@pytest.mark.parametrize(
    "nested",
    [
        {"t": 3},
        {"t": {"x": 3}},
        {"t": {"0": "3"}},
        {"@": 1},
        {"@": {"topic_ids": 3}},
        {"@{": {}},
        {"@[]": {}},
        {"logOffset": 4},
    ],
)
def test_another_sources_checkpoint_is_refused(nested):
    with pytest.raises(ConnectorError, match=r"\[PYLOG_OFFSET_NOT_UNDERSTOOD\]"):
        SourceOffset.from_json(nested)
