"""Manifests: which staged bytes make up a publish. One file each, complete before the decision names it.

Layout in docs/internals/format.md: a header of 16 bytes, a description in JSON, and then the output that travelled in
commit messages, so that small output needs no other file.

Version 2 of the description added the committed offsets of groups that the publish moves; version 1 is read as well.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import struct
from collections.abc import Iterator, Mapping, Sequence

from pyspark_log.config import INT_MAX, LONG_MAX
from pyspark_log.errors import PublishError, StagedOutputError
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.json_fields import Fields
from pyspark_log.storage.publish.decision import TopicIdPartition, place_of
from pyspark_log.storage.publish.staging.staged_file import StagedRegion, is_staged_name
from pyspark_log.storage.publish.staging.staged_writer import StagedPart
from pyspark_log.storage.record import crc32c
from pyspark_log.types import OffsetStep, TopicPartition

MAGIC = b"PYLOGMF\0"
VERSION = 2
SUFFIX = ".manifest"
# The CRC of each batch is in the description: this is enough for some 10 TB.
_MAX_DESCRIPTION_BYTES = 256 * 1024 * 1024
_HEADER = struct.Struct(">8sII")  # magic, length of the JSON, its CRC-32C


def write(folder: str, parts: Sequence[StagedPart], steps: Sequence[OffsetStep] = ()) -> tuple[str, int, int]:
    """Writes a manifest, durably.

    Args:
        folder: the staging folder; created if it is missing.
        parts: all staged output, in the order of tasks.
        steps: the committed offsets of groups that it moves; their records are among the parts.

    Returns:
        The file's name; the CRC-32C of its description, which the decision repeats; and where in the file, in bytes,
        the output begins that is in no other one.

    Raises:
        PublishError: there are more pieces than a manifest can describe; nothing was written.
        OSError: e.g. a full disk.
    """
    entries: dict[TopicIdPartition, list[dict[str, object]]] = {}
    inline = bytearray()
    for part in parts:
        region: dict[str, object] = {"size": part.size, "count": part.count, "crcs": part.crcs.hex()}
        if part.file:
            region |= {"file": part.file, "position": part.position}
        else:
            region["position"] = len(inline)
            inline += part.data
        entries.setdefault(TopicIdPartition(part.topic, part.topic_id, part.partition), []).append(region)
    description = json.dumps(
        {
            "version": VERSION,
            "parts": [place._asdict() | {"regions": regions} for place, regions in entries.items()],
            "offsets": [
                {
                    "group": step.group,
                    "topic": step.at.topic,
                    "partition": step.at.partition,
                    "from": step.expected,
                    "to": step.offset,
                }
                for step in steps
            ],
        }
    ).encode()
    if len(description) > _MAX_DESCRIPTION_BYTES:
        raise PublishError(
            f"the output is in {len(parts)} pieces, one or more for each task and partition; listing them takes "
            f"{len(description)} bytes, and {_MAX_DESCRIPTION_BYTES} are allowed. Write with fewer tasks (coalesce) or "
            "less at a time"
        )
    crc = crc32c(description)
    files.make_folder(folder)
    name = secrets.token_hex(16) + SUFFIX
    files.replace_whole(f"{folder}/{name}", _HEADER.pack(MAGIC, len(description), crc) + description + bytes(inline))
    return name, crc, _HEADER.size + len(description)


def entries(
    folder: str, name: str, inline_start: int, parts: Sequence[StagedPart]
) -> dict[TopicIdPartition, list[StagedRegion]]:
    """What `read` returns for a manifest that `write` has just written, with the data that it holds.

    `inline_start` is from `write`.
    """
    found: dict[TopicIdPartition, list[StagedRegion]] = {}
    inline = inline_start
    for part in parts:
        path, position = f"{folder}/{part.file or name}", part.position
        if not part.file:
            position, inline = inline, inline + part.size
        region = StagedRegion(path, position, part.size, part.count, part.crcs, part.data)
        found.setdefault(TopicIdPartition(part.topic, part.topic_id, part.partition), []).append(region)
    return found


def read(folder: str, name: str, crc: int) -> dict[TopicIdPartition, list[StagedRegion]]:
    """Reads the manifest that a decision names: the staged bytes of each partition, in order.

    Raises:
        FileNotFoundError: it does not exist (any more).
        StagedOutputError: it is not the manifest that was decided.
        StoreVersionError: a newer version wrote it.
    """
    path = f"{folder}/{name}"
    with _described(path, crc) as (content, start):
        return dict(_part(Fields(part), folder, path, start) for part in content.list("parts"))


def read_steps(folder: str, name: str, crc: int) -> list[OffsetStep]:
    """Reads the committed offsets of groups that the publish moves. Raises: as `read`."""
    with _described(f"{folder}/{name}", crc) as (content, _):
        steps = content.list("offsets") if content.whole("version", low=1) >= 2 else []
        return [_step(Fields(step)) for step in steps]


@contextlib.contextmanager
def _described(path: str, crc: int) -> Iterator[tuple[Fields, int]]:
    """A manifest's description, and the position of the output after it, in bytes."""
    with files.open_read(path) as file:
        header = file.pread(_HEADER.size, 0)
        magic, length, _ = _HEADER.unpack(header) if len(header) == _HEADER.size else (b"", 0, 0)
        description = file.pread(min(length, _MAX_DESCRIPTION_BYTES), _HEADER.size)
    if magic != MAGIC or crc32c(description) != crc:
        raise StagedOutputError(f"{path}: not the manifest that was decided (expected CRC-32C {crc:#010x})")
    try:
        content = Fields.parse(description)
        content.check_version(VERSION, path)
        yield content, _HEADER.size + length
    except ValueError as error:
        raise StagedOutputError(f"{path}: its description makes no sense: {error}") from None


def paths(entries: Mapping[TopicIdPartition, Sequence[StagedRegion]]) -> set[str]:
    """The files that hold what a manifest names; its own is among them if it holds any."""
    return {region.path for regions in entries.values() for region in regions}


def _part(part: Fields, folder: str, manifest: str, inline_start: int) -> tuple[TopicIdPartition, list[StagedRegion]]:
    place = place_of([part.value("topic"), part.value("topic_id"), part.value("partition")])
    return place, [_region(Fields(region), folder, manifest, inline_start) for region in part.list("regions")]


def _region(region: Fields, folder: str, manifest: str, inline_start: int) -> StagedRegion:
    path, start = manifest, inline_start
    if region.has("file"):
        name = region.text("file")
        if not is_staged_name(name):
            raise ValueError(f"{name!r} is no name of a staged file")
        path, start = f"{folder}/{name}", 0
    return StagedRegion(
        path=path,
        position=region.whole("position", high=LONG_MAX // 2) + start,
        size=region.whole("size", low=1, high=INT_MAX),
        count=region.whole("count", low=1, high=INT_MAX),
        crcs=bytes.fromhex(region.text("crcs")),
    )


def _step(step: Fields) -> OffsetStep:
    expected = None if step.value("from") is None else step.whole("from")
    at = TopicPartition(step.text("topic"), step.whole("partition", high=INT_MAX))
    return OffsetStep(step.text("group"), at, expected, step.whole("to"))
