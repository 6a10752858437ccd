"""Produce: record batches of clients into partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import cast

from pyspark_log.errors import InvalidRecordError, PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import ProduceRequest, ProduceResponse
from pyspark_log.server.answers.errors import code_of
from pyspark_log.server.cluster_view import LogEnd
from pyspark_log.server.handlers.call import Call, key_of
from pyspark_log.server.network import ClosedByServerError, OthersFirst
from pyspark_log.server.security.acls import Operation, Resource
from pyspark_log.server.served import AsLeft, Batch, Refused, Stored
from pyspark_log.server.state.appends import PartitionKey
from pyspark_log.server.state.counts import Counts
from pyspark_log.storage.record import crc32c
from pyspark_log.storage.record.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CODECS,
    CRC_AT,
    FLAGS_AT,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL,
)
from pyspark_log.types import TopicPartition

_Topic = ProduceResponse.TopicProduceResponse
_Partition = ProduceResponse.PartitionProduceResponse

#: Its key.
KEY = key_of(ProduceRequest)

_ALL = -1
_ACKS = (_ALL, 0, 1)
_ZSTD = CODECS.index("zstd")
_FIRST_WITH_ZSTD = 7
# Id and epoch of a batch's producer.
_PRODUCER = Struct(">qh")
# From these versions on a batch adds its partition to the transaction, and an error can ask to abort it (KIP-890).
_FIRST_THAT_ADDS, _FIRST_ABORTABLE = 12, 11
_WRITE, _WRITE_AS = (Operation.WRITE, Resource.TOPIC), (Operation.WRITE, Resource.TRANSACTIONAL_ID)
# Topics are named by their ids from this version on.
_FIRST_BY_ID = 13
# Up to so many consumers get their records before the producer gets its answer.
_MOST_FIRST = 3
_NOT_BY_ALL = "it was appended, but not by all replicas that must have it"


async def produce(call: Call, request: ProduceRequest) -> ProduceResponse | None:
    """Appends batches, each for itself; no answer for acks=0. ClosedByServerError: an error that cannot be answered."""
    started = call.broker.loop.time()
    if call.broker.logs.overlaps:
        turns = call.client.turns
        turn = turns.take()
        try:
            await turn
            appends = await _appended(call, request, partial(turns.end, turn))
        finally:
            turns.end(turn)
    else:
        appends = await _appended(call, request, _no_order)
    await _replicate(call, request, appends, started)
    woken = 0
    for topic in appends:
        for append in topic:
            woken += append.woken
    if 0 < woken <= _MOST_FIRST:
        await OthersFirst()
    responses = [
        _Topic(topic.name, topic.topic_id, [append.response for append in parts if append.response is not None])
        for topic, parts in zip(request.topic_data, appends, strict=True)
    ]
    if request.acks != 0:
        return ProduceResponse(responses)
    refused = [part for topic in responses for part in topic.partition_responses if part.error_code]
    if refused:
        # The client then asks for the topic again; there is no other way to report it.
        raise ClosedByServerError(f"a batch with acks=0 was refused: {refused[0].error_message}")
    return None


def _no_order() -> None:
    """Nothing waits for the order of a request's batches."""


async def _appended(call: Call, request: ProduceRequest, on_order: Callable[[], object]) -> Sequence[Sequence[_Append]]:
    """Appends the batches of a request; `on_order` as of ServedLogs.append."""
    names = [
        topic.name if call.version < _FIRST_BY_ID else await call.broker.cluster.name_of(topic.topic_id)
        for topic in request.topic_data
    ]
    if request.transactional_id is None:
        return await _append(call, request, names, {}, on_order)
    return await call.broker.loop.start(_append_in_transaction(call, request, names, on_order))


async def _replicate(call: Call, request: ProduceRequest, appends: Iterable[Sequence[_Append]], started: float) -> None:
    """Waits until all replicas in sync have what was appended, if acks=all asks for that; the answers say so."""
    ends = [(append.at, append.end) for topic in appends for append in topic if append.end is not None]
    deadline = started + request.timeout_ms / 1000 if request.acks == _ALL else None
    errors = await call.broker.cluster.replicate(ends, deadline)
    for topic in appends if errors else ():
        for append in topic:
            if append.end is not None and append.at in errors:
                append.take_back(errors[append.at])


