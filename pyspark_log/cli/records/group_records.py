"""Prints records of `__consumer_offsets` (committed offsets and members of groups), one JSON object a line."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pyspark_log.cli.records.formats import times_ms
from pyspark_log.storage.groups import NEVER, GroupMember, assigned_partitions
from pyspark_log.storage.groups.log.metadata import CONSUMER, decode_group_value, subscribed_topics
from pyspark_log.storage.groups.log.records import (
    LATER_KINDS,
    GroupMetadataKey,
    OffsetCommitKey,
    decode_key,
    decode_offset_value,
    group_of,
)


def group_lines(batch: pa.RecordBatch) -> bytes:
    """Each record as one line of JSON."""
    return b"".join(json.dumps(item, ensure_ascii=False).encode() + b"\n" for item in _objects(batch))


def of_group(batch: pa.RecordBatch, group: str) -> pa.RecordBatch:
    """Those records that are about a group."""
    return batch.filter(pa.array([_group(key) == group for key in batch.column("key").to_pylist()], pa.bool_()))


def _group(key: bytes | None) -> str | None:
    try:
        return group_of(key or b"")
    except ValueError:
        return None


def _objects(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    columns = [batch.column(name).to_pylist() for name in ("partition", "offset", "key", "value")]
    times = times_ms(batch.column("timestamp"))
    for time, (partition, offset, key, value) in zip(times, zip(*columns, strict=True), strict=True):
        place = {"partition": partition, "offset": offset, "timestamp": time}
        yield {"at": place, **_record(key, value)}


def _record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """What a record says; if it cannot be decoded, the bytes of its key and value."""
    try:
        what = decode_key(key or b"")
        if isinstance(what, OffsetCommitKey):
            whose = {"group": what.group, "topic": what.topic, "partition": what.partition}
            return {**whose, **({"committed": None} if value is None else _position(value))}
        if isinstance(what, GroupMetadataKey):
            return {"group": what.group, **({"members": None} if value is None else _members(value))}
        assert key is not None  # else it would have no version
        kind = LATER_KINDS.get(int.from_bytes(key[:2], "big"))
        known = {} if kind is None else {"group": group_of(key), "kind": kind}
        return {**known, "key_base64": _base64(key), "value_base64": _base64(value)}
    except ValueError as error:
        return {"error": str(error), "key_base64": _base64(key), "value_base64": _base64(value)}


def _position(value: bytes) -> dict[str, Any]:
    kept = decode_offset_value(value)
    expiry = "never" if kept.expire_timestamp == NEVER else kept.expire_timestamp
    return {
        "committed": kept.offset,
        "leader_epoch": kept.leader_epoch,
        "metadata": kept.metadata,
        "commit_timestamp": kept.commit_timestamp,
        **({} if expiry == -1 else {"expire_timestamp": expiry}),
    }


def _members(value: bytes) -> dict[str, Any]:
    group = decode_group_value(value)
    return {
        "protocol_type": group.protocol_type,
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "state_timestamp": group.state_timestamp,
        "members": [_member(member, group.protocol_type) for member in group.members],
    }


def _member(member: GroupMember, protocol_type: str) -> dict[str, Any]:
    identity = {
        "consumer_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.client_host,
    }
    if protocol_type != CONSUMER:
        return {
            **identity,
            "subscription_base64": _base64(member.subscription),
            "assignment_base64": _base64(member.assignment),
        }
    return {
        **identity,
        "topics": subscribed_topics(member.subscription),
        "partitions": [str(at) for at in assigned_partitions(member.assignment)],
    }


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
