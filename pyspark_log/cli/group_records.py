"""How the records of `__consumer_offsets` are shown: what each group has committed, one object a line."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pyspark_log.cli.records import times_ms
from pyspark_log.storage.coordinator_records import OffsetCommitKey, decode_key, decode_offset_value


def group_lines(batch: pa.RecordBatch) -> bytes:
    """Each record as one line of JSON."""
    return b"".join(json.dumps(item, ensure_ascii=False).encode() + b"\n" for item in _objects(batch))


def _objects(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    columns = [batch.column(name).to_pylist() for name in ("partition", "offset", "key", "value")]
    times = times_ms(batch.column("timestamp"))
    for time, (partition, offset, key, value) in zip(times, zip(*columns, strict=True), strict=True):
        place = {"partition": partition, "offset": offset, "timestamp": time}
        yield {"at": place, **_record(key, value)}


def _record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """What a record says; one that is no committed offset, with the bytes of its key and value."""
    try:
        what = decode_key(key or b"")
        if isinstance(what, OffsetCommitKey):
            whose = {"group": what.group, "topic": what.topic, "partition": what.partition}
            if value is None:
                return {**whose, "committed": None}
            kept = decode_offset_value(value)
            return {
                **whose, "committed": kept.offset, "leader_epoch": kept.leader_epoch, "metadata": kept.metadata,
                "commit_timestamp": kept.commit_timestamp,
            }  # fmt: skip
        whose = {"group": what.group} if what is not None else {}
        return {**whose, "key_base64": _base64(key), "value_base64": _base64(value)}
    except ValueError as error:
        return {"error": str(error), "key_base64": _base64(key), "value_base64": _base64(value)}


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
