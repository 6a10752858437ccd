"""A Delta table over the files of a load: each plan is one version of the table, written with delta-rs, without Spark.

Readers of the table see all files of a plan, or none. The version's application transaction is the plan's digest: a run
that finds it there has been killed between the version and the commit of the offsets, and adds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_log.jobs.export.layout import NO_TIME
from pyspark_log.jobs.export.plan import Plan, WrittenFile
from pyspark_log.jobs.support import JobError
from pyspark_log.storage.fs import files
from pyspark_log.storage.record import crc32c

if TYPE_CHECKING:
    from deltalake import DeltaTable


def check_delta() -> None:
    """Refuses a load into a Delta table where delta-rs is missing. click.UsageError."""
    try:
        import deltalake  # noqa: F401, PLC0415  (most loads do without)
    except ImportError:
        raise click.UsageError("a Delta table needs the package deltalake: pip install deltalake") from None


def add_version(folder: str, group: str, plan: Plan) -> None:
    """Adds the files of a plan, which are in their places, to the table; once, however often it is called.

    Args:
        folder: the table's; a table is made if there is none.
        group: of the load; its lock is held.
        plan: with its files.

    Raises:
        JobError: the files have other columns than the table.
    """
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction  # noqa: PLC0415
    from deltalake.transaction import create_table_with_add_actions  # noqa: PLC0415

    written = plan.files or ()
    if not written:
        return
    app = f"pylog/{plan.cluster_id}/{group}"
    digest = crc32c(json.dumps([[one.topic, one.partition, one.until] for one in plan.ranges]).encode())
    properties = CommitProperties(app_transactions=[Transaction(app, digest)])
    actions = [_action(folder, one) for one in written]
    keys = list(actions[0].partition_values)
    schema = _schema(f"{folder}/{written[0].name}", keys)
    if not DeltaTable.is_deltatable(folder):
        create_table_with_add_actions(
            folder, Schema.from_arrow(schema), actions, partition_by=keys, commit_properties=properties
        )
        return
    table = DeltaTable(folder)
    if table.transaction_version(app) == digest:
        return
    _check_columns(table, schema, keys)
    table.create_write_transaction(
        actions, mode="append", schema=table.schema(), partition_by=keys, commit_properties=properties
    )


def compact_table(folder: str) -> dict[str, int]:
    """Merges small files of a table into larger ones, as a version of its own; the small ones stay until a vacuum.

    Returns:
        How many files were merged, and into how many.

    Raises:
        JobError: another writer has changed the table meanwhile; it can be tried again.
    """
    from deltalake import DeltaTable  # noqa: PLC0415
    from deltalake.exceptions import CommitFailedError  # noqa: PLC0415

    if not DeltaTable.is_deltatable(folder):
        return {"files_merged": 0, "merged_into": 0}
    try:
        done = DeltaTable(folder).optimize.compact()
    except CommitFailedError as error:
        raise JobError(
            f"the records are loaded, but the table could not be compacted, so run the job again: {error}",
            "PYLOG_COMPACTION_CONFLICT",
        ) from error
    return {"files_merged": done["numFilesRemoved"], "merged_into": done["numFilesAdded"]}


def _action(folder: str, written: WrittenFile) -> Any:  # noqa: ANN401  (delta-rs has no types)
    from deltalake.transaction import AddAction  # noqa: PLC0415

    path = f"{folder}/{written.name}"
    values = dict(part.split("=", 1) for part in written.name.split("/")[:-1])
    partitions = {name: None if value == NO_TIME else value for name, value in values.items()}
    changed = files.status_of(path).st_mtime_ns // 1_000_000
    stats = json.dumps({"numRecords": written.rows})
    return AddAction(written.name, written.bytes, partitions, changed, data_change=True, stats=stats)


def _schema(path: str, keys: Sequence[str]) -> pa.Schema:
    """The columns of a file, and those of the folders."""
    kinds = {"topic": pa.string(), "date": pa.date32(), "hour": pa.int32()}
    schema = pq.read_schema(path).remove_metadata()
    for key in keys:
        schema = schema.append(pa.field(key, kinds[key]))
    return schema


def _check_columns(table: DeltaTable, schema: pa.Schema, keys: Sequence[str]) -> None:
    from deltalake import Schema  # noqa: PLC0415

    found, wanted = (json.loads(one.to_json())["fields"] for one in (table.schema(), Schema.from_arrow(schema)))
    columns = [[(one["name"], str(one["type"])) for one in each] for each in (found, wanted)]
    if columns[0] != columns[1] or table.metadata().partition_columns != list(keys):
        raise JobError(
            "the table has other columns or partitions than the files of this load: load with the same --columns, "
            "--headers, --schema and --partition-by as before, or into another folder",
            "PYLOG_OTHER_COLUMNS",
        )
