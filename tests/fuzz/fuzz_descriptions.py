"""What the store keeps as JSON (itself, topics, manifests, decisions) and the records of committed offsets."""

from __future__ import annotations

import json
import os
import random
import re
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from family import Family
from mutations import changed, changed_json, noise

from pyspark_log.config import TopicConfig
from pyspark_log.errors import PylogError
from pyspark_log.storage.catalog.topics import TopicCatalog, check_name
from pyspark_log.storage.groups.log import records
from pyspark_log.storage.groups.log.records import OffsetCommitKey, OffsetCommitValue
from pyspark_log.storage.publish.decision import (
    Decision,
    Origin,
    SetAside,
    TopicIdPartition,
    decode_decision,
    encode_decision,
    publisher_of,
)
from pyspark_log.storage.publish.staging import manifest
from pyspark_log.storage.record.checksum import crc32c
from pyspark_log.storage.store import Store
from tests.store_tools import rows, stage

_PLACE, _ORIGIN = TopicIdPartition("t", "Xo3aN0fPQvCd5yJmK2s9Bg", 0), Origin("host", 1, 2)
_DECISION = Decision(
    "p", 3, run="r", replaced=("q",), location="/c", plan="p", records=10, places=(_PLACE,),
    manifest=f"{'0' * 32}.manifest", manifest_crc=5, host="h", process=1, time=2, holder=_ORIGIN,
    set_aside=SetAside(1, 2, _ORIGIN, (_PLACE,)),
)  # fmt: skip
_KEY = OffsetCommitKey("group", "topic", 3)
_VALUE = OffsetCommitValue(5, 1, "metadata", 1000)


class Descriptions(Family):
    """What it is, and its bytes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._store = Store.create(folder / "store", {"num.partitions": "3"})
        self._store.create_topic("t", 2, {"retention.ms": "-1"})
        parts = stage(self._store, rows(*[b"x"] * 10))
        self._staging = folder / "staging"
        name, _, _ = manifest.write(str(self._staging), parts)
        self._manifest = self._staging / name
        data = self._manifest.read_bytes()
        self._inline = data[16 + int.from_bytes(data[8:12], "big") :]
        self._description = json.loads(data[16 : len(data) - len(self._inline)])
        self._description["offsets"] = [{"group": "g", "topic": "t", "partition": 0, "from": None, "to": 5}]
        self._description["parts"][0]["regions"].append(
            {"size": 5, "count": 1, "crcs": "00000000", "file": f"{'0' * 32}.staged", "position": 0}
        )
        self._good: dict[str, Any] = {
            "store.json": json.loads((folder / "store" / "store.json").read_bytes()),
            "topic": json.loads((folder / "store" / "topics" / "t.json").read_bytes()),
            "manifest": self._description,
            "decision": json.loads(encode_decision(_DECISION)),
        }
        self._kinds: dict[str, Callable[[bytes], object]] = {
            "store.json": self._read_store,
            "topic": self._read_topic,
            "manifest": self._read_manifest,
            "decision": _read_decision,
            "group key": _read_key,
            "group value": _read_value,
        }

    def input(self, pick: random.Random) -> tuple[str, bytes]:
        kind = pick.choice(list(self._kinds))
        if pick.random() < 0.05:
            return kind, noise(pick)
        if kind == "group key":
            return kind, changed(pick, pick.choice((records.encode_offset_key(_KEY), b"\0\2\0\1g")), 3)
        if kind == "group value":
            return kind, _value_like(pick)
        if kind != "manifest":
            return kind, changed_json(pick, self._good[kind])
        description = changed_json(pick, self._description)
        length = len(description) if pick.random() < 0.9 else pick.choice((0, 1, len(description) + 3, 2**32 - 1))
        return kind, struct.pack(">8sII", manifest.MAGIC, length, crc32c(description)) + description + self._inline

    def feed(self, data: tuple[str, bytes], counts: Counter[str]) -> None:
        kind, content = data
        try:
            self._kinds[kind](content)
        except PylogError:
            counts[f"{kind}: refused"] += 1
        else:
            counts[f"{kind}: read"] += 1

    def _read_store(self, content: bytes) -> None:
        path = Path(self._store.path, "store.json")
        path.write_bytes(content)
        store = _naming(path, lambda: Store.open(self._store.path))
        assert re.fullmatch(r"[A-Za-z0-9_-]{22}", store.cluster_id)
        store.topic_config("t")  # settings may still be unknown or bad, which is said here

    def _read_topic(self, content: bytes) -> None:
        path = Path(self._store.path, "topics", "t.json")
        path.write_bytes(content)
        catalog = TopicCatalog(str(path.parent), "")
        topic = _naming(path, lambda: catalog.describe("t"))
        assert re.fullmatch(r"[A-Za-z0-9_-]{22}", topic.topic_id)
        assert 1 <= topic.partitions < 2**31
        deleted = path.parent / "deleted"
        deleted.mkdir(exist_ok=True)
        (deleted / "x.json").write_bytes(content)
        for gone in catalog.deleted():
            check_name(gone.topic.name)
        TopicConfig.resolve(topic.configs, {})

    def _read_manifest(self, content: bytes) -> None:
        self._manifest.write_bytes(content)
        crc = int.from_bytes(content[12:16], "big")
        entries = _naming(self._manifest, lambda: manifest.read(str(self._staging), self._manifest.name, crc))
        _naming(self._manifest, lambda: manifest.read_steps(str(self._staging), self._manifest.name, crc))
        for place, regions in entries.items():
            check_name(place.topic)
            for region in regions:
                assert os.path.dirname(region.path) == str(self._staging)
                assert region.position >= 0
                assert region.size > 0
                assert region.count > 0


def _naming(path: Path, read: Callable[[], Any]) -> Any:
    """What is read; an error must say where from."""
    try:
        return read()
    except PylogError as error:
        Family.must(path.name in str(error) or str(path.parent) in str(error), error)
        raise


def _read_decision(content: bytes) -> None:
    publisher_of(content, 7)
    decision = decode_decision("p", content, 7)
    assert decision.offset >= 0
    assert "/" not in decision.manifest
    assert hash(decision) is not None
    assert str(decision.holder)
    for place in decision.places:
        check_name(place.topic)


def _read_key(content: bytes) -> None:
    try:
        records.decode_key(content)
    except ValueError as error:
        raise PylogError(str(error)) from None


def _read_value(content: bytes) -> None:
    try:
        records.decode_offset_value(content)
    except ValueError as error:
        raise PylogError(str(error)) from None


def _value_like(pick: random.Random) -> bytes:
    version = pick.randrange(6)
    text = b"metadata"
    size = bytes([len(text) + 1]) if version >= 4 else struct.pack(">h", len(text))
    data = struct.pack(">hq", version, 5) + (struct.pack(">i", 1) if version >= 3 else b"") + size + text
    data += bytes(8) + (bytes(8) if version == 1 else b"") + (b"\1\0\0" if version >= 4 else b"")
    return changed(pick, data, 3)
