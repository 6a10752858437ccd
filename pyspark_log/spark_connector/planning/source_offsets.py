"""The offsets that a micro-batch has read of the store that it is written to: committed by the publish itself.

A sink learns nothing of its sources from Spark. But Spark writes the end offset of each source to the query's
checkpoint before it runs a micro-batch: a line with a version, one with metadata, and one for each source.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pyspark_log.spark_connector.errors import ConnectorError, option_error
from pyspark_log.spark_connector.planning.offsets import Offsets, SourceOffset, is_own
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition

_VERSION = "v1"


def steps_of(store: Store, location: str, batch_id: int) -> list[OffsetStep]:
    """The moves of committed offsets from where a micro-batch begins to where it ends, for each source in the store.

    A group that has no committed offset of a partition may begin anywhere. Any other must be where the micro-batch
    begins: what it reads was not read by another query of the group, and nothing was left out.

    Args:
        store: the store that the micro-batch is written to.
        location: the query's checkpoint, as from `location_of`.
        batch_id: the micro-batch's id.

    Raises:
        ConnectorError: the checkpoint cannot be read here; or no source reads this store.
    """
    steps: dict[tuple[str, TopicPartition], OffsetStep] = {}
    for start, end in _ranges(store, location, batch_id):
        group = end.group or ""
        committed = store.groups[group].committed()
        for at, offset in end.offsets.items():
            if offset != start.get(at):
                steps[group, at] = OffsetStep(group, at, start.get(at) if at in committed else None, offset)
    return list(steps.values())


def topics_read(location: str, batch_id: int) -> tuple[str, ...]:
    """The topics of all pylog sources of a query, sorted. ConnectorError: the checkpoint cannot be read here."""
    ends = [end for end in _offsets_of(location, batch_id) if end is not None]
    return tuple(sorted({at.topic for end in ends for at in end.offsets}))


def _ranges(store: Store, location: str, batch_id: int) -> Iterator[tuple[Offsets, SourceOffset]]:
    """The start and the end of each source that reads the store."""
    ends = _offsets_of(location, batch_id)
    starts = _offsets_of(location, batch_id - 1) if batch_id else [None for _ in ends]
    found = 0
    for before, end in zip(starts, ends, strict=True):
        if end is not None and end.identity.cluster_id == store.cluster_id:
            found += 1
            yield (before.offsets if before is not None else end.start or {}), end
    if not found:
        raise option_error(
            f"publishOffsets: no source of this query reads the store {store.path}: a publish can commit offsets "
            "only of topics in the store that it writes to"
        )


def _offsets_of(location: str, batch_id: int) -> list[SourceOffset | None]:
    """The end offsets of a micro-batch's sources; None for a source of another kind."""
    path = f"{location}/offsets/{batch_id}"
    try:
        with open(path, encoding="utf-8") as file:
            version, _, *lines = file.read().splitlines()
    except (OSError, ValueError) as error:
        raise ConnectorError(
            "PYLOG_CHECKPOINT_NOT_READABLE",
            f"publishOffsets needs the query's checkpoint in a folder that the driver can read: {error or path}",
        ) from error
    if version != _VERSION:
        raise ConnectorError(
            "PYLOG_CHECKPOINT_NOT_READABLE", f"{path} has the version {version}; {_VERSION} is understood"
        )
    return [SourceOffset.from_json(nested) if any(map(is_own, nested := _parsed(line))) else None for line in lines]


def _parsed(line: str) -> dict[str, object]:
    """An offset as JSON; empty if it is that of another kind of source, or of one without new data."""
    try:
        nested = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return nested if isinstance(nested, dict) else {}
