"""Fixtures of the crash tests."""

import logging

import pytest

from pyspark_log.storage.catalog import log_dirs
from pyspark_log.storage.fs import guarded
from pyspark_log.storage.groups import committed_offsets
from pyspark_log.storage.publish import decision_log
from pyspark_log.storage.publish.staging import staged_file, staged_writer
from tests.scratch import memory_folder


@pytest.fixture(scope="module", autouse=True)
def checkpoints_once():
    """Kafka's checkpoints are written by the clock: a slower run would make changes to files that others do not."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_dirs, "INTERVAL", 3600)
        yield


@pytest.fixture(scope="module", autouse=True)
def locks_are_kept():
    """From the second append in a row on, so that short programs append to tails, too."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(guarded, "USES_IN_A_ROW", 0)
        yield


@pytest.fixture(scope="module")
def little_sizes():
    """Makes some kilobytes a large file, and has Kafka's checkpoints written whenever they can be, not by the clock."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(staged_writer, "INLINE_LIMIT", 4000)
        patched.setattr(staged_file, "_COPY_LEAST", 3000)
        patched.setattr(staged_file, "_COPY_MOST", 3000)
        patched.setattr(staged_file, "_INSTALL_MOST", 1500)
        patched.setattr(log_dirs, "INTERVAL", 0)
        # pytest keeps what is logged, with the errors and all the files that they refer to.
        logging.disable(logging.ERROR)
        yield
        logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def little_logs(little_sizes):
    """The same, and makes some records a segment of the engine's own logs, so that they are compacted, too."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(committed_offsets._TOPIC_CONFIGS, "segment.bytes", "1000")
        patched.setitem(decision_log._TOPIC_CONFIGS, "segment.bytes", "1500")
        yield


@pytest.fixture
def memory_path():
    """A folder in memory where there is one: a stop loses nothing that was written, synced or not."""
    with memory_folder() as folder:
        yield folder