async def _append_in_transaction(
    call: Call, request: ProduceRequest, names: Sequence[str | None], on_order: Callable[[], object]
) -> Sequence[Sequence[_Append]]:
    """Appends the batches of a transactional producer, if they belong to its transaction, which does not end before."""
    name, gate = request.transactional_id or "", call.broker.gate
    by_producer: dict[tuple[int, int], set[TopicPartition]] = {}
    for topic, topic_name in zip(request.topic_data, names, strict=True):
        for part in topic.partition_data:
            records = cast("bytes", part.records or b"")
            if topic_name is not None and len(records) >= HEADER_SIZE and records[FLAGS_AT] & TRANSACTIONAL:
                producer = _PRODUCER.unpack_from(records, PRODUCER_ID_AT)
                by_producer.setdefault(producer, set()).add(TopicPartition(topic_name, part.index))
    errors, admitted = dict[TopicPartition, ErrorCode](), list[int]()
    if not call.allows(*_WRITE_AS, name):
        return await _append(call, request, names, {}, on_order)
    try:
        for (producer_id, epoch), partitions in by_producer.items():
            unknown = {at for at in partitions if _unknown(call, at) or not call.allows(*_WRITE, at.topic)}
            adds = call.version >= _FIRST_THAT_ADDS
            admitted.append(producer_id)
            errors |= await gate.admit(name, producer_id, epoch, frozenset(partitions - unknown), adds=adds)
        codes = _codes(call.version)
        refused = {at: codes.get(code, code) for at, code in errors.items() if code}
        return await _append(call, request, names, refused, on_order)
    finally:
        for producer_id in admitted:
            gate.release(name, producer_id)


def _unknown(call: Call, at: TopicPartition) -> bool:
    """Whether there is no such partition; the append then says so."""
    try:
        call.broker.logs.topic(at.topic).check(at.partition)
    except (PylogError, OSError):
        return True
    return False


def _codes(version: int) -> Mapping[ErrorCode, ErrorCode]:
    """What producers get instead of the coordinator's errors: what makes them try again, or abort."""
    again = ErrorCode.NOT_ENOUGH_REPLICAS
    abort = ErrorCode.TRANSACTION_ABORTABLE if version >= _FIRST_ABORTABLE else ErrorCode.INVALID_TXN_STATE
    return {
        ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE: abort,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: again,
        **({} if version >= _FIRST_THAT_ADDS else {ErrorCode.CONCURRENT_TRANSACTIONS: again}),
    }


async def _append(
    call: Call, request: ProduceRequest, names: Sequence[str | None], refused: Mapping[TopicPartition, ErrorCode],
    on_order: Callable[[], object],
) -> Sequence[Sequence[_Append]]:  # fmt: skip
    """Appends all batches but those that are `refused`."""
    appends, unanswered, batches = list[list[_Append]](), list[_Append](), list[Batch]()
    for topic, name in zip(request.topic_data, names, strict=True):
        appends.append([])
        for part in topic.partition_data:
            append = _Append(call, request, name, part, refused)
            appends[-1].append(append)
            if append.response is None:
                unanswered.append(append)
                batches.append(append.batch)
    sync = request.acks == _ALL and call.broker.sync_acks_all
    outcomes = await call.broker.logs.append(batches, sync=sync, on_order=on_order)
    for append, outcome in zip(unanswered, outcomes, strict=True):
        append.answer(outcome)
    _count(call.broker.counts, appends)
    return appends


def _count(counts: Counts, appends: Iterable[Sequence[_Append]]) -> None:
    for topic in appends:
        for append in topic:
            if append.messages and append.topic is not None:
                topic_counts = counts.topic(append.topic)
                topic_counts.messages_in += append.messages
                topic_counts.bytes_in += append.size
            elif append.response is not None and append.response.error_code:
                counts.errors[KEY, append.response.error_code] += 1


