"""Prints the partitions of topics in detail."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark_log.cli.support import NOTHING, human_size, print_json, print_table
from pyspark_log.types import TopicDescription

if TYPE_CHECKING:
    from pyspark_log.storage.log_manager import PartitionDescription
    from pyspark_log.storage.store import Store


def print_partitions(store: Store, topics: Iterable[TopicDescription], as_json: bool) -> None:
    """Prints a line for each partition of the topics."""
    rows = [
        (topic.name, store.partitions.describe(topic.name, number))
        for topic in topics
        for number in range(topic.partitions)
    ]
    if as_json:
        print_json([{"topic": topic, **_document(one)} for topic, one in rows])
        return
    print_table(
        ("TOPIC", "PARTITION", "LEADER-EPOCH", "LOG-START", "LOG-END", "HIGH-WATERMARK", "LAST-STABLE", "SEGMENTS",
         "SIZE", "LOG-DIR", "STATE"),
        [(topic, *_row(one)) for topic, one in rows],
    )  # fmt: skip


def _document(one: PartitionDescription) -> dict[str, object]:
    known = {name: None if value in (-1, "") else value for name, value in dataclasses.asdict(one).items()}
    return {**known, "state": _state(one)}


def _row(one: PartitionDescription) -> tuple[object, ...]:
    numbers = (one.leader_epoch, one.log_start, one.log_end, one.high_watermark, one.last_stable_offset, one.segments)
    shown = [NOTHING if number < 0 else number for number in numbers]
    size = NOTHING if one.size < 0 else human_size(one.size)
    state = f"{_state(one)}: {' '.join(one.problem.split())}" if one.problem else _state(one)
    return one.partition, *shown, size, one.log_dir or NOTHING, state


def _state(one: PartitionDescription) -> str:
    return "offline" if one.problem else "online" if one.log_dir else "empty"
