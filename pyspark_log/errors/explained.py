# ruff: noqa: E501  (a line an error)
"""What each name of an error means and what to do about it: for `pylog explain` and docs/reference/errors.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Explained(NamedTuple):
    """What has happened, and what to do."""

    cause: str
    cure: str


_AGAIN = "Nothing was published: run the same again."

#: By the name of the error, in groups.
EXPLAINED: Mapping[str, Mapping[str, Explained]] = {
    "The store and its topics": {
        "PYLOG_STORE": Explained("The folder cannot be used as a store.", "Read the message: it names the folder and what is in the way, as a store within a store."),
        "PYLOG_STORE_NOT_FOUND": Explained("There is no store in that folder, as seen from this machine.", "Check the path, and that the same folder is mounted here. A write, `pylog topics create` and `Store.create` create a store."),
        "PYLOG_STORE_EXISTS": Explained("A store cannot be created there, as the folder is not empty.", "Take an empty folder; or `Store.open` if it is a store."),
        "PYLOG_STORE_VERSION": Explained("Another version of pyspark-log has written the store, in a format that this one does not know.", "Run the newer version, or read the store with it and copy its topics."),
        "PYLOG_STORE_DIFFERS": Explained("An executor sees another store in that folder than the driver.", "Mount the same folder on all hosts."),
        "PYLOG_READ_ONLY": Explained("The folder is a log dir of a Kafka broker, or a node writes replicas there: it can be read alone.", "Write through the broker or the node; or mirror the topics to a store with `pylog mirror`."),
        "PYLOG_DESCRIPTION": Explained("`store.json`, the description of a topic, or the list of users is not valid.", "The message names the file and the field. Restore the file from a backup, or correct the field."),
        "PYLOG_UNSUPPORTED_BY_STORE": Explained("A folder or an object store cannot do this.", "The message names the other way."),
        "PYLOG_INVALID_CONFIG": Explained("A config or an argument was refused; nothing was changed.", "The message says what is allowed; `pylog configs` lists all configs."),
        "PYLOG_INVALID_TOPIC": Explained("No topic can have that name, or the engine keeps the topic for itself.", "Take a name of letters, digits, `.`, `_` and `-`, 249 characters at most."),
        "PYLOG_TOPIC_EXISTS": Explained("A topic of that name exists already.", "`Store.ensure_topic` and `pylog topics create --if-not-exists` accept that."),
        "PYLOG_UNKNOWN_TOPIC_OR_PARTITION": Explained("There is no such topic, or no such partition of it.", "`pylog topics list` shows the names; the message has the nearest one. If the topic was deleted while a query ran, see PYLOG_DATA_LOSS."),
        "PYLOG_LOG_DIR_OFFLINE": Explained("The disk of a partition has failed: the folder is missing, read-only, or gives errors. Other log dirs work on.", "Repair or mount the disk. `pylog log-dirs` shows all of them."),
        "PYLOG_OBJECT_STORE": Explained("An object store has refused a request, or has not answered in time.", "The message has the request and the answer. Check credentials and region; the engine has repeated what could be repeated, so the call can be repeated."),
        "PYLOG_IO_ERROR": Explained("The operating system has refused a file operation: a full disk, missing rights, a file that is gone.", "The message names the file and the reason. Nothing of the call was stored, unless it says so."),
        "PYLOG_ERROR": Explained("An error without a name of its own.", "Read the message."),
    },
    "Records": {
        "PYLOG_INVALID_RECORD": Explained("The topic refuses a record: it has no key and the topic is compacted, or its source position is not one. Nothing of the call was appended.", "Correct the record that the message names."),
        "PYLOG_INVALID_TIMESTAMP": Explained("A record's time is further from the clock than `message.timestamp.before.max.ms` or `.after.max.ms` allow.", "Correct the time, or raise the config of the topic."),
        "PYLOG_RECORD_TOO_LARGE": Explained("A record batch is larger than `max.message.bytes`, or takes more memory than `batch.max.memory.bytes`.", "Send smaller records, or raise `max.message.bytes` of the topic."),
        "PYLOG_CORRUPT_RECORD": Explained("Bytes of a log are no record batch: a CRC or a length is wrong.", "The message names file and byte. `pylog verify` shows how much is damaged; restore the file from a copy, or `pylog repair`. A query goes past it with `onCorruption=skip`."),
        "PYLOG_BATCH_TOO_LARGE": Explained("A batch takes more memory, decompressed, than it may.", "If it is no bomb, raise `batch.max.memory.bytes` in store.json."),
        "PYLOG_LOG_DAMAGED": Explained("A partition's files contradict its state file: another program has changed them, or only one of both was restored.", "Stop the writers of the partition. Restore both from the same copy, or make a repaired copy with `pylog repair`."),
        "PYLOG_SIDE_FILE": Explained("A checkpoint, snapshot or index beside a log is malformed.", "The message names the file. `pylog verify` says whether the engine replaces it by itself; most it does."),
        "PYLOG_SEGMENT_OVERFLOW": Explained("Segments that compaction was to merge do not fit into one.", "Nothing: it merges fewer the next time."),
        "PYLOG_OUTDATED_READ": Explained("A read of an object store was planned so long ago that its objects are gone.", "Read again."),
        "PYLOG_SCHEMA": Explained("A schema of keys or values is missing, is none, or has what columns cannot have.", "The message names the subject and the part. See typed topics."),
        "PYLOG_INCOMPATIBLE_SCHEMA": Explained("A writer's values cannot become the columns that are read, or the registry's rule refuses a schema.", "The message names the field. Give a new field a default, or read with another schema."),
        "PYLOG_SCHEMA_REGISTRY": Explained("A schema registry has refused a request, or has not answered.", "The message has the request and the answer. Check URL and login; `schemaRegistry.cache` keeps answers for such times."),
        "PYLOG_OFFSET_OUT_OF_RANGE": Explained("An offset is below the log start or above the log end: retention has deleted the records, or they were never there.", "The message has both ends. Begin at one of them."),
    },
    "Consumers and groups": {
        "PYLOG_NO_OFFSET": Explained("A consumer is to read a partition, and neither the group nor a setting says from where.", "Set `auto_offset_reset`, or seek."),
        "PYLOG_DESERIALIZATION": Explained("A deserializer has refused a record.", "The message names the record. Correct the deserializer, or seek past the record."),
        "PYLOG_WAKEUP": Explained("`Consumer.wakeup` was called.", "Nothing: no record was handed out."),
        "PYLOG_FENCED_MEMBER": Explained("The group has removed the consumer: it was silent for longer than `max_poll_interval_ms`, or another one has its `group_instance_id`. Nothing was committed.", "Poll more often, process fewer records a poll, or raise the interval. The next poll joins again."),
        "PYLOG_GROUP_ID_NOT_FOUND": Explained("There is no group of that name.", "`pylog groups list` shows them. A query is a group once it has committed."),
        "PYLOG_NON_EMPTY_GROUP": Explained("A group has members, which own its committed offsets.", "Stop them first."),
        "PYLOG_OFFSET_CONFLICT": Explained("A committed offset is not the expected one: another reader has read on for the group. Nothing was changed.", "See that one process alone uses the group; fetch its offsets and begin there."),
    },
    "Producers and transactions": {
        "PYLOG_PRODUCER": Explained("A numbered batch was refused; nothing was appended.", "The message says why."),
        "PYLOG_OUT_OF_ORDER_SEQUENCE": Explained("A batch does not follow the last one of its producer: one between them is missing.", "The client sends the missing one first; a producer that cannot is to be closed and opened."),
        "PYLOG_INVALID_PRODUCER_EPOCH": Explained("A newer instance of that producer has written here.", "Close this one: another process has taken over."),
        "PYLOG_INVALID_TXN_STATE": Explained("A producer has a transaction open in the partition, and the batch is outside of it.", "End the transaction first."),
        "PYLOG_TRANSACTION_COORDINATOR_FENCED": Explained("A newer coordinator has ended that transaction.", "Nothing: the newer one has the producer."),
        "PYLOG_TRANSACTION_STATE": Explained("The state of a transaction does not allow that call; nothing was changed.", "Call `begin` before `send`, and `commit` or `abort` once."),
        "PYLOG_PARTITION_OWNED": Explained("A node of a Kafka cluster owns the partition: it alone may write to it.", "Write through the node's address, or with Spark through its leaders (docs/guides/node.md)."),
        "PYLOG_LOCK_TIMEOUT": Explained("Another process has held a lock for too long.", "The message names it, where the system says so. Try again; see whether that process hangs, and on a shared file system whether its host is gone."),
    },
    "Publishes": {
        "PYLOG_PUBLISH": Explained("A publish was refused or failed before its decision.", _AGAIN),
        "PYLOG_PUBLISHER_FENCED": Explained("A newer run, or a query with another checkpoint, uses the same publisher id.", "Stop one of both. A copy of a query needs a `publishId` and a checkpoint of its own."),
        "PYLOG_PUBLISH_NUMBER": Explained("The checkpoint and the store are out of step: one of them was deleted, copied, or restored from an older copy.", "Restore both from the same time; or begin with a new checkpoint at offsets that you choose (docs/guides/streaming.md, When a checkpoint is lost)."),
        "PYLOG_SET_ASIDE": Explained("An administrator has set the publish aside before anything of it appeared.", "It can be published again."),
        "PYLOG_STAGED_OUTPUT": Explained("Staged output is missing, or is not what its writer has reported: it was cleaned away, or the folder is not the same on all hosts.", "Run the write again. Check that all hosts see the same folder."),
        "PYLOG_PUBLISH_PENDING": Explained("A publish is decided, and not all of it is visible yet.", "Do not publish its records again. They appear as soon as they can be written: by the next process that publishes or reads, or by `pylog recover`, which says what prevents it."),
        "PYLOG_PARTLY_SET_ASIDE": Explained("A publish was decided, some partitions have it, and an administrator has set the rest aside.", "The message names the partitions without it. Publish what they lack as something new."),
        "PYLOG_OUTCOME_UNKNOWN": Explained("An I/O error came after bytes were handed to the system: they may be stored, or not.", "Repeat the same call with the same publisher and number, which shows the outcome; after an append, read the log end first."),
    },
    "Spark": {
        "PYLOG_INVALID_OPTION": Explained("An option is unknown or has a bad value.", "The message has the nearest name, or what is allowed (docs/reference/spark.md)."),
        "PYLOG_INVALID_COLUMNS": Explained("The rows of a write lack `value`, or a column has another type than a record needs.", "Select the columns that docs/reference/spark.md lists, and cast them."),
        "PYLOG_NULL_TOPIC_IN_DATA": Explained("A row has no topic, and there is no option `topic`.", "Give one of both."),
        "PYLOG_DATA_LOSS": Explained("Records that a query or a job still had to read are gone: retention, `delete-records`, or a topic that was deleted and created again. The part of the name after the dot says which.", "Check retention against the lag. To continue without them set `failOnDataLoss=false` once (a job: `--skip-lost`)."),
        "PYLOG_MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET": Explained("`startingOffsets` and `endingOffsets` name different partitions.", "Name the same in both."),
        "PYLOG_UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET": Explained("A start offset is greater than the end offset of its partition.", "Swap them, or leave one out."),
        "PYLOG_RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET": Explained("A start, once looked up, lies after the end of its partition.", "Choose an earlier start, or a later end."),
        "PYLOG_START_OFFSET_DOES_NOT_MATCH_ASSIGNED": Explained("`startingOffsets` does not name all partitions of the topics, or names others.", "Name each: the message lists them. -2 is the earliest offset, -1 the latest."),
        "PYLOG_END_OFFSET_DOES_NOT_MATCH_ASSIGNED": Explained("`endingOffsets` does not name all partitions of the topics, or names others.", "Name each: the message lists them. -1 is the latest offset."),
        "PYLOG_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED": Explained("An option with timestamps by partition does not name all partitions of the topics, or names others.", "Name each: the message lists them; or give one time for all, `startingTimestamp`."),
        "PYLOG_OFFSET_NOT_UNDERSTOOD": Explained("The checkpoint holds offsets of another source, as of Kafka's.", "Give the query a new checkpoint, and `startingOffsets` (docs/guides/streaming.md, Where does it start?)."),
        "PYLOG_CHECKPOINT_NOT_READABLE": Explained("`publishOffsets` needs the checkpoint in a folder that the driver can read, in a version that it knows.", "Put the checkpoint on a disk, or leave out `publishOffsets`."),
        "PYLOG_INVALID_TRANSFORM": Explained("An `arrowTransform` returns other columns or types than its schema says.", "The message has both."),
        "PYLOG_UNKNOWN_QUERY": Explained("The tasks of a micro-batch do not agree on their query.", "Restart the query; nothing of the micro-batch was published."),
        "PYLOG_INCOMPLETE_WRITE": Explained("A task of a write has reported nothing, so its rows could be missing.", "Run it again; nothing was published."),
        "PYLOG_REPLICATED": Explained("Something is not possible in the store of a node of a cluster.", "The message says what. Write without it, or to another store."),
    },
    "Jobs": {
        "PYLOG_JOB": Explained("A job could not do what it was asked for.", "Read the message."),
        "PYLOG_JOB_REFUSED": Explained("Spark has refused a job, as for a missing package.", "Read the message, which is Spark's."),
        "PYLOG_BAD_VALUE": Explained("A key or a value does not fit its schema, or cannot be written in the format that was asked for, as text that is no UTF-8.", "The message names the record, and why. `onBadRecord=null` or a job's `--bad-values null` has nulls in its place, `onBadRecord=topic` a query's topic of dead letters; an export as text can be binary or base64."),
        "PYLOG_NO_COLUMN": Explained("The files or the table lack a column that the job asks for.", "The message lists those that there are."),
        "PYLOG_OTHER_COLUMNS": Explained("The Delta table has other columns than the export.", "Export to another table, or change its schema first."),
        "PYLOG_COMPACTION_CONFLICT": Explained("Another writer has changed the Delta table while its files were merged.", "Run the job again."),
        "PYLOG_SOURCE_CHANGED": Explained("A file was changed while, or since, it was imported.", "Import files that are complete; move them into the folder by a rename."),
        "PYLOG_SOURCE_MISSING": Explained("There is no such file or folder to import.", "Check the path or the pattern, on the executors too."),
        "PYLOG_SOURCE_FAILED": Explained("A database has refused the query of an import.", "The message is the database's."),
    },
    "Kafka's clusters, the server and nodes": {
        "PYLOG_KAFKA_CLUSTER": Explained("A Kafka cluster does not answer, or refuses a request.", "Check the address, the listener and the rights; the message has the broker's answer."),
        "PYLOG_KAFKA_LOGIN": Explained("A Kafka cluster refuses the login.", "Check mechanism, user and password."),
        "PYLOG_KAFKA_PRODUCER_FENCED": Explained("Another producer has the same transactional id.", "Stop one of both."),
        "PYLOG_INVALID_MESSAGE": Explained("Bytes are no message of Kafka's protocol.", "See that a Kafka client, or a broker, is at the other end, and that both or none use TLS."),
        "PYLOG_UNSUPPORTED_VERSION": Explained("A request is of an API or a version that is not known.", "docs/reference/kafka-apis.md lists those that are; upgrade the client, or pyspark-log."),
        "PYLOG_UNKNOWN_RECORD": Explained("A cluster's metadata has a record of a type or version that is not known.", "Upgrade pyspark-log, or lower `metadata.version` of the cluster."),
        "PYLOG_UNSUPPORTED_FEATURE": Explained("The cluster has a feature that this version of pyspark-log does not know.", "Upgrade pyspark-log, or lower the feature's level."),
        "PYLOG_REPLICATION": Explained("A copy of a partition cannot be continued.", "The message says why, and what to do with the copy."),
        "PYLOG_REPLICATION_LOST_RECORDS": Explained("The cluster has deleted records before they were copied.", "Mirror more often than the topic's retention. `--skip-lost` continues after them."),
        "PYLOG_REPLICATION_DIVERGED": Explained("The cluster has replaced records that were copied: a leader was elected that lacked them.", "The message names the offsets. `--follow-truncation` replaces them here, too."),
        "PYLOG_NODE": Explained("A node cannot be a part of its cluster.", "The message says which setting or file is in the way."),
        "PYLOG_NODE_METADATA": Explained("The cluster's metadata contradicts itself, or what the node knew.", "See that the node's folder belongs to this cluster; if not, begin with an empty one."),
        "PYLOG_NODE_REGISTRATION": Explained("The controllers do not accept the node.", "Another process may have its id; the message has their answer."),
        "PYLOG_LOCAL_CLUSTER": Explained("A cluster on one machine cannot be made or run.", "The message says why, as a port that is taken, or Java that is missing."),
    },
}  # fmt: skip
