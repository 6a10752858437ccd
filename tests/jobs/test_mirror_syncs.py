"""Translated offsets, by hand and against logs of random gaps: no record is skipped, and few are read again."""

import random

import pytest

from pyspark_log.jobs.mirroring.syncs import MirroredRange, next_sync


def sync_of(*ranges):
    sync = None
    for one in ranges:
        sync = next_sync(sync, "id", MirroredRange(*one))
    return sync


@pytest.mark.parametrize(("offset", "there"), [(0, 0), (7, 7), (10, 10), (15, 15), (99, 20)])
def test_exact_without_gaps(offset, there):
    sync = sync_of((10, 0, 10), (20, 10, 10))
    assert sync.translate(offset) == there
    assert len(sync.ranges) == 1


@pytest.mark.parametrize(("offset", "there"), [(0, 5), (89, 5), (95, 6), (99, 10), (100, 11), (110, 21)])
def test_a_range_with_gaps_is_exact_at_its_end_and_never_beyond_what_is_read(offset, there):
    # Six records somewhere below 100, then ten without gaps.
    assert sync_of((100, 5, 6), (110, 11, 10)).translate(offset) == there


def test_a_topic_recreated_on_either_side_restarts_the_sync():
    before = sync_of((10, 0, 10))
    assert next_sync(before, "other", MirroredRange(20, 0, 10)).translate(5) == 0
    assert next_sync(before, "id", MirroredRange(4, 10, 4)).translate(2) == 12


@pytest.mark.parametrize("seed", range(20))
def test_no_record_is_skipped(seed):
    """Against the offsets themselves, with gaps, other writers, and many micro-batches."""
    chance = random.Random(seed)
    sync, places, source, target = None, {}, 0, 0
    for _ in range(chance.choice([3, 50, 200])):
        target += chance.choice([0, 0, chance.randrange(20)])  # other writers
        first, share = target, chance.choice([1, 1, 0.5, 0])
        size = chance.randrange(1, 30)
        for offset in range(source, source + size):
            if chance.random() < share:
                places[offset] = target
                target += 1
        source += size
        sync = next_sync(sync, "id", MirroredRange(source, first, target - first))
    offsets = [sync.translate(offset) for offset in range(source + 5)]
    assert offsets == sorted(offsets)
    first_unread = target
    for offset in reversed(range(source + 5)):
        first_unread = places.get(offset, first_unread)
        assert offsets[offset] <= first_unread
    assert sync.translate(source) == sync.target_offset
    assert len(sync.ranges) <= 32
