"""A store in an object store: `Store.open("s3://bucket/prefix")`."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from math import inf
from threading import Timer
from typing import TYPE_CHECKING

from pyspark_log.arguments import check_whole
from pyspark_log.config import (
    TOPIC_CONFIGS,
    TopicConfig,
    check_store_configs,
    check_topic_configs,
    int_config,
    store_config,
)
from pyspark_log.errors import (
    DescriptionError,
    InvalidConfigError,
    ObjectStoreError,
    StoreExistsError,
    StoreNotFoundError,
    TopicExistsError,
    UnknownTopicError,
)
from pyspark_log.storage.abilities import Missing, refuse
from pyspark_log.storage.catalog import INTERNAL_TOPICS, check_name, check_not_internal, location
from pyspark_log.storage.catalog.topics import check_id, check_partitions, new_id
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.fs.json_fields import Fields
from pyspark_log.storage.groups import Groups
from pyspark_log.storage.log.read import READ_BYTES, Damage
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.objects.race import RACERS, ROUNDS, faulty_races
from pyspark_log.storage.publish import StagedPart
from pyspark_log.storage.publish_log import maintenance, proposals, reading
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.parts.groups import ObjectOffsets
from pyspark_log.storage.publish_log.parts.partitions import ObjectPartitions
from pyspark_log.storage.publish_log.parts.publishes import ObjectPublishes
from pyspark_log.storage.publish_log.parts.staging import in_parts, outputs
from pyspark_log.storage.publish_log.proposals import Proposal, log_of, topic_of
from pyspark_log.storage.publish_log.state import State
from pyspark_log.storage.store import Store, forget_shared
from pyspark_log.types import (
    EARLIEST,
    LATEST,
    READ_UNCOMMITTED,
    AppendResult,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
    check_isolation,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_log.storage.compaction import Outcome
    from pyspark_log.storage.publish_log.maintenance import Cleaned, Merged
    from pyspark_log.storage.record.rows import Rows

_log = logging.getLogger(__name__)

VERSION = 1
_STORE = "store.json"
_CHECKED = "race"
# How many objects are looked at for the name of a store, where none should be.
_LOOKED_AT = 1000
# `shared` looks no more often whether it is still the same store, in seconds: each time is a request.
_CHECK_SECONDS = 10.0
# How long a store that is opened may be silent before that is said, in seconds.
_SILENCE_SECONDS = 3.0


class ObjectStore(Store):
    """A store in an object store.

    Attributes:
        configs: what store.json sets, by Kafka's broker names.
        log: its publish log, for tools.
    """

    def __init__(self, objects: Objects, cluster_id: str, configs: Mapping[str, str]) -> None:
        """For `open` and `create`."""
        self.path, self.cluster_id, self.configs = str(objects.address), cluster_id, configs
        self._checked = time.monotonic()
        self.log = PublishLog(objects, now_ms, lambda log: maintenance.merge_recent(log, configs, now_ms))
        self.publishes = ObjectPublishes(self.log, cluster_id, configs, now_ms, self.ensure_topic)
        self.partitions = ObjectPartitions(self.log, cluster_id, configs)

    # ---- opening

    @classmethod
    def _open(cls, path: str, options: Mapping[str, str] | None) -> ObjectStore:
        objects = Objects(path, options)
        said = "%s: the object store has not answered yet: it is asked for half a minute"
        silence = Timer(_SILENCE_SECONDS, _log.warning, (said, objects.address))
        silence.daemon = True
        with suppress(RuntimeError):  # Nothing is said where the system has no thread left.
            silence.start()
        try:
            return cls(objects, *_described(objects))
        finally:
            silence.cancel()

    @classmethod
    def _create(cls, path: str, settings: Mapping[str, str], options: Mapping[str, str] | None) -> None:
        _make(path, new_id(), settings, lambda _: None, options)

    @classmethod
    def create_from(
        cls, path: str | os.PathLike[str], cluster_id: str, settings: Mapping[str, str], fill: Callable[[Objects], None]
    ) -> ObjectStore:
        """As `create`, for a store that begins with what `fill` writes; before it returns there is no store.

        Raises: as `create`; and what `fill` raises.
        """
        _make(os.fspath(path), cluster_id, settings, fill, None)
        forget_shared(location(path))
        return cls.open(path)

    def _is_current(self) -> bool:
        if time.monotonic() - self._checked > _CHECK_SECONDS:
            if _described(self.log.objects) != (self.cluster_id, self.configs):
                return False
            self._checked = time.monotonic()
        return True

    def close(self) -> None:
        """Nothing is open."""

    # ---- topics

    def topics(self, *, internal: bool = False) -> list[str]:
        return sorted(self.log.follow().topics)

    def describe_topic(self, name: str) -> TopicDescription:
        check_name(name)
        return topic_of(self.log.follow(), name)

    def create_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> TopicDescription:
        _check_can_change(name)
        _check_configs(name, configs or {})
        partitions = int_config(self.configs, "num.partitions") if partitions is None else partitions
        check_partitions(name, partitions)
        topic = TopicDescription(name, new_id(), partitions, dict(configs or {}))
        self.log.decide(lambda state: proposals.create_topic(state, topic))
        return topic

    def ensure_topic(self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None) -> bool:
        check_name(name)
        try:
            topic_of(self.log.follow(), name)
        except UnknownTopicError:
            asked = partitions is not None or configs is not None
            if not asked and not store_config(self.configs, "auto.create.topics.enable"):
                raise
        else:
            return False
        try:
            self.create_topic(name, partitions, configs)
        except TopicExistsError:
            return False  # Another process was faster.
        return True

    def add_partitions(self, name: str, total: int) -> TopicDescription:
        _check_can_change(name)
        self.log.decide(lambda state: proposals.add_partitions(state, name, total))
        return topic_of(self.log.follow(inf), name)

    def alter_configs(
        self, name: str, configs: Mapping[str, str] | None = None, delete: Collection[str] = ()
    ) -> TopicDescription:
        _check_can_change(name)
        _check_configs(name, {**{key: "" for key in delete if key not in TOPIC_CONFIGS}, **(configs or {})})
        self.log.decide(lambda state: proposals.alter_configs(state, name, configs or {}, list(delete)))
        return topic_of(self.log.follow(inf), name)

    def delete_topic(
        self, name: str, progress: Callable[[int, int], None] | None = None, *, topic_id: str | None = None
    ) -> None:
        _check_can_change(name)
        self.log.decide(lambda state: proposals.delete_topic(state, name, topic_id))

    # ---- groups

    @property
    def groups(self) -> Groups[ObjectOffsets]:
        return Groups(ObjectOffsets(self.log, self.configs))

    # ---- records

    def append(
        self,
        topic: str,
        data: Rows,
        *,
        partition: int | None = None,
        sync: bool = False,
        compression_type: str | None = None,
    ) -> list[AppendResult]:
        from pyspark_log.storage.record.rows import to_arrow  # noqa: PLC0415  (Arrow, which a server does not load)

        check_not_internal(topic)
        parts = self._encoded(topic, to_arrow(data), partition, compression_type)
        if not parts:
            return []
        found, inline = outputs(self.log.objects, parts, now_ms())
        entry = self.log.decide(lambda state: replace(proposals.append(state, found), data=inline))
        assert entry is not None
        return [AppendResult(one.partition, one.base_offset, one.next_offset) for one in entry.additions]

    def _encoded(
        self, topic: str, data: pa.RecordBatch | pa.Table, partition: int | None, compression_type: str | None
    ) -> list[StagedPart]:
        """The record batches of rows, as parts without an object."""
        import pyarrow as pa  # noqa: PLC0415

        from pyspark_log.storage.ingest.encoder import BatchEncoder  # noqa: PLC0415

        description = self.describe_topic(topic)
        config = TopicConfig.resolve(description.configs, self.configs, compression_type)
        if partition is not None:
            log_of(self.log.follow(inf), topic, partition)
        now = now_ms()
        encoder = BatchEncoder(topic, description.partitions, config, now if config.log_append_time else None)
        rows = data.to_batches() if isinstance(data, pa.Table) else [data]
        assigned = [encoder.assign(part, now, partition) for part in rows]
        parts = list[StagedPart]()
        for target in sorted({target for part in assigned for target in part.shares}):
            parts += in_parts(description, target, encoder.batches(target, assigned))
        return parts

    def read(
        self,
        topic: str,
        partition: int,
        start: int = EARLIEST,
        end: int | None = None,
        *,
        max_bytes: int = READ_BYTES,
        columns: Sequence[str] | None = None,
        headers: bool = False,
        check_crcs: bool = True,
        isolation_level: str = READ_UNCOMMITTED,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        from pyspark_log.storage.record.rows import RowBuilder, row_schema  # noqa: PLC0415  (Arrow, which a server does not load)

        check_whole("max_bytes", max_bytes, low=1)
        check_isolation(isolation_level)
        schema = row_schema(headers, columns)
        log = log_of(self.log.follow(), topic, partition)
        start = {EARLIEST: log.log_start, LATEST: log.log_end}.get(start, start)
        end = log.log_end if end is None or end == LATEST else end
        chunks = reading.read(
            self.log.objects, TopicPartition(topic, partition), log, start, end,
            newest=lambda: log_of(self.log.follow(), topic, partition), max_bytes=max_bytes,
            max_batch_bytes=int_config(self.configs, "batch.max.memory.bytes"), columns=schema.names,
            check_crcs=check_crcs, on_damage=on_damage,
        )  # fmt: skip
        rows = RowBuilder(topic, partition, schema)
        return (rows.rows(chunk.columns, chunk.num_rows) for chunk in chunks)

    def flush(self, topic: str | None = None) -> None:
        """What was appended is durable."""
        if topic is not None and topic not in INTERNAL_TOPICS:
            self.describe_topic(topic)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        check_not_internal(topic)

        def propose(state: State) -> Proposal | None:
            log, config = (
                log_of(state, topic, partition),
                TopicConfig.resolve(topic_of(state, topic).configs, self.configs),
            )
            if not config.deletes:
                raise InvalidConfigError(f"topic {topic!r}: records are deleted only where cleanup.policy has delete")
            wanted = log.log_end if before_offset == LATEST else before_offset
            return proposals.delete_records(state, topic, partition, wanted)

        self.log.decide(propose)
        return log_of(self.log.follow(inf), topic, partition).log_start

    # ---- upkeep

    def merge(self, topic: str | None = None, progress: Callable[[int, int], None] | None = None) -> Merged:
        """Merges small pieces of a topic, or of all; as maintenance.merge."""
        return maintenance.merge(self.log, self.configs, now_ms, topic, progress)

    def compact(self, topic: str | None = None, progress: Callable[[int, int], None] | None = None) -> list[Outcome]:
        """Compacts a topic, or what is due; as maintenance.compact. Returns what was done with each partition."""
        return list(maintenance.compact(self.log, self.configs, now_ms, topic, progress))

    def clean(self, topic: str | None = None) -> Cleaned:
        """Applies retention, and deletes objects that nothing needs; as maintenance.clean."""
        return maintenance.clean(self.log, self.configs, now_ms, topic)

    # ---- offsets

    def earliest_offset(self, topic: str, partition: int) -> int:
        return log_of(self.log.follow(), topic, partition).log_start

    def latest_offset(self, topic: str, partition: int, *, isolation_level: str = READ_UNCOMMITTED) -> int:
        check_isolation(isolation_level)
        return log_of(self.log.follow(), topic, partition).log_end

    def offset_for_timestamp(self, topic: str, partition: int, timestamp: int) -> OffsetAndTimestamp | None:
        check_whole("timestamp", timestamp)
        log = log_of(self.log.follow(), topic, partition)
        most = int_config(self.configs, "batch.max.memory.bytes")
        return reading.find_timestamp(self.log.objects, TopicPartition(topic, partition), log, int(timestamp), most)


def _described(objects: Objects) -> tuple[str, Mapping[str, str]]:
    """The cluster id and the configs of the store that is there. Raises: as Store.open."""
    found = objects.get(_STORE)
    if found is None:
        raise StoreNotFoundError(f"there is no store at {objects.address}")
    try:
        content = Fields.parse(bytes(found.data))
        content.check_version(VERSION, f"{objects.address}: the store")
        cluster_id, configs = content.text("cluster_id"), dict(content.texts("settings"))
        check_id(cluster_id)
        check_store_configs(configs)
    except (ValueError, InvalidConfigError) as error:
        raise DescriptionError(f"{objects.address}/{_STORE}: {error}") from None
    return cluster_id, configs


def _make(
    path: str, cluster_id: str, settings: Mapping[str, str], fill: Callable[[Objects], None],
    options: Mapping[str, str] | None,
) -> None:  # fmt: skip
    """Creates a store, after it was checked that the object store lets one of several writers win.

    Raises:
        StoreExistsError: there are objects below the prefix, or it lies below that of another store.
        ObjectStoreError: the object store does not keep its conditions; or it refuses a request.
        InvalidConfigError: an unknown config or a bad value.
    """
    configs = dict(settings)
    check_store_configs(configs)
    objects = Objects(path, options)
    _check_place(objects)
    _log.info("%s: looking for some seconds whether a store can be kept there", objects.address)
    prefix = f".{_CHECKED}-{new_id()}"
    try:
        faulty = faulty_races(objects, prefix)
    finally:
        objects.delete([one.key for one in objects.list(prefix)])
    if faulty:
        raise ObjectStoreError(
            f"{objects.address}: no store can be kept here: {faulty} of {ROUNDS} races of {RACERS} processes for one "
            "name had more than one winner, or none; see `pylog doctor`",
            retriable=False,
        )
    fill(objects)
    content = {"version": VERSION, "cluster_id": cluster_id, "settings": configs}
    if not objects.create(_STORE, json.dumps(content, indent=2).encode()):
        raise StoreExistsError(f"{objects.address}: another process has just created a store there")


def _check_place(objects: Objects) -> None:
    """Refuses to create a store where others have objects: below its prefix, or where a prefix above is a store's."""
    address = objects.address
    below = [one.key for one in islice(objects.list(), _LOOKED_AT)]
    inner = next((name for name in below if name.endswith(f"/{_STORE}")), None)
    if inner is not None:
        within = f"{address}/{inner.removesuffix(f'/{_STORE}')}"
        raise StoreExistsError(f"{address}: the store {within} lies within it; take a prefix of its own for each store")
    if below:
        raise StoreExistsError(f"{address} is not empty")
    parts = address.prefix.split("/") if address.prefix else []
    for length in range(len(parts)):
        above = address._replace(prefix="/".join(parts[:length]))
        try:
            is_store = Objects(str(above), objects.options).get(_STORE, 1) is not None
        except ObjectStoreError as error:
            if error.retriable:
                raise
            continue  # What may not be looked at cannot be known.
        if is_store:
            raise StoreExistsError(f"{address} lies within the store {above}; take a prefix beside it")


def _check_configs(topic: str, configs: Mapping[str, str]) -> None:
    """Refuses configs that no topic in an object store can have. InvalidConfigError, UnsupportedByStoreError."""
    check_topic_configs(configs)
    if configs.get("source.position.header"):
        refuse(Missing.SOURCE_POSITIONS, f"topic {topic}")


def _check_can_change(name: str) -> None:
    """Refuses names that no topic can have, and those of the engine's own topics. InvalidTopicError."""
    check_name(name)
    check_not_internal(name)
