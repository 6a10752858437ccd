"""The decisions of a store: which publish happened, in which order, and how far each one is.

They are records of the topic `__pylog_publish`, which has one partition. The offset of a record that says
"decided" is the decision's number; it is synced before the log's end moves, so nobody ever acts on a decision
that a power loss could take back. The key is the publisher's id; the last record of a key is all that is
known, and all that needs to be known, of that publisher.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from pyspark_log.storage.appender import Appender
from pyspark_log.storage.encoder import TopicEncoder
from pyspark_log.storage.errors import (
    CorruptRecordError,
    StoreVersionError,
    TopicExistsError,
    UnknownTopicError,
)
from pyspark_log.storage.locks import DEFAULT_TIMEOUT, Mutex
from pyspark_log.storage.range_reader import READ_SIZE
from pyspark_log.storage.store import Store
from pyspark_log.storage.topics import PUBLISH_TOPIC

VERSION = 1
# How many runs that were replaced a publisher's record remembers.
_REPLACED_RUNS = 16
# All that a setting of the store could make unfit for decisions.
_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    "max.message.bytes": "1048588",
    "segment.bytes": "104857600",
}


class Place(NamedTuple):
    """A partition, of the very topic that was meant: one that is made anew has another id."""

    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What is known of a publisher: its last decision.

    Attributes:
        publisher: its id.
        number: the last decided number.
        offset: the decision's own number: the offset of its record.
        done: whether it is applied everywhere, for certain.
        run: the run of the publisher that decided it, or took it over; "" if runs do not count.
        replaced: earlier runs, newest last; they may decide nothing any more.
        location: the checkpoint that the publisher belongs to; "" if it is not known.
        records: how many records it publishes.
        places: the partitions that it gives something to.
        manifest, manifest_crc: the manifest's name and the CRC-32C of its description.
        host, process, time: who decided, and when (ms).
    """

    publisher: str
    number: int
    offset: int = -1
    done: bool = False
    run: str = ""
    replaced: tuple[str, ...] = ()
    location: str = ""
    records: int = 0
    places: tuple[Place, ...] = ()
    manifest: str = ""
    manifest_crc: int = 0
    host: str = ""
    process: int = 0
    time: int = 0

    def taken_over(self, run: str) -> Decision:
        """The same decision in the hands of a newer run of its publisher."""
        replaced = (*self.replaced, self.run)[-_REPLACED_RUNS:] if self.run else self.replaced
        return replace(self, run=run, replaced=replaced)


def _encode(decision: Decision) -> bytes:
    return json.dumps({
        "version": VERSION,
        "number": decision.number,
        "decision": decision.offset,
        "status": "done" if decision.done else "decided",
        "run": decision.run,
        "replaced": list(decision.replaced),
        "location": decision.location,
        "records": decision.records,
        "places": decision.places,
        "manifest": decision.manifest,
        "manifest_crc": decision.manifest_crc,
        "host": decision.host,
        "process": decision.process,
        "time": decision.time,
    }).encode()


def decode_decision(publisher: str, value: bytes, offset: int) -> Decision:
    """What a record of the log says.

    Args:
        publisher: its key.
        value: its value; not null.
        offset: its offset, which is the decision's number if it decides.

    Raises:
        CorruptRecordError: it is no decision.
        StoreVersionError: a newer version wrote it.
    """
    try:
        content = json.loads(value)
        return _from_json(publisher, content, offset)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptRecordError(
            f"the record at offset {offset} is no decision: {error!r}", base_offset=offset, topic=PUBLISH_TOPIC, partition=0
        ) from None


def _from_json(publisher: str, content: dict[str, Any], offset: int) -> Decision:
    if content["version"] > VERSION:
        raise StoreVersionError(
            f"{PUBLISH_TOPIC}, offset {offset}: version {content['version']}, this pyspark-log knows {VERSION}: "
            "use a newer pyspark-log"
        )
    return Decision(
        publisher=publisher,
        number=content["number"],
        # The record that decides cannot name its own offset; later ones of the decision name it.
        offset=content["decision"] if content["decision"] >= 0 else offset,
        done=content["status"] == "done",
        run=content["run"],
        replaced=tuple(content["replaced"]),
        location=content["location"],
        records=content["records"],
        places=tuple(Place(*place) for place in content["places"]),
        manifest=content["manifest"],
        manifest_crc=content["manifest_crc"],
        host=content["host"],
        process=content["process"],
        time=content["time"],
    )


