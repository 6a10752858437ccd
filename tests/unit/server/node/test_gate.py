"""What may be appended in transactions when leaders move."""

import pytest

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.network import Loop, Wait
from pyspark_log.server.node.gate import Gate
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.types import TopicPartition

AT = TopicPartition("t", 0)


class Moving:
    """Coordinators of a node that leads a partition; while it asks about a producer, another one leads for a moment."""

    def __init__(self, loop):
        self.leaders = self.transactions = self
        self._loop, self._epoch, self.asked = loop, 5, 0
        self.short, self.markers = False, 0

    def epoch(self, _at):
        return self._epoch

    def of_transaction(self, _name):
        return ErrorCode.NONE

    def is_short(self, _at):
        return self.short

    async def append_marker(self, *_marker):
        self.markers += 1
        return ErrorCode.NONE

    async def replicated(self, _at, _epoch):
        return ErrorCode.NONE

    async def join(self, _name, _producer_id, _epoch, partitions, *, adds):
        assert not adds
        self.asked += 1
        pause = Wait()
        self._loop.call_soon(pause.finish, None)
        await pause
        if self.asked == 1:
            self._epoch += 2
        return dict.fromkeys(partitions, ErrorCode.NONE)


def run(loop, coroutine):
    done = loop.start(coroutine)
    done.then(loop.stop)
    loop.run()
    loop.close()
    assert done.error is None


def test_a_producer_is_asked_about_again_if_another_broker_has_led_meanwhile():
    loop = Loop()
    coordinators = Moving(loop)
    gate = Gate(coordinators, peers=None)

    async def admit_three():
        for _ in range(3):
            assert await gate.admit("x", 1000, 0, frozenset({AT}), adds=False) == {AT: ErrorCode.NONE}
            gate.release("x", 1000)

    run(loop, admit_three())
    assert coordinators.asked == 2


def test_no_marker_is_appended_while_too_few_replicas_are_in_sync():
    loop = Loop()
    coordinators = Moving(loop)
    gate = Gate(coordinators, peers=None)

    async def mark_twice():
        for short, error in ((True, ErrorCode.NOT_ENOUGH_REPLICAS), (False, ErrorCode.NONE)):
            coordinators.short = short
            assert await gate.mark(AT, 1000, 0, EndTxnMarker(True, 0)) == error

    run(loop, mark_twice())
    assert coordinators.markers == 1


def test_transactions_whose_partitions_have_moved_away_are_forgotten():
    loop = Loop()
    coordinators = Moving(loop)
    coordinators.asked = 1  # No other broker leads meanwhile.
    gate = Gate(coordinators, peers=None)

    async def admit_many():
        for producer_id in range(5000):
            coordinators._epoch = producer_id // 100
            await gate.admit("x", producer_id, 0, frozenset({AT}), adds=False)
            gate.release("x", producer_id)

    run(loop, admit_many())
    assert len(gate._open) <= 1001


class Led(Moving):
    """Another broker leads; it answers markers with what a test says."""

    def __init__(self, loop, *codes):
        super().__init__(loop)
        self._codes = codes

    def epoch(self, _at):
        return None

    def leader_of(self, _at):
        return 2

    def ask(self, _broker, _request):
        of = m.WriteTxnMarkersResponse
        parts = [of.WritableTxnMarkerPartitionResult(0, code) for code in self._codes]
        answer = Wait()
        answer.finish(of([of.WritableTxnMarkerResult(1000, [of.WritableTxnMarkerTopicResult("t", parts)])]))
        return answer


@pytest.mark.parametrize(
    ("codes", "found"),
    [
        ([0], ErrorCode.NONE),
        ([6], ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ([9999], ErrorCode.UNKNOWN_SERVER_ERROR),
        ([], ErrorCode.UNKNOWN_SERVER_ERROR),
        ([0, 0], ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_whatever_a_broker_answers_to_a_marker(codes, found):
    loop = Loop()
    coordinators = Led(loop, *codes)
    gate = Gate(coordinators, peers=coordinators)

    async def mark():
        assert await gate.mark(AT, 1000, 0, EndTxnMarker(commit=True, coordinator_epoch=0)) is found

    run(loop, mark())
