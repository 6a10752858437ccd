"""Verifies the files in a partition's folder beside its segments, and the bytes beyond its end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyspark_log.config import TopicConfig
from pyspark_log.errors import SideFileError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.catalog.kafka_files import read_partition_metadata
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.leftovers import reason_to_keep
from pyspark_log.storage.log.state import Flags, PartitionState, read_slots
from pyspark_log.storage.maintenance.verify.findings import REPAIR, Finder, Finding
from pyspark_log.storage.segment.file_names import LOG, list_segments, segment_path

_KNOWN = re.compile(
    r"\d{20}\.(log|index|timeindex|snapshot|txnindex)(\.deleted|\.cleaned|\.swap)?"
    r"|partition\.metadata|leader-epoch-checkpoint|" + files.UNFINISHED_NAME
)


def folder_findings(place: PartitionPath, config: TopicConfig, finding: Finder) -> Iterator[Finding]:
    """The unexpected and the missing files of a partition's folder; `config`: of its topic."""
    try:
        names = sorted(files.list_folder(place.folder))
    except FileNotFoundError:
        return  # nothing was written yet, or its segments are missing, which was reported
    logs = {name[:20] for name in names if name.endswith(LOG)}
    yield from _check_metadata(place, finding, bool(logs))
    for name in names:
        path = f"{place.folder}/{name}"
        if not _KNOWN.fullmatch(name):
            yield finding.unknown(path)
        elif name.endswith((".index", ".timeindex")) and name[:20] not in logs:
            yield finding.note(path, "an index without a segment", "none")
    # A running writer puts bytes beyond the end too, so the state must not change meanwhile.
    before = read_slots(place.state_path).state
    if before is not None and not before.flags & Flags.DEAD:
        found = list(_beyond(place, config, finding, before))
        if found and read_slots(place.state_path).state == before:
            yield from found


def _check_metadata(place: PartitionPath, finding: Finder, written: bool) -> Iterator[Finding]:
    path, advice = f"{place.folder}/partition.metadata", "none: only Kafka reads it"
    try:
        topic_id = read_partition_metadata(path)
    except SideFileError as error:
        yield finding.note(path, str(error), advice)
        return
    if topic_id is None and written:
        yield finding.note(path, "the file is missing", advice)
    elif topic_id not in (None, place.topic_id):
        what = (
            f"the folder is of topic id {topic_id}, the topic's is {place.topic_id}: files of an earlier topic of that "
            "name"
        )
        yield finding.damage(path, what, "restore the right files, or the right topics/*.json")


def _beyond(place: PartitionPath, config: TopicConfig, finding: Finder, state: PartitionState) -> Iterator[Finding]:
    """The bytes beyond the log end."""
    if reason := reason_to_keep(place, state, config):
        what = f"the log ends at offset {state.next_offset}, but {reason}: the state file is older than the log"
        advice = f"write nothing to this partition; {REPAIR}"
        yield finding.damage(place.state_path, what, advice, first=state.next_offset)
        return
    advice = "none: it means nothing, and the next writer removes it"
    for base in list_segments(place.folder):
        path = segment_path(place.folder, base, LOG)
        if base > state.active_base:
            yield finding.note(path, "a segment beyond the log end", advice)
        elif base == state.active_base and (left := _size(path) - state.position) > 0:
            yield finding.note(path, f"{left} bytes beyond the log end", advice, state.position)


def _size(path: str) -> int:
    try:
        return files.size_of(path)
    except FileNotFoundError:
        return 0
