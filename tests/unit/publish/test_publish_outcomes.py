"""The type of an error says what became of a publish: not published, published and pending, or unknown.

One table: what goes wrong, and in which way the output is published. Each row is published again, by the same call,
when nothing is in the way any more.
"""

import contextlib
import errno
import os
import pickle

import pytest

from pyspark_log.clients.transactions import Transactions
from pyspark_log.errors import (
    OffsetConflictError,
    OutcomeUnknownError,
    PublisherFencedError,
    PublishError,
    PublishFailedError,
    PublishNumberError,
    PublishPendingError,
    StagedOutputError,
    TransactionStateError,
)
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.spark_connector.writing.commit import StagedMessage, publish_batch, publish_micro_batch
from pyspark_log.spark_connector.writing.publish_together import Publish
from pyspark_log.spark_connector.writing.query_run import ITS_OWN, QueryRun
from pyspark_log.storage.catalog.topics import PUBLISH_TOPIC
from pyspark_log.storage.fs.locking.locks import FileLock
from pyspark_log.storage.groups.committed_offsets import OffsetMoves
from pyspark_log.storage.publish import claims, publishing
from pyspark_log.storage.publish.claims import claim
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition
from tests.processes import held_by_another
from tests.store_tools import new_store, observed, publish, rows, stage

RUN = QueryRun("query", "run", "")


@pytest.fixture
def store(tmp_path, monkeypatch):
    store = new_store(tmp_path)
    publish(store.decisions, "another", 0, stage(store, rows(b"first")))
    # No publisher waits for a minute here.
    acquire = FileLock.acquire
    monkeypatch.setattr(FileLock, "acquire", lambda lock, timeout=60.0, *args: acquire(lock, min(timeout, 0.05), *args))
    monkeypatch.setattr(publishing, "DEFAULT_TIMEOUT", 0.05)
    return store


def content(store):
    return [value for batch in Store.open(store.path).read("t", 0) for value in batch["value"].to_pylist()]


def is_decided(store, publisher):
    last = claims.last_number(Store.open(store.path).decisions, publisher)
    return last == 0


# ---- what goes wrong


@contextlib.contextmanager
def failing(kind, *names, error=errno.ENOSPC, times=1 << 30):
    """Changes of a kind fail in files whose path has one of the names in it."""
    left = [times]

    def fail(change):
        if change.kind == kind and any(name in change.path for name in names) and left[0]:
            left[0] -= 1
            raise OSError(error, os.strerror(error), change.path)

    with observed(fail):
        yield


@contextlib.contextmanager
def end_cannot_be_moved(store):
    """The decision is written, and from then on its log's state cannot be."""
    state, written = store.logs.writer(PUBLISH_TOPIC, 0).place.state_path, []

    def fail(change):
        if change.kind == "write":
            if f"/{PUBLISH_TOPIC}-0/" in change.path:
                written.append(change.path)
            elif written and change.path == state:
                raise OSError(errno.EIO, os.strerror(errno.EIO), change.path)

    with observed(fail):
        yield
    assert written


@contextlib.contextmanager
def state_file_lost(store, topic):
    state = store.logs.writer(topic, 0).place.state_path
    os.rename(state, f"{state}.lost")
    yield
    os.rename(f"{state}.lost", state)


def is_decided_by_anyone(store):
    """Whether a second publisher has decided."""
    return Store.open(store.path).latest_offset(PUBLISH_TOPIC, 0) > 1


FAULTS = {
    # Before the decision.
    "the decision log is locked": (lambda s: held_by_another(s, PUBLISH_TOPIC), "not", "PYLOG_LOCK_TIMEOUT"),
    "the decision log has lost its state": (lambda s: state_file_lost(s, PUBLISH_TOPIC), "not", "PYLOG_LOG_DAMAGED"),
    "there is no room for the manifest": (lambda _: failing("create", "/staging/"), "not", "PYLOG_IO_ERROR"),
    "there is no room for the decision": (lambda _: failing("write", f"/{PUBLISH_TOPIC}-0/"), "not", "PYLOG_IO_ERROR"),
    # In the middle of it.
    "the decision cannot be synced": (
        lambda _: failing("sync", f"/{PUBLISH_TOPIC}-0/", error=errno.EIO),
        "unknown",
        "PYLOG_OUTCOME_UNKNOWN",
    ),
    "the end of the decision log cannot be moved": (end_cannot_be_moved, "unknown", "PYLOG_OUTCOME_UNKNOWN"),
    # After it.
    "the partition is locked": (lambda s: held_by_another(s, "t"), "pending", "PYLOG_LOCK_TIMEOUT"),
    "the partition has lost its state": (lambda s: state_file_lost(s, "t"), "pending", "PYLOG_LOG_DAMAGED"),
    "there is no room in the partition": (lambda _: failing("write", "/t-0/"), "pending", "PYLOG_IO_ERROR"),
    "the partition cannot be synced": (
        lambda _: failing("sync", "/t-0/", error=errno.EIO),
        "pending",
        "PYLOG_OUTCOME_UNKNOWN",
    ),
}