class _Append:
    """A batch on its way into its partition.

    Attributes:
        topic: the topic's name; None: there is none.
        batch, size: its bytes.
        messages, woken: how many records were appended, and how many requests had waited for them.
        response: what became of it; None: it is not appended yet.
        at: its partition.
        end: where the log ends with it, once it is appended.
    """

    end: LogEnd | None

    def __init__(
        self, call: Call, request: ProduceRequest, topic: str | None, part: ProduceRequest.PartitionProduceData,
        refused: Mapping[TopicPartition, ErrorCode],
    ) -> None:  # fmt: skip
        self.topic, self._part, self.messages, self.woken = topic, part, 0, 0
        self.at, self.end = TopicPartition(topic or "", part.index), None
        self._leader_epoch = call.broker.cluster.leader_epoch(self.at)
        # A view of the request's frame, which does all that bytes do here.
        self._appends = call.broker.appends
        self.batch = Batch(self.at, cast("bytes", part.records or b""), self._appends.written, self._wake)
        self.size = len(self.batch.records)
        self.response: ProduceResponse.PartitionProduceResponse | None = None
        why = _refusal(call, request, topic, self.at, self.batch.records)
        if why is None and refused and (code := refused.get(self.at)):
            why = code, f"not in the transaction of {request.transactional_id}: {code.name}"
        if why is not None:
            self._refuse(*why)

    def _wake(self, topic_id: str, base_offset: int, as_left: AsLeft | None) -> None:
        """See Batch.on_stored."""
        self.woken = self._appends.appended(PartitionKey(topic_id, self.at.partition), base_offset, self.size, as_left)

    def answer(self, outcome: Stored | Refused) -> None:
        """Takes in what became of the batch."""
        if isinstance(outcome, Refused):
            self._answer_error(outcome)
            return
        base, end = outcome.base_offset, outcome.next_offset
        self.response = _Partition(self._part.index, ErrorCode.NONE, base, outcome.time, outcome.log_start)
        self.end = LogEnd(self._leader_epoch, end)
        if not outcome.is_duplicate:
            self.messages = end - base

    def take_back(self, error: ErrorCode) -> None:
        """Answers that it was appended, but is not replicated."""
        in_time = error != ErrorCode.REQUEST_TIMED_OUT
        self._refuse(error, _NOT_BY_ALL if in_time else "the replicas in sync did not all have it in time")

    def _answer_error(self, outcome: Refused) -> None:
        """Answers with an error: as Kafka, with the single records."""
        error = outcome.error
        records = error.records if isinstance(error, InvalidRecordError) else ()
        rows = [ProduceResponse.BatchIndexAndErrorMessage(number, None) for number in records]
        code = code_of(error)
        if code == ErrorCode.CORRUPT_MESSAGE and _is_checksum_right(self.batch.records):
            code = ErrorCode.INVALID_RECORD  # So the client does not send it again.
        self.response = _Partition(self._part.index, code, -1, -1, outcome.log_start, rows, str(error))

    def _refuse(self, code: ErrorCode, why: str) -> None:
        self.response = _Partition(self._part.index, code, -1, -1, -1, (), why)


def _is_checksum_right(batch: bytes) -> bool:
    return batch[CRC_AT:ATTRIBUTES_AT] == crc32c(batch[ATTRIBUTES_AT:]).to_bytes(4, "big")


def _refusal(
    call: Call, request: ProduceRequest, topic: str | None, at: TopicPartition, records: bytes
) -> tuple[ErrorCode, str] | None:
    """Why a batch is refused before its partition is looked at; None: it is not."""
    if refusal := _refusal_of_client(call, request.transactional_id, topic):
        return refusal
    if request.acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}; it must be 0, 1 or -1 (all)"
    if error := call.broker.cluster.refusal(at, request.acks):
        return error, "another broker leads it" if error == ErrorCode.NOT_LEADER_OR_FOLLOWER else "too few are in sync"
    if len(records) <= FLAGS_AT:
        return ErrorCode.INVALID_RECORD, f"{len(records)} bytes are no record batch"
    return _refusal_of_batch(records[MAGIC_AT], records[FLAGS_AT], call.version, request.transactional_id)


def _refusal_of_client(call: Call, transactional_id: str | None, topic: str | None) -> tuple[ErrorCode, str] | None:
    if not call.broker.logs.writable:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the store is served for reading only"
    if transactional_id is not None and not call.allows(*_WRITE_AS, transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return code, f"{call.client.principal} may not write as {transactional_id}"
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic of that id"
    if not call.allows(*_WRITE, topic):
        # A client that has an id alone does not learn the name.
        name = topic if call.version < _FIRST_BY_ID else "it"
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{call.client.principal} may not write to {name}"
    return None


def _refusal_of_batch(
    magic: int, attributes: int, version: int, transactional_id: str | None
) -> tuple[ErrorCode, str] | None:
    if magic != MAGIC:
        return ErrorCode.INVALID_RECORD, f"a batch of format {magic}; only format {MAGIC} is taken"
    if attributes & TRANSACTIONAL and transactional_id is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch without a transactional id"
    if version < _FIRST_WITH_ZSTD and attributes & CODEC_MASK == _ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs version 7 of produce requests"
    return None
