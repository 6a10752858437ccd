"""Topics that a job's tasks write to and its plan lacks: the first task fixes the topic's id and partition count.

It creates the topic if needed, and writes a file to the staging folder, `HOST.PROCESS.BIRTH.JOB.DIGEST.staged`, with
the topic's id and partition count. The others take both from there: tasks that looked the topic up themselves could
hash keys over different counts while partitions are added.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import NamedTuple

from pyspark_log.errors import StagedOutputError, UnknownTopicError
from pyspark_log.storage.catalog import check_not_internal
from pyspark_log.storage.catalog.store_json import STAGING_FOLDER
from pyspark_log.storage.catalog.topics import MAX_DESCRIPTION_BYTES
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.json_fields import Fields
from pyspark_log.storage.log_manager import LogManager, TopicAdmin
from pyspark_log.storage.publish.staging.staged_file import Job


class AgreedTopic(NamedTuple):
    """The facts about a topic on which all tasks of a job agree.

    Attributes:
        name: the topic's.
        topic_id: its id.
        partitions: over how many of its partitions the tasks spread records.
        made: whether the job created it, as far as this task knows; at least one of its tasks knows.
        file: the name of the file that records this, in the staging folder; the job removes it at its end.
    """

    name: str
    topic_id: str
    partitions: int
    made: bool
    file: str


def agree(logs: LogManager, job: Job, topic: str, create: Callable[[str], bool] | None = None) -> AgreedTopic:
    """Returns what a job's tasks agree on for a topic; creates a missing topic if the store lets writers do so.

    `create`: does that, as TopicAdmin.create_if_missing; None: that of the log manager.

    Raises:
        UnknownTopicError: it is missing and may not be created.
        InvalidTopicError: no topic can have that name, or it is one of the engine's own.
        StagedOutputError: the file is damaged.
        OSError: e.g. a full disk.
    """
    check_not_internal(topic)
    folder, file = f"{logs.path}/{STAGING_FOLDER}", job.name_for(topic)
    path, made = f"{folder}/{file}", False
    if not files.exists(path):
        try:
            made = (create or TopicAdmin(logs).create_if_missing)(topic)
        except UnknownTopicError as error:
            raise UnknownTopicError(f"{error}, and auto.create.topics.enable is false: create it first") from None
        found = logs.describe_topic(topic)
        content = {"topic": topic, "topic_id": found.topic_id, "partitions": found.partitions, "made": made}
        files.make_folder(folder)
        # Another task may be faster; then its file counts.
        with contextlib.suppress(FileExistsError):
            files.create_whole(path, json.dumps(content).encode())
    try:
        kept = Fields.parse(files.read_whole(path, MAX_DESCRIPTION_BYTES))
        made = made or kept.value("made") is True
        return AgreedTopic(topic, kept.text("topic_id"), kept.whole("partitions", low=1), made, file)
    except ValueError as error:
        raise StagedOutputError(f"{path}, in which a write's tasks agree on {topic!r}, is damaged: {error}") from None
