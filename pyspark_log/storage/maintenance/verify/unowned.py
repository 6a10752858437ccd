"""Finds what in a store's folder belongs to no topic or partition, or to two."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from pyspark_log.errors import PylogError, UnknownTopicError
from pyspark_log.storage.catalog import TopicCatalog
from pyspark_log.storage.catalog.kafka_files import read_partition_metadata
from pyspark_log.storage.catalog.log_dirs import PARTITION_FOLDER
from pyspark_log.storage.catalog.store_json import (
    CLUSTER_FILE,
    CUT_FOLDER,
    SERVERS_FILES,
    STAGING_FOLDER,
    STATE_FOLDER,
    STORE_FILE,
    TOPICS_FOLDER,
)
from pyspark_log.storage.catalog.topics import DELETED_FOLDER
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import files
from pyspark_log.storage.groups.members.member_files import MEMBERS_FOLDER
from pyspark_log.storage.log.state import Flags, read_slots
from pyspark_log.storage.log_manager.deletion import ASIDE_NAME, hex_id
from pyspark_log.storage.maintenance.verify.findings import Finder, Finding
from pyspark_log.types import TopicDescription

#: A partition's files in the folder of states: the topic's id, and the partition.
STATE_NAME = re.compile(r"([A-Za-z0-9_-]{22})-(0|[1-9]\d{0,9})(\.turn|\.segments|\.cleaner(\.turn)?)?")
_LOCK_NAME = re.compile(r"[a-z]+(-\d+)?\.lock(\.turn)?")
_IF_DELETED = "none, if its topic was deleted"
_ROOT_NAMES = {STORE_FILE, TOPICS_FOLDER, STATE_FOLDER, STAGING_FOLDER, CUT_FOLDER}


def same_ids(store: FolderStore, described: Sequence[TopicDescription]) -> Iterator[Finding]:
    """Topics with one id: they would share their state files."""
    first: dict[str, str] = {}
    for topic in described:
        other = first.setdefault(topic.topic_id, topic.name)
        if other != topic.name:
            what = f"it has the topic id of {other}: one is a copy of the other"
            path = f"{TOPICS_FOLDER}/{topic.name}.json"
            yield Finder(store.path, topic.name).damage(path, what, "take the copy away")


def deleted(store: FolderStore) -> Iterator[Finding]:
    """Descriptions of deleted topics that cannot be read: their files would stay."""
    try:
        TopicCatalog(f"{store.path}/{TOPICS_FOLDER}", "").deleted()
    except (PylogError, OSError) as error:
        what = f"the description of a deleted topic cannot be used: {error}"
        advice = (
            "no topic can be made or deleted until it is brought back; or remove it, and what is left of the topic in "
            f"its log dirs and {STATE_FOLDER}/"
        )
        yield Finder(store.path).damage(f"{TOPICS_FOLDER}/{DELETED_FOLDER}", what, advice)


def unknown_files(store: FolderStore, described: Sequence[TopicDescription]) -> Iterator[Finding]:
    """Files of no topic; and those of topics whose descriptions are lost. `described`: the topics that there were."""
    finding, logs = Finder(store.path), {folder.path for folder in store.logs.log_dirs}
    root = _ROOT_NAMES | {os.path.basename(path) for path in logs if os.path.dirname(path) == store.path}
    yield from (_unknown(finding, name) for name in names(store.path) if name not in root)
    for name in names(f"{store.path}/{TOPICS_FOLDER}"):
        if not name.endswith(".json") and name != DELETED_FOLDER:
            yield _unknown(finding, f"{TOPICS_FOLDER}/{name}")
    folders = [f"{path}/{name}" for path in sorted(logs) for name in names_of_logs(path)]
    # After the folders, which are younger than the topics and partitions that they belong to.
    ids = {topic.topic_id: _partitions_now(store, topic) for topic in described}
    counts = {topic.name: ids[topic.topic_id] for topic in described}
    # Those that were made since are among them; they are left to the next check.
    damaged = set(store.topics(internal=True)) - {topic.name for topic in described}
    known = {topic.name: topic for topic in described} | {hex_id(topic.topic_id): topic for topic in described}
    for path in folders:
        match = PARTITION_FOLDER.fullmatch(os.path.basename(path))
        if not files.is_folder(path):
            continue
        if _is_left_by_move(store, path, known):
            yield finding.note(path, "a move has left it; it does not count", "none: `pylog clean` removes it")
            continue
        if match and (match[1] in damaged or int(match[2]) < counts.get(match[1], 0)):
            continue
        topic_id = _topic_id(path)
        state = read_slots(f"{store.path}/{STATE_FOLDER}/{topic_id}-{match[2]}").state if match and topic_id else None
        deleted = files.exists(f"{store.path}/{TOPICS_FOLDER}/{DELETED_FOLDER}/{topic_id}.json")
        if match and state is not None and not deleted and not state.flags & Flags.DEAD:
            what = f"the topic (id {topic_id}) is not described, or has fewer partitions"
            advice = f"bring {TOPICS_FOLDER}/{match[1]}.json back: its records cannot be reached without it"
            of_it = finding.at(match[1], int(match[2]))
            yield of_it.damage(path, what, advice, first=state.log_start, end=state.next_offset)
        else:
            yield finding.note(path, "a folder of no topic", _IF_DELETED)
    for name in names(f"{store.path}/{STATE_FOLDER}"):
        match = STATE_NAME.fullmatch(name)
        if match is None:
            if name not in (*SERVERS_FILES, MEMBERS_FOLDER, CLUSTER_FILE) and not _LOCK_NAME.fullmatch(name):
                yield _unknown(finding, f"{STATE_FOLDER}/{name}")
        elif not match[3] and not damaged and int(match[2]) >= ids.get(match[1], 0):
            yield finding.note(f"{STATE_FOLDER}/{name}", "a state file of no topic", _IF_DELETED)


def _is_left_by_move(store: FolderStore, path: str, described: Mapping[str, TopicDescription]) -> bool:
    """Whether a folder is a partition's that is in another log dir, or was one on its way.

    Args:
        store, path: where.
        described: the topics, by their names and by their ids in hex.
    """
    name = os.path.basename(path)
    aside, match = ASIDE_NAME.fullmatch(name), PARTITION_FOLDER.fullmatch(name)
    if aside:
        return aside[1] in described
    topic = described.get(match[1]) if match else None
    if match is None or topic is None or int(match[2]) >= topic.partitions:
        return False
    with contextlib.suppress(UnknownTopicError):
        return store.logs.place(topic.name, int(match[2])).folder != path and _topic_id(path) == topic.topic_id
    return False


def _partitions_now(store: FolderStore, topic: TopicDescription) -> int:
    try:
        return max(topic.partitions, store.describe_topic(topic.name).partitions)
    except PylogError:
        return topic.partitions


def _topic_id(folder: str) -> str | None:
    try:
        return read_partition_metadata(f"{folder}/partition.metadata")
    except PylogError:
        return None


def _unknown(finding: Finder, name: str) -> Finding:
    if files.is_unfinished(os.path.basename(name)):
        return finding.note(name, "a file whose writing was not finished", "none while others write; else remove it")
    return finding.unknown(name)


def names(folder: str) -> list[str]:
    """The names in a folder, sorted; empty if it is missing, or is none."""
    try:
        return sorted(files.list_folder(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def names_of_logs(folder: str) -> list[str]:
    """The names in a log dir; empty if it has failed, which is reported elsewhere."""
    try:
        return names(folder)
    except OSError:
        return []
