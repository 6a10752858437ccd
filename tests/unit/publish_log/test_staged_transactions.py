"""Transactions of Kafka's clients in the publish log: staged, and visible as a whole."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_tools import Record, build

from pyspark_log import TopicDescription, TopicPartition
from pyspark_log.errors import InvalidTxnStateError, LogDamagedError, OutOfOrderSequenceError
from pyspark_log.storage.ingest import without_transaction
from pyspark_log.storage.publish.decision import Origin
from pyspark_log.storage.publish_log import checkpoint
from pyspark_log.storage.publish_log.entries.changes import StagedOffset, Step, TransactionStep
from pyspark_log.storage.publish_log.entries.entry import Entry, decode, encode
from pyspark_log.storage.publish_log.proposals import Proposal, delete_topic, together
from pyspark_log.storage.publish_log.serving.incoming import Incoming, Placed, take_in
from pyspark_log.storage.publish_log.state import Committed, State
from pyspark_log.storage.record import scan

TOPIC = TopicDescription("t", "A" * 22, 3)
AT = TopicPartition("t", 0)
ORIGIN = Origin("host", 7, 1000)


def batch(producer_id, sequence, count=1, epoch=0, partition=0, *, inside=True):
    data = build(
        [Record(value=b"v", timestamp=5)] * count, producer_id=producer_id, producer_epoch=epoch,
        base_sequence=sequence, transactional=inside,
    )  # fmt: skip
    data = without_transaction(data) if inside else data
    [header] = scan(data, 0, len(data), check_crcs=True)
    return Incoming(TOPIC, partition, header, data, in_transaction=inside)


def step(producer_id, what, epoch=0):
    return Proposal(steps=(TransactionStep(f"id-{producer_id}", b"value", -1, producer_id, epoch, what),))


class House:
    """A fold that is decoded of what was encoded, entry by entry."""

    def __init__(self):
        self.state = State()
        self.state.apply(Entry(0, "", ORIGIN, (TOPIC,)))

    def apply(self, *proposals):
        proposal = together([one for one in proposals if one is not None])
        if proposal is not None:
            parts = {name: getattr(proposal, name) for name in ("additions", "numbered", "staged", "steps", "deleted")}
            entry = Entry(self.state.number + 1, "", ORIGIN, staged_offsets=proposal.staged_offsets, **parts)
            self.state = self.state.next()
            self.state.apply(decode(entry.number, encode(entry, proposal.data)))

    def take(self, *batches):
        proposal, outcomes = take_in(self.state, batches)
        self.apply(proposal)
        return outcomes

    def ends(self):
        return [self.state.log_end(TOPIC.topic_id, number) for number in range(TOPIC.partitions)]


def offsets(outcomes):
    return [(one.base_offset, one.next_offset, one.is_duplicate) for one in outcomes]


def test_what_is_staged_is_visible_once_it_is_committed():
    house = House()
    house.apply(step(7, Step.BEGIN))
    assert offsets(house.take(batch(7, 0, 2), batch(7, 0, 1, partition=1))) == [(0, 2, False), (0, 1, False)]
    house.take(Incoming(TOPIC, 0, *_plain()))
    assert house.ends() == [1, 0, 0]
    offset = StagedOffset(7, "g", AT, 30, "note")
    house.apply(Proposal(staged_offsets=(offset,)))
    assert house.state.groups == {}
    assert offsets(house.take(batch(7, 2, 3))) == [(3, 6, False)]
    house.apply(step(7, Step.COMMIT))
    assert (house.ends(), house.state.open) == ([6, 1, 0], {})
    pieces = house.state.partitions[TOPIC.topic_id, 0].pieces
    assert [(piece.base_offset, piece.next_offset) for piece in pieces] == [(0, 1), (1, 3), (3, 6)]
    assert house.state.groups == {"g": {AT: Committed(30, "note", 1000)}}


def _plain():
    data = build([Record(value=b"v", timestamp=5)])
    [header] = scan(data, 0, len(data))
    return header, data


def test_what_is_aborted_is_never_visible():
    house = House()
    house.apply(step(7, Step.BEGIN))
    house.take(batch(7, 0, 2))
    house.apply(step(7, Step.ABORT))
    assert house.ends() == [0, 0, 0]
    # The numbers continue in the same epoch, and begin again in the next one.
    house.apply(step(7, Step.BEGIN))
    assert isinstance(house.take(batch(7, 0, 3))[0], OutOfOrderSequenceError)
    assert offsets(house.take(batch(7, 2), batch(7, 0, 2))) == [(0, 1, False), (-1, 1, True)]
    house.apply(step(7, Step.COMMIT))
    house.apply(step(7, Step.BEGIN, epoch=1))
    assert offsets(house.take(batch(7, 0, epoch=1), batch(7, 1, epoch=1))) == [(1, 2, False), (2, 3, False)]


def test_what_is_in_no_open_transaction_is_refused():
    house = House()
    [refused] = house.take(batch(7, 0))
    assert isinstance(refused, InvalidTxnStateError)
    house.apply(step(7, Step.BEGIN, epoch=2))
    outcomes = house.take(batch(7, 0, epoch=1), batch(7, 0, epoch=2, inside=False), batch(7, 0, epoch=2))
    assert [type(one) for one in outcomes] == [InvalidTxnStateError, InvalidTxnStateError, Placed]
    for ends in ([step(9, Step.COMMIT)], [step(7, Step.COMMIT), step(7, Step.ABORT)]):
        with pytest.raises(LogDamagedError, match="which are not all open"):
            house.apply(*ends)


def test_an_open_transaction_can_be_ended_at_any_time():
    """Else its staged offsets would be pending for good; one that is not open is forgotten when it was idle."""
    house = House()
    house.apply(step(7, Step.BEGIN), step(8, Step.NONE))
    late = ORIGIN._replace(time=ORIGIN.time + 8 * 24 * 60 * 60 * 1000)
    for number in range(house.state.number + 1, 5000):
        house.state.apply(Entry(number, "", late))
    assert list(house.state.transactional) == ["id-7"]
    house.apply(step(7, Step.ABORT))
    assert house.state.open == {}


def test_a_topic_that_was_deleted_meanwhile():
    house = House()
    house.apply(step(7, Step.BEGIN))
    house.take(batch(7, 0))
    house.state.apply(Entry(house.state.number + 1, "", ORIGIN, deleted=delete_topic(house.state, "t").deleted))
    house.apply(step(7, Step.COMMIT))
    assert house.state.partitions == {}


WHAT = st.sampled_from(["begin", "commit", "abort", "batch", "checkpoint"])
STEPS = st.lists(st.tuples(WHAT, st.integers(1, 3), st.integers(0, 2)), max_size=40)


@given(STEPS)
def test_only_what_is_committed_is_there(steps):
    """Against a model: lists of what each transaction has staged, and of what is visible."""
    house, visible, staged, sequences = House(), [[], [], []], {}, {}
    model = SimpleNamespace(number=0)
    for what, producer_id, partition in steps:
        is_open = producer_id in staged
        if what == "begin" and not is_open:
            house.apply(step(producer_id, Step.BEGIN))
            staged[producer_id] = []
        elif what in ("commit", "abort") and is_open:
            house.apply(step(producer_id, Step.COMMIT if what == "commit" else Step.ABORT))
            ended = staged.pop(producer_id)
            for at, count in ended if what == "commit" else ():
                visible[at].append(count)
        elif what == "batch":
            model.number += 1
            sequence, count = sequences.get((producer_id, partition), 0), model.number % 3 + 1
            [outcome] = house.take(batch(producer_id, sequence, count, partition=partition))
            assert isinstance(outcome, Placed) == is_open
            if is_open:
                staged[producer_id].append((partition, count))
                sequences[producer_id, partition] = sequence + count
        elif what == "checkpoint":
            house.state = checkpoint.decode(house.state.number, checkpoint.encode(house.state))
        for at, counts in enumerate(visible):
            log = house.state.partitions.get((TOPIC.topic_id, at))
            pieces = [] if log is None else log.pieces
            assert [piece.next_offset - piece.base_offset for piece in pieces] == counts
            assert house.ends()[at] == sum(counts)
