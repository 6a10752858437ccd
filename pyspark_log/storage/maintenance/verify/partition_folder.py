"""Verifies the files in a partition's folder beside its segments, and the bytes beyond its end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyspark_log.config import TopicConfig
from pyspark_log.errors import SideFileError
from pyspark_log.storage.catalog import PartitionPath, read_partition_metadata
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import Flags, PartitionState, acknowledged, read_slots
from pyspark_log.storage.maintenance.verify.findings import REPAIR, Finder, Finding, Severity
from pyspark_log.storage.segment import LOG, list_segments, segment_path

_KNOWN = re.compile(
    r"\d{20}\.(log|index|timeindex|snapshot|txnindex)(\.deleted|\.cleaned|\.swap)?"
    r"|partition\.metadata|leader-epoch-checkpoint|[0-9a-f]{16}\.tmp"
)


def folder_findings(place: PartitionPath, config: TopicConfig, finding: Finder) -> Iterator[Finding]:
    """The unexpected and the missing files of a partition's folder.

    Args:
        place: which partition.
        config: its topic's settings.
        finding: makes findings.
    """
    try:
        names = sorted(files.list_folder(place.folder))
    except FileNotFoundError:
        return  # nothing was written yet, or its segments are missing, which was reported
    yield from _check_metadata(place, finding, names)
    logs = {name[:20] for name in names if name.endswith(LOG)}
    for name in names:
        path = f"{place.folder}/{name}"
        if not _KNOWN.fullmatch(name):
            yield finding(
                Severity.NOTE, path, what="not a file of the engine", advice="take it out of the store's folder"
            )
        elif name.endswith((".index", ".timeindex")) and name[:20] not in logs:
            yield finding(Severity.NOTE, path, what="an index without a segment", advice="none")
    yield from _leftovers(place, config, finding)


def _check_metadata(place: PartitionPath, finding: Finder, names: list[str]) -> Iterator[Finding]:
    path = f"{place.folder}/partition.metadata"
    try:
        topic_id = read_partition_metadata(path)
    except SideFileError as error:
        yield finding(Severity.NOTE, path, what=str(error), advice="none: only Kafka reads it")
        return
    if topic_id is None and any(name.endswith(LOG) for name in names):
        yield finding(Severity.NOTE, path, what="the file is missing", advice="none: only Kafka reads it")
    elif topic_id not in (None, place.topic_id):
        yield finding(
            Severity.DAMAGE, path,
            what=f"the folder is of topic id {topic_id}, the topic's is {place.topic_id}: files of an "
            "earlier topic of that name",
            advice="bring the right files back; or the right topics/*.json",
        )  # fmt: skip


def _leftovers(place: PartitionPath, config: TopicConfig, finding: Finder) -> Iterator[Finding]:
    """The bytes beyond the end. A running writer puts bytes there too, so the state must not change meanwhile."""
    before = read_slots(place.state_path).state
    if before is None or before.flags & Flags.DEAD:
        return
    found = list(_beyond(place, config, finding, before))
    if found and read_slots(place.state_path).state == before:
        yield from found


def _beyond(
    place: PartitionPath, config: TopicConfig, finding: Finder, state: PartitionState
) -> Iterator[Finding]:
    reason = acknowledged(place, state, config)
    if reason:
        yield finding(
            Severity.DAMAGE, place.state_path, first_offset=state.next_offset,
            what=f"the log ends at offset {state.next_offset}, but {reason}: the state file is older than the log",
            advice=f"write nothing to this partition; {REPAIR}",
        )  # fmt: skip
        return
    advice = "none: it means nothing, and the next writer removes it"
    for base in list_segments(place.folder):
        path = segment_path(place.folder, base, LOG)
        if base > state.active_base:
            yield finding(Severity.NOTE, path, what="a segment behind the log end", advice=advice)
        elif base == state.active_base and (left := _size(path) - state.position) > 0:
            yield finding(Severity.NOTE, path, state.position, what=f"{left} bytes behind the log end", advice=advice)


def _size(path: str) -> int:
    try:
        return files.size_of(path)
    except FileNotFoundError:
        return 0