# ---- ways to publish


class ByCall:
    """`publish` itself."""

    publisher = "q"

    def __init__(self, store):
        self.store = store
        self.parts = stage(store, rows(b"mine"))

    def __call__(self):
        publish(self.store.decisions, self.publisher, 0, self.parts)


class ByTransaction(ByCall):
    publisher = "transaction-q"

    def __init__(self, store):
        self.transaction = Transactions(store, "q").begin()
        self.transaction.append("t", rows(b"mine"))

    def __call__(self):
        self.transaction.commit()


class BySpark(ByCall):
    """Ways of the data source, whose errors have texts only."""

    def __init__(self, store):
        super().__init__(store)
        self.ref = StoreRef.to(store)
        self.messages = [StagedMessage(tuple(self.parts), RUN)]


class ByBatchWrite(BySpark):
    def __call__(self):
        publish_batch(self.ref, self.messages, self.publisher, 0, one_off=False)


class ByOneBatchWrite(BySpark):
    """A batch write without a publishId: it is forgotten when all of it is there."""

    def __call__(self):
        publish_batch(self.ref, self.messages, self.publisher, 0, one_off=True)


class ByMicroBatch(BySpark):
    publisher = ITS_OWN.id_of(RUN.query_id)

    def __init__(self, store):
        super().__init__(store)
        claim(store.decisions, self.publisher, RUN.run_id, 0)

    def __call__(self):
        publish_micro_batch(self.ref, self.messages, 0, "", "")


class ByBlock(BySpark):
    def __call__(self):
        with Publish(self.store.path, self.publisher, 0) as out:
            out._messages = self.messages


WAYS = [ByCall, ByTransaction, ByBatchWrite, ByOneBatchWrite, ByMicroBatch, ByBlock]
TYPES = {"not": PublishError, "pending": PublishPendingError, "unknown": OutcomeUnknownError}
WORDS = {"not": "not published: ", "pending": "published and pending: ", "unknown": "unknown whether published: "}
SHOWN = {"pending": "PYLOG_PUBLISH_PENDING", "unknown": "PYLOG_OUTCOME_UNKNOWN"}


def outcome(error):
    """Which of the three types it is of, and of no other."""
    (found,) = (name for name, kind in TYPES.items() if isinstance(error, kind))
    return found


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_error_says_whether_it_is_published(store, fault, way):
    go_wrong, expected, condition = FAULTS[fault]
    attempt = way(store)
    with go_wrong(store), pytest.raises(Exception) as caught:  # noqa: PT011  (its type is checked below)
        attempt()
    error = caught.value
    if isinstance(error, ConnectorError):
        shown = SHOWN.get(expected, condition)
        assert str(error).startswith(f"[{shown}] {WORDS[expected]}")
        assert condition in str(error)
        error = error.__cause__
    assert outcome(error) == expected
    assert getattr(error, "reason", error.condition) == condition
    assert error.__cause__ is not None
    if expected != "unknown":
        assert is_decided(store, attempt.publisher) == (expected == "pending")
        assert (type(pickle.loads(pickle.dumps(error))), str(pickle.loads(pickle.dumps(error)))) == (
            type(error),
            str(error),
        )
    attempt()
    assert content(store) == [b"first", b"mine"]
    publish(store.decisions, "another", 1, [])
    assert [name for name in os.listdir(f"{store.path}/staging") if name.endswith(".staged")] == []


