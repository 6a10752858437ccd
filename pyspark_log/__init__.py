"""A durable, replayable, partitioned event log in plain files, read and written straight by Spark.

The public names are loaded when they are first used: Spark imports every module whose name starts with
`pyspark_` when it looks for data sources, so importing this one must cost next to nothing, and the engine
must work where pyspark is not installed.
"""

from __future__ import annotations

# As in typing, which takes a while to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pyspark_log.clients import Consumer, ConsumerRecord, Producer, Transactions
    from pyspark_log.clients.asynchronous import AsyncConsumer, AsyncProducer
    from pyspark_log.spark_connector.source import PylogDataSource as DefaultSource
    from pyspark_log.spark_connector.writing.publish_together import Publish
    from pyspark_log.storage.groups import OffsetsLog
    from pyspark_log.storage.publish import PublishResult
    from pyspark_log.storage.store import Store
    from pyspark_log.storage.topic import Topic
    from pyspark_log.types import (
        EARLIEST,
        LATEST,
        AppendResult,
        IsolationLevel,
        OffsetAndTimestamp,
        TopicDescription,
        TopicPartition,
    )

__version__ = "0.1.0"
__all__ = [
    "EARLIEST", "LATEST", "AppendResult", "AsyncConsumer", "AsyncProducer", "Consumer", "ConsumerRecord",
    "DefaultSource", "IsolationLevel", "OffsetAndTimestamp", "OffsetsLog", "Producer", "Publish", "PublishResult",
    "Store", "Topic", "TopicDescription", "TopicPartition", "Transactions", "__version__",
]  # fmt: skip

_PLACES = {
    "AsyncConsumer": ("pyspark_log.clients.asynchronous", "AsyncConsumer"),
    "AsyncProducer": ("pyspark_log.clients.asynchronous", "AsyncProducer"),
    "Consumer": ("pyspark_log.clients", "Consumer"),
    "ConsumerRecord": ("pyspark_log.clients", "ConsumerRecord"),
    "DefaultSource": ("pyspark_log.spark_connector.source", "PylogDataSource"),
    "OffsetsLog": ("pyspark_log.storage.groups", "OffsetsLog"),
    "Producer": ("pyspark_log.clients", "Producer"),
    "Publish": ("pyspark_log.spark_connector.writing.publish_together", "Publish"),
    "PublishResult": ("pyspark_log.storage.publish", "PublishResult"),
    "Store": ("pyspark_log.storage.store", "Store"),
    "Topic": ("pyspark_log.storage.topic", "Topic"),
    "Transactions": ("pyspark_log.clients", "Transactions"),
} | {
    name: ("pyspark_log.types", name)
    for name in (
        "EARLIEST",
        "LATEST",
        "AppendResult",
        "IsolationLevel",
        "OffsetAndTimestamp",
        "TopicDescription",
        "TopicPartition",
    )
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    try:
        module, attribute = _PLACES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    import importlib  # noqa: PLC0415  (see above)

    try:
        value = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(f"{__name__}."):
            raise
        raise ImportError(
            f"{__path__[0]} is source code whose compiled modules are not built ({error}): run `make` or "
            "`pip install .` there; or, if pyspark-log is installed, start Python in another folder"
        ) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
