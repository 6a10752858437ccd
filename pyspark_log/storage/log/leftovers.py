"""What is beyond the log end: the rest of one unfinished append, or records that were acknowledged.

A writer that is killed in an append leaves bytes beyond the log end. They mean nothing, and the next writer deletes
them. But if an older state file was restored beside newer segments, the bytes beyond its log end were
acknowledged. So before anything is deleted, this checks whether a single append can have left it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from pyspark_log.config import MAX_BATCH_BYTES, TopicConfig
from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.mounts import is_shared
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.log.state.partition_state import Flags, Intent, PartitionState
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.layout import CODEC_MASK, HEADER_SIZE
from pyspark_log.storage.segment.batch_stream import intact_batches
from pyspark_log.storage.segment.file_names import INDEX, LOG, list_segments, segment_path
from pyspark_log.storage.segment.indexes import OffsetIndex

# An append fills each of its batches before it begins the next. Two consecutive batches that together are smaller than
# this (bytes, before compression), or than half of the topic's maximum batch size, come from two appends.
_SMALL = 256 * 1024
# No more batches than this are examined.
_MOST_BATCHES = 1000


def reason_to_keep(place: PartitionPath, state: PartitionState, config: TopicConfig | None = None) -> str:
    """Returns why what is beyond the log end cannot come from one unfinished append; "" if it can, or there is nothing.

    Args:
        place: which partition.
        state: its state.
        config: its topic's configs, used to recognize batches that one append would have put into one. That is no
            proof: an append of a table in many pieces to hundreds of partitions can leave such batches, too. None:
            only proofs count.

    Raises:
        OSError: a file cannot be read.
    """
    # A change of several steps was begun, whose own rules decide; or, after a power loss, whole batches are adopted;
    # or, on a shared file system, a writer that has lost its lock has added them since.
    # Of a replica, the log that it is a copy of has all that was acknowledged.
    begun = bool(state.owner_node) or state.intent != Intent.NONE or bool(state.flags & (Flags.CUTTING | Flags.CLAIMED))
    if begun or state.boot != state_file.this_boot() or is_shared(os.path.dirname(place.state_path)):
        return ""
    folder = place.folder
    for base in list_segments(folder):
        if base > state.active_base and next(_batches(folder, base, 0, base), None) is not None:
            return f"a later segment, {segment_path(folder, base, LOG)}, has records"
    found = list(_batches(folder, state.active_base, state.position, state.next_offset))
    return _of_several_appends(folder, state, config, found) if found else ""


def _of_several_appends(
    folder: str, state: PartitionState, config: TopicConfig | None, found: Sequence[BatchHeader]
) -> str:
    """Why batches beyond the active segment's end cannot come from one unfinished append; "" if they can."""
    path = segment_path(folder, state.active_base, LOG)
    if _is_indexed(folder, state):
        return f"{segment_path(folder, state.active_base, INDEX)} has entries for what follows, which come last"
    if len(found) > 1 and any(header.producer_id >= 0 for header in found):
        return f"{path} has {len(found)} batches more, and a batch of a producer with an id is appended alone"
    if config is not None:
        small = min(_SMALL, (min(config.max_message_bytes, config.segment_bytes) - HEADER_SIZE) // 2)
        if any(_size(path, first) + _size(path, second) < small for first, second in pairwise(found)):
            return f"{path} has {len(found)} batches more, and one append would have made fewer"
    return ""


def first_batch(folder: str, state: PartitionState) -> BatchHeader | None:
    """The complete batch right beyond the log end, if there is one. OSError."""
    for base, position in ((state.active_base, state.position), (state.next_offset, 0)):
        found = next(_batches(folder, base, position, state.next_offset), None)
        if found is not None:
            return found
    return None


def _batches(folder: str, base: int, position: int, offset: int) -> Iterator[BatchHeader]:
    """The complete batches from a byte of a segment on; the first begins at `offset`, and each where the one before it
    ends.
    """
    try:
        file = files.open_read(segment_path(folder, base, LOG))
    except FileNotFoundError:
        return
    with file:
        yield from islice(intact_batches(file, position, file.size(), offset), _MOST_BATCHES)


def _is_indexed(folder: str, state: PartitionState) -> bool:
    try:
        file = files.open_read(segment_path(folder, state.active_base, INDEX))
    except FileNotFoundError:
        return False
    with file:
        index = OffsetIndex(file, state.active_base)
        return index.count > 0 and index.entry(index.count - 1).position >= state.position


def _size(path: str, header: BatchHeader) -> int:
    """Approximate size in bytes of a batch's records, before compression; of a large batch, as stored."""
    if not header.attributes & CODEC_MASK or header.size > _SMALL:
        return header.size
    from pyspark_log.storage.record.decoding.decoder import decode  # noqa: PLC0415  (Arrow, which a server does not load)

    with files.open_read(path) as file:
        data = file.pread(header.size, header.position)
    try:
        columns = decode(
            data,
            0,
            len(data),
            from_offset=0,
            until_offset=header.next_offset,
            max_bytes=MAX_BATCH_BYTES,
            max_batch_bytes=MAX_BATCH_BYTES,
        ).columns
    except CorruptRecordError:
        return _SMALL
    return sum(column.nbytes for column in columns.values())