REFUSED = {
    PublisherFencedError: {"run": "older"},
    PublishNumberError: {"number": 7},
    OffsetConflictError: {"moves": [OffsetStep("g", TopicPartition("t", 0), 5, 6)]},
    StagedOutputError: {"lost": True},
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_is_not_published(store, kind):
    publish(store.decisions, "q", 0, [], run="older")
    claim(store.decisions, "q", "newer")
    parts = stage(store, rows(b"x" * 1000)) if kind is not StagedOutputError else staged_in_a_file(store)
    arguments = {"run": "newer", "number": 1} | REFUSED[kind]
    moves = OffsetMoves(store.committed_offsets, arguments.pop("moves", []))
    if arguments.pop("lost", False):
        os.unlink(f"{store.path}/staging/{parts[0].file}")
    with pytest.raises(kind) as caught:
        publish(store.decisions, "q", parts=parts, participants=[moves], **arguments)
    assert outcome(caught.value) == "not"
    assert content(store) == [b"first"]


def staged_in_a_file(store):
    (part,) = stage(store, rows(*(os.urandom(100_000) for _ in range(20))))
    assert part.file
    return [part]


def test_a_number_that_waits_for_the_one_before_it_is_not_published(store):
    with held_by_another(store, "t"):
        with pytest.raises(PublishPendingError):
            publish(store.decisions, "q", 0, stage(store, rows(b"0")))
        parts = stage(store, rows(b"1"))
        with pytest.raises(PublishFailedError, match=r"number 1 of .* is not decided.*number 0 of .* is decided"):
            publish(store.decisions, "q", 1, parts)
        assert is_decided(store, "q")
        with pytest.raises(PublishFailedError, match="number 1"):
            claim(store.decisions, "q", "run", 1)
        for number in (0, None):
            with pytest.raises(PublishPendingError, match="number 0"):
                claim(store.decisions, "q", "run", number)
    publish(store.decisions, "q", 1, parts)
    assert content(store) == [b"first", b"0", b"1"]


def test_a_pending_number_stays_pending_whatever_fails_next(store):
    parts = stage(store, rows(b"0"))
    for topic in ("t", PUBLISH_TOPIC):
        with held_by_another(store, topic), pytest.raises(PublishPendingError):
            publish(store.decisions, "q", 0, parts)
    publish(store.decisions, "q", 0, parts)
    assert content(store) == [b"first", b"0"]


def test_a_decision_that_cannot_be_read_back_is_made(store):
    """Between the decision and the end of the call anything may fail, also the reading of what was decided."""
    lost = []

    def lose(change):
        if not lost and is_decided_by_anyone(store):
            lost.append(change.path)
            raise MemoryError

    with observed(lose), pytest.raises(PublishPendingError) as caught:
        publish(store.decisions, "q", 0, stage(store, rows(b"0")))
    assert isinstance(caught.value.__cause__, MemoryError)
    assert is_decided(store, "q")
    publish(store.decisions, "q", 0, stage(store, rows(b"0")))
    assert content(store) == [b"first", b"0"]


# ---- transactions


def begun(store):
    transaction = Transactions(store, "q").begin()
    transaction.append("t", rows(b"mine"))
    return transaction


@pytest.mark.parametrize("fault", FAULTS)
def test_a_transaction_is_aborted_unless_it_is_committed(store, fault):
    go_wrong, expected, _ = FAULTS[fault]
    transaction = begun(store)
    with go_wrong(store), pytest.raises(TYPES[expected]):
        transaction.commit()
    if is_decided(store, "transaction-q"):
        with pytest.raises(TransactionStateError, match="is committed already"):
            transaction.abort()
        transaction.commit()
        assert content(store) == [b"first", b"mine"]
    else:
        transaction.abort()
        assert content(store) == [b"first"]
    with Transactions(store, "q").begin() as after:
        after.append("t", rows(b"after"))
    assert content(store)[-1] == b"after"


def test_what_is_certain_needs_no_lock_to_be_aborted(store):
    refused, pending = begun(store), Transactions(store, "p").begin()
    with held_by_another(store, PUBLISH_TOPIC):
        with pytest.raises(PublishFailedError):
            refused.commit()
        refused.abort()
    pending.append("t", rows(b"mine"))
    with held_by_another(store, "t"), pytest.raises(PublishPendingError):
        pending.commit()
    with state_file_lost(store, PUBLISH_TOPIC):
        with pytest.raises(PublishPendingError, match="by an earlier call"):
            pending.commit()
        with pytest.raises(TransactionStateError, match="is committed already"):
            pending.abort()
    pending.commit()
    assert content(store) == [b"first", b"mine"]


@pytest.mark.parametrize("ask", ["commit", "abort"])
def test_an_unknown_commit_stays_unknown_until_it_can_be_checked(store, ask):
    transaction = begun(store)
    with failing("sync", f"/{PUBLISH_TOPIC}-0/", error=errno.EIO), pytest.raises(OutcomeUnknownError):
        transaction.commit()
    with held_by_another(store, PUBLISH_TOPIC):
        for call in (transaction.commit, transaction.abort):
            with pytest.raises(OutcomeUnknownError, match="PYLOG_LOCK_TIMEOUT"):
                call()
    getattr(transaction, ask)()
    assert content(store) == [b"first", b"mine"][: 1 + (ask == "commit")]


@pytest.mark.parametrize("newer_publishes", [False, True])
def test_an_unknown_commit_of_an_instance_that_was_replaced(store, newer_publishes):
    """As long as the newer one has published nothing, the number shows that this one has not, either."""
    transaction = begun(store)
    with failing("sync", f"/{PUBLISH_TOPIC}-0/", error=errno.EIO), pytest.raises(OutcomeUnknownError):
        transaction.commit()
    newer = Transactions(Store.open(store.path), "q")
    if newer_publishes:
        with newer.begin() as other:
            other.append("t", rows(b"newer"))
    with pytest.raises(OutcomeUnknownError, match="PYLOG_PUBLISHER_FENCED"):
        transaction.commit()
    with pytest.raises(OutcomeUnknownError if newer_publishes else PublisherFencedError):
        transaction.abort()
    assert b"mine" not in content(store)


def test_a_transaction_that_cannot_be_staged_is_not_committed(store):
    transaction = Transactions(store, "q").begin()
    transaction.append("t", rows(*(b"%06d" % number * 20 for number in range(60_000))))
    with failing("sync", "/staging/", error=errno.EIO), pytest.raises(PublishFailedError, match="only be aborted"):
        transaction.commit()
    with pytest.raises(TransactionStateError, match="can only be aborted"):
        transaction.commit()
    transaction.abort()
    assert content(store) == [b"first"]
