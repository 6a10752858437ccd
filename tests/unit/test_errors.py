"""What errors have, also in another process: Spark's tasks send theirs to the driver by pickle."""

import pickle

import pytest

from pyspark_log import errors

WITH_ARGUMENTS = [
    errors.OffsetOutOfRangeError("t", 1, 9, 2, 5, "begin at 2"),
    errors.NoOffsetError("t", 1, None),
    errors.DeserializationError("t", 1, 9, "key", "no number"),
    errors.CorruptRecordError("bad", 7, 3, "f", "t", 1),
    errors.BatchTooLargeError(10, 5, 7, 3, "f", "t", 1),
    errors.LogDamagedError("two logs", "remove one"),
    errors.SegmentOverflowError(7, "too many bytes"),
    errors.LogDirOfflineError(5, "gone", "/disk"),
    errors.ObjectStoreError("no answer", retriable=True),
    errors.PublishFailedError("failed", "PYLOG_IO_ERROR", True),
    errors.PublisherFencedError("fenced", "host", 1, 2),
    errors.OffsetConflictError("g", "t", 1, None, 4),
    errors.PublishPendingError("pending", "PYLOG_IO_ERROR", True),
    errors.PartlySetAsideError("set aside"),
    errors.RegistryError("no", 404, 40401),
    errors.BadValueError("too short", "value", "t", 1, 5, 7),
]


def every_class(root=errors.PylogError):
    yield root
    for child in root.__subclasses__():
        yield from every_class(child)


def test_each_class_that_has_attributes_is_listed_here():
    have = {cls for cls in every_class() if "__init__" in vars(cls) and cls.__module__.startswith("pyspark_log.errors")}
    assert have == {type(error) for error in WITH_ARGUMENTS}


@pytest.mark.parametrize("error", WITH_ARGUMENTS, ids=lambda error: type(error).__name__)
def test_a_pickled_error_is_the_same(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))
    assert getattr(copy, "filename", None) == getattr(error, "filename", None)


def test_a_corrupt_batch_of_a_piece_is_located_in_its_file():
    for bad in (errors.CorruptRecordError("bad", 7, 3), errors.BatchTooLargeError(10, 5, 7, 3)):
        located = bad.located(100, "f", "t", 1)
        assert type(located) is type(bad)
        assert str(located).startswith("t-1: f at byte 107 (base offset 3): ")
