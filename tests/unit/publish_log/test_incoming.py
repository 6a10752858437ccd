"""Record batches of Kafka's clients on their way into the publish log."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_tools import Record, build

from pyspark_log import TopicDescription
from pyspark_log.errors import OutOfOrderSequenceError, StagedOutputError, UnknownTopicError
from pyspark_log.storage.log import Appended
from pyspark_log.storage.publish.decision import Origin
from pyspark_log.storage.publish_log import checkpoint
from pyspark_log.storage.publish_log.entries.entry import Entry, decode, encode
from pyspark_log.storage.publish_log.serving import incoming
from pyspark_log.storage.publish_log.serving.incoming import Incoming, Placed, take_in
from pyspark_log.storage.publish_log.state import State
from pyspark_log.storage.record import crc32c, scan
from pyspark_log.storage.record.layout import crcs_of
from tests.scratch import memory_folder
from tests.store_tools import new_store

TOPIC = TopicDescription("t", "A" * 22, 2)
ORIGIN = Origin("host", 7, 1000)


def batch(count=1, partition=0, *, topic=TOPIC, value=b"v", place=("", 0), **fields):
    """A batch, or one of an idempotent producer: `producer_id`, `producer_epoch`, `base_sequence`."""
    data = build([Record(value=value, timestamp=5)] * count, **fields)
    [header] = scan(data, 0, len(data))
    return Incoming(topic, partition, header, data, *place)


def numbered(producer_id, sequence, count=1, epoch=0, **how):
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **how)


@pytest.fixture
def house():
    """A fold with a topic, and `decide`, which takes batches in as entries do: by their bytes."""
    state = State()
    state.apply(Entry(0, "", ORIGIN, (TOPIC,)))

    def decide(*batches):
        proposal, outcomes = take_in(state, batches)
        if proposal is not None:
            entry = Entry(state.number + 1, "", ORIGIN, additions=proposal.additions, numbered=proposal.numbered)
            data = encode(entry, proposal.data)
            state.apply(decode(entry.number, data))
            house.data = data
        return outcomes

    house = SimpleNamespace(state=state, decide=decide, data=b"")
    return house


def offsets(outcomes):
    return [(one.base_offset, one.next_offset, one.is_duplicate) for one in outcomes]


def test_batches_of_several_partitions(house):
    given = [batch(2), batch(1, 1), batch(3, value=b"other"), batch(1, 1)]
    assert offsets(house.decide(*given)) == [(0, 2, False), (0, 1, False), (2, 5, False), (1, 2, False)]
    [first], [second] = (house.state.partitions[TOPIC.topic_id, number].pieces for number in (0, 1))
    for piece, parts in ((first, given[::2]), (second, given[1::2])):
        assert house.data[piece.position : piece.position + piece.size] == b"".join(one.records for one in parts)
        assert (piece.crc, piece.max_timestamp) == (crc32c(crcs_of(one.header for one in parts)), 5)
    assert offsets(house.decide(batch())) == [(5, 6, False)]


def test_a_retry_is_stored_once(house):
    first = numbered(7, 0, 3)
    assert offsets(house.decide(first)) == [(0, 3, False)]
    assert offsets(house.decide(numbered(7, 3), numbered(7, 0, 3), numbered(7, 4), numbered(7, 3))) == [
        (3, 4, False), (0, 3, True), (4, 5, False), (3, 4, True)
    ]  # fmt: skip
    assert take_in(house.state, [first])[0] is None
    # One batch is refused alone, and what follows it in the order of the numbers is not.
    gap, next_one, other = house.decide(numbered(7, 9), numbered(7, 5), batch())
    assert isinstance(gap, OutOfOrderSequenceError)
    assert offsets([next_one, other]) == [(5, 6, False), (6, 7, False)]
    # In another partition it begins again.
    assert offsets(house.decide(numbered(7, 0, partition=1))) == [(0, 1, False)]


def test_a_topic_that_is_gone(house):
    [gone, there] = house.decide(batch(topic=replace(TOPIC, topic_id="B" * 22)), batch())
    assert isinstance(gone, UnknownTopicError)
    assert offsets([there]) == [(0, 1, False)]


def test_batches_in_objects(house, monkeypatch):
    """Those that follow each other are one region; a refused one stays where it is."""
    monkeypatch.setattr(incoming, "_REGION_BYTES", 300)
    size, given = len(batch().records), list[Incoming]()
    for number, sequence in enumerate((0, 1, 9, 2, 3, 4, 5)):
        given.append(numbered(7, sequence, place=("data/x", number * size)))
    outcomes = house.decide(*given, batch(4))
    assert [isinstance(one, Placed) for one in outcomes] == [True, True, False, True, True, True, True, True]
    assert all(size * 4 < 300 < size * 5 for _ in given)
    found = house.state.partitions[TOPIC.topic_id, 0].pieces
    assert [(piece.object, piece.position // size, piece.size // size) for piece in found[:2]] == [
        ("data/x", 0, 2), ("data/x", 3, 4)
    ]  # fmt: skip
    assert [(piece.base_offset, piece.next_offset) for piece in found] == [(0, 2), (2, 6), (6, 10)]
    assert found[2].object == "log/00000000000000000001"
    house.state.horizon = 10
    [old] = house.decide(batch(place=("data/0000000000009-" + "0" * 24, 0)))
    assert isinstance(old, StagedOutputError)


SENT = st.tuples(
    st.integers(0, 2), st.integers(0, 2), st.integers(0, 6) | st.sampled_from([2**31 - 2, 2**31 - 1]), st.integers(1, 3)
)


@given(st.lists(st.lists(SENT, min_size=1, max_size=6), max_size=8))
def test_the_rules_are_those_of_a_folder(decisions):
    with memory_folder() as folder, new_store(folder) as store:
        writer, state = store.logs.writer("t", 0), State()
        state.apply(Entry(0, "", ORIGIN, (TOPIC,)))
        for sent in decisions:
            batches = [numbered(producer_id, sequence, count, epoch) for producer_id, epoch, sequence, count in sent]
            proposal, outcomes = take_in(state, batches)
            for one, outcome in zip(batches, outcomes, strict=True):
                [expected] = writer.append_in_turn([one.records], sync=False)
                if isinstance(expected, Appended):
                    assert offsets([outcome]) == [(expected.base_offset, expected.next_offset, expected.duplicate)]
                else:
                    assert (type(outcome), str(outcome)) == (type(expected), str(expected))
            if proposal is not None:
                state.apply(
                    Entry(state.number + 1, "", ORIGIN, additions=proposal.additions, numbered=proposal.numbered)
                )
                state = checkpoint.decode(state.number, checkpoint.encode(state))