class DecisionLog:
    """The decisions of one store, as this process has read them. Safe to use from several threads.

    Attributes:
        last: the last decision of each publisher.
        undone: decisions that no record calls done, by number.
        applied: numbers of those among them that were found to be applied everywhere.
    """

    def __init__(self) -> None:
        self.last: dict[str, Decision] = {}
        self.undone: dict[int, Decision] = {}
        self.applied: set[int] = set()
        self._position = 0
        self._mutex = Mutex()

    @classmethod
    def of(cls, store: Store) -> DecisionLog:
        """The decision log of an open store: one object as long as the store's lives."""
        with _known_mutex:
            found = _known.get(store)
            if found is None:
                found = _known[store] = cls()
            return found

    def follow(self, store: Store) -> None:
        """Reads what was decided since the last call; nothing if nothing was ever published."""
        try:
            reader = store.reader(PUBLISH_TOPIC, 0)
        except UnknownTopicError:
            return
        with self._mutex:
            end = reader.state().next_offset
            if end == self._position:
                return
            for chunk in reader.read(self._position, end, max_bytes=READ_SIZE):
                names = ("key", "value", "offset")
                for key, value, offset in zip(*(chunk.columns[name].to_pylist() for name in names), strict=True):
                    self._take(key.decode(), value, offset)
            self._position = end

    def _take(self, publisher: str, value: bytes | None, offset: int) -> None:
        before = self.last.pop(publisher, None)
        if before is not None:
            # A publisher decides again only when its last decision is done.
            self.undone.pop(before.offset, None)
            self.applied.discard(before.offset)
        if value is None:
            return
        decision = self.last[publisher] = decode_decision(publisher, value, offset)
        if not decision.done:
            self.undone[decision.offset] = decision

    @contextlib.contextmanager
    def hold(self, store: Store, timeout: float = DEFAULT_TIMEOUT) -> Iterator[DecisionWriter]:
        """Holds the lock of the log; what was decided up to now has been read. Errors as Appender.hold."""
        try:
            partition = store.appender(PUBLISH_TOPIC, 0)
        except UnknownTopicError:
            with contextlib.suppress(TopicExistsError):
                store.create_topic(PUBLISH_TOPIC, 1, _TOPIC_CONFIGS)
            partition = store.appender(PUBLISH_TOPIC, 0)
        with partition.hold(timeout) as appender:
            self.follow(store)
            yield DecisionWriter(store, self, appender)


_known: weakref.WeakKeyDictionary[Store, DecisionLog] = weakref.WeakKeyDictionary()
_known_mutex = Mutex()


def _done(decision: Decision) -> tuple[str, bytes]:
    return decision.publisher, _encode(replace(decision, done=True))


class DecisionWriter:
    """Adds to the decision log, whose lock is held."""

    def __init__(self, store: Store, log: DecisionLog, appender: Appender) -> None:
        self._store = store
        self._log = log
        self._appender = appender

    def decide(self, decision: Decision, done: Sequence[Decision] = ()) -> Decision:
        """Makes a decision; when this returns it holds, whatever happens. OSError, OutcomeUnknownError.

        In the same write it says of others that they are done, so that nobody looks at them any more.
        """
        finished = [_done(other) for other in done if other.publisher != decision.publisher]
        number = self._appender.state.next_offset + len(finished)
        decision = replace(
            decision, offset=-1, host=socket.gethostname(), process=os.getpid(), time=time.time_ns() // 1_000_000
        )
        before = self._log.last.get(decision.publisher)
        left = self._log.undone.keys() - {other.offset for other in done} - {before.offset if before else -1}
        self._append([*finished, (decision.publisher, _encode(decision))], min([*left, number]))
        return replace(decision, offset=number)

    def take_over(self, decision: Decision, run: str) -> None:
        """Records that a newer run has the publisher now."""
        self._append([(decision.publisher, _encode(decision.taken_over(run)))], None)

    def finish(self, done: Sequence[Decision], forget: str) -> None:
        """Records that decisions are applied everywhere, and forgets the publisher `forget`."""
        records = [(forget, None) if decision.publisher == forget else _done(decision) for decision in done]
        if records:
            left = self._log.undone.keys() - {decision.offset for decision in done}
            self._append(records, min([*left, self._appender.state.next_offset + len(records)]))

    def _append(self, records: Sequence[tuple[str, bytes | None]], first_undone: int | None) -> None:
        keys, values = zip(*records, strict=True)
        data = pa.record_batch({
            "key": pa.array([key.encode() for key in keys], pa.binary()),
            "value": pa.array(values, pa.binary()),
        })
        batches: list[bytes] = []
        encoder = TopicEncoder(PUBLISH_TOPIC, 1, self._appender.config, lambda _, batch, __: batches.append(batch))
        encoder.add(data, time.time_ns() // 1_000_000)
        encoder.flush()
        self._appender.append(bytearray().join(batches), sync=True, first_undone=first_undone)
        self._log.follow(self._store)
