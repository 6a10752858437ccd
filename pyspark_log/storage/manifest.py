"""Manifests: which staged bytes make up a publish. One file each, written whole before the decision names it.

Layout in docs/format.md: a header of 16 bytes, a description in JSON, and behind it the output that
travelled in commit messages, so that small output needs no other file.
"""

from __future__ import annotations

import json
import secrets
import struct
from collections.abc import Mapping, Sequence

from pyspark_log.storage import files
from pyspark_log.storage.apply import Region
from pyspark_log.storage.checksum import crc32c
from pyspark_log.storage.decision_log import Place
from pyspark_log.storage.errors import StagedOutputError, StoreVersionError
from pyspark_log.storage.staging import StagedPart

MAGIC = b"PYLOGMF\0"
VERSION = 1
SUFFIX = ".manifest"
_HEADER = struct.Struct(">8sII")  # magic, length of the JSON, its CRC-32C


def write(folder: str, parts: Sequence[StagedPart]) -> tuple[str, int]:
    """Writes a manifest durably.

    Args:
        folder: the staging folder; made if it is missing.
        parts: all staged output, in the order of tasks.

    Returns:
        The file's name, and the CRC-32C of its description, which the decision repeats.
    """
    entries: dict[Place, list[dict[str, object]]] = {}
    inline = bytearray()
    for part in parts:
        region: dict[str, object] = {"size": part.size, "count": part.count, "crcs": part.crcs.hex()}
        if part.file:
            region |= {"file": part.file, "position": part.position}
        else:
            region["position"] = len(inline)
            inline += part.data
        entries.setdefault(Place(part.topic, part.topic_id, part.partition), []).append(region)
    description = json.dumps({
        "version": VERSION,
        "parts": [
            place._asdict() | {"regions": regions}
            for place, regions in entries.items()
        ],
    }).encode()
    crc = crc32c(description)
    files.make_folder(folder)
    name = secrets.token_hex(16) + SUFFIX
    files.replace_whole(
        f"{folder}/{name}", _HEADER.pack(MAGIC, len(description), crc) + description + bytes(inline)
    )
    return name, crc


def read(folder: str, name: str, crc: int) -> dict[Place, list[Region]]:
    """Reads the manifest that a decision names: the staged bytes of each partition, in order.

    Raises:
        FileNotFoundError: it is not there (any more).
        StagedOutputError: it is not the one that was decided.
        StoreVersionError: a newer version wrote it.
    """
    path = f"{folder}/{name}"
    with open(path, "rb") as file:
        header = file.read(_HEADER.size)
        magic, length, _ = _HEADER.unpack(header) if len(header) == _HEADER.size else (b"", 0, 0)
        description = file.read(length)
    if magic != MAGIC or crc32c(description) != crc:
        raise StagedOutputError(f"{path}: not the manifest that was decided (expected CRC-32C {crc:#010x})")
    content = json.loads(description)
    if content["version"] > VERSION:
        raise StoreVersionError(f"{path}: manifest version {content['version']}, this pyspark-log knows {VERSION}")
    inline_start = _HEADER.size + length
    return {
        Place(part["topic"], part["topic_id"], part["partition"]): [
            _region(folder, path, inline_start, region) for region in part["regions"]
        ]
        for part in content["parts"]
    }


def paths(entries: Mapping[Place, Sequence[Region]]) -> set[str]:
    """The files that hold what a manifest names; its own is among them if it holds any."""
    return {region.path for regions in entries.values() for region in regions}


def _region(folder: str, manifest: str, inline_start: int, region: dict[str, str | int]) -> Region:
    inline = "file" not in region
    return Region(
        path=manifest if inline else f"{folder}/{region['file']}",
        position=int(region["position"]) + (inline_start if inline else 0),
        size=int(region["size"]),
        count=int(region["count"]),
        crcs=bytes.fromhex(str(region["crcs"])),
    )

