"""Records as lines of JSON, as `pylog consume --format json` has them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping

from pyspark_log.monitoring import Page
from pyspark_log.ui.bounds import HEADER_BYTES
from pyspark_log.ui.looks.found import Record


def download(topic: str, records: Iterable[Record]) -> Page:
    """A file with what is shown of some records: what is cut has its whole size beside it."""
    lines = [json.dumps(_object(topic, record), ensure_ascii=False) + "\n" for record in records]
    headers = {"Content-Disposition": f'attachment; filename="{topic}.jsonl"'}
    return Page("".join(lines).encode(), content_type="application/x-ndjson", headers=headers)


def _object(topic: str, record: Record) -> dict[str, object]:
    pairs = ((name, value and value[:HEADER_BYTES], value) for name, value in record.headers)
    return {
        "topic": topic, "partition": record.partition, "offset": record.offset, "timestamp": record.time,
        "timestampType": "LogAppendTime" if record.is_append_time else "CreateTime",
        **_bytes("key", record.key, record.key_size), **_bytes("value", record.value, record.value_size),
        "headers": [{"key": name, **_bytes("value", kept, len(value or b""))} for name, kept, value in pairs],
        **({"header_count": record.header_count} if record.header_count > len(record.headers) else {}),
    }  # fmt: skip


def _bytes(name: str, data: bytes | None, size: int) -> Mapping[str, object]:
    cut = {f"{name}_size": size} if data is not None and len(data) < size else {}
    try:
        return {name: data if data is None else data.decode(), **cut}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode(), **cut}
